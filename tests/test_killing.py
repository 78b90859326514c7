"""The harness finds what a job that is not crash-safe loses, doubles or changes."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.killing import Job, kill_at_random

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


def read_vectors(out: Path) -> Iterator[tuple[str, bytes]]:
    for path in out.glob("v?"):
        yield path.name, path.read_bytes()
    if (out / "vectors").exists():
        for line in (out / "vectors").read_bytes().splitlines():
            name, _, vector = line.partition(b" ")
            yield name.decode(), vector


def toy(how: str) -> Job:
    return Job(lambda out: [sys.executable, "-S", "-c", TOY, how, str(out)], read_vectors)


def test_a_safe_job_passes(tmp_path: Path) -> None:
    report = kill_at_random(toy("safe"), tmp_path, seed=0, rounds=3)
    assert report.exactly_once, report
    assert report.kills.total() >= 2
    assert report.kills.keys() <= {"start", "work", "between"}


@pytest.mark.parametrize(
    ("how", "fault"),
    [
        ("doubled", "doubled"),
        pytest.param("torn", "different", marks=SLOW),
        pytest.param("missing", "missing", marks=SLOW),
    ],
)
def test_an_unsafe_job_is_found(tmp_path: Path, how: str, fault: str) -> None:
    report = kill_at_random(toy(how), tmp_path, seed=1, rounds=6)
    assert getattr(report, fault), report
    assert report.kills["between"]
    assert f"{fault} ['" in str(report)
