"""Protocol `storage`: how fast the corpus's own layout is read, from the disk and from memory."""

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import cycle
from pathlib import Path
from time import perf_counter_ns

from harness.corpora import readers
from harness.protocols import protocol
from harness.protocols.protocol import Measurement, Progress
from harness.spec import Cell


def storage(cell: Cell, work: Path, progress: Progress) -> Measurement:
    """Read every image through the corpus's own reader; nothing is decoded.

    Cold: the files are evicted from the page cache before each of `params.rounds` passes, by each
    number of threads in `params.readers`. Warm: one thread, again and again for `params.seconds`.

    Samples: `cold-<readers>`, nanoseconds of each pass over all images; `warm`, of `n_warm` images.
    Values: `n_loaded`, `mean_bytes`; `from_disk_share`, bytes that the kernel fetched from a block
    device in the cold passes over those read: 0 on a network or a RAM disk, above 1 with readahead.
    """
    manifest = replace(protocol.open_corpus(cell), cold=False)
    items, files = manifest.valid, readers.stored_files(manifest)
    total = sum(item.bytes for item in items)
    fetched, read = 0, 0
    samples: dict[str, list[int]] = {}
    for count in map(int, cell.params["readers"]):
        passes = samples.setdefault(f"cold-{count}", [])
        for _ in range(int(cell.params["rounds"])):
            readers.evict(files)
            reader = readers.make(manifest)
            before = readers.disk_bytes()
            shares = [map(reader, items[first::count]) for first in range(count)]
            with ThreadPoolExecutor(count) as pool:
                began = perf_counter_ns()
                deque(pool.map(partial(deque, maxlen=0), shares), maxlen=0)
                passes.append(perf_counter_ns() - began)
            fetched += readers.disk_bytes() - before
            read += total
        progress(len(items))
    readers.warm(files)
    reader, endless = readers.make(manifest), cycle(items)

    def read_next() -> int:
        reader(next(endless))
        return 1

    n_warm, ns = protocol.repeat_for(cell.params["seconds"], read_next)
    samples["warm"] = [ns]
    values = {
        "n_loaded": len(items),
        "n_warm": n_warm,
        "mean_bytes": total / len(items),
        "from_disk_share": fetched / read,
    }
    return Measurement(samples, values)
