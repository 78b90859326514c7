"""Whose time it is: each thread's open function, and what the threads spent so far.

At every entry and exit of a traced function the time since the last one goes to the function that
was open until then. So no nanosecond counts twice. What the program does outside of all traced
functions has no slot.
"""

from __future__ import annotations

import os
import time
from _thread import RLock, _local, get_ident
from collections.abc import Callable
from functools import wraps
from types import BuiltinFunctionType, FunctionType
from typing import Any, NamedTuple

from . import layout
from .counters import Counters
from .sampler import Sampler

Call = Callable[..., Any]
Size = tuple[int, int]

#: Slots that are kept for "(others)", one a stage, once there are too many functions.
_KEPT = 24


class Done(NamedTuple):
    """A call of a function that is counted: its slot and when it started, what it took and gave."""

    slot: int
    started: int
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: Any

    @property
    def first(self) -> Any:
        """The first argument."""
        return self.args[0] if self.args else next(iter(self.kwargs.values()))


class _Held:
    """Lies among a thread's locals, and is thrown away with them."""

    def __init__(self, tracer: Tracer, index: int | None, words: memoryview) -> None:
        self._tracer, self._counters = tracer, tracer.counters
        self._index, self._words = index, words

    def __del__(self) -> None:
        # After a fork the locals of the parent's threads go; their regions are the parent's.
        if self._counters.pid == os.getpid() and self._counters is self._tracer.counters:
            self._tracer.end_thread(self._index, self._words)


