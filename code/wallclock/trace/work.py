"""A traced program as `predict.advice` takes it: seconds of an image by part, and who does what.

Seconds that a trace has are wall seconds of threads. Where more threads ran than cores, they are
longer than the core's; `cpu_s` of the processes says by how much.
"""

from math import inf

from wallclock import native
from wallclock.predict.advice import Job
from wallclock.predict.pictures import Decoded, Library, Resized
from wallclock.trace.record import LOADING, MODEL, ImageKind, Trace, by_function
from wallclock.trace.shares import OTHER, WAITING, Shares
from wallclock.trace.sizes import scale_of, target_of

#: Stages of the loading threads whose wall seconds are multiplied by their share of the cores.
_OF_LOADERS = ("decode", "resize", "normalize", "transform", "assemble")


def job_of(shares: Shares) -> Job | None:
    """From a trace; None without images, or where they took no time."""
    trace, n = shares.trace, shares.n_images
    if not n or shares.steady_s <= 0:
        return None
    loads_beside = shares.n_workers > 0
    table = shares.workers if loads_beside else shares.main
    core_share = _core_share(shares) if loads_beside else 1.0
    seconds = {stage: core_share * table.seconds(stage) for stage in _OF_LOADERS}
    read = table.largest("read")
    waits_s = read.spent.seconds * read.waits if read else 0.0
    seconds |= {"wait": waits_s, "read": table.seconds("read") - waits_s}
    if loads_beside:
        seconds["other"] = core_share * table.seconds(OTHER)
        seconds["send"] = core_share * table.seconds("send")
    seconds["h2d"] = shares.main.seconds("h2d")
    model_s, main_s = _split_main(shares, loads_beside=loads_beside)
    on_loaders_cores = not trace.device and model_s > 0
    if on_loaders_cores and loads_beside:
        model_s *= uncontended_share(shares)
    seconds |= {"model": model_s, "main": main_s}
    has_dataloader = any("num_workers" in use.settings for use in trace.uses)
    in_processes = _in_processes(trace) if loads_beside else has_dataloader
    beside_s = main_s + seconds["h2d"]
    if not (loads_beside and in_processes):
        beside_s += sum(seconds.get(part, 0.0) for part in ("read", "other", *_OF_LOADERS))
    of_main = {"h2d", "model", "main"} if loads_beside else set(seconds)
    of_rank = n * shares.n_ranks  # which take images at the same time
    # Where it loads the images it also makes arrays of them and frees them.
    saved_s = 0.0 if loads_beside else min(main_s, shares.main.seconds(OTHER))
    job = Job(
        {part: spent / (of_rank if part in of_main else n) for part, spent in seconds.items()},
        workers=shares.n_workers,
        engine="dataloader" if in_processes else "threads",
        batch_size=_batch_size(shares),
        cores=max(1, trace.cores),
        model_cores=_model_cores(shares, model_s, beside_s) if on_loaders_cores else 0,
        has_gpu=bool(trace.device),
        source=_source(shares),
        saved_by_loader_s=saved_s / of_rank,
        decoded=[_decoded(kind) for kind in trace.kinds("decode") if min(kind.source)],
        resized=[_resized(kind) for kind in trace.kinds("resize") if min(kind.source)],
        target=target_of(trace),
        loader="native" if native.find() else "turbo",
    )
    return job if job.img_per_s() < inf else None


def _source(shares: Shares) -> str:
    """Where the images lie: `files`, `zip` or `urls`."""
    rows = [row for table in (shares.main, shares.workers) if (row := table.largest("read"))]
    row = max(rows, key=lambda row: row.spent.seconds, default=None)
    if row and "zipfile.ZipExtFile.read" in dict(row.functions):
        return "zip"
    return "urls" if row and row.fetches else "files"


def _split_main(shares: Shares, *, loads_beside: bool) -> tuple[float, float]:
    """Seconds of the main thread for the model, and for all but it, waits, copies and loading.

    The model's are the device's where that is busy: a call returns before, or long after.
    """
    main = shares.main
    model_s, busy_s = main.seconds(*MODEL), shares.trace.device_busy_s
    if busy_s:
        model_s = min(busy_s, main.wall_s - main.seconds("wait"))
    apart = main.seconds("wait", "h2d", *(() if loads_beside else LOADING))
    return model_s, max(0.0, main.wall_s - apart - model_s)


def uncontended_share(shares: Shares) -> float:
    """Of a model's time on the loaders' cores: what it would take with the cores to itself.

    As in its fastest call, which the loaders disturbed least: the threads of a pass wait for the
    last of them, which waits for a core.
    """
    kept = [
        (spent.least_s * spent.images, spent.seconds)
        for function, spent in by_function(shares.trace.threads(of_workers=False)).items()
        if function.stage in MODEL and spent.least_s
    ]
    least_s, all_s = (sum(values) for values in zip(*kept, strict=True)) if kept else (1.0, 1.0)
    return min(1.0, least_s / all_s)


def _in_processes(trace: Trace) -> bool:
    return any(process.role == "worker" for process in trace.processes)


def _core_share(shares: Shares) -> float:
    """Core seconds over wall seconds of what loads, where its threads take turns on the cores.

    1 where there are cores for all of them: what else the machine runs then takes their time, and
    does so with a change too.
    """
    table = shares.workers
    busy = table.wall_s - table.seconds(*WAITING)
    if not _in_processes(shares.trace):
        busy += shares.main.wall_s - shares.main.seconds("wait", "read")
    return min(1.0, shares.trace.cores * shares.steady_s / busy) if busy > 0 else 1.0


def _model_cores(shares: Shares, model_s: float, beside_s: float) -> int:
    """Of a model on the CPU: core seconds that nothing else of the main process took, over wall.

    `beside_s`: seconds that the main process spent beside its model.
    """
    used_s = sum(each.cpu_s for each in shares.trace.processes if each.role == "main")
    if not model_s:
        return 1
    # What start-up used is not known: as much as one core could.
    ranks = shares.n_ranks
    cores = ranks * (used_s - ranks * shares.startup_s - beside_s) / model_s
    return round(max(1, min(shares.trace.cores, cores)))


def _batch_size(shares: Shares) -> int:
    sizes = [use.settings.get("batch_size", "") for use in shares.trace.uses]
    numbers = [int(size) for size in sizes if size.isdigit() and int(size) > 0]
    if numbers:
        return max(numbers)
    rows = [table.largest("assemble", "forward") for table in (shares.workers, shares.main)]
    per_call = [row.spent.images / row.spent.calls for row in rows if row and row.spent.calls]
    return max(1, round(max(per_call, default=1.0)))


def _decoded(kind: ImageKind) -> Decoded:
    density = kind.n_bytes / kind.pixels if kind.n_bytes else None
    return Decoded(kind.format, kind.source, scale_of(kind), density, _library(kind), kind.count)


def _resized(kind: ImageKind) -> Resized:
    return Resized(kind.source, kind.made, 1, _library(kind), kind.count)


def _library(kind: ImageKind) -> Library:
    return "pillow" if kind.function.name.startswith("PIL") else "turbo"
