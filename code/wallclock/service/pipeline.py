"""The work: download, preprocess, process, call back. One event loop, and threads for the images.

Each stage is a fixed number of tasks that take from one buffer and put into the next. What waits in
all buffers is bounded by what the intake holds, and its bytes by `buffer_mb`; the one before
`process` also by its own length, because arrays are larger than the files they come from.
"""

import asyncio
import logging
import time
import traceback
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, is_dataclass
from typing import Any

import numpy as np
import orjson

from wallclock.errors import ImageError, reason_of
from wallclock.fetch.retries import JITTER, PermanentError, RequestError, pause_s
from wallclock.service.callbacks import CallbackSender
from wallclock.service.client import Downloader
from wallclock.service.intake import NO_ARRAY, Intake, Item
from wallclock.service.interface import ItemError, Module, takes_parameters
from wallclock.service.logs import event
from wallclock.service.metrics import BUFFERS, Metrics
from wallclock.service.settings import ServiceSettings

#: Images that one hop to a thread prepares: a hop costs as much as a small decode, so that less
#: than `_SMALL_S` of work is not divided; of large ones none waits for others above `_CHUNK_S`.
_CHUNK = 8
_SMALL_S, _CHUNK_S = 0.002, 0.005
#: Batches that wait, prepared, for the device.
_BATCHES_AHEAD = 2
#: Seconds between two tries of a callback, at most: about as long as it has failed already.
_LONGEST_PAUSE_S = 30.0


