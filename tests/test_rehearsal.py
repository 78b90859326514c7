"""`make all` as a reviewer's evening goes: the paper's images from a store that fails, two kills.

A mock network takes a T4's times (its rows say so: weights none, service_ms), and a local server
has the bucket's layout, with 600 images of the usual sizes in each set. It runs every experiment:
of most the quick profile's rows, of the two sweeps all. What needs a real network (`onnx`,
`layers`) is a row with the reason.

    pytest -s -m slow tests/test_rehearsal.py

takes half an hour on two quiet cores, and ends with the minutes that a T4 would take.
"""

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest

from experiments import contents
from experiments.t4 import cells as t4
from harness import records
from harness.corpora import render
from harness.engines import third_party
from harness.progress import Estimator
from harness.table import read_table
from paper import claims
from tests.conftest import ROOT
from tests.harness.corpora.abo import bucket
from tests.harness.corpora.abo.faulty_store import FaultyStore, always, first
from tests.harness.test_progress import on_a_t4
from wallclock import machine

#: Images of each set, and how many of them are different: an original takes a second to make.
N, DISTINCT = 600, {"small": 48, "original": 12}
#: All answers for a folder are missing; every other object fails twice before it comes.
MISSING = ("/small/03/", "/original/03/")
STORM = ("503", "slowdown", "503", "reset", "truncated")
ROWS = bucket.rows(N, 50)


def break_answers(path: str, count: int) -> str:
    return always("404", *MISSING)(path, count) or first(STORM, times=2)(path, count)


def objects() -> dict[str, bytes]:
    """The catalogue and both sets; one small image is cut in half."""
    made = {bucket.CATALOGUE: bucket.catalogue(ROWS)}
    for folder, image_set in (("small", "small_256"), ("original", "original")):
        bodies = [render.render(0, image_set, index) for index in range(DISTINCT[folder])]
        for number, row in enumerate(ROWS):
            made[f"images/{folder}/{row[3]}"] = bodies[number % len(bodies)]
    cut = next(f"images/small/{row[3]}" for row in ROWS if row[3][:2] != "03")
    made[cut] = made[cut][: len(made[cut]) // 2]
    return made


class Evening:
    """The command, typed again and again in one folder."""

    def __init__(self, folder: Path, endpoint: str) -> None:
        self.out = folder / "data"
        settings = [
            "corpus=abo",
            f"corpus.endpoint={endpoint}",
            *(f"max_images.cpu.{name}={N}" for name in ("small_256", "original")),
            "experiment.batch.batch_sizes=[1,8,16,32,64,128,256]",
            "experiment.workers.workers=[0,2,4,8,16]",
            "device=cpu",
            "model=null",
            "model.service_ms=8",
            "model.service_ms_per_image=3.8",
            "repeats=1",
            f"out={self.out}",
            f"figures={folder}/figures",
        ]
        words = ["make", "--no-print-directory", "all", f"PY={sys.executable}", "PROFILE=quick"]
        self._command = [*words, f"ARGS={shlex.join(settings)}"]
        self._log = folder / "log"

    def type(self, until: Callable[[], bool] = lambda: False) -> tuple[int, str]:
        """Run it to its end, or kill it once `until` holds; its status and what it printed."""
        with self._log.open("w") as log:
            run = subprocess.Popen(
                self._command, cwd=ROOT, stdout=log, stderr=log, start_new_session=True
            )
            try:
                while run.poll() is None and not until():
                    time.sleep(0.05)
            finally:
                if run.poll() is None:
                    os.killpg(run.pid, signal.SIGKILL)
                run.wait()
        return run.returncode, self._log.read_text(encoding="utf-8")

    def count(self, pattern: str) -> int:
        return sum(1 for _ in self.out.glob(pattern))

    def minutes_on_a_t4(self, estimates: dict[str, float]) -> float:
        """Each experiment's estimate, as many times as this evening's cells took theirs."""
        estimator = Estimator(Path("/nowhere"), machine.usable_cores())
        expected, taken = defaultdict[str, float](float), defaultdict[str, float](float)
        for cell, seconds in records.durations(self.out / "runs"):
            expected[cell.experiment] += estimator.seconds(cell)
            taken[cell.experiment] += seconds
        minutes = 0.0
        for name, estimate in estimates.items():
            times = taken[name] / expected[name] if expected[name] else 1.0
            minutes += times * estimate
            print(f"{name}: {taken[name] / 60:.1f} minutes, {times:.2f} times the estimate")
        return minutes


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_an_evening_with_a_t4(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with FaultyStore(objects()) as store:
        store.decide = break_answers
        evening = Evening(tmp_path, store.endpoint)
        killed, printed = evening.type(
            lambda: evening.count("corpora/abo-*/small_256/*/*.jpg") > N // 3
        )
        assert killed == -signal.SIGKILL, printed
        killed, printed = evening.type(lambda: evening.count("runs/*/*/COMPLETE") > 20)
        assert killed == -signal.SIGKILL, printed
        requests = store.total
        status, printed = evening.type()
        assert store.total == requests, "the images were complete before"
    assert status == 0, printed
    assert store.faults["503"] > N
    reused = re.search(r"(\d+) cells to measure, (\d+) reused", printed)
    assert reused is not None, printed
    assert int(reused[2]) > 10, "those that can be measured here"
    (row,) = read_table(evening.out / t4.CSV)[:1]
    assert (row["corpus"], row["weights"], row["status"]) == ("abo", "none", "ok")
    assert row["service_ms"] == 8 + 32 * 3.8
    for name in contents.ORDER:
        for csv in contents.load(name).TABLES:
            rows = read_table(evening.out / csv)
            assert rows, csv
            assert all(row.get("status", "ok") == "ok" or row["reason"] for row in rows), csv
    for verdict in read_table(evening.out / claims.CSV):
        assert verdict["verdict"] in claims.VERDICTS
        assert verdict["ours"] is not None or verdict["reason"], verdict
    failures = read_table(evening.out / "failures.csv")
    missing = [failure for failure in failures if failure["stage"] == "read"]
    assert len(missing) == 2 * sum(row[3][:2] == "03" for row in ROWS)
    assert {failure["stage"] for failure in failures if failure["image_set"] == "small_256"} == {
        "read",
        "decode",
    }
    monkeypatch.setattr(third_party, "is_installed", lambda name: True)
    monkeypatch.setattr(machine, "gpus", lambda: [{"name": "Tesla T4"}])
    estimates = {
        name: minutes for name, (_, minutes) in on_a_t4("--n 100000 --experiment all").items()
    }
    predicted = evening.minutes_on_a_t4(estimates)
    print(f"A T4: {predicted:.0f} minutes; the estimate is {sum(estimates.values()):.0f}.")
