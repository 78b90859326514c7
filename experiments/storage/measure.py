"""Protocol `forms`: how fast images are read that are stored in several ways, and where.

From a disk, memory and a store. A form is `files`, or one of `harness.corpora.pack`: `tar`, decoded
`pixels` and `pixels_256`.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from time import perf_counter_ns, process_time_ns
from typing import Any, TypeAlias
from urllib.parse import quote

import numpy as np
import urllib3

from harness.corpora import pack, readers
from harness.corpora.manifest import Item, Manifest
from harness.engines.pipeline import loading_of
from harness.processes import gc_disabled, set_threads
from harness.protocols import protocol
from harness.protocols.protocol import Measurement, Progress
from harness.spec import Cell
from harness.testbed import serving
from wallclock.errors import ImageError, Unavailable
from wallclock.fetch.sources import Reader
from wallclock.loader.prepare import in_place_stages

FINISHES = ("bytes", "tensor")
#: Passes over evicted files at most: of few small ones each takes milliseconds, evicting longer.
_COLD_PASSES = 3
#: Seconds without an answer of the store until a request counts as failed.
_TIMEOUT_S = 30

#: What one thread does with the bytes of an image.
_Finish: TypeAlias = Callable[[Item, bytes], object]


def forms(cell: Cell, work: Path, progress: Progress) -> Measurement:
    """Read `params.form` of the images, one by one (1) and by `params.in_flight` threads.

    From `params.where`: `cold` (evicted before each pass, mincore asked), `warm`, or, of files and
    tars, `http-<ms>`, a store on loopback that answers so late. Each for `params.seconds` or one
    pass, whichever is more. `bytes` stops there; `tensor` decodes and resizes to a uint8 row of a
    batch, as the threads engine does. Opening is not timed. CPU time is this process's, the store
    has its own.

    Samples: `<where>/<threads>/<finish>`, ns of all passes. Values by the same name: `n` images,
    `cpu_ms` of one, `cached_share` before the last pass, `from_disk_share` of the bytes (as in the
    protocol `storage`). `unavailable`: why there is no time, by the same name; `kb_on_disk` of an
    image, in allocated blocks; `mean_kb`, its own bytes.
    """
    manifest = replace(protocol.open_corpus(cell), cold=False)
    form = str(cell.params["form"])
    set_threads(cell.recipe, uses_torch=False)
    if form != "files":
        manifest = _packed(manifest, form, Path(cell.images.manifest).parent, progress)
    items, paths = manifest.valid, readers.stored_files(manifest)
    sizes = manifest.size_stats() | {"n_images": len(items)}
    sizes["mean_kb"] = sum(item.bytes for item in items) / len(items) / 1e3
    sizes["kb_on_disk"] = sum(path.stat().st_blocks for path in paths) * 0.512 / len(items)
    samples: dict[str, list[int]] = {}
    passes: dict[str, Any] = {}
    unavailable: dict[str, str] = {}
    with serving.process("images", "--folder", str(manifest.root)) as (url, _), gc_disabled():
        for where in map(str, cell.params["where"]):
            if where == "warm":
                readers.warm(paths)
            for threads in (1, int(cell.params["in_flight"])):
                for finish in FINISHES:
                    name = f"{where}/{threads}/{finish}"
                    finishes = [_finish(cell, manifest, finish) for _ in range(threads)]
                    reader = readers.make(manifest)
                    if where.startswith("http-"):
                        late_s = float(where.removeprefix("http-")) / 1e3
                        reader = LateReader(url, late_s, threads)
                    try:
                        ns, passes[name] = _passes(cell, manifest, where, reader, finishes)
                    except Unavailable as error:
                        unavailable[name] = str(error)
                        continue
                    samples[name] = [ns]
                    progress(passes[name]["n"])
    return Measurement(samples, sizes | {"passes": passes, "unavailable": unavailable})


def _packed(files: Manifest, form: str, folder: Path, progress: Progress) -> Manifest:
    """The same images in this form, written once; kept beside the corpus."""
    path = folder / "forms" / f"{files.image_set}-{files.digest()[:12]}.{form}.csv"
    path.parent.mkdir(exist_ok=True)
    return pack.ensure(files, form, path, lambda done, total, step: progress(done))


def _passes(
    cell: Cell, manifest: Manifest, where: str, reader: Reader, finishes: Sequence[_Finish]
) -> tuple[int, dict[str, Any]]:
    """Passes, a thread for each finish, until the time is over: their ns, and their values.

    Raises:
        Unavailable: evicted pages are in memory.
    """
    budget = int(float(cell.params["seconds"]) * 1e9)
    cold, all_items = where == "cold", manifest.valid
    paths = readers.stored_files(manifest)
    # A library's first calls load and allocate.
    finishes[0](all_items[0], reader(all_items[0]))
    share = None
    sums = Counter[str]()
    for _ in range(_COLD_PASSES if cold else 1):
        if cold:
            readers.evict(paths)
            share = readers.cached_share(paths)
            reason = protocol.not_cold(share)
            if reason:
                raise Unavailable(reason)
        fetched_before = readers.disk_bytes()
        cpu_before = process_time_ns()
        items = all_items if cold else cycle(all_items)
        sums.update(_pass(reader, items, finishes, 0 if cold else budget))
        sums["cpu"] += process_time_ns() - cpu_before
        sums["fetched"] += readers.disk_bytes() - fetched_before
        if sums["ns"] >= budget:
            break
    reader.close()
    is_local = not where.startswith("http")
    return sums["ns"], {
        "n": sums["n"],
        "cpu_ms": sums["cpu"] / sums["n"] / 1e6,
        "cached_share": share,
        "from_disk_share": sums["fetched"] / sums["bytes"] if is_local else None,
    }


def _pass(
    reader: Reader, items: Iterable[Item], finishes: Sequence[_Finish], budget: int
) -> Counter[str]:
    """`n` images, `bytes` and `ns` of all, or of as many as begin within a budget."""
    # One iterator for all threads: a list's and a cycle's are advanced under the GIL.
    shared, began = iter(items), perf_counter_ns()

    def work(finish: _Finish) -> Counter[str]:
        n, n_bytes = 0, 0
        for item in shared:
            finish(item, reader(item))
            n += 1
            n_bytes += item.bytes
            if budget and perf_counter_ns() - began > budget:
                break
        return Counter(n=n, bytes=n_bytes)

    with ThreadPoolExecutor(len(finishes)) as pool:
        counts = sum(pool.map(work, finishes), Counter[str]())
    return counts + Counter(ns=perf_counter_ns() - began)


class LateReader(Reader):
    """One GET an image from a store that answers `latency_s` late, over a connection per thread.

    An image is a file, or a range of a file that holds many (`00003.tar@1536`).
    """

    layout = "remote"

    def __init__(self, url: str, latency_s: float, threads: int) -> None:
        self._store = urllib3.connection_from_url(
            url, maxsize=threads, timeout=_TIMEOUT_S, retries=False
        )
        self._query = f"?latency_s={latency_s:g}"

    def close(self) -> None:
        """Close the connections."""
        self._store.close()

    def __call__(self, item: Item) -> bytes:
        """The image's bytes. Raises `ImageError`: of the stage `read`."""
        name, _, offset = item.path.partition("@")
        first = int(offset or 0)
        headers = {"Range": f"bytes={first}-{first + item.bytes - 1}"}
        try:
            response = self._store.request("GET", f"/{quote(name)}{self._query}", headers=headers)
        except urllib3.exceptions.HTTPError as error:
            raise ImageError("read", str(error)) from error
        if response.status >= 300:
            raise ImageError("read", f"HTTP {response.status}")
        return readers.check_complete(response.data, item)


def _finish(cell: Cell, manifest: Manifest, name: str) -> _Finish:
    """What follows the bytes of an image, for one thread."""
    if name == "bytes":
        return lambda item, data: None
    stages = in_place_stages(loading_of(cell.recipe, cell.model), readers.make(manifest))
    row = np.empty((cell.model.input_px, cell.model.input_px, 3), np.uint8)
    destination = stages.as_destination(row)

    def prepare(item: Item, data: bytes) -> None:
        if item.format == "pixels":
            pixels = np.frombuffer(data, np.uint8).reshape(item.height, item.width, 3)
            stages.resize_into(item, pixels, destination)
        else:
            stages.fill(item, data, destination)

    return prepare
