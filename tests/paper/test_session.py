"""What a run says first and last, and what it leaves where a cell is killed."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from experiments import decoders
from paper import claims
from paper.csvfile import read_table
from paper.session import random_weights, run_session
from paper.settings import load, translate
from tests.experiments import made


@pytest.mark.parametrize(
    ("words", "warns"),
    [
        ("--experiment diagnose model.weights=random", True),
        ("--experiment diagnose,serial model.weights=random", True),
        ("--experiment serial model.weights=random", False),
        ("--experiment diagnose model=null", False),
    ],
)
def test_a_diagnosis_without_a_model_says_so(words: str, warns: bool) -> None:
    """The paper's own experiments are of speed, and name the weights in every row."""
    lines = random_weights(load(translate([*words.split(), "device=cpu"])))
    assert len(lines) == warns
    for line in lines:
        assert line.startswith("RANDOM WEIGHTS: ")
        assert "MODEL=" in line
        assert "\n" not in line


@contextmanager
def killed(label: str, runs: Path) -> Iterator[None]:
    """The kernel's part where memory ends: each worker that measures this cell gets SIGKILL."""
    ended = threading.Event()

    def kill() -> None:
        while not ended.wait(0.005):
            if list(runs.glob(f"*/.{label}*.work")):
                for child in psutil.Process().children():
                    with suppress(psutil.NoSuchProcess):
                        child.kill() if "harness.worker" in child.cmdline() else None

    with ThreadPoolExecutor(1) as pool:
        killing = pool.submit(kill)
        try:
            yield
        finally:
            ended.set()
            killing.result()


def test_a_run_survives_a_cell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is a row with the reason; all is published; the same command measures what is missing."""
    words = ["experiment=[decoders]", "repeats=1", "experiment.decoders.decoders=[pil,opencv]"]
    settings = made.plan(tmp_path, *words, f"figures={tmp_path / 'figures'}").settings
    with killed("opencv-original", settings.runs):
        assert run_session(settings, "test") == 1
    printed = capsys.readouterr()
    assert "2 cells measured, 0 reused, 1 crashed" in printed.out
    assert printed.err.splitlines() == [
        "wallclock: 1 cell crashed twice: the same command tries again; "
        f"output: {settings.runs}/*/*/stderr.txt",
        "wallclock: decoders/opencv-original original #1: killed by SIGKILL (out of memory?)",
    ]
    rows = {row["decoder"]: row for row in read_table(settings.out / decoders.CSV)}
    assert (rows["pil"]["status"], rows["opencv"]["status"]) == ("ok", "error")
    assert rows["opencv"]["reason"] == "killed by SIGKILL (out of memory?)"
    verdicts = read_table(settings.out / claims.CSV)
    assert len(verdicts) == len(claims.load(claims.CLAIMS))
    assert "killed by SIGKILL" in (settings.figures / "report.html").read_text("utf-8")
    assert (settings.figures / "fig-03-decoder-comparison.svg").exists()
    assert run_session(settings, "test") == 0
    printed = capsys.readouterr()
    assert "1 cells measured, 2 reused" in printed.out
    assert printed.err == ""
    assert {row["status"] for row in read_table(settings.out / decoders.CSV)} == {"ok"}