class Tracer:
    """Counts for one process; after a fork, for the child.

    `local`: of the thread: `view`, its region's words; `kinds`, rows by image size; `in_model`,
    whether a model's forward pass is open. `made`: the wrapped functions by id, which are not
    wrapped again. `counting`: slot → stage, of the functions that count images. `tries`: whether
    what `--try` needs is kept. `models`: what its models' passes are like; None without torch.
    """

    def __init__(
        self, folder: str, *, clock: Callable[[], int] = time.perf_counter_ns, tries: bool = False
    ) -> None:
        self.clock = clock
        self.local: Any = _local()
        self.made: dict[int, Call] = {}
        self.counting: dict[int, str] = {}
        self._folder = folder
        self.tries: bool = tries
        self._slots: dict[tuple[str, str], int] = {}
        self._stages = {layout.OUTSIDE: ""}
        self._formats: dict[str, int] = {}
        self._complained = False
        #: Called when the process ends by itself.
        self.at_end: list[Callable[[], None]] = []
        self.models: Any = None
        self._uses: set[str] = set()
        self._paths: set[str] = set()
        self._threads: dict[int, tuple[int, memoryview]] = {}
        self._begin(Counters(folder, clock()))

    def _begin(self, counters: Counters) -> None:
        """Count in a new file, whose first region is of this thread, the main one."""
        self._lock = RLock()
        self.counters = counters
        self._threads.clear()
        self.sampler: Sampler = Sampler(counters, self._threads)
        for (stage, name), slot in self._slots.items():
            self.counters.write(layout.FUNCTION, str(slot), stage, name)
        for name, number in self._formats.items():
            self.counters.write(layout.FORMAT, str(number), name)
        self.begin_thread()

    def after_fork(self) -> None:
        """In the child: its own file, and nothing open."""
        self.local.__dict__.clear()
        if self.models is not None:
            self.models.last.clear()  # for its own process to try
        self.at_end.clear()  # a device cannot be used on both sides of a fork
        try:
            counters = Counters(self._folder, self.clock())
        except OSError as error:
            self.complain("a forked process", error)
            counters = Counters(None, self.clock())
        self._begin(counters)

    # --- names ----------------------------------------------------------------------------------

    def slot(self, stage: str, name: str) -> int:
        """First word of a function's counters in every region."""
        slot = self._slots.get((stage, name))
        if slot is not None:
            return slot
        with self._lock:
            index = len(self._slots) + 1
            if index >= layout.N_FUNCTIONS - _KEPT and name != "(others)":
                return self.slot(stage, "(others)")
            slot = layout.SLOTS + layout.SLOT_WORDS * index
            self._slots[stage, name] = slot
            self._stages[slot] = stage
            self.counters.write(layout.FUNCTION, str(slot), stage, name)
        return slot

    def stage_of(self, slot: int) -> str:
        """Stage of a function; empty for the program's own code."""
        return self._stages.get(slot, "")

    def write(self, *fields: str) -> None:
        """A line for the report: what is used, a device, a path."""
        with self._lock:
            self.counters.write(*fields)

    def write_use(self, name: str, settings: dict[str, Any]) -> None:
        """Note what is used here with these settings, and the user's line, once."""
        settings = {key: str(value) for key, value in settings.items()}
        line = f"{name} {settings}"
        if line not in self._uses:
            self._uses.add(line)
            settings["line"] = self.sampler.users_line()
            fields = (field for entry in settings.items() for field in entry)
            self.write(layout.USE, name, *fields)

    def write_path(self, name: Any) -> None:
        """Note a file that is read as an image, once; `name`: nothing happens if it is no path."""
        if not self.tries or len(self._paths) >= layout.N_PATHS:
            return
        try:
            path = os.path.abspath(os.fsdecode(name))
        except (TypeError, ValueError, OSError):
            return
        if path not in self._paths and path.isprintable():
            self._paths.add(path)
            self.write(layout.PATH, path)

    # --- threads --------------------------------------------------------------------------------

    def view(self) -> memoryview:
        """The words of this thread's region."""
        try:
            view: memoryview = self.local.view
        except AttributeError:
            return self.begin_thread()
        return view

    def begin_thread(self) -> memoryview:
        """Give this thread a region: words that only it writes."""
        now = self.clock()
        with self._lock:
            index = self.counters.take()
        if index is None:  # what this thread counts is lost
            view = memoryview(bytearray(layout.REGION_BYTES)).cast("q")
        else:
            view = self.counters.region(index)
        view[layout.BEGAN] = view[layout.BEGAN] or now
        view[layout.HAS_ENDED] = 0
        view[layout.SINCE] = now
        view[layout.OPEN] = layout.OUTSIDE
        self.local.kinds = _rows_of(view)
        self.local.view = view
        if index is not None:
            self._threads[get_ident()] = index, view
        self.local.held = _Held(self, index, view)
        return view

    def end_thread(self, index: int | None, view: memoryview) -> None:
        """The thread of that region is over."""
        with self._lock:
            view[layout.HAS_ENDED] = 1
            if index is not None:
                self.counters.free.append(index)

    # --- time -----------------------------------------------------------------------------------

    def enter(self, slot: int) -> tuple[int, int]:
        """Open a function. Returns what `leave` needs: what was open before, and the time."""
        view = self.view()
        now = self.clock()
        outer = view[0]
        view[outer] += now - view[1]
        view[1] = now
        view[0] = slot
        return outer, now

    def leave(self, slot: int, entered: tuple[int, int], calls: int = 1) -> None:
        """Close it, as a call of `slot`, which need not be the one that was opened."""
        view = self.view()
        now = self.clock()
        view[slot] += now - view[1]
        view[slot + 1] += calls
        view[1] = now
        view[0] = entered[0]

    def call(self, slot: int, function: Call, /, *args: Any, **kwargs: Any) -> Any:
        """Call a function, counted."""
        entered = self.enter(slot)
        try:
            return function(*args, **kwargs)
        finally:
            self.leave(slot, entered)

    def timed(self, function: Call, slot: int, note: Call | None = None) -> Call:
        """`function`, counted. `note`: of `notes`; it is given the tracer and what was `Done`.

        An image counts once where a function with a note calls another one of its stage.
        """
        enter, leave, counting, stage = self.enter, self.leave, self.counting, self.stage_of(slot)
        done = Done  # the wrapper does not see this module's globals (`disguise_as`)
        if note:
            counting[slot] = stage

        def traced(*args: Any, **kwargs: Any) -> Any:
            entered = enter(slot)
            try:
                result = function(*args, **kwargs)
            finally:
                leave(slot, entered)
            if note and counting.get(entered[0]) != stage:
                try:
                    note(self, done(slot, entered[1], args, kwargs, result))
                except Exception as error:  # noqa: BLE001 - an unusual argument is no user's fault
                    self.complain(f"images of {function!r}", error)
            return result

        wrapper = disguise_as(function, traced)
        self.made[id(wrapper)] = wrapper
        return wrapper

    # --- images ---------------------------------------------------------------------------------

    def count(self, slot: int, images: int, started: int = 0) -> None:
        """Images that a call took; `started`: of the call, where it read or decoded them."""
        self.view()[slot + 2] += images
        words = self.counters.words
        if started and not words[layout.FIRST_IMAGE]:
            words[layout.FIRST_IMAGE] = started

    def keep_least(self, slot: int, images: int, ns: int) -> None:
        """Keep the time of an image in a call where it is the least: nothing slowed that call."""
        if images:
            view, each = self.view(), max(1, ns // images)
            view[slot + layout.LEAST] = min(view[slot + layout.LEAST] or each, each)

    def count_kind(
        self, slot: int, form: str, source: Size, made: Size, *, n_bytes: int = 0, images: int = 1
    ) -> None:
        """Count the sizes of images, width first."""
        number = self._number(form) if form else 0
        key = (slot, number, *source, *made)
        view = self.view()
        kinds = self.local.kinds
        row = kinds.get(key) or _row(view, kinds, key)
        view[row + 6] += images
        view[row + 7] += n_bytes

    def _number(self, form: str) -> int:
        if form not in self._formats:
            with self._lock:
                number = self._formats.setdefault(form, len(self._formats) + 1)
                self.counters.write(layout.FORMAT, str(number), form)
        return self._formats[form]

    # --- the process ----------------------------------------------------------------------------

    def finish(self) -> None:
        """The process ends by itself."""
        for call in self.at_end:
            try:
                call()
            except Exception as error:  # noqa: BLE001 - a device that is gone
                self.complain("the end", error)
        self.sampler.stop()
        with self._lock:
            self.counters.words[layout.CPU_NS] = time.process_time_ns()
            self.counters.words[layout.ENDED] = self.clock()

    def complain(self, what: str, error: BaseException) -> None:
        """One line, once: what is not traced, and why. The program goes on."""
        if not self._complained and os.path.isdir(self._folder):
            self._complained = True
            line = f"wallclock trace: {what} not traced: {type(error).__name__}: {error}\n"
            os.write(2, line.encode("utf-8", "replace"))


class _Unbound:
    """Stands for a function in C: of a class that has it as an attribute, it is no method."""

    def __init__(self, call: Call) -> None:
        self._call = call

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._call(*args, **kwargs)

    def __reduce__(self) -> str:
        return str(vars(self)["__qualname__"])


def disguise_as(original: Call, wrapper: Call) -> Call:
    """`wrapper` with name and globals of `original`; its code uses closures and builtins alone.

    torch.jit compiles the source of the original, and looks up its names among those globals.
    """
    if isinstance(original, BuiltinFunctionType):
        wrapper = _Unbound(wrapper)
    elif isinstance(original, FunctionType) and isinstance(wrapper, FunctionType):
        code, closure = wrapper.__code__, wrapper.__closure__
        wrapper = FunctionType(code, original.__globals__, wrapper.__name__, None, closure)
    return wraps(original)(wrapper)


def _row(view: memoryview, rows: dict[tuple[int, ...], int], key: tuple[int, ...]) -> int:
    """First word of the row of an image size, which is new; of a common one where they run out."""
    used = view[layout.KINDS_USED]
    if used >= layout.N_KINDS - 1:
        key = (layout.OUTSIDE, 0, 0, 0, 0, 0)
        if key in rows:
            return rows[key]
    row = layout.KINDS + used * layout.KIND_WORDS
    for at, word in enumerate(key):
        view[row + at] = word
    view[layout.KINDS_USED] = used + 1
    rows[key] = row
    return row


def _rows_of(view: memoryview) -> dict[tuple[int, ...], int]:
    """The rows that an earlier thread left in a region."""
    starts = (layout.KINDS + row * layout.KIND_WORDS for row in range(view[layout.KINDS_USED]))
    return {tuple(view[start : start + 6]): start for start in starts}
