"""Traces made by hand, of programs whose verdict is known."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from hypothesis import strategies as st

from wallclock.trace.record import Function, ImageKind, Process, Sampled, Spent, Thread, Trace, Use

#: The usual function of each stage.
NAMES = {
    "wait": "DataLoader wait",
    "read": "file read",
    "decode": "PIL.ImageFile.load",
    "resize": "PIL.Image.resize",
    "transform": "PIL.Image.transpose",
    "normalize": "torchvision.transforms.functional.normalize",
    "assemble": "torch default_collate",
    "send": "multiprocessing pickle",
    "h2d": "Tensor.to",
    "forward": "ResNet",
    "backward": "Tensor.backward",
    "optimizer": "SGD.step",
    "d2h": "Tensor.cpu",
    "serialize": "numpy.save",
}
PHOTO, PX = (2560, 1920), (224, 224)


def function(stage: str, name: str = "") -> Function:
    return Function(stage, name or NAMES[stage])


def thread(
    seconds: Mapping[str, float],
    images: int = 0,
    *,
    is_main: bool = True,
    started_s: float = 0.0,
    ended_s: float = 10.0,
) -> Thread:
    """A thread that spent so many seconds in each stage, with so many images in each.

    `idle`: what samples tell of the time outside of all stages, after a start-up of 2 s; `storage`:
    of the time of reads.
    """
    stages = {stage: value for stage, value in seconds.items() if stage in NAMES}
    spent = {function(stage): Spent(value, images or 1, images) for stage, value in stages.items()}
    outside_s = ended_s - max(started_s, 2.0) - sum(stages.values())
    waits = Sampled("", 0, "", "queue.get", "", outside_s, seconds.get("idle", 0.0))
    read_s = seconds.get("read", 0.0)
    reads = Sampled("", 0, "", "", "read", read_s, seconds.get("storage", 0.0))
    samples = [waits] * ("idle" in seconds) + [reads] * ("storage" in seconds)
    return Thread(is_main, started_s, ended_s, spent, tuple(samples))


def process(threads: Iterable[Thread], role: str = "main", *, cpu_s: float = 0.0) -> Process:
    return Process(100, role, cpu_s, tuple(threads))


def decoded(
    count: int,
    format: str = "JPEG",
    source: tuple[int, int] = PHOTO,
    made: tuple[int, int] | None = None,
    kb: float = 900.0,
    name: str = "",
) -> ImageKind:
    n_bytes = round(1000 * kb * count)
    return ImageKind(function("decode", name), format, source, made or source, count, n_bytes)


def resized(
    count: int, source: tuple[int, int] = PHOTO, made: tuple[int, int] = PX, name: str = ""
) -> ImageKind:
    return ImageKind(function("resize", name), "", source, made, count)


def trace(
    processes: Iterable[Process],
    images: Iterable[ImageKind] = (),
    *,
    exit_code: int = 0,
    wall_s: float = 10.0,
    first_image_s: float | None = 2.0,
    cores: int = 8,
    uses: Iterable[Use] = (),
    device: str = "",
    device_busy_s: float = 0.0,
    command: tuple[str, ...] = ("embed.py", "photos"),
) -> Trace:
    return Trace(
        command,
        exit_code,
        wall_s,
        first_image_s,
        cores,
        tuple(processes),
        tuple(images),
        tuple(uses),
        device,
        device_busy_s,
    )


@st.composite
def any_traces(draw: st.DrawFn) -> Trace:
    """Serial, DataLoader and thread programs of any costs, sizes and formats, also cut short."""
    wall_s = draw(st.floats(0.01, 1e4))
    first_s = draw(st.none() | st.floats(0, wall_s))
    shares = st.dictionaries(st.sampled_from(sorted(NAMES)), st.floats(0, 1), max_size=8)
    images = st.integers(0, 5000)

    def a_thread(*, is_main: bool) -> Thread:
        start = draw(st.floats(0, wall_s))
        parts = draw(shares)
        scale = (wall_s - start) / max(1.0, sum(parts.values()))
        seconds = {stage: part * scale for stage, part in parts.items()}
        return thread(seconds, draw(images), is_main=is_main, started_s=start, ended_s=wall_s)

    beside = [a_thread(is_main=False) for _ in range(draw(st.integers(0, 2)))]
    processes = [process([a_thread(is_main=True), *beside], cpu_s=draw(st.floats(0, 4 * wall_s)))]
    for _ in range(draw(st.integers(0, 3))):
        worker = a_thread(is_main=True)
        processes.append(process([worker], "worker", cpu_s=draw(st.floats(0, 4 * wall_s))))
    device = draw(st.sampled_from(["", "NVIDIA T4"]))
    busy = draw(st.floats(0, wall_s)) if device else 0.0
    return trace(
        processes,
        draw(st.lists(_kinds(), max_size=6)),
        wall_s=wall_s,
        first_image_s=first_s,
        exit_code=draw(st.sampled_from([0, 1, 137, 200])),
        cores=draw(st.integers(1, 128)),
        device=device,
        device_busy_s=busy,
    )


@st.composite
def _kinds(draw: st.DrawFn) -> ImageKind:
    size = st.tuples(st.integers(1, 20_000), st.integers(1, 20_000))
    count = draw(st.integers(0, 5000))
    if draw(st.booleans()):
        return resized(count, draw(size), draw(st.sampled_from([PX, (256, 341)]) | size))
    source = draw(size)
    scale = draw(st.sampled_from([1, 1, 2, 8]))
    made = -(-source[0] // scale), -(-source[1] // scale)
    form = draw(st.sampled_from(["JPEG", "progressive JPEG", "PNG", "WEBP", "GIF", ""]))
    name = draw(st.sampled_from(["", "cv2.imread"]))
    return decoded(count, form, source, made, draw(st.floats(0, 1e5)), name)


def serial(
    seconds: Mapping[str, float], n: int = 200, cpu_s: float = 9.9, **options: object
) -> Trace:
    """A loop in the main thread over `n` photos, for 10 s of which 2 s are start-up."""
    images = [decoded(n), resized(n)]
    return trace([process([thread(seconds, n)], cpu_s=cpu_s)], images, **options)  # type: ignore[arg-type]


def dataloader(
    main: Mapping[str, float],
    worker: Mapping[str, float],
    n: int = 400,
    n_workers: int = 4,
    worker_cpu_s: float = 7.5,
    images: Iterable[ImageKind] | None = None,
    **options: object,
) -> Trace:
    """A DataLoader; `worker`: the seconds of each of its workers, which live from 2 s to 10 s."""
    each = n // n_workers
    workers = [
        process([thread(worker, each, started_s=2.0)], "worker", cpu_s=worker_cpu_s)
        for _ in range(n_workers)
    ]
    use = Use("torch.utils.data.DataLoader", {"num_workers": str(n_workers), "batch_size": "32"})
    kinds = [decoded(n), resized(n)] if images is None else images
    processes = [process([thread(main, n)], cpu_s=9.0), *workers]
    return trace(processes, kinds, uses=[use], **options)  # type: ignore[arg-type]


SERIAL_DECODE = serial({"read": 0.1, "decode": 6.0, "resize": 1.5, "serialize": 0.1})
SERIAL_READ = serial({"read": 6.5, "storage": 6.4, "decode": 0.8, "resize": 0.2}, cpu_s=3.5)
SERIAL_MODEL = serial({"read": 0.1, "decode": 0.5, "resize": 0.2, "forward": 7.1})
STARVING_DECODE = dataloader(
    {"wait": 5.7, "h2d": 0.1, "forward": 1.4, "d2h": 0.3},
    {"idle": 0.2, "read": 0.2, "decode": 6.2, "resize": 1.0, "assemble": 0.2},
    device="NVIDIA T4",
    device_busy_s=1.6,
)
STARVING_READ = dataloader(
    {"wait": 6.0, "forward": 1.5},
    {"read": 6.5, "storage": 6.4, "decode": 0.8, "resize": 0.3},
    worker_cpu_s=1.3,
    device="NVIDIA T4",
    device_busy_s=1.6,
)
MODEL_BOUND = dataloader(
    {"wait": 0.2, "forward": 7.1, "d2h": 0.4},
    {"idle": 6.4, "read": 0.1, "decode": 1.2, "resize": 0.2},
    worker_cpu_s=1.6,
)
THREADS = trace(
    [
        process(
            [
                thread({"wait": 7.8}),
                *(
                    thread({"read": 0.3, "decode": 6.6, "resize": 0.9}, 100, is_main=False)
                    for _ in range(2)
                ),
            ],
            cpu_s=15.0,
        )
    ],
    [decoded(200), resized(200)],
    cores=8,
    uses=[Use("concurrent.futures.ThreadPoolExecutor", {"max_workers": "2"})],
)
NO_IMAGES = trace([process([thread({"serialize": 0.5})], cpu_s=9.0)], first_image_s=None)
KILLED = trace(
    [
        process([thread({"wait": 1.0}, ended_s=3.2)]),
        process([thread({"decode": 1.1}, 20, started_s=2.0, ended_s=3.2)], "worker"),
    ],
    [decoded(20), resized(20)],
    exit_code=137,
    wall_s=3.2,
)


def a_model_beside_workers(least_s: float = 0.0) -> Trace:
    """Two workers and a model on two cores: 8 s, of which the model takes 6 and Python 1."""
    made = dataloader(
        {"wait": 1.0, "forward": 6.0}, {"decode": 7.0}, n_workers=2, worker_cpu_s=4.0, cores=2
    )
    (threads,) = made.processes[0].threads
    forward = function("forward")
    threads.spent[forward] = replace(threads.spent[forward], least_s=least_s)  # type: ignore[index]
    return made
