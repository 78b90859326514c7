"""Change the source in one place, run the tests that ought to notice, and count those that do.

    python -m tests.mutants.run              every mutant, in a copy of the checkout for each core
    python -m tests.mutants.run job/stores   those whose file or name contains one of the words

A mutant is an entry of one of the tables beside this file:

    [[mutant]]
    name = "the vectors of a batch are late"      what is wrong
    file = "code/wallclock/loader/ring.py"        where
    old = "text that the file has exactly once"
    new = "what it says instead"
    tests = ["tests/wallclock/loader/test_ring.py::test_ordered_and_complete"]
    equivalent = "why no test can notice"         only where that is so: its tests must pass

pytest runs `tests` with `-x`: name what fails soonest.
"""

import ast
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from queue import SimpleQueue

ROOT = Path(__file__).resolve().parents[2]
#: What a copy has: the code, its tests, and what these read.
COPIED = ("code", "experiments", "conf", "data/paper", "tests", "pyproject.toml")

KILLED = "killed"
SURVIVED = "survived"
EQUIVALENT = "equivalent"
#: The tests could not be run: a module is not imported, or a test is not there.
BROKEN = "broken"
#: One that is said to be equivalent, and is not.
NOTICED = "not equivalent"
GOOD = frozenset({KILLED, EQUIVALENT})

#: Seconds for one test, and for all tests of one mutant; a mutant that hangs is noticed.
_TEST_S, _ALL_TESTS_S = 60, 300
#: Exit codes of pytest.
_PASSED, _FAILED = 0, 1


class TableError(Exception):
    """The entry of a mutant does not fit the source; the text says which, and why."""


@dataclass(frozen=True)
class Mutant:
    """One change of one file, and the tests that fail with it."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    equivalent: str = ""

    @property
    def label(self) -> str:
        """The file and what is wrong."""
        return f"{self.file}: {self.name}"

    def apply(self, root: Path) -> str:
        """The changed text of its file below `root`.

        Raises TableError: `old` does not occur once, the change is none or no Python, or a file is
        not there.
        """
        path = root / self.file
        if not path.is_file():
            raise TableError(f"{self.label}: there is no such file")
        text = path.read_text(encoding="utf-8")
        if (times := text.count(self.old)) != 1:
            raise TableError(f"{self.label}: its file has this {times} times:\n{self.old}")
        changed = text.replace(self.old, self.new)
        try:
            if ast.dump(ast.parse(changed)) == _code_of(text):
                raise TableError(f"{self.label}: it changes no code")
        except SyntaxError as error:
            raise TableError(f"{self.label}: it is no Python: {error}") from error
        for test in self.tests:
            if not (root / test.partition("::")[0]).is_file():
                raise TableError(f"{self.label}: there is no {test}")
        return changed


@cache
def _code_of(text: str) -> str:
    """What a source says, without its comments and its layout."""
    return ast.dump(ast.parse(text))


@dataclass(frozen=True)
class Trial:
    """What became of a mutant; `printed`, of pytest."""

    mutant: Mutant
    outcome: str
    seconds: float
    printed: str = ""


def load(folder: Path = Path(__file__).parent, words: Sequence[str] = ()) -> list[Mutant]:
    """The mutants of all tables in a folder; with `words`, those whose label contains one.

    Raises TableError: two have one name, or an entry lacks a field, its tests or has another one.
    """
    mutants: list[Mutant] = []
    for path in sorted(folder.glob("*.toml")):
        for entry in tomllib.loads(path.read_text(encoding="utf-8"))["mutant"]:
            try:
                mutants.append(Mutant(**{**entry, "tests": tuple(entry["tests"])}))
            except (KeyError, TypeError) as error:
                raise TableError(f"{path.name}: {entry.get('name')}: {error}") from error
            if not mutants[-1].tests:
                raise TableError(f"{path.name}: {mutants[-1].name}: it names no tests")
    for label, times in Counter(mutant.label for mutant in mutants).items():
        if times > 1:
            raise TableError(f"{times} mutants are called {label}")
    return [
        mutant for mutant in mutants if not words or any(word in mutant.label for word in words)
    ]


def check(mutants: Iterable[Mutant], root: Path = ROOT) -> None:
    """Raise TableError, a line for each, for the entries that do not fit the source."""
    faults = []
    for mutant in mutants:
        try:
            mutant.apply(root)
        except TableError as error:
            faults.append(str(error))
    if faults:
        raise TableError("\n".join(faults))


class Copy:
    """A copy of the checkout in which one mutant after the other is tried."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.folder = folder
        # Python takes compiled code for that of a source of equal size and time (in seconds).
        self._mtime_s = 1_000_000_000
        ignored = shutil.ignore_patterns("__pycache__", ".hypothesis")
        for name in COPIED:
            source, target = root / name, folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, target, ignore=ignored)
            elif source.is_file():
                shutil.copy(source, target)

    def test(self, tests: Iterable[str]) -> tuple[int, str]:
        """Run tests; pytest's exit code, 1 where they do not end, and what it printed."""
        options = ["-x", "-q", "--no-header", "-p", "no:cacheprovider", "--hypothesis-seed=0"]
        options += ["--timeout", f"{_TEST_S}"]
        paths = [str(self.folder / "code"), str(self.folder)]
        process = subprocess.Popen(
            [sys.executable, "-m", "pytest", *options, *tests],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )
        try:
            printed, _ = process.communicate(timeout=_ALL_TESTS_S)
            return process.returncode, printed
        except subprocess.TimeoutExpired:
            return _FAILED, f"not over after {_ALL_TESTS_S} s"
        finally:
            with suppress(ProcessLookupError):  # also what the tests have left behind
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def try_mutant(self, mutant: Mutant) -> Trial:
        """Run a mutant's tests with it."""
        path, began = self.folder / mutant.file, time.monotonic()
        before = path.read_text(encoding="utf-8")
        self._write(path, mutant.apply(self.folder))
        try:
            code, printed = self.test(mutant.tests)
        finally:
            self._write(path, before)
        outcomes = {_PASSED: SURVIVED, _FAILED: KILLED}
        if mutant.equivalent:
            outcomes = {_PASSED: EQUIVALENT, _FAILED: NOTICED}
        seconds = time.monotonic() - began
        return Trial(mutant, outcomes.get(code, BROKEN), seconds, printed)

    def _write(self, path: Path, text: str) -> None:
        path.write_text(text, encoding="utf-8")
        self._mtime_s += 1
        os.utime(path, (self._mtime_s, self._mtime_s))


