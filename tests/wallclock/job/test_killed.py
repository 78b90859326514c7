"""`wallclock embed` killed at random moments of its start, its work and its commits."""

import random
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.testbed.killing import Job, kill_at_random
from tests.conftest import ROOT
from tests.wallclock.job.conftest import QUICK
from wallclock.job.dataset import open_existing
from wallclock.recipe import SINKS

#: The command, with its commits as phases.
PHASED = """
import sys
from wallclock.job.dataset import Dataset
from wallclock.__main__ import main

def phased(name, function):
    def call(*arguments):
        print("phase", name, flush=True)
        function(*arguments)
        print("phase work", flush=True)
    return call

for name in ("remove_leftovers", "describe", "commit"):
    setattr(Dataset, name, phased(name, getattr(Dataset, name)))
sys.exit(main())
"""


def vectors(out: Path | str) -> Iterator[tuple[str, bytes]]:
    """Every image with its vector's bytes, or with why it has none."""
    dataset = open_existing(out)
    assert dataset is not None
    for number in dataset.committed():
        ids = dataset.rows(number, ["id"])["id"].to_pylist()
        yield from zip(ids, map(bytes, dataset.vectors(number)), strict=True)
        for row in dataset.failures(number):
            yield row["id"], row["reason"].encode()


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(10))
def test_exactly_once(images: Path, tmp_path: Path, seed: int) -> None:
    """Twenty kills for each of ten random settings."""
    rng = random.Random(seed)
    sizes = {"batch": rng.randint(1, 9), "shard": rng.randint(1, 20), "workers": rng.randint(1, 4)}
    sizes["processes"] = rng.randint(1, 3)
    settings = {**QUICK, **sizes, "service_ms": 15, "sink": SINKS[seed % len(SINKS)]}
    words = [f"{name}={value}" for name, value in settings.items()]
    job = Job(
        lambda out: [sys.executable, "-c", PHASED, "embed", str(images), str(out), *words],
        vectors,
        env={"PYTHONPATH": str(ROOT / "code")},
    )
    kills = Counter[str]()
    for attempt in range(5):  # a job on a busy machine may end before a moment comes
        out = tmp_path / f"{attempt}"
        out.mkdir()
        report = kill_at_random(job, out, seed + 100 * attempt, rounds=10, kills=4)
        assert report.exactly_once, report
        kills += report.kills
        if kills.total() >= 20:
            break
    assert kills.total() >= 20
    assert kills.keys() > {"work"}
