"""From the counters that a program's processes left to a `Trace`."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain, zip_longest
from pathlib import Path
from typing import IO

from wallclock.machine import affinity
from wallclock.trace.inside import layout
from wallclock.trace.record import (
    STAGES,
    Function,
    ImageKind,
    Process,
    Sampled,
    Spent,
    Thread,
    Trace,
    Use,
    by_function,
)
from wallclock.trace.run import Ended

_DECODED_OR_RESIZED = ("decode", "resize")
#: Of a sample. The last line of a process that was killed may have fewer.
_N_FIELDS = 9


@dataclass
class File:
    """The counters of one process: the words of its head and of its regions, and its text."""

    words: memoryview
    #: Those that threads have used.
    regions: list[memoryview]
    functions: dict[int, Function] = field(default_factory=dict)
    formats: dict[int, str] = field(default_factory=lambda: {0: ""})
    uses: list[Use] = field(default_factory=list)
    device: str = ""
    paths: list[str] = field(default_factory=list)
    #: Of each sample: when, region, slot, path, line, function, call, nanoseconds, those of waits.
    samples: list[list[str]] = field(default_factory=list)

    @property
    def last_ns(self) -> int:
        """The last moment that is known of the process."""
        moments = [region[layout.SINCE] for region in self.regions]
        return max(self.words[layout.STARTED], self.words[layout.ENDED], *moments)


def collect(folder: Path, ended: Ended) -> Trace:
    """Read all files of counters in a folder; a damaged one is left out."""
    files = [file for path in sorted(folder.glob(f"*{layout.COUNTERS}")) if (file := read(path))]
    files.sort(key=lambda file: file.words[layout.STARTED])
    ended = _without_trials(ended, files)
    firsts = [file.words[layout.FIRST_IMAGE] for file in files if file.words[layout.FIRST_IMAGE]]
    since_ns = min(firsts, default=0)
    processes = _with_main(_processes(files, ended, since_ns), ended.pid)
    busy = [file.words[layout.DEVICE_BUSY_NS] for file in files if file.words[layout.HAS_DEVICE]]
    others_s, untraced_s = _not_counted_s(files, ended, processes)
    devices = [file.device for file in files if file.device]
    return Trace(
        # Without the program's own words, which may be anyone's secrets.
        command=ended.command[: 2 if ended.command[0] == "-m" else 1],
        exit_code=ended.exit_code,
        wall_s=(ended.ended_ns - ended.started_ns) / 1e9,
        first_image_s=(since_ns - ended.started_ns) / 1e9 if firsts else None,
        cores=len(affinity()),
        processes=processes,
        images=_images(files),
        uses=tuple({f"{use}": use for file in files for use in file.uses}.values()),
        device=devices[0] if devices else "",
        device_busy_s=sum(busy) / 1e9 if busy else None,
        swapped_bytes=ended.swapped_bytes,
        others_s=others_s,
        paths=_in_turn([file.paths for file in files]),
        untraced_s=untraced_s,
    )


def _without_trials(ended: Ended, files: Sequence[File]) -> Ended:
    """The end of the program itself, before its models were tried."""
    tried_ns = max((file.words[layout.TRIED_NS] for file in files), default=0)
    cpu_s = sum(file.words[layout.TRIED_CPU_NS] for file in files) / 1e9
    busy_s = None if ended.busy_s is None else ended.busy_s - cpu_s
    return replace(
        ended, ended_ns=ended.ended_ns - tried_ns, cpu_s=ended.cpu_s - cpu_s, busy_s=busy_s
    )


def _not_counted_s(
    files: Sequence[File], ended: Ended, processes: Sequence[Process]
) -> tuple[float | None, float]:
    """Seconds of the cores of other programs, None if unknown; and of processes without counters.

    A process that was not waited for is the program's.
    """
    counted = sum(process.cpu_s or 0.0 for process in processes)
    others = None if ended.busy_s is None else max(0.0, ended.busy_s - max(ended.cpu_s, counted))
    ends = [file.words[layout.ENDED] for file in files if file.words[layout.PID] == ended.pid]
    # Counters end before the interpreter does, which frees what there is.
    last_s = (ended.ended_ns - max(ends)) / 1e9 if any(ends) else 0.0
    return others, max(0.0, ended.cpu_s - counted - last_s)


def read(path: Path) -> File | None:
    """A file of counters; None where its process did not get as far as to write its head."""
    if path.stat().st_size != layout.FILE_BYTES:
        return None
    with path.open("rb") as opened:  # sparse, and many times as large as what is in it
        words = _words(opened, 0, layout.HEAD_WORDS)
        if words[layout.MAGIC_WORD] != layout.MAGIC:
            return None
        text = opened.read(words[layout.TEXT_USED]).decode("utf-8", "replace")
        used = range(words[layout.REGIONS_USED])
        regions = [_words(opened, layout.region_at(at), layout.REGION_WORDS) for at in used]
    file = File(words, [region for region in regions if region[layout.BEGAN]])
    for line in text.splitlines():
        _read_line(file, line.split("\t"))
    with suppress(OSError):
        lines = path.with_suffix(layout.SAMPLES).read_text("utf-8", "replace").split("\n")
        file.samples = [line.split("\t") for line in lines if line.count("\t") == _N_FIELDS - 1]
    return file


def _words(opened: IO[bytes], start: int, count: int) -> memoryview:
    opened.seek(start * layout.WORD)
    return memoryview(opened.read(count * layout.WORD)).cast("q")


def _read_line(file: File, fields: Sequence[str]) -> None:
    kind, *values = fields
    if kind == layout.FUNCTION:
        slot, stage, name = values
        file.functions[int(slot)] = Function(stage, name)
    elif kind == layout.FORMAT:
        file.formats[int(values[0])] = values[1]
    elif kind == layout.USE:
        settings = dict(zip(values[1::2], values[2::2], strict=True))
        file.uses.append(Use(values[0], settings))
    elif kind == layout.DEVICE:
        file.device = values[0]
    elif kind == layout.PATH:
        file.paths.append(values[0])


def _processes(files: Sequence[File], ended: Ended, since_ns: int) -> list[Process]:
    """One process for each identifier, whatever programs it ran (`exec`)."""
    programs: dict[int, list[Process]] = defaultdict(list)
    for file in files:
        programs[file.words[layout.PID]].append(_process(file, ended, since_ns))
    return list(map(_joined, programs.values()))


def _joined(programs: Sequence[Process]) -> Process:
    """Programs of one process: a main thread whose time counts once, and all other threads."""
    last = programs[-1]
    if len(programs) == 1:
        return last
    threads = [thread for program in programs for thread in program.threads]
    mains = [thread for thread in threads if thread.is_main]
    samples = tuple(chain.from_iterable(thread.samples for thread in mains))
    main = Thread(True, mains[0].started_s, mains[-1].ended_s, by_function(mains), samples)
    return replace(
        last,
        role=max(program.role for program in programs),  # `worker` rather than `other`
        cpu_s=max(program.cpu_s or 0.0 for program in programs) or None,
        threads=(main, *(thread for thread in threads if not thread.is_main)),
    )


def _process(file: File, ended: Ended, since_ns: int) -> Process:
    words = file.words
    pid = words[layout.PID]
    is_first = pid == ended.pid
    # When a killed process ended, only its parent knows, and that is known of the first one alone.
    last_ns = ended.ended_ns if is_first and not words[layout.ENDED] else file.last_ns
    threads = [
        replace(
            _thread(file, region, last_ns, ended.started_ns),
            samples=_samples(file, number, since_ns),
        )
        for number, region in enumerate(file.regions)
    ]
    loads = any(thread.takes_images(*_DECODED_OR_RESIZED) for thread in threads)
    return Process(
        pid=pid,
        role="worker" if words[layout.IS_WORKER] or loads else "other",
        cpu_s=words[layout.CPU_NS] / 1e9 or None,
        threads=tuple(threads),
    )


def _with_main(processes: Sequence[Process], first: int) -> tuple[Process, ...]:
    """The process that was started is `main`; or those with a model, the ranks that it launched."""
    launched = [process.pid for process in processes if _runs(process, "forward")]
    works = any(
        _runs(process, "forward", *_DECODED_OR_RESIZED)
        for process in processes
        if process.pid == first
    )
    mains = [first] if works or not launched else launched
    return tuple(
        replace(process, role="main") if process.pid in mains else process for process in processes
    )


def _runs(process: Process, *stages: str) -> bool:
    return any(function.stage in stages for thread in process.threads for function in thread.spent)


def _thread(file: File, region: memoryview, last_ns: int, zero_ns: int) -> Thread:
    """What one thread spent; a call that is still open counts until the end of its process."""
    spent = {}
    open_slot, since = region[layout.OPEN], region[layout.SINCE]
    is_open = not region[layout.HAS_ENDED] and open_slot in file.functions
    for slot, function in file.functions.items():
        ns, calls, images, least = region[slot : slot + layout.SLOT_WORDS]
        if is_open and slot == open_slot:
            ns, calls = ns + max(last_ns - since, 0), calls + 1
        if calls or ns:
            spent[function] = Spent(ns / 1e9, calls, images, least / 1e9)
    return Thread(
        is_main=bool(region[layout.IS_MAIN]),
        started_s=(region[layout.BEGAN] - zero_ns) / 1e9,
        ended_s=((since if region[layout.HAS_ENDED] else last_ns) - zero_ns) / 1e9,
        spent=dict(sorted(spent.items(), key=lambda entry: STAGES.index(entry[0].stage))),
    )


def _samples(file: File, region: int, since_ns: int) -> tuple[Sampled, ...]:
    """Those of one thread from some moment on, each place once, the longest first."""
    totals: dict[tuple[str, ...], list[int]] = defaultdict(lambda: [0, 0])
    for when, index, slot, *where, ns, waited in file.samples:
        if int(index) == region and int(when) >= since_ns:
            function = file.functions.get(int(slot))
            spent = totals[*where, function.stage if function else ""]
            spent[0] += int(ns)
            spent[1] += int(waited)
    ordered = sorted(totals.items(), key=lambda entry: -entry[1][0])
    return tuple(
        Sampled(path, int(line), function, call, stage, ns / 1e9, waited / 1e9)
        for (path, line, function, call, stage), (ns, waited) in ordered
    )


def _images(files: Iterable[File]) -> tuple[ImageKind, ...]:
    """The sizes of all processes together, the most frequent first."""
    counts: dict[tuple[Function, str, tuple[int, int], tuple[int, int]], list[int]]
    counts = defaultdict(lambda: [0, 0])
    for file in files:
        for region in file.regions:
            for row in range(region[layout.KINDS_USED]):
                start = layout.KINDS + row * layout.KIND_WORDS
                slot, form, *sizes, count, n_bytes = region[start : start + layout.KIND_WORDS]
                function = file.functions.get(slot, Function("decode", "(others)"))
                key = (
                    function,
                    file.formats.get(form, ""),
                    (sizes[0], sizes[1]),
                    (sizes[2], sizes[3]),
                )
                counts[key][0] += count
                counts[key][1] += n_bytes
    ordered = sorted(counts.items(), key=lambda entry: -entry[1][0])
    return tuple(ImageKind(*key, count, n_bytes) for key, (count, n_bytes) in ordered)


def _in_turn(lists: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """The first of every process, then the second: workers of a loader have the files in turn."""
    names = chain.from_iterable(zip_longest(*lists))
    return tuple(dict.fromkeys(name for name in names if name is not None))