def try_all(
    mutants: Sequence[Mutant],
    root: Path = ROOT,
    say: Callable[[str], None] = print,
    copies: int | None = None,
) -> list[Trial]:
    """Try mutants, each in one of the copies, once all their tests passed without any.

    Args:
        copies: how many are tried at once; by default one a core.

    Raises TableError: an entry does not fit the source, or a test fails without a mutant.
    """
    check(mutants, root)
    number = min(copies or len(os.sched_getaffinity(0)), len(mutants))
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder, _pool(number) as pool:
        free = SimpleQueue[Copy]()
        for copy in range(number):
            free.put(Copy(root, Path(folder) / str(copy)))

        def test(tests: Sequence[str]) -> tuple[int, str]:
            copy = free.get()
            try:
                return copy.test(tests)
            finally:
                free.put(copy)

        def try_mutant(mutant: Mutant) -> Trial:
            copy = free.get()
            try:
                return copy.try_mutant(mutant)
            finally:
                free.put(copy)

        began = time.monotonic()
        for code, printed in pool.map(test, _shares(mutants, number)):
            if code != _PASSED:
                raise TableError(f"tests fail without a mutant:\n{printed}")
        say(f"all tests pass without a mutant ({time.monotonic() - began:.0f} s)")
        trials: list[Trial] = []
        for trial in pool.map(try_mutant, mutants):
            trials.append(trial)
            done = f"[{len(trials)}/{len(mutants)}] {trial.outcome:<10} {trial.seconds:5.1f} s"
            say(f"{done}  {trial.mutant.label}")
        return trials


def _pool(number: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max(number, 1), "mutants")


def _shares(mutants: Sequence[Mutant], number: int) -> list[list[str]]:
    """All tests, a module's together, in so many shares."""
    by_module: dict[str, set[str]] = {}
    for mutant in mutants:
        for test in mutant.tests:
            by_module.setdefault(test.partition("::")[0], set()).add(test)
    modules = sorted(by_module)
    shares = [modules[first::number] for first in range(number)]
    return [
        [test for module in share for test in sorted(_widest(by_module[module], module))]
        for share in shares
        if share
    ]


def _widest(tests: set[str], module: str) -> set[str]:
    """A module's tests without those that another one names already."""
    if module in tests:
        return {module}
    return {test for test in tests if test.partition("[")[0] not in tests - {test}}


def table(trials: Sequence[Trial]) -> str:
    """How many of each outcome, by file and in all."""
    outcomes = [KILLED, EQUIVALENT, SURVIVED, NOTICED, BROKEN]
    counts: Mapping[str, Counter[str]] = {trial.mutant.file: Counter() for trial in trials}
    for trial in trials:
        counts[trial.mutant.file][trial.outcome] += 1
    rows = [*sorted(counts.items()), ("total", sum(counts.values(), Counter()))]
    width = max(len(name) for name, _ in rows)
    there = [name for name in outcomes if rows[-1][1][name] or name == KILLED]
    lines = ["  ".join([" " * width, "mutants", *there])]
    for name, count in rows:
        cells = [f"{count.total():>7}", *(f"{count[one]:>{len(one)}}" for one in there)]
        lines.append("  ".join([f"{name:<{width}}", *cells]))
    return "\n".join(lines)


def main(words: Sequence[str]) -> int:
    """Try the mutants; 0 where tests noticed each that they can notice."""
    began = time.monotonic()
    try:
        mutants = load(words=words)
        trials = try_all(mutants, say=lambda line: print(line, flush=True))
    except TableError as error:
        print(error, file=sys.stderr)
        return 2
    bad = [trial for trial in trials if trial.outcome not in GOOD]
    for trial in bad:
        print(f"\n{trial.outcome}: {trial.mutant.label}\n{trial.printed.strip()[-2000:]}")
    seconds = time.monotonic() - began
    print(f"\n{table(trials)}\n{len(trials)} mutants, {len(bad)} of them bad, {seconds:.0f} s")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
