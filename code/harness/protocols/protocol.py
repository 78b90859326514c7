"""What every protocol takes and returns, how one is found, and the steps that they share."""

import multiprocessing
import resource
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from time import perf_counter_ns
from typing import Any, TypeVar

import numpy as np
import psutil

from harness.corpora import manifest as manifests
from harness.corpora import readers
from harness.corpora.manifest import Item, Manifest
from harness.processes import ProcessTree, set_threads
from harness.protocols import registry
from harness.spec import Cell
from wallclock.errors import Unavailable, UserError, describe

#: Called with the number of images (or calls) done so far.
Progress = Callable[[int], None]

T = TypeVar("T")

#: The share of pages in memory, at most of cold files and at least of warm ones.
_COLD_AT_MOST, _WARM_FROM = 0.05, 0.95


def no_progress(done: int) -> None:
    """A `Progress` that reports nothing."""


@dataclass
class Measurement:
    """Durations in ns, other values by name, failed images, files to keep with the record.

    `spans`: (lane, stage, batch, start in ns, duration in ns) of a stretch of the pass.
    """

    samples: Mapping[str, Sequence[int]] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)
    failures: Sequence[Mapping[str, str]] = ()
    keep: Sequence[Path] = ()
    spans: Sequence[tuple[str, str, int, int, int]] = ()


def find(cell: Cell) -> Callable[[Cell, Path, Progress], Measurement]:
    """The function that measures a cell. Raises UserError: there is no such protocol.

    Its module is imported now: a decoder's cell loads no torch.
    """
    module = import_module(registry.module_of(cell.protocol, cell.experiment))
    try:
        return getattr(module, cell.protocol)  # type: ignore[no-any-return]
    except AttributeError:
        raise UserError(f"{module.__name__} has no protocol {cell.protocol}") from None


def open_corpus(cell: Cell, subset: str = "") -> Manifest:
    """Load the manifest that a cell names and verify that it still lists the same images.

    `subset` of its valid images: `jpeg` for those that every decoder reads; `baseline` or
    `progressive` for such JPEGs of one process. Raises `UserError` where the corpus changed, the
    cell has none, or the subset is empty.
    """
    if cell.corpus is None:
        raise UserError(f"the cell {cell.label} of {cell.experiment} needs a corpus")
    manifest = manifests.load(Path(cell.corpus.manifest)).head(cell.corpus.n)
    if manifest.digest() != cell.corpus.digest:
        raise UserError("the corpus changed during the run; run the same command again")
    manifest = replace(manifest, cold=cell.params.get("page_cache") == "cold")
    if subset:
        process = "" if subset == "jpeg" else subset
        manifest = replace(manifest, items=tuple(plain_jpegs(manifest, process)))
    return manifest


def plain_jpegs(manifest: Manifest, process: str = "") -> list[Item]:
    """The valid images that every decoder reads, of one JPEG process if it is given."""
    items = [item for item in manifest.valid if item.plain_jpeg and process in ("", item.process)]
    if not items:
        name = f"{process} JPEG".strip()
        raise UserError(f"the corpus holds no {name} of one or three components")
    return items


def set_page_cache(cell: Cell, manifest: Manifest) -> dict[str, Any]:
    """Warm or evict the valid files as the cell asks; the state (none without files), and sizes.

    The state is read back: `page_cache_share` of the files' pages are in memory. Files that do not
    fit there are `partly warm`. Raises `Unavailable` where pages asked to be cold stay warm.
    """
    state = str(cell.params.get("page_cache", "warm"))
    files = readers.stored_files(manifest)
    if state == "cold":
        readers.evict(files)
    else:
        readers.warm(files)
    share = readers.cached_share(files)
    reason = not_cold(share) if state == "cold" else ""
    if reason:
        raise Unavailable(reason)
    if state == "warm" and share is not None and share < _WARM_FROM:
        state = "partly warm"
    values = {"page_cache": state if files else "none", "page_cache_share": share}
    return values | manifest.size_stats()


def not_cold(share: float | None) -> str:
    """Why evicted files do not count as cold, by the share in memory; empty where they do."""
    if share is None or share <= _COLD_AT_MOST:
        return ""
    cached = f"mincore finds {share:.0%} of them in memory (as it does of other users' files)"
    return f"cold pages cannot be had here: {cached}"


def set_conditions(cell: Cell, manifest: Manifest, *, uses_torch: bool) -> dict[str, Any]:
    """Set thread counts and page cache; return them and what is loaded, for the record."""
    threads = set_threads(cell.recipe, uses_torch=uses_torch)
    values = threads | set_page_cache(cell, manifest)
    values["n_unique"] = len(manifest.valid)
    return values


def all_failed(failures: Sequence[Mapping[str, str]]) -> UserError:
    """The error of a pass that no image survived."""
    return UserError(f"every image failed; the first, {describe(failures[0])}")


def peak_memory_mib() -> float:
    """The largest resident set of this process so far, or all processes' memory now, in MiB.

    Whichever is more. Call it right after the clock has stopped, while the workers are alive.
    """
    # Linux counts in KiB.
    return max(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, ProcessTree().pss_mib())


@contextmanager
def competing(values: dict[str, Any]) -> Iterator[None]:
    """Add `other_cores`: how many cores all other processes of the machine kept busy meanwhile."""
    began, busy = perf_counter_ns(), _busy_s()
    yield
    others = (_busy_s() - busy) / (perf_counter_ns() - began) * 1e9
    # The kernel counts in hundredths of a second; differences of large sums leave 1e-11.
    values["other_cores"] = max(0.0, round(others, 3))


def _busy_s() -> float:
    """CPU seconds so far of all but this process and those below it; stolen by the host, too."""
    everything = psutil.cpu_times()
    # user, nice, system; irq, softirq, steal.
    return sum(everything[:3]) + sum(everything[5:8]) - ProcessTree().cpu_s()


def noise_batch(n: int, input_px: int, *, uint8: bool) -> Any:
    """A batch as a loader delivers it: uint8 (n, h, w, 3), or normalized float32 (n, 3, h, w)."""
    rng = np.random.default_rng(0)
    if uint8:
        return rng.integers(0, 256, (n, input_px, input_px, 3), dtype=np.uint8)
    return rng.standard_normal((n, 3, input_px, input_px), dtype=np.float32)


def repeat_for(seconds: float, step: Callable[[], int]) -> tuple[int, int]:
    """Call `step`, which returns how many images it processed; all images, and nanoseconds."""
    n = 0
    start = perf_counter_ns()
    now = start
    while now - start < seconds * 1e9:
        n += step()
        now = perf_counter_ns()
    return n, now - start


def in_processes(tasks: Sequence[Callable[[], Callable[[], T]]]) -> list[T]:
    """Call each task in a forked process; when all have returned, run what they returned.

    Returns these results in order; raises RuntimeError if a process ended without one.
    """
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(len(tasks))

    def work(prepare: Callable[[], Callable[[], T]], sender: Any) -> None:
        try:
            run = prepare()
        except BaseException:
            # Or the others would wait for this one forever.
            barrier.abort()
            raise
        barrier.wait()
        sender.send(run())

    started = []
    results: list[T] = []
    for task in tasks:
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=work, args=(task, sender), daemon=True)
        process.start()
        sender.close()
        started.append((process, receiver))
    for process, receiver in started:
        with suppress(EOFError):
            results.append(receiver.recv())
        process.join()
    codes = [process.exitcode for process, _ in started if process.exitcode]
    if codes:
        raise RuntimeError(f"a process ended with status {codes}")
    return results
