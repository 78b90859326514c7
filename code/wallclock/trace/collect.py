"""From the counters that a program's processes left to a `Trace`."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import IO

from wallclock.machine import affinity
from wallclock.trace.inside import layout
from wallclock.trace.record import (
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


def collect(folder: Path, ended: Ended) -> Trace:
    """Read all files of counters in a folder; a damaged one is left out."""
    files = [file for path in sorted(folder.glob(f"*{layout.COUNTERS}")) if (file := read(path))]
    files.sort(key=lambda file: file.words[layout.STARTED])
    ended = _without_trials(ended, files)
    firsts = [file.words[layout.FIRST_IMAGE] for file in files if file.words[layout.FIRST_IMAGE]]
    since_ns = min(firsts, default=0)
    processes = _with_main(_processes(files, ended, since_ns), ended.pid)
    counted_s = sum(process.cpu_s for process in processes)
    # The interpreter frees what there is after its counters end.
    ends = [file.words[layout.ENDED] for file in files if file.words[layout.PID] == ended.pid]
    exit_s = (ended.ended_ns - max(ends)) / 1e9 if any(ends) else 0.0
    return Trace(
        # Without the program's own words, which may be anyone's secrets.
        command=ended.command[: 2 if ended.command[0] == "-m" else 1],
        exit_code=ended.status if ended.status >= 0 else 128 - ended.status,
        wall_s=(ended.ended_ns - ended.started_ns) / 1e9,
        first_image_s=(since_ns - ended.started_ns) / 1e9 if firsts else None,
        cores=len(affinity()),
        processes=processes,
        images=_images(files),
        uses=tuple({f"{use}": use for file in files for use in file.uses}.values()),
        device=next((file.device for file in files if file.device), ""),
        device_busy_s=sum(file.words[layout.DEVICE_BUSY_NS] for file in files) / 1e9,
        # A process that was not waited for is the program's.
        others_s=max(0.0, ended.busy_s - max(ended.cpu_s, counted_s)),
        paths=tuple(dict.fromkeys(chain.from_iterable(file.paths for file in files))),
        untraced_s=max(0.0, ended.cpu_s - counted_s - exit_s),
    )


def _without_trials(ended: Ended, files: Sequence[File]) -> Ended:
    """The end of the program itself, before its models were tried."""
    tried_ns = max((file.words[layout.TRIED_NS] for file in files), default=0)
    cpu_s = sum(file.words[layout.TRIED_CPU_NS] for file in files) / 1e9
    return replace(
        ended,
        ended_ns=ended.ended_ns - tried_ns,
        cpu_s=ended.cpu_s - cpu_s,
        busy_s=ended.busy_s - cpu_s,
    )


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
        _read_line(file, *line.split("\t"))
    with suppress(OSError):
        lines = path.with_suffix(layout.SAMPLES).read_text("utf-8", "replace").split("\n")
        # The last line of a process that was killed may be half a line.
        file.samples = [line.split("\t") for line in lines if line.count("\t") == 8]
    return file


def _words(opened: IO[bytes], start: int, count: int) -> memoryview:
    opened.seek(start * layout.WORD)
    return memoryview(opened.read(count * layout.WORD)).cast("q")


def _read_line(file: File, kind: str, first: str, *values: str) -> None:
    if kind == layout.FUNCTION:
        file.functions[int(first)] = Function(*values)
    elif kind == layout.FORMAT:
        file.formats[int(first)] = values[0]
    elif kind == layout.USE:
        file.uses.append(Use(first, dict(zip(values[::2], values[1::2], strict=True))))
    elif kind == layout.DEVICE:
        file.device = first
    elif kind == layout.PATH:
        file.paths.append(first)


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
        cpu_s=max(program.cpu_s for program in programs),
        threads=(main, *(thread for thread in threads if not thread.is_main)),
    )


def _process(file: File, ended: Ended, since_ns: int) -> Process:
    words = file.words
    pid = words[layout.PID]
    last_ns = words[layout.ENDED] or max(
        words[layout.STARTED], *(region[layout.SINCE] for region in file.regions)
    )
    # When a killed process ended, only its parent knows, and that is known of the first one alone.
    if pid == ended.pid and not words[layout.ENDED]:
        last_ns = ended.ended_ns
    threads = tuple(
        _thread(file, number, last_ns, ended.started_ns, _samples(file, number, since_ns))
        for number in range(len(file.regions))
    )
    loads = any(thread.takes_images(*_DECODED_OR_RESIZED) for thread in threads)
    role = "worker" if words[layout.IS_WORKER] or loads else "other"
    return Process(pid, role, words[layout.CPU_NS] / 1e9, threads)


def _with_main(processes: Sequence[Process], first: int) -> tuple[Process, ...]:
    """The process that was started is `main`; or those with a model, the ranks that it launched."""
    launched = [process.pid for process in processes if _runs(process, "forward")]
    works = [each.pid for each in processes if _runs(each, "forward", *_DECODED_OR_RESIZED)]
    mains = [first] if first in works or not launched else launched
    return tuple(
        replace(process, role="main") if process.pid in mains else process for process in processes
    )


def _runs(process: Process, *stages: str) -> bool:
    return any(function.stage in stages for thread in process.threads for function in thread.spent)


def _thread(
    file: File, number: int, last_ns: int, zero_ns: int, samples: tuple[Sampled, ...]
) -> Thread:
    """What one thread spent; a call that is still open counts until the end of its process."""
    spent, region = {}, file.regions[number]
    open_slot, since = region[layout.OPEN], region[layout.SINCE]
    is_open = not region[layout.HAS_ENDED] and open_slot in file.functions
    for slot, function in file.functions.items():
        ns, calls, images, least = region[slot : slot + layout.SLOT_WORDS]
        if is_open and slot == open_slot:
            ns, calls = ns + max(last_ns - since, 0), calls + 1
        if calls or ns:
            spent[function] = Spent(ns / 1e9, calls, images, least / 1e9)
    return Thread(
        is_main=number == 0,  # which begins with the process
        started_s=(region[layout.BEGAN] - zero_ns) / 1e9,
        ended_s=((since if region[layout.HAS_ENDED] else last_ns) - zero_ns) / 1e9,
        spent=spent,
        samples=samples,
    )


def _samples(file: File, region: int, since_ns: int) -> tuple[Sampled, ...]:
    """Those of one thread from some moment on, each place once, the longest first."""
    spent: Counter[tuple[str, ...]] = Counter()
    waits: Counter[tuple[str, ...]] = Counter()
    for when, index, slot, *where, ns, waited in file.samples:
        if int(index) == region and int(when) >= since_ns:
            function = file.functions.get(int(slot))
            place = *where, function.stage if function else ""
            spent[place] += int(ns)
            waits[place] += int(waited)
    return tuple(
        Sampled(path, int(line), function, call, stage, ns / 1e9, waits[key] / 1e9)
        for key, ns in spent.most_common()
        for path, line, function, call, stage in [key]
    )


def _images(files: Iterable[File]) -> tuple[ImageKind, ...]:
    """The sizes of all processes together, the most frequent first."""
    counts: Counter[tuple[Function, str, tuple[int, int], tuple[int, int]]] = Counter()
    n_bytes = counts.copy()
    for file in files:
        for region in file.regions:
            for row in range(region[layout.KINDS_USED]):
                start = layout.KINDS + row * layout.KIND_WORDS
                slot, form, *sizes, count, length = region[start : start + layout.KIND_WORDS]
                function = file.functions.get(slot, Function("decode", "(others)"))
                source, made = (sizes[0], sizes[1]), (sizes[2], sizes[3])
                kind = function, file.formats.get(form, ""), source, made
                counts[kind] += count
                n_bytes[kind] += length
    return tuple(ImageKind(*kind, count, n_bytes[kind]) for kind, count in counts.most_common())
