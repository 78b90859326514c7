"""`make all` as a reviewer's evening goes: the paper's images from a store that fails, two kills.

A mock network takes a T4's times (its rows say so: weights none, service_ms), and a local server
has the bucket's layout, with 200 images in each set. The experiments are those of most claims: all
take half an hour on a busy machine.
"""

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from experiments.t4 import cells as t4
from harness.table import read_table
from paper import claims
from tests.conftest import ROOT
from tests.harness.corpora.abo import bucket
from tests.harness.corpora.abo.faulty_store import FaultyStore, always, first

N = 200
#: Those that most claims are about.
EXPERIMENTS = "profiler,decoders,serialization,serial,cpu,t4,opt,layers,suite"
#: All answers for a folder are missing; a third of the others fails twice before it comes.
MISSING = ("/small/03/", "/original/03/")
STORM = ("503", "slowdown", "503", "reset", "truncated")


def break_answers(path: str, count: int) -> str:
    return always("404", *MISSING)(path, count) or first(STORM, times=2, share=0.33)(path, count)


class Evening:
    """The command, typed again and again in one folder."""

    def __init__(self, folder: Path, endpoint: str) -> None:
        self.out = folder / "data"
        settings = [
            *("corpus=abo", f"corpus.endpoint={endpoint}"),
            *(f"max_images.cpu.{name}={N}" for name in ("small_256", "original")),
            "device=cpu",
            "model=null",
            "model.service_ms=8",
            "model.service_ms_per_image=3.8",
            *("repeats=1", f"out={self.out}", f"figures={folder}/figures"),
            *("--experiment", EXPERIMENTS),
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


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_an_evening_with_a_t4(tmp_path: Path) -> None:
    objects = bucket.objects(N, 50)
    damaged = [f"images/small/{row[3]}" for row in bucket.rows(N, 50) if row[3][:2] != "03"][7]
    objects[damaged] = objects[damaged][:200]
    with FaultyStore(objects) as store:
        store.decide = break_answers
        evening = Evening(tmp_path, store.endpoint)
        killed, _ = evening.type(lambda: evening.count("corpora/abo-*/small_256/*/*.jpg") > N // 3)
        assert killed == -signal.SIGKILL
        killed, _ = evening.type(lambda: evening.count("runs/*/*/COMPLETE") > 20)
        assert killed == -signal.SIGKILL
        requests = store.total
        status, printed = evening.type()
        assert store.total == requests, "the images were complete before"
    assert status == 0, printed
    assert store.faults["503"] > 100
    reused = re.search(r"(\d+) cells to measure, (\d+) reused", printed)
    assert reused is not None, printed
    assert int(reused[2]) > 5
    (row,) = read_table(evening.out / t4.CSV)[:1]
    assert (row["corpus"], row["weights"], row["status"]) == ("abo", "none", "ok")
    assert float(row["service_ms"]) > 8
    for verdict in read_table(evening.out / claims.CSV):
        assert verdict["verdict"] in claims.VERDICTS
        assert verdict["ours"] or verdict["reason"], verdict
    failures = read_table(evening.out / "failures.csv")
    missing = [failure for failure in failures if failure["stage"] == "read"]
    assert len(missing) == sum(row[3][:2] == "03" for row in bucket.rows(N, 50)) * 2
    assert {failure["stage"] for failure in failures if failure["image_set"] == "small_256"} == {
        "read",
        "decode",
    }
