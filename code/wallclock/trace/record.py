"""What a traced program did: processes, threads, the time of each function, the images' sizes.

`collect` makes a `Trace` from the counters that the program's processes left; `verdict`, `fixes`
and `page` read nothing else.

Every second is exclusive: a function's own time, without the traced functions that it called. The
seconds of a thread therefore add up to at most the thread's wall time.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

#: The stages from a stored image to a batch. `transform`: pixels to pixels, except the resize.
#: `assemble`: collate.
LOADING = ("read", "decode", "resize", "transform", "normalize", "assemble")
#: What a model takes.
MODEL = ("forward", "backward", "optimizer")
#: What a traced function does, in the order an image passes them. `wait`: a consumer waits for
#: data. `send`: a batch leaves its worker. `d2h` includes the wait for the device where a copy
#: waits for it. `serialize`: results to files.
STAGES = ("wait", *LOADING, "send", "h2d", *MODEL, "d2h", "serialize")


@dataclass(frozen=True)
class Spent:
    """Own time of a function or a stage, in seconds; its calls, and the images that they took.

    `least_s`: of an image in the fastest call of a model; 0 where that is not known.
    """

    seconds: float = 0.0
    calls: int = 0
    images: int = 0
    least_s: float = 0.0

    def __add__(self, other: "Spent") -> "Spent":
        return Spent(
            self.seconds + other.seconds,
            self.calls + other.calls,
            self.images + other.images,
            min(self.least_s, other.least_s) or max(self.least_s, other.least_s),
        )


@dataclass(frozen=True)
class Function:
    """A traced function: its stage, and the name that its users know, e.g. `PIL.Image.open`."""

    stage: str
    name: str


@dataclass(frozen=True)
class Sampled:
    """Where samples found a thread after the first image, and for how many seconds.

    `path`, `line` and `function` are of the user's code, empty where none of it was running;
    `call`: the function that it had called, as `module.name`. `stage`: of the traced function that
    was open, empty for none. `waited_s`: of `seconds`, without using a core or wanting one.
    """

    path: str
    line: int
    function: str
    call: str
    stage: str
    seconds: float
    waited_s: float


@dataclass(frozen=True)
class Thread:
    """One thread of a process. Times in seconds since the program's start."""

    is_main: bool
    started_s: float
    ended_s: float
    spent: Mapping[Function, Spent]
    samples: tuple[Sampled, ...] = ()

    def takes_images(self, *stages: str) -> bool:
        """Whether it took an image in any of these stages."""
        return any(f.stage in stages and spent.images for f, spent in self.spent.items())


@dataclass(frozen=True)
class Process:
    """One process of the program.

    `role`: `main`, of several ranks each; `worker` (loads images for another process) or `other`.
    `cpu_s`: user and system time, of a killed process until its last samples.
    """

    pid: int
    role: str
    cpu_s: float
    threads: tuple[Thread, ...]


@dataclass(frozen=True)
class ImageKind:
    """Images of one size and format that a decoder gave or a resize made, and how many.

    `source`: width and height as stored (decode) or as given to the resize; `made`: as decoded or
    resized. `format`: `JPEG`, `progressive JPEG`, `PNG`, …; of a resize, the type of its numbers if
    they are floats. `n_bytes`: of all of them together, 0 where unknown.
    """

    function: Function
    format: str
    source: tuple[int, int]
    made: tuple[int, int]
    count: int
    n_bytes: int = 0

    @property
    def pixels(self) -> int:
        """Pixels of the sources of all of them together."""
        return self.count * self.source[0] * self.source[1]


@dataclass(frozen=True)
class Use:
    """What the program used, with its settings as text, and the `line` of its own code.

    A `DataLoader` with `num_workers`, `batch_size`, `prefetch_factor`, `pin_memory`; an `option` of
    its command line for numbers of workers, with `flag` and `value`; a function that writes images,
    with `format` and what the encoder was told.
    """

    name: str
    settings: Mapping[str, str]


@dataclass(frozen=True)
class Trace:
    """A traced program.

    `exit_code`: as a shell reports it, 128 + n for signal n. `first_image_s`: when the first image
    was read or decoded; before that the program imports and loads its model. None without images.
    `device`: name of the accelerator, empty without one; `device_busy_s`: its time in forward and
    backward passes by CUDA events.
    `others_s`: what other programs used of the cores meanwhile, added up. `untraced_s`: what the
    program's own processes did that left no counters. `paths`: with `--try`, of image files that it
    read, for no report.
    """

    command: tuple[str, ...]
    exit_code: int
    wall_s: float
    first_image_s: float | None
    cores: int
    processes: tuple[Process, ...]
    images: tuple[ImageKind, ...] = ()
    uses: tuple[Use, ...] = ()
    device: str = ""
    device_busy_s: float = 0.0
    others_s: float = 0.0
    untraced_s: float = 0.0
    paths: tuple[str, ...] = ()

    def threads(self, *, of_workers: bool) -> list[Thread]:
        """The main thread of the main process or of each rank; or all that load images beside it.

        A thread of the main process counts as a worker if it took an image.
        """
        main, workers = [], []
        for process in self.processes:
            for thread in process.threads:
                if process.role == "main" and thread.is_main:
                    main.append(thread)
                elif process.role == "worker" or thread.takes_images("read", "decode", "resize"):
                    workers.append(thread)
        return workers if of_workers else main

    def kinds(self, stage: str) -> list[ImageKind]:
        """The images that functions of `decode` or of `resize` made."""
        return [kind for kind in self.images if kind.function.stage == stage and kind.count]


def by_stage(threads: Iterable[Thread]) -> dict[str, Spent]:
    """Stage → what those threads spent in it, stages in the order of `STAGES`."""
    totals: dict[str, Spent] = defaultdict(Spent)
    for function, spent in by_function(threads).items():
        totals[function.stage] += spent
    return {stage: totals[stage] for stage in STAGES if stage in totals}


def by_function(threads: Iterable[Thread]) -> dict[Function, Spent]:
    """Function → what those threads spent in it, the most expensive first."""
    totals: dict[Function, Spent] = defaultdict(Spent)
    for thread in threads:
        for function, spent in thread.spent.items():
            totals[function] += spent
    return dict(sorted(totals.items(), key=lambda entry: -entry[1].seconds))
