"""Where the wall time of a traced program goes: a table for the main thread and one for workers.

A share is of the time from the first image to the end of the program's own code, of a worker from
the first image or its own start to its own end; the workers' times are added up. Start-up, before
the first image, and the interpreter's exit are numbers of their own. Seconds are not dated: what a
traced function took before the first image counts as if it came after. Where the seconds exceed the
time, the share is of their sum.
"""

import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain

from wallclock.trace.record import LOADING, Sampled, Spent, Thread, Trace, by_function, by_stage
from wallclock.words import count

#: What no traced function took, by samples: at work in the program's own code and in libraries
#: that are not traced, or waiting there.
OTHER, OTHER_WAITS = "other Python", "other waits"
#: Waits: for data, for whatever else, and perhaps for the storage.
WAITING = ("wait", "read", OTHER_WAITS)
#: Packages that fetch: what they do outside of traced functions is `read`, too.
_NETWORK = (
    *("requests", "urllib", "urllib3", "http", "httpx", "httpcore", "aiohttp"),
    *("fsspec", "boto3", "botocore", "s3fs", "gcsfs"),
)
#: Of the cores' time, for other programs.
_MOST_OTHERS = 0.1
#: Functions that a row names.
_MOST_FUNCTIONS = 3


@dataclass(frozen=True)
class Row:
    """One stage: what it took, its share of the wall time, its functions, the longest first.

    `place`: the user's line that was there most, as `embed.py:14`, and `user_function`, where it
    stands; empty where none is known. `call`: what that line had called, as `module.name`, for time
    that is in no traced function. `waits`: the part of it in which samples found no use of a core.
    """

    stage: str
    spent: Spent
    share: float
    functions: tuple[tuple[str, Spent], ...] = ()
    place: str = ""
    user_function: str = ""
    call: str = ""
    waits: float = 0.0

    @property
    def fetches(self) -> bool:
        """Whether it reads over a network."""
        names = self.call, *(name for name, _ in self.functions[:1])
        return self.stage == "read" and any(map(_is_of_network, names))


@dataclass(frozen=True)
class Table:
    """The rows of a set of threads. `wall_s`: their time after start-up, which shares are of."""

    title: str
    n_threads: int
    wall_s: float
    rows: tuple[Row, ...]

    def share(self, *stages: str) -> float:
        """The share of these stages together."""
        return sum(row.share for row in self.rows if row.stage in stages)

    def seconds(self, *stages: str) -> float:
        """The seconds of these stages together."""
        return sum(row.spent.seconds for row in self.rows if row.stage in stages)

    def largest(self, *stages: str) -> Row | None:
        """The longest of these stages; None without any of them."""
        rows = [row for row in self.rows if row.stage in stages and row.spent.seconds]
        return max(rows, key=lambda row: row.spent.seconds, default=None)


@dataclass(frozen=True)
class Shares:
    """The tables of a trace, and the numbers that are of all of it."""

    trace: Trace

    @cached_property
    def startup_s(self) -> float:
        """Seconds before the first image; without images there is no start-up to tell apart."""
        first = self.trace.first_image_s
        return 0.0 if first is None else min(max(first, 0.0), self.trace.wall_s)

    @property
    def steady_s(self) -> float:
        """Seconds from the first image to the end of the program's own code."""
        return max(0.0, self.trace.wall_s - self.startup_s - self.exit_s)

    @cached_property
    def exit_s(self) -> float:
        """Seconds that the interpreter took to end, after the program's own code."""
        ends = [thread.ended_s for thread in self.trace.threads(of_workers=False)]
        return max(0.0, self.trace.wall_s - max(ends)) if ends else 0.0

    @cached_property
    def main(self) -> Table:
        """Of the main process's main thread; of several ranks, their times added up."""
        threads = self.trace.threads(of_workers=False)
        # Whatever it calls meanwhile: a main thread beside workers waits for them.
        unknown = "wait" if self.n_workers else OTHER_WAITS
        title = "main process" if len(threads) < 2 else f"{len(threads)} ranks"
        return _table(title, threads, self.steady_s * len(threads), unknown)

    @cached_property
    def workers(self) -> Table:
        """Of all threads that load images beside it, of this process or another.

        A thread of a worker that takes no image, as one that sends batches, counts with the seconds
        in which it is at work.
        """
        threads = self.trace.threads(of_workers=True)
        loaders = [thread for thread in threads if thread.takes_images(*LOADING)] or threads
        helpers = [_at_work(thread) for thread in threads if thread not in loaders]
        starts = [max(thread.started_s, self.startup_s) for thread in loaders]
        pairs = zip(loaders, starts, strict=True)
        wall_s = sum(max(0.0, thread.ended_s - start_s) for thread, start_s in pairs)
        wall_s += sum(spent.seconds for spent in by_stage(helpers).values())
        return _table(count(self.n_workers, "worker"), [*loaders, *helpers], wall_s, OTHER_WAITS)

    @cached_property
    def n_images(self) -> int:
        """Images that were decoded; where no decoder was traced, that were read or resized."""
        decoded = sum(kind.count for kind in self.trace.kinds("decode"))
        stages = by_stage(t for process in self.trace.processes for t in process.threads)
        others = (stages[stage].images for stage in ("decode", "read", "resize") if stage in stages)
        return decoded or max(others, default=0)

    @cached_property
    def n_workers(self) -> int:
        """The most threads that loaded images beside the main thread at a time."""
        threads = [t for t in self.trace.threads(of_workers=True) if t.takes_images(*LOADING)]
        starts = sorted(thread.started_s for thread in threads)
        ends = sorted(thread.ended_s for thread in threads)
        most = 0
        for index, start in enumerate(starts, start=1):
            most = max(most, index - sum(end <= start for end in ends))
        # Loaders of an epoch and of its evaluation keep their workers, and take turns.
        settings = [use.settings.get("num_workers", "") for use in self.trace.uses]
        at_a_time = max((int(number) for number in settings if number.isdigit()), default=0)
        return min(most, at_a_time * self.n_ranks or most)

    @property
    def n_ranks(self) -> int:
        """Processes that run the model concurrently; 1 for a program without a launcher."""
        return max(1, len(self.trace.threads(of_workers=False)))

    @property
    def loads_itself(self) -> bool:
        """Whether lines of its own load the images, as far as samples tell, no library's loop."""
        threads = [t for process in self.trace.processes for t in process.threads]
        loading = [s for thread in threads for s in thread.samples if s.stage in LOADING]
        return not loading or any(sample.path for sample in loading)

    @property
    def img_per_s(self) -> float:
        """Images per second after start-up; 0 without images."""
        return self.n_images / self.steady_s if self.steady_s > 0 else 0.0

    @property
    def cpu_use(self) -> float:
        """The part of the cores' time that the program used, 0 to 1."""
        return self._of_cores(sum(process.cpu_s for process in self.trace.processes))

    @property
    def others(self) -> float:
        """The part of the cores' time that other programs used, 0 to 1."""
        return self._of_cores(self.trace.others_s)

    @property
    def is_busy_machine(self) -> bool:
        """Whether other programs used so much that no gain follows from the times."""
        return self.others > _MOST_OTHERS

    def _of_cores(self, seconds: float) -> float:
        return min(1.0, _share(seconds, self.trace.cores * self.trace.wall_s))

    @property
    def device_waits(self) -> float:
        """The share of the time in which the accelerator waits for data, 0 to 1.

        The main thread then waits for a batch, or loads one; the device may still be at work on
        the one before, so that it is idle at most for the rest of its busy time.
        """
        starving = self.main.share("wait", *LOADING)
        return min(starving, max(0.0, 1 - _share(self.trace.device_busy_s, self.main.wall_s)))


