"""What a job would do on more cores than were here: computed from what its parts took.

Loaders need core seconds, of which a machine has as many as cores. The main process adds hashes to
the index, submits batches and commits parts, in two threads of one interpreter: all machines have
one. The images per second are those of the slower of both.
"""

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from experiments._common import Row
from wallclock.predict.costs import JobSetup, Machine, StageCosts, StepTime
from wallclock.predict.interpreter import in_one_process
from wallclock.predict.model import Pipeline

#: Processes that load at a time, and by how much an image then costs more of a core.
Contention: TypeAlias = Sequence[tuple[int, float]]

#: Of the machines, which nobody has measured.
CORES = (16, 64)
#: Of the measured row: what stays true of the predicted one.
_KEPT = (
    *("image_set", "corpus", "device", "device_kind", "batch_size", "n_images", "n_unique"),
    *("files", "deduplicate", "main_ms_per_image", "median_kb", "median_megapixels"),
)


def pipeline(
    load_s: float,
    main_s: float,
    cores: int,
    batch_size: int,
    *,
    workers: int = 0,
    one_process: bool = False,
    contention: Contention = (),
) -> Pipeline:
    """A job, or a loader alone, with a model that takes no time.

    Args:
        load_s: core seconds of an image in the loaders, with one of them alone.
        main_s: seconds of an image in the main process.
        workers: loaders; 0: one per core.
        one_process: whether they are threads of the main process, whose lock they share.
        contention: as of `wallclock.predict.Machine`.
    """
    costs = StageCosts(decode_s=load_s, serialize_s=main_s)
    if one_process:
        costs = in_one_process(costs)
    setup = JobSetup(workers or cores, batch_size, "threads")
    return Pipeline(costs, StepTime(), Machine(cores, contention=tuple(contention)), setup)


def predicted(series: Sequence[Row]) -> Iterator[Row]:
    """A row for each number of cores, from the longest job and the line of the loader alone."""
    loader = next((row for row in series if row["what"] == "images" and row["fit_r2"]), None)
    jobs = [row for row in series if row["what"] == "job" and row["main_ms_per_image"]]
    if loader is None or not jobs:
        return
    job = max(jobs, key=lambda row: _number(row, "n_images"))
    load_s = _number(loader, "fit_ms_per_image") / 1e3 * _number(loader, "cores")
    main_s, batch_size = _number(job, "main_ms_per_image") / 1e3, int(_number(job, "batch_size"))
    for cores in CORES:
        case = pipeline(load_s, main_s, cores, batch_size)
        yield {
            **{name: job[name] for name in _KEPT},
            "what": "predicted",
            "settings": f"{cores} cores like these",
            "cores": cores,
            "threads": cores,
            "img_per_s": case.rate(),
            "limited_by": case.bottleneck(),
            "origin": "predicted",
            "status": "ok",
        }


def _number(row: Row, column: str) -> float:
    return float(str(row[column]))
