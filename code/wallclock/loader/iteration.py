"""`Images`: the iterator that `open_images` returns, and the two plans of what comes in it."""

import asyncio
import os
import threading
import warnings
import weakref
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Any, Generic

from wallclock.errors import UserError
from wallclock.loader.batch import Batch, ImagesT
from wallclock.loader.items import ListedItems
from wallclock.loader.lease import Lender
from wallclock.loader.opener import LoaderOptions, open_loader
from wallclock.loader.order import Order, OrderedBatches
from wallclock.loader.ring import buffers_for
from wallclock.loader.stream import StreamedBatches, StreamOrder, StreamPlace
from wallclock.loader.threads import LendingLoader, worker_count


class Plan:
    """Which batches come, and how far an iteration is."""

    #: The epoch of the last batch, from 0.
    epoch = 0

    def length(self) -> int | None:
        """Batches of one iteration: of all its epochs; None: unknown."""
        return None

    def open(self) -> LendingLoader:
        """Start a loader behind the last batch that was taken."""
        raise NotImplementedError

    def stop(self) -> None:
        """Let what the plan itself has started end."""

    def close(self) -> None:
        """End it, and wait for it."""

    def advance(self, batch: Batch) -> None:
        """Count a batch that was taken, and give it its items."""
        raise NotImplementedError

    def finish(self) -> None:
        """The iteration is over: the next one begins with the next epoch."""

    def set_epoch(self, epoch: int) -> None:
        """Begin the next iteration with this epoch."""
        raise NotImplementedError

    def state(self) -> dict[str, Any]:
        """How far it is, as plain data."""
        raise NotImplementedError

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on where `state` was. Raises UserError: it is not of such a plan."""
        raise NotImplementedError


class ListedPlan(Plan):
    """Of items with random access."""

    def __init__(
        self, items: ListedItems, order: Order, epochs: int, options: LoaderOptions, processes: int
    ) -> None:
        self._items, self._order, self._options = items, order, options
        self._per_pass = epochs * order.batches_per_epoch
        self._processes = processes
        self._taken = 0

    def __repr__(self) -> str:
        return f"{self._order.n:,} images, {self._per_pass:,} batches of {self._order.batch_size}"

    @property
    def epoch(self) -> int:  # type: ignore[override]
        """See `Plan`."""
        return max(self._taken - 1, 0) // max(self._order.batches_per_epoch, 1)

    def length(self) -> int | None:
        """See `Plan`."""
        return self._per_pass

    def open(self) -> LendingLoader:
        """See `Plan`."""
        first = self._taken
        last = first + self._per_pass - first % max(self._per_pass, 1)
        batches = OrderedBatches(self._order, first, last)
        return open_loader(self._items, batches, self._options, self._processes).__enter__()

    def advance(self, batch: Batch) -> None:
        """See `Plan`."""
        self._taken += 1
        given = self._items.given
        batch.items = batch.extras.given or [given[at] for at in batch.positions]

    def set_epoch(self, epoch: int) -> None:
        """See `Plan`."""
        self._taken = epoch * self._order.batches_per_epoch

    def state(self) -> dict[str, Any]:
        """See `Plan`: the batches taken, and what determines which they were."""
        return {"batches": self._taken, "order": self._order.shared()}

    def load(self, state: Mapping[str, Any]) -> None:
        """See `Plan`."""
        _check_same_order(state, self._order.shared())
        self._taken = int(state["batches"])


class StreamedPlan(Plan):
    """Of an iterable.

    Args:
        open_epoch: the items of an epoch, from their start.
    """

    def __init__(
        self,
        open_epoch: Callable[[int], Iterable[Any]],
        order: StreamOrder,
        epochs: int,
        options: LoaderOptions,
    ) -> None:
        self._open_epoch, self._order, self._options = open_epoch, order, options
        self._epochs = epochs
        self._place, self._end = StreamPlace(0, 0), epochs
        self._batches: StreamedBatches | None = None

    def __repr__(self) -> str:
        return f"a stream, batches of {self._order.batch_size}"

    def open(self) -> LendingLoader:
        """See `Plan`."""
        size = self._order.batch_size
        ahead = buffers_for(worker_count(self._options.recipe), size) * size
        batches = StreamedBatches(self._open_epoch, self._order, self._place, self._end, ahead)
        loader = open_loader(batches, batches, self._options)
        batches.start()
        self._batches = batches
        try:
            return loader.__enter__()
        except BaseException:
            self.close()
            raise

    def stop(self) -> None:
        """See `Plan`."""
        if self._batches is not None:
            self._batches.stop()

    def close(self) -> None:
        """See `Plan`."""
        if self._batches is not None:
            self._batches.close()
            self._batches = None

    def advance(self, batch: Batch) -> None:
        """See `Plan`."""
        assert self._batches is not None
        self._place = self._batches.place
        self.epoch = self._place.epoch
        batch.items = batch.extras.given

    def finish(self) -> None:
        """See `Plan`."""
        self.set_epoch(self._end)

    def set_epoch(self, epoch: int) -> None:
        """See `Plan`."""
        self._place, self._end = StreamPlace(epoch, 0), epoch + self._epochs

    def state(self) -> dict[str, Any]:
        """See `Plan`: the epoch, its batches taken, and what determines which they were."""
        place = self._place
        return {
            "epoch": place.epoch,
            "batches": place.batches,
            "end": self._end,
            "order": self._order.shared(),
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """See `Plan`."""
        _check_same_order(state, self._order.shared())
        self._place = StreamPlace(int(state["epoch"]), int(state["batches"]))
        self._end = int(state["end"])


def _check_same_order(state: Mapping[str, Any], here: Mapping[str, Any]) -> None:
    if not isinstance(state, Mapping) or not isinstance(state.get("order"), Mapping):
        raise UserError("this is no state of open_images: give what state_dict() returned")
    there = state["order"]
    if set(there) != set(here):
        raise UserError("this state is of another kind of items: a list, or a stream")
    differing = [name for name in here if there[name] != here[name]]
    if differing:
        was = ", ".join(f"{name}={there[name]}" for name in differing)
        raise UserError(f"this state is of another iteration: there {was}")


class Images(Generic[ImagesT]):
    """What `open_images` returns: an iterator of batches, also an asynchronous one.

    Threads may share it: each batch goes to one of them. With `state_dict` and `load_state_dict`,
    an interrupted iteration resumes, also in the middle of an epoch, with the batches that would
    have followed.
    """

    def __init__(
        self,
        plan: Plan,
        make_lender: Callable[[], Lender],
        bind_to_thread: Callable[[Callable[..., Any]], Callable[..., Any]] | None = None,
    ) -> None:
        self._plan, self._make_lender = plan, make_lender
        self._bind_to_thread = bind_to_thread
        self._loader: LendingLoader | None = None
        self._lender: Lender | None = None
        self._exhausted = False
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<Images: {self._plan!r}>"

    def __len__(self) -> int:
        """Batches of one iteration: of all its epochs. Raises TypeError: of a stream."""
        n = self._plan.length()
        if n is None:
            raise TypeError("a stream has no length")
        return n

    @property
    def epoch(self) -> int:
        """The epoch of the last batch, from 0."""
        return self._plan.epoch

    def set_epoch(self, epoch: int) -> None:
        """Begin the next iteration with this epoch, from 0, as a DistributedSampler is told."""
        self.close()
        self._plan.set_epoch(epoch)
        self._exhausted = False

    def __enter__(self) -> "Images[ImagesT]":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> "Images[ImagesT]":
        """Go on: mid-epoch where the last iteration was left there, else with the next epochs."""
        self._exhausted = False
        return self

    def __next__(self) -> Batch[ImagesT]:
        """The next batch; starts the threads or processes if none run.

        Raises UserError: more batches are held than `Output.hold` allows.
        """
        with self._lock:
            if self._exhausted or self._plan.length() == 0:
                raise StopIteration
            try:
                return self._take(self._loader or self._open())
            except BaseException as error:
                self._exhausted = isinstance(error, StopIteration)
                self.close()
                if self._exhausted:
                    self._plan.finish()
                raise

    def _take(self, loader: LendingLoader) -> Batch[ImagesT]:
        assert self._lender is not None
        for number in self._lender.returned():
            loader.release(number)
        number, batch = loader.take()
        batch.images = self._lender.lend(batch.images, number)
        self._plan.advance(batch)
        return batch

    async def __aiter__(self) -> AsyncIterator[Batch[ImagesT]]:
        """The batches, each waited for in another thread."""
        nothing = object()
        batches = iter(self)
        take: Callable[..., Any] = next
        if self._bind_to_thread is not None:
            take = self._bind_to_thread(next)
        while (batch := await asyncio.to_thread(take, batches, nothing)) is not nothing:
            assert isinstance(batch, Batch)
            yield batch

    def close(self) -> None:
        """End threads or processes; the next iteration starts new ones where this one stopped."""
        if self._loader is not None:
            loader, self._loader = self._loader, None
            self._unclosed.detach()
            if self._process == os.getpid():
                if self._lender is not None:
                    self._lender.close()
                loader.close()
                self._plan.close()

    def state_dict(self) -> dict[str, Any]:
        """How far this iteration is: the batches taken, and what determines which they were."""
        return self._plan.state()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on behind the last batch of the iteration that `state_dict` describes.

        Raises:
            UserError: that one was over other images, or in another order.
        """
        self._plan.load(state)
        self.close()
        self._exhausted = False

    def _open(self) -> LendingLoader:
        self._lender = self._make_lender()
        self._loader = self._plan.open()
        self._process = os.getpid()
        self._unclosed = weakref.finalize(self, _abandoned, self._loader, self._plan, self._process)
        return self._loader


def _abandoned(loader: LendingLoader, plan: Plan, process: int) -> None:
    # Not joined: the garbage collector may run in one of the threads.
    if os.getpid() == process:
        loader.stop()
        plan.stop()
        text = "an iteration over open_images was neither finished nor closed: use `with`"
        warnings.warn(text, ResourceWarning, stacklevel=2)
