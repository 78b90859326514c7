"""The harness finds what a job that is not crash-safe loses, doubles or changes."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.testbed.killing import Job, kill_at_random

SLOW = pytest.mark.slow
#: Four vectors in order, in two steps with a pause between them. `safe` writes beside
#: and renames; `torn` writes in place; `doubled` and `missing` count what they have appended,
#: afterwards or before.
TOY = """
import os, sys, time
from pathlib import Path

how, out = sys.argv[1], Path(sys.argv[2])
out.mkdir(exist_ok=True)
counter = out / ".done"
print("phase work", flush=True)

def pause():
    print("phase between", flush=True)
    time.sleep(0.02)
    print("phase work", flush=True)

def count(i):
    (out / ".new").write_text(str(i + 1))
    os.replace(out / ".new", counter)

def append(i):
    with (out / "vectors").open("a") as file:
        file.write(f"{i} vector{i}\\n")

for i in range(int(counter.read_text()) if counter.exists() else 0, 4):
    path = out / f"v{i}"
    if how in ("doubled", "missing"):
        first, then = (append, count) if how == "doubled" else (count, append)
        first(i), pause(), then(i)
    elif not path.exists():
        target = out / ".part" if how == "safe" else path
        with target.open("w") as file:
            file.write("vec"), file.flush(), pause(), file.write(f"tor{i}")
        os.replace(target, path)
"""


def written(out: Path) -> Iterator[tuple[str, bytes]]:
    for path in out.glob("v?"):
        yield path.name, path.read_bytes()
    if (out / "vectors").exists():
        for line in (out / "vectors").read_bytes().splitlines():
            name, _, vector = line.partition(b" ")
            yield name.decode(), vector


def toy(how: str) -> Job:
    return Job(lambda out: [sys.executable, "-S", "-c", TOY, how, str(out)], written)


def test_a_safe_job_passes(tmp_path: Path) -> None:
    report = kill_at_random(toy("safe"), tmp_path, seed=0, rounds=3)
    assert report.exactly_once, report
    assert report.kills.total() >= 2
    assert report.kills.keys() <= {"start", "work", "between"}


@pytest.mark.parametrize(
    ("how", "found"),
    [
        ("doubled", "doubled"),
        *(
            pytest.param(*pair, marks=SLOW)
            for pair in (("torn", "different"), ("missing", "missing"))
        ),
    ],
)
def test_an_unsafe_job_is_found(tmp_path: Path, how: str, found: str) -> None:
    report = kill_at_random(toy(how), tmp_path, seed=1, rounds=6)
    assert getattr(report, found), report
    assert report.kills["between"]
    assert f"{found} ['" in str(report)


def test_a_job_that_fails_or_repeats_itself(tmp_path: Path) -> None:
    failing = Job(lambda _: [sys.executable, "-S", "-c", "raise SystemExit('no')"], written)
    with pytest.raises(AssertionError, match="no"):
        kill_at_random(failing, tmp_path, seed=0, rounds=1)
    endless = Job(
        lambda _: [sys.executable, "-S", "-c", "import time; time.sleep(60)"], written, limit_s=0.2
    )
    with pytest.raises(AssertionError, match="still running"):
        kill_at_random(endless, tmp_path, seed=0, rounds=1)
    twice = Job(toy("safe").argv, lambda out: [*written(out)] * 2)
    with pytest.raises(AssertionError, match="twice"):
        kill_at_random(twice, tmp_path, seed=0, rounds=1)
