"""Where each thread is, forty times a second: the user's line, the call below it, if it waits.

Counters tell of known functions how long they took. What the program does outside of them, and
whether it worked or waited there, only a sample can tell.
"""

from __future__ import annotations

import os
import sys
import time
from _thread import allocate_lock, get_ident, get_native_id, start_new_thread
from types import CodeType, FrameType
from typing import Any

from . import layout
from .counters import Counters

_INTERVAL_S = 1 / 40
#: Between two writes of the file: what of a killed process is lost, and how exactly samples are
#: told from those before the first image.
_PUBLISH_S = 0.1
#: Of the file; what comes after is lost.
_MOST_BYTES = 1 << 26
#: Beginnings of the paths of what is not the user's: the standard library, and this package.
_LIBRARIES = (os.path.dirname(os.__file__) + os.sep, os.path.dirname(__file__) + os.sep)
_MAIN_IDENT = get_ident()
#: A thread that used more of an interval than this did not wait; of others, the kernel tells.
_WAITING = 0.9
#: Of a thread's clock in Linux: `CPUCLOCK_PERTHREAD_MASK | CPUCLOCK_SCHED` (posix-timers.h).
_THREAD_CLOCK = 4 | 2
#: Region of the thread, or -1; slot of the open function; path to call, as in `record.Sampled`.
Where = tuple[int, int, str, int, str, str]


class Sampler:
    """Samples the threads of this process, in a thread that `threading` does not know.

    counters: of the process, beside whose file is that of the samples; without one, nothing is
    sampled. threads: identifier of a thread → index of its region, and the region.
    """

    def __init__(self, counters: Counters, threads: dict[int, tuple[int, Any]]) -> None:
        self._counters, self._threads = counters, threads
        self._path = counters.path and counters.path.removesuffix(layout.COUNTERS) + layout.SAMPLES
        #: Nanoseconds in all, and of them those in which the thread waited.
        self._rows: dict[Where, list[int]] = {}
        self._cpu: dict[int, tuple[int, int]] = {}
        self._codes: dict[CodeType, bool] = {}
        self._stop: Any = None
        self._number, self._since = 0, time.perf_counter_ns()
        if self._path:  # here alone: a process may outlive the program and the folder
            try:
                open(self._path, "xb").close()
            except OSError:
                self._path = None
        self._ended = allocate_lock()

    def start(self) -> None:
        """Sample from now on."""
        if self._path is None or self._stop is not None:
            return
        self._stop = allocate_lock()
        self._stop.acquire()
        self._ended.acquire()
        start_new_thread(self._run, (self._stop,))

    def stop(self) -> None:
        """Write what there is, and end the thread; when it returns, the kernel has none."""
        if self._stop is None:
            return
        stop, self._stop = self._stop, None
        stop.release()
        with self._ended:
            self._publish()
        for _ in range(1000):
            if not os.path.exists(f"/proc/self/task/{self._number}"):
                break
            time.sleep(2e-5)

    def _run(self, stop: Any) -> None:
        self._number = get_native_id()
        last = published = time.monotonic_ns()
        try:
            while not stop.acquire(timeout=_INTERVAL_S):
                now = time.monotonic_ns()
                self._sample(now - last)
                last = now
                if now - published > _PUBLISH_S * 1e9:
                    self._publish()
                    published = now
        except BaseException:  # noqa: BLE001, S110 - the end of the interpreter, in the midst of it
            pass
        finally:
            self._ended.release()

    def _sample(self, wall_ns: int) -> None:
        me = get_ident()
        numbers = _native_ids()
        for ident, frame in sys._current_frames().items():
            if ident == me:
                continue
            index, view = self._threads.get(ident, (-1, None))
            is_open = view is not None and not view[layout.HAS_ENDED]
            slot = view[layout.OPEN] if is_open else layout.OUTSIDE
            where = self._where(index, slot, frame)
            waits = self._waits(ident, numbers.get(ident), wall_ns)
            row = self._rows.setdefault(where, [0, 0])
            row[0] += wall_ns
            row[1] += wall_ns * waits

    def _waits(self, ident: int, number: int | None, wall_ns: int) -> bool:
        """Whether a thread wants no core now, and did not use one nearly all the time until now.

        It may wait for the interpreter alone, which this thread has; reading the state lets it go.
        """
        if number is None:
            return False
        try:
            now = time.clock_gettime_ns(~number << 3 | _THREAD_CLOCK)
        except OSError:  # it has ended
            return False
        last_number, last = self._cpu.get(ident, (0, now))
        self._cpu[ident] = number, now
        if last_number != number or now - last > _WAITING * wall_ns:
            return False
        return not _is_runnable(number)

    def _where(self, index: int, slot: int, frame: FrameType) -> Where:
        at, below = self._users_frame(frame)
        call = "" if below is None else f"{below.f_globals.get('__name__', '')}.{_name(below)}"
        if at is None:
            return index, slot, "", 0, "", call
        return index, slot, at.f_code.co_filename, at.f_lineno or 0, _name(at), call

    def users_line(self) -> str:
        """The line of the user's own files that is running in this thread: `train.py:30`."""
        at, _ = self._users_frame(sys._getframe(1))
        return f"{os.path.basename(at.f_code.co_filename)}:{at.f_lineno}" if at else ""

    def _users_frame(self, at: FrameType | None) -> tuple[FrameType | None, FrameType | None]:
        """The innermost frame of the user's own files, and the one that it called."""
        below: FrameType | None = None
        while at is not None and not self._is_users(at):
            below, at = at, at.f_back
        return at, below

    def _is_users(self, frame: FrameType) -> bool:
        code = frame.f_code
        is_users = self._codes.get(code)
        if is_users is None:
            path = code.co_filename
            if path.startswith("<"):
                is_users = frame.f_globals.get("__name__") == "__main__"
            else:
                is_users = not path.startswith(_LIBRARIES) and "-packages" + os.sep not in path
            self._codes[code] = is_users
        return is_users

    def _publish(self) -> None:
        """Add the samples since the last time to the file, and begin anew."""
        self._counters.words[layout.CPU_NS] = time.process_time_ns()
        rows, since = self._rows, self._since
        self._rows, self._since = {}, time.perf_counter_ns()
        if self._path is None or not rows:
            return
        text = "".join(
            "\t".join(f"{field}".translate(_BLANKS) for field in (since, *where, *spent)) + "\n"
            for where, spent in rows.items()
        )
        try:
            opened = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
            try:
                if os.fstat(opened).st_size < _MOST_BYTES:
                    os.write(opened, text.encode("utf-8", "replace"))
            finally:
                os.close(opened)
        except OSError:  # a full disk, or the program is over and its trace read
            return


_BLANKS = {ord(character): " " for character in "\t\n\r"}


def _name(frame: FrameType) -> str:
    return getattr(frame.f_code, "co_qualname", frame.f_code.co_name)


def _is_runnable(number: int) -> bool:
    """Whether the kernel has a thread on a core or in the queue for one (proc_pid_stat(5))."""
    try:
        with open(f"/proc/self/task/{number}/stat", "rb") as opened:
            return opened.read(512).rpartition(b")")[2].split()[0] == b"R"
    except (OSError, IndexError):
        return False


def _native_ids() -> dict[int, int]:
    """Identifier of each thread → the kernel's number; nothing before `threading` is imported."""
    threading: Any = sys.modules.get("threading")
    if threading is None:
        return {_MAIN_IDENT: os.getpid()}
    active = list(getattr(threading, "_active", {}).items())
    return {ident: thread.native_id for ident, thread in active if thread.native_id}