class ServicePipeline:
    """All stages of one service; `tasks` runs them."""

    def __init__(
        self,
        module: Module,
        intake: Intake,
        downloads: Downloader,
        callbacks: CallbackSender,
        settings: ServiceSettings,
        metrics: Metrics,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._module, self._intake = module, intake
        self._takes_parameters = takes_parameters(module)
        self._settings = settings
        self._downloads, self._callbacks = downloads, callbacks
        self._metrics, self._clock = metrics, clock
        self._n_workers = settings.n_workers  # read once: it asks the operating system
        self._workers = ThreadPoolExecutor(self._n_workers, "preprocess")
        self._device = ThreadPoolExecutor(1, "process")
        ahead = {"batch": _BATCHES_AHEAD * settings.batch}
        self._buffers = {name: asyncio.Queue[Item](ahead.get(name, 0)) for name in BUFFERS}
        self._n_bytes = 0  # in all buffers
        self._image_s = _CHUNK_S  # of one in `preprocess`, a running mean
        # Failed callbacks that wait for their next try; none once the service stops.
        self._postponed: dict[Item, ItemError] = {}
        self._stopping = False
        depths = {name: buffer.qsize for name, buffer in self._buffers.items()}
        metrics.read("buffer_messages", "Messages that wait in a buffer.", depths)
        bytes_held = {"": lambda: float(self._n_bytes)}
        metrics.read("buffer_bytes", "Bytes of images and arrays in the buffers.", bytes_held)

    def tasks(self) -> Iterator[Coroutine[Any, Any, None]]:
        """What runs for as long as the service does."""
        yield from (self._download() for _ in range(self._settings.downloads))
        yield from (self._preprocess() for _ in range(self._n_workers))
        yield self._process()
        yield from (self._call_back() for _ in range(self._settings.callbacks))

    def accept(self, item: Item) -> None:
        """Start the work on an item."""
        self._put("downloads", item)

    def pressed(self) -> bool:
        """Whether the buffers hold as many bytes as they may."""
        return self._n_bytes >= self._settings.buffer_mb * 1_000_000

    def stop(self) -> None:
        """Try no failed callback again: what holds it up may last longer than the stop may."""
        self._stopping = True
        for item, error in self._postponed.items():
            self._fail_callback(item, error)
        self._postponed.clear()

    def close(self) -> None:
        """Start nothing more; a thread's call that is on its way is not waited for."""
        for pool in (self._workers, self._device):
            pool.shutdown(wait=False, cancel_futures=True)

    # --- stages ---------------------------------------------------------------------------------

    async def _download(self) -> None:
        while True:
            for item in await self._take("downloads"):
                while self.pressed():
                    await asyncio.sleep(0.05)  # a moment, for what fills half a gigabyte
                began_s = self._clock()
                try:
                    image = await self._downloads.get(item.request.url)
                except ItemError as error:
                    self._fail(item, error)
                else:
                    self._metrics.stage["download"].observe(self._clock() - began_s)
                    self._store(item, image=image)
                    self._put("images", item)

    async def _preprocess(self) -> None:
        loop, images = asyncio.get_running_loop(), self._buffers["images"]
        while True:
            share = -(-images.qsize() // self._n_workers)  # of what waits, a worker's
            small, most = int(_SMALL_S / self._image_s), int(_CHUNK_S / self._image_s)
            chunk = await self._take("images", max(1, min(_CHUNK, max(share, small), most)))
            outcomes = await loop.run_in_executor(self._workers, self._prepare, chunk)
            for item, (outcome, seconds) in zip(chunk, outcomes, strict=True):
                if isinstance(outcome, ItemError):
                    self._fail(item, outcome)
                    continue
                self._metrics.stage["preprocess"].observe(seconds)
                self._image_s += (max(seconds, 1e-6) - self._image_s) / _CHUNK
                self._store(item, array=outcome)
                item.waits_since_s = self._clock()
                await self._buffers["batch"].put(item)

    def _prepare(self, items: Sequence[Item]) -> list[tuple[np.ndarray | ItemError, float]]:
        """In a worker's thread."""
        prepared: list[tuple[np.ndarray | ItemError, float]] = []
        for item in items:
            began_s = self._clock()
            outcome: np.ndarray | ItemError
            try:
                outcome = np.asarray(self._module.preprocess(item.image, item.request))
            except Exception as error:  # noqa: BLE001 - whatever it is, this item's alone
                outcome = _item_error("preprocess", error)
            prepared.append((outcome, self._clock() - began_s))
        return prepared

    async def _process(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            batch = await self._collect()
            if not batch:
                continue
            began_s = self._clock()
            outcomes = await loop.run_in_executor(self._device, self._run, batch)
            self._metrics.stage["process"].observe(self._clock() - began_s)
            self._metrics.batch.observe(len(batch))
            for item, outcome in zip(batch, outcomes, strict=True):
                if isinstance(outcome, ItemError):
                    self._fail(item, outcome)
                else:
                    self._store(item)
                    item.result = outcome
                    self._put("results", item)

    async def _collect(self) -> list[Item]:
        """What waits, up to `batch` items; fewer wait for others, the first for `max_wait_s`."""
        most = self._settings.batch
        if not (items := await self._take("batch", most)):
            return []
        waited_s = self._clock() - items[0].waits_since_s
        with suppress(TimeoutError):
            async with asyncio.timeout(self._settings.max_wait_s - waited_s):
                while len(items) < most:
                    items += await self._take("batch", most - len(items))
        return [item for item in items if self._wanted(item)]

    def _run(self, items: Sequence[Item]) -> list[bytes | ItemError]:
        process: Callable[..., Sequence[Any]] = self._module.process
        parameters = {"parameters": [item.request.parameters for item in items]}
        try:
            batch = np.stack([item.array for item in items])
            results = process(batch, **(parameters if self._takes_parameters else {}))
            if isinstance(results, Mapping | Set | str) or len(results) != len(items):
                raise ValueError(
                    f"{type(results).__name__} of {len(results)} for {len(items)} rows"
                )
        except Exception as error:  # noqa: BLE001 - of one item, which is found by its row alone
            if len(items) == 1:
                return [_item_error("process", error)]
            event(logging.WARNING, "batch failed", rows=len(items), reason=reason_of(error))
            return [outcome for item in items for outcome in self._run([item])]
        pairs = zip(items, results, strict=True)
        return [_encoded(item, result) for item, result in pairs]

    async def _call_back(self) -> None:
        while True:
            for item in await self._take("results"):
                began_s = self._clock()
                item.called_back_s = item.called_back_s or began_s
                key = item.lease.message.id
                try:
                    await self._callbacks.send(item.request.callback_url, key, item.result)
                except RequestError as error:
                    self._call_back_later(item, error)
                    continue
                self._metrics.stage["callback"].observe(self._clock() - began_s)
                if item.failure:
                    self._intake.failed(item.lease, item.failure, item.request.id)
                else:
                    self._intake.delivered(item)

    def _call_back_later(self, item: Item, error: RequestError) -> None:
        """Keep the result: to compute it again is dearer than to hold its message."""
        failed_for_s = self._clock() - item.called_back_s
        is_final = isinstance(error, PermanentError)
        failure = ItemError("callback", str(error), is_final)
        if is_final or self._stopping or failed_for_s >= self._settings.callback_patience_s:
            self._fail_callback(item, failure)
            return
        longest_s = min(failed_for_s, _LONGEST_PAUSE_S)
        seconds = max(JITTER.uniform(0.5, 1) * longest_s, pause_s(0, error))
        asyncio.get_running_loop().call_later(seconds, self._call_back_again, item)
        self._postponed[item] = failure

    def _call_back_again(self, item: Item) -> None:
        if self._postponed.pop(item, None):  # else the service has stopped
            self._put("results", item)

    def _fail_callback(self, item: Item, error: ItemError) -> None:
        if item.failure and self._intake.is_final(item.lease, error):
            event(logging.WARNING, "failure not called back", item.request.id, reason=error.reason)
            error = item.failure  # what the dead letter is about
        self._intake.failed(item.lease, error, item.request.id)

    # --- buffers --------------------------------------------------------------------------------

    def _put(self, buffer: str, item: Item) -> None:
        item.waits_since_s = self._clock()
        self._buffers[buffer].put_nowait(item)

    async def _take(self, buffer: str, most: int = 1) -> list[Item]:
        """One item or more, at most so many, without those whose lease is lost: maybe none."""
        queue = self._buffers[buffer]
        items = [await queue.get()]
        while len(items) < most and not queue.empty():
            items.append(queue.get_nowait())
        now = self._clock()
        for item in items:
            self._metrics.wait[buffer].observe(now - item.waits_since_s)
        return [item for item in items if self._wanted(item)]

    def _wanted(self, item: Item) -> bool:
        """Whether its lease holds; if not, redelivery brings the message again."""
        if self._intake.leases.usable(item.lease):
            return True
        self._store(item)
        return False

    def _store(self, item: Item, image: bytes = b"", array: np.ndarray = NO_ARRAY) -> None:
        """Replace what is kept of an item's image, and count the bytes."""
        self._n_bytes += len(image) + array.nbytes - len(item.image) - item.array.nbytes
        item.image, item.array = image, array

    def _fail(self, item: Item, error: ItemError) -> None:
        self._store(item)
        if self._settings.notify_failures and self._intake.is_final(item.lease, error):
            # A copy: the frames of the error's traceback may have the image.
            item.failure = ItemError(error.stage, error.reason, error.permanent)
            why = {"stage": error.stage, "reason": error.reason}
            item.result = orjson.dumps({"id": item.request.id, "error": why})
            self._put("results", item)
        else:
            self._intake.failed(item.lease, error, item.request.id)


def _encoded(item: Item, result: Any) -> bytes | ItemError:
    """The body of a callback, or why there is none."""
    if isinstance(result, Exception):
        return _item_error("process", result)
    try:
        body = {"id": item.request.id, "result": result}
        encoded = orjson.dumps(body, option=orjson.OPT_SERIALIZE_NUMPY)
    except TypeError as error:
        return ItemError("process", f"the result is not JSON: {error}", permanent=True)
    if b"null" in encoded and not _is_finite(result):  # orjson's word for what is not, too
        return ItemError("process", "the result has NaN or infinity", permanent=True)
    return encoded


def _is_finite(result: Any) -> bool:
    """Whether all numbers in it are."""
    if isinstance(result, Mapping):
        return all(map(_is_finite, result.values()))
    if isinstance(result, (list, tuple)):
        return all(map(_is_finite, result))
    if is_dataclass(result) and not isinstance(result, type):
        return _is_finite(asdict(result))
    numbers = np.asarray(result)
    return numbers.dtype.kind != "f" or bool(np.isfinite(numbers).all())


def _item_error(stage: str, error: Exception) -> ItemError:
    """What a module raised, as the failure of one message."""
    if isinstance(error, ItemError):
        # The frames of its traceback have the image, and the list that this goes into.
        return error.with_traceback(None)
    if isinstance(error, ImageError):
        return ItemError(error.stage, error.reason, permanent=True)
    event(logging.DEBUG, "module raised", traceback="".join(traceback.format_exception(error)))
    return ItemError(stage, reason_of(error))
