"""Tests that can fail: with a change of the source in one place, a named test fails.

`tests/test_mutations.py` corrupts data while a pass runs, and asks the gates; here tests are asked.
"""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.mutants.run import (
    BROKEN,
    EQUIVALENT,
    KILLED,
    NOTICED,
    SURVIVED,
    Copy,
    Mutant,
    TableError,
    check,
    load,
    table,
    try_all,
)

SOURCE = "def larger(a, b):\n    return a if a > b else b\n"
TESTS = """
from toy import larger

def test_larger():
    assert larger(1, 2) == larger(2, 1) == 2

def test_any():
    assert larger(0, 0) == 0
"""
ENTRY = '[[mutant]]\nname = "n"\nfile = "f"\nold = "o"\nnew = ""\n'
MUTANT = Mutant(
    "the smaller one", "code/toy.py", "a > b", "a < b", ("tests/test_toy.py::test_larger",)
)
WEAK = replace(MUTANT, name="weak", tests=("tests/test_toy.py::test_any",))
EQUAL = replace(MUTANT, name="equal", new="a >= b", equivalent="of equal ones either is larger")


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    """A checkout with one module and its tests."""
    for name, text in (
        ("code/toy.py", SOURCE),
        ("tests/test_toy.py", TESTS),
        ("pyproject.toml", '[tool.pytest.ini_options]\npythonpath = ["code"]\ntimeout = 60\n'),
    ):
        path = tmp_path / "checkout" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return tmp_path / "checkout"


def run_toy(copy: Copy, tests: Iterable[str]) -> tuple[int, str]:
    """As pytest would, in this process: exit code 2 where the module is not imported."""
    namespace: dict[str, Any] = {}
    exec((copy.folder / "code" / "toy.py").read_text(encoding="utf-8"), namespace)
    if "larger" not in namespace:
        return 2, "not imported"
    passed = {
        "tests/test_toy.py::test_larger": namespace["larger"](1, 2) == 2,
        "tests/test_toy.py::test_any": namespace["larger"](0, 0) == 0,
    }
    return (0 if all(passed[test] for test in tests) else 1), "printed"


def test_what_becomes_of_a_mutant(toy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is tried in the source as it was, whatever was tried before."""
    monkeypatch.setattr(Copy, "test", run_toy)
    expected = {
        MUTANT: KILLED,
        WEAK: SURVIVED,
        EQUAL: EQUIVALENT,
        replace(MUTANT, name="not equal", equivalent="a mistake"): NOTICED,
        replace(MUTANT, name="not imported", old="def larger", new="def lesser"): BROKEN,
        replace(EQUAL, name="the last one", equivalent=""): SURVIVED,
    }
    said: list[str] = []
    trials = try_all([*expected], toy, said.append, copies=2)
    assert {trial.mutant: trial.outcome for trial in trials} == expected
    assert len(said) == len(expected) + 1
    assert f"[1/{len(expected)}] {KILLED}" in said[1]
    lines = table(trials).splitlines()
    assert lines[0].split() == [
        *("mutants", KILLED, EQUIVALENT, SURVIVED),
        *(*NOTICED.split(), BROKEN),
    ]
    assert lines[1].split() == ["code/toy.py", "6", "1", "1", "2", "1", "1"]
    assert lines[2].split() == ["total", "6", "1", "1", "2", "1", "1"]


def test_pytest_tries_it_in_a_copy(toy: Path) -> None:
    (trial,) = try_all([MUTANT], toy, print)
    assert trial.outcome == KILLED
    assert "1 failed" in trial.printed
    assert (toy / "code" / "toy.py").read_text(encoding="utf-8") == SOURCE


def test_tests_that_fail_without_a_mutant(toy: Path) -> None:
    gone = replace(MUTANT, tests=("tests/test_toy.py::test_gone",))
    with pytest.raises(TableError, match=r"fail without a mutant:\n(.*\n)*.*test_gone"):
        try_all([gone], toy, print)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"old": "a > c"}, "its file has this 0 times"),
        ({"old": "a"}, "its file has this 4 times"),
        ({"new": "a > b "}, "it changes no code"),
        ({"new": "a >"}, "it is no Python"),
        ({"file": "code/gone.py"}, "there is no such file"),
        ({"tests": ("tests/gone.py::test_it",)}, "there is no tests/gone.py"),
    ],
)
def test_an_entry_that_does_not_fit(toy: Path, changes: dict[str, Any], why: str) -> None:
    bad = replace(MUTANT, **changes)
    check([MUTANT, WEAK], toy)
    with pytest.raises(TableError, match=f"(?s)the smaller one: {why}.*the smaller one: {why}"):
        check([MUTANT, bad, WEAK, bad], toy)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("tests = []", "names no tests"),
        ('tests = ["t"]\nwhy = "x"', "unexpected keyword argument 'why'"),
        ("", "'tests'"),
        (
            'tests = ["t"]\n[[mutant]]\nname = "n"\nfile = "f"\nold = "o"\nnew = ""\ntests = ["t"]',
            "2",
        ),
    ],
)
def test_a_table_with_a_mistake(text: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "area.toml").write_text(ENTRY + text, encoding="utf-8")
    with pytest.raises(TableError, match=why):
        load(tmp_path)


def test_the_tables_fit_the_source() -> None:
    """Who changes a line that a mutant changes, changes the mutant."""
    mutants = load()
    assert len(mutants) >= 60
    check(mutants)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_tests_notice_every_mutant() -> None:
    trials = try_all(load())
    print(table(trials))
    good = (KILLED, EQUIVALENT)
    assert [f"{t.outcome}: {t.mutant.label}" for t in trials if t.outcome not in good] == []