def _table(title: str, threads: Sequence[Thread], wall_s: float, unknown_waits: str) -> Table:
    stages, functions = by_stage(threads), by_function(threads)
    samples = _samples_by_stage(threads, unknown_waits)
    traced_s = sum(spent.seconds for spent in stages.values())
    wall_s = max(wall_s, traced_s)
    if threads:
        for stage, share in _outside(samples).items():
            stages[stage] = stages.get(stage, Spent()) + Spent((wall_s - traced_s) * share)
    rows = []
    for stage, spent in stages.items():
        of_stage = samples[stage]
        names = [(f.name, s) for f, s in functions.items() if f.stage == stage][:_MOST_FUNCTIONS]
        waits = _share(sum(s.waited_s for s in of_stage), sum(s.seconds for s in of_stage))
        share = _share(spent.seconds, wall_s)
        rows.append(Row(stage, spent, share, tuple(names), *_place_of(of_stage), waits))
    return Table(title, len(threads), wall_s, tuple(rows))


def _samples_by_stage(threads: Sequence[Thread], unknown_waits: str) -> dict[str, list[Sampled]]:
    """Samples outside of all traced functions are parted into work and waits."""
    parts: dict[str, list[Sampled]] = defaultdict(list)
    for each in chain.from_iterable(thread.samples for thread in threads):
        if each.stage or _is_of_network(each.call):
            parts[each.stage or "read"].append(each)
        else:
            worked_s = each.seconds - each.waited_s
            parts[OTHER].append(replace(each, seconds=worked_s, waited_s=0.0))
            parts[unknown_waits].append(replace(each, seconds=each.waited_s))
    return parts


def _is_of_network(name: str) -> bool:
    return name.partition(".")[0] in _NETWORK


def _outside(samples: Mapping[str, Sequence[Sampled]]) -> Mapping[str, float]:
    """Stage → its part of the time outside of all traced functions."""
    totals = {OTHER: 0.0}
    for stage, parts in samples.items():
        if seconds := sum(each.seconds for each in parts if not each.stage):
            totals[stage] = seconds
    whole_s = sum(totals.values())
    return {stage: s / whole_s for stage, s in totals.items()} if whole_s else {OTHER: 1.0}


def _place_of(samples: Sequence[Sampled]) -> tuple[str, str, str]:
    """The line that was there most, its function, and what it had called; or empty."""
    places: dict[tuple[str, str], float] = defaultdict(float)
    calls: dict[tuple[str, str, str], float] = defaultdict(float)
    for each in samples:
        if each.path and each.seconds:
            place = f"{os.path.basename(each.path)}:{each.line}", each.function
            places[place] += each.seconds
            calls[*place, each.call] += each.seconds
    if not places:
        return "", "", ""
    most = max(places, key=places.__getitem__)
    return max((call for call in calls if call[:2] == most), key=calls.__getitem__)


def _share(seconds: float, wall_s: float) -> float:
    return seconds / wall_s if wall_s > 0 else 0.0


def _at_work(thread: Thread) -> Thread:
    spent = {function: s for function, s in thread.spent.items() if function.stage not in WAITING}
    return replace(thread, spent=spent, samples=())
