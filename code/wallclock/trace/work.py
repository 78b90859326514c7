"""A traced program as the pipeline model takes it: core seconds of an image, by part.

Seconds that a trace has are wall seconds of threads. Where more threads ran than cores, they are
longer than the core's; `cpu_s` of the processes says by how much.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf

from wallclock.predict import JobSetup, Machine, Pipeline, StageCosts, StepTime
from wallclock.predict.costs import BatchTransfer
from wallclock.trace.record import ImageKind, Process, Trace, by_function
from wallclock.trace.shares import LOADING, MODEL, OTHER, WAITING, Shares
from wallclock.trace.sizes import Size, Target, scale_of, target_of

#: Reads slower than this wait for the storage; faster ones copy from memory. Bytes per second.
_STORAGE_BYTES_PER_S = 3e8
#: The same in seconds of an image, where its bytes are unknown.
_STORAGE_S = 2e-3
#: Images of a loader's batch where the program has no batches.
_USUAL_BATCH = 32


@dataclass(frozen=True)
class Picture:
    """Images of one kind, as a decoder takes them: `scale` is what it shrinks them by."""

    format: str
    size: Size
    scale: int
    bytes_per_pixel: float | None
    with_pillow: bool
    count: int


@dataclass(frozen=True)
class Resized:
    """Images of one kind, as a resize takes them: `size` as decoded by the program now."""

    size: Size
    made: Size
    scale: int
    with_pillow: bool
    count: int


@dataclass(frozen=True)
class Work:
    """Seconds of an image in each part, and who does it.

    `read_s`: the core's; `wait_s`: for the storage. `transform_s`: of named transforms; `other_s`:
    of all other Python where images are loaded. `model_s`: with the cores to itself. `main_s`: what
    the main thread does beside loading, copying and the model; `spared_s`: of that, at most,
    what it would not do if others loaded the images, or loaded them faster; `call_s`: of that,
    calling the model for longer than its device then works. `workers`: 0 where the main thread
    loads. `on_cpu`: the model runs on the loaders' cores, on `forward_cores` of them; `on_gpu`:
    there is an accelerator.
    """

    read_s: float
    wait_s: float
    decode_s: float
    resize_s: float
    normalize_s: float
    transform_s: float
    other_s: float
    assemble_s: float
    send_s: float
    h2d_s: float
    model_s: float
    main_s: float
    spared_s: float
    call_s: float
    workers: int
    engine: str
    batch_size: int
    cores: int
    on_cpu: bool
    on_gpu: bool
    has_torch: bool
    forward_cores: int
    pictures: tuple[Picture, ...] = ()
    resized: tuple[Resized, ...] = ()
    target: Target | None = None

    @property
    def loader_batch(self) -> int:
        """Images of a loader's batch: the program's own number, which its model is used to.

        A program that loads single images has none.
        """
        return self.batch_size if self.batch_size > 1 else _USUAL_BATCH

    @property
    def load_s(self) -> float:
        """Core seconds of loading an image."""
        parts = (self.read_s, self.decode_s, self.resize_s, self.normalize_s)
        return sum(parts) + self.transform_s + self.other_s + self.assemble_s

    def img_per_s(self) -> float:
        """The pipeline model's rate; infinite where nothing costs anything.

        The main thread waits for a device as long as it works: streams that overlap copies and
        passes are not assumed.
        """
        if self.load_s + self.h2d_s + self.model_s + self.main_s <= 0:
            # The model knows no program that does nothing but wait for its storage.
            return max(1, self.workers) / self.wait_s if self.wait_s else inf
        costs = StageCosts(
            read_s=self.read_s,
            wait_s=self.wait_s,
            decode_s=self.decode_s,
            resize_s=self.resize_s,
            normalize_s=self.normalize_s,
            assemble_s=self.assemble_s + self.transform_s + self.other_s,
            h2d_s=self.h2d_s,
            serialize_s=self.main_s,
        )
        machine = Machine(
            self.cores, shares_cores=self.on_cpu, forward_cores=max(1, self.forward_cores)
        )
        setup = JobSetup(self.workers, max(1, self.batch_size), self.engine)
        transfer = BatchTransfer(worker=StepTime(per_image_s=self.send_s))
        return Pipeline(costs, StepTime(per_image_s=self.model_s), machine, setup, transfer).rate()


def work_of(shares: Shares) -> Work | None:
    """From a trace; None without images or without time."""
    trace, n = shares.trace, shares.n_images
    if not n or shares.steady_s <= 0:
        return None
    loads_beside = shares.n_workers > 0
    table = shares.workers if loads_beside else shares.main
    loaders = [
        p for p in trace.processes if p.role == ("worker" if _in_processes(trace) else "main")
    ]
    stretch = _core_share(shares, loaders) if loads_beside else 1.0
    read_s, wait_s = _split_read(shares, loaders, stretch, loads_beside=loads_beside)
    other = table.seconds(OTHER) if loads_beside else 0.0
    model_s, main_s = _split_main(shares, loads_beside=loads_beside)
    on_cpu = not trace.device and model_s > 0
    calm = _calm_share(shares) if on_cpu and loads_beside else 1.0
    work = Work(
        read_s=read_s / n,
        wait_s=wait_s / n,
        decode_s=stretch * table.seconds("decode") / n,
        resize_s=stretch * table.seconds("resize") / n,
        normalize_s=stretch * table.seconds("normalize") / n,
        transform_s=stretch * table.seconds("transform") / n,
        other_s=stretch * other / n,
        assemble_s=stretch * table.seconds("assemble") / n,
        send_s=stretch * table.seconds("send") / n if loads_beside else 0.0,
        h2d_s=shares.main.seconds("h2d") / n,
        model_s=calm * model_s / n,
        main_s=main_s / n,
        spared_s=min(main_s, _spared_s(shares, main_s, loads_beside=loads_beside)) / n,
        call_s=min(main_s, max(0.0, shares.main.seconds(*MODEL) - model_s)) / n,
        workers=shares.n_workers,
        engine=_engine(trace, loads_beside=loads_beside),
        batch_size=_batch_size(shares),
        cores=max(1, trace.cores),
        on_cpu=on_cpu,
        on_gpu=bool(trace.device),
        has_torch="torch" in trace.versions,
        forward_cores=1,
        pictures=_pictures(trace),
        resized=_resized(trace),
        target=target_of(trace),
    )
    return replace(work, forward_cores=_forward_cores(shares, work))


def _split_main(shares: Shares, *, loads_beside: bool) -> tuple[float, float]:
    """Seconds of the main thread for the model, and for all but it, waits, copies and loading.

    The model's are the device's where that is busy: a call returns before, or long after.
    """
    main = shares.main
    model_s, busy_s = main.seconds(*MODEL), shares.trace.device_busy_s
    if busy_s is not None:
        model_s = min(busy_s, main.wall_s - main.seconds("wait"))
    apart = main.seconds("wait", "h2d", *(() if loads_beside else LOADING))
    return model_s, max(0.0, main.wall_s - apart - model_s)


def _calm_share(shares: Shares) -> float:
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


def _spared_s(shares: Shares, main_s: float, *, loads_beside: bool) -> float:
    """Seconds of the main thread beside its model that another loader would spare it, at most.

    Its waits for a core that workers have. Where it loads the images: half of its other Python, in
    which it makes arrays of them and frees them.
    """
    main = shares.main
    if not loads_beside:
        return main.seconds(OTHER) / 2
    busy = main.wall_s - main.seconds(*WAITING)
    delay = sum(p.run_delay_s for p in shares.trace.processes if p.role == "main")
    return main_s * min(1.0, delay / busy) if busy > 0 else 0.0


def _in_processes(trace: Trace) -> bool:
    return any(process.role == "worker" for process in trace.processes)


def _engine(trace: Trace, *, loads_beside: bool) -> str:
    if not loads_beside:
        return "serial"
    return "dataloader" if _in_processes(trace) else "threads"


def _core_share(shares: Shares, processes: Sequence[Process]) -> float:
    """Core seconds over wall seconds of what loads, where its threads take turns on the cores.

    1 where there are cores for all of them: what else the machine runs then takes their time, and
    does so with a change too. 1 as well where the processes' CPU time is unknown.
    """
    used = _cpu_s(processes)
    if used is None:
        return 1.0
    table = shares.workers
    busy = table.wall_s - table.seconds(*WAITING)
    if not _in_processes(shares.trace):
        busy += shares.main.wall_s - shares.main.seconds("wait", "read")
    if busy <= 0:
        return 1.0
    turns = shares.trace.cores * shares.steady_s / busy
    return min(1.0, max(used / busy, turns))


def _split_read(
    shares: Shares, processes: Sequence[Process], stretch: float, *, loads_beside: bool
) -> tuple[float, float]:
    """Seconds of reading that a core spends, and that it waits for the storage."""
    table = shares.workers if loads_beside else shares.main
    read_s = table.seconds("read")
    used = _cpu_s(processes)
    # Threads of a model on the CPU use more cores than one, so that nothing follows for a read.
    if used is not None and not (shares.main.seconds(*MODEL) and not _in_processes(shares.trace)):
        busy = stretch * (table.wall_s - table.seconds(*WAITING))
        # Start-up imports, which takes the main process one core.
        used -= 0.0 if _in_processes(shares.trace) else shares.startup_s
        core_s = min(read_s, max(0.0, used - busy))
        return core_s, read_s - core_s
    n_bytes = sum(k.n_bytes for k in shares.trace.images if k.function.stage == "decode")
    if n_bytes:
        waits = n_bytes < _STORAGE_BYTES_PER_S * read_s
    else:
        waits = read_s > _STORAGE_S * shares.n_images
    return (0.0, read_s) if waits else (read_s, 0.0)


def _cpu_s(processes: Sequence[Process]) -> float | None:
    seconds = [process.cpu_s for process in processes]
    if not seconds or any(value is None for value in seconds):
        return None
    return sum(value for value in seconds if value is not None)


def _forward_cores(shares: Shares, work: Work) -> int:
    """Of a model on the CPU: core seconds that nothing else of the main process took, over wall."""
    used = _cpu_s([p for p in shares.trace.processes if p.role == "main"])
    if not work.on_cpu or used is None or not work.model_s:
        return 1
    n = shares.n_images
    beside = work.main_s + work.h2d_s
    if work.engine != "dataloader":
        beside += work.load_s
    # What start-up used is not known: as much as one core could.
    forward = used - shares.startup_s - beside * n
    wall_s = work.model_s * n
    if forward <= wall_s:
        return 1
    return work.cores if forward >= work.cores * wall_s else round(forward / wall_s)


def _batch_size(shares: Shares) -> int:
    sizes = [use.settings.get("batch_size", "") for use in shares.trace.loaders]
    numbers = [int(size) for size in sizes if size.isdigit() and int(size) > 0]
    if numbers:
        return max(numbers)
    rows = [table.largest("assemble", "forward") for table in (shares.workers, shares.main)]
    per_call = [row.spent.images / row.spent.calls for row in rows if row and row.spent.calls]
    return max(1, round(max(per_call, default=1.0)))


def _pictures(trace: Trace) -> tuple[Picture, ...]:
    kinds = [k for k in trace.images if k.function.stage == "decode" and k.count and min(k.source)]
    return tuple(
        Picture(k.format, k.source, scale_of(k), _density(k), _is_pillow(k), k.count) for k in kinds
    )


def _resized(trace: Trace) -> tuple[Resized, ...]:
    kinds = [k for k in trace.images if k.function.stage == "resize" and k.count and min(k.source)]
    return tuple(Resized(k.source, k.made, 1, _is_pillow(k), k.count) for k in kinds)


def _density(kind: ImageKind) -> float | None:
    return kind.n_bytes / kind.count / (kind.source[0] * kind.source[1]) if kind.n_bytes else None


def _is_pillow(kind: ImageKind) -> bool:
    return kind.function.name.startswith("PIL")
