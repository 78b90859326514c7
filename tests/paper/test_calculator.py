"""`python -m paper analytic`: the tutorial's exercises, and a reader's mistakes."""

import re
import subprocess
import sys

import pytest

from experiments import analytic
from paper.__main__ import main
from tests.conftest import ROOT

#: The tutorial's ResNet-50 on an A100: eight workers of 250 MB/s.
STEPS = {32: "5.86", 64: "6.70", 128: "8.38", 256: "11.74", 512: "18.47", 1024: "31.93"}
WORKERS = "--workers 8 --worker-mb-per-s 250"

Capture = pytest.CaptureFixture[str]


def printed(words: str, capsys: Capture) -> list[list[str]]:
    """The lines that a case prints, each by its columns."""
    assert main(["analytic", *words.split()]) == 0
    return [re.split(r" {1,}(?=\S)", line.strip()) for line in capsys.readouterr().out.splitlines()]


def case(batch: int, rest: str = WORKERS, kb: int = 500) -> str:
    return f"--sample-kb {kb} --batch {batch} --step-ms {STEPS[batch]} {rest}"


def test_worked_case(capsys: Capture) -> None:
    _, line = printed(case(256, f"{WORKERS} --storage-gb-per-s 20"), capsys)
    assert " ".join(line) == "256 8 64 ms 11.7 ms 18.3 % 5.45× 44 10.9 GB/s transform"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        # Exercise 1: batch 64, predict first.
        (case(64), "64 8 16 ms 6.7 ms 41.9 % 2.39× 20 4.78 GB/s transform"),
        # Exercise 2: samples of 5 MB; how many workers batch 256 needs.
        (case(256, kb=5000), "256 8 640 ms 11.7 ms 1.8 % 54.5× 437 109 GB/s transform"),
        # Exercise 3: 50 GB/s at batch 512; and with a drive of 7 GB/s, which the source forgets.
        (
            case(512, "--transform-gb-per-s 50"),
            "512 – 5.12 ms 18.5 ms 100.0 % 1.00× – 13.9 GB/s accelerator",
        ),
        (
            case(512, "--transform-gb-per-s 50 --storage-gb-per-s 7"),
            "512 – 5.12 ms 18.5 ms 100.0 % 1.00× – 13.9 GB/s storage",
        ),
        # Self-check: 20 / 35 = 57 %.
        (
            "--sample-kb 1000 --batch 35 --step-ms 20 --transform-gb-per-s 1",
            "35 – 35 ms 20 ms 57.1 % 1.75× – 1.75 GB/s transform",
        ),
    ],
)
def test_exercises(words: str, expected: str, capsys: Capture) -> None:
    _, line = printed(words, capsys)
    assert " ".join(line) == expected


def test_the_source_table_and_its_crossover(capsys: Capture) -> None:
    batches, steps = " ".join(map(str, STEPS)), " ".join(STEPS.values())
    words = f"--sample-kb 500 --batch {batches} --step-ms {steps} --worker-mb-per-s 250"
    heading, *lines, last = printed(f"{words} --workers 8 16", capsys)
    assert heading[:2] == ["batch", "workers"]
    busy = {(line[0], line[1]): line[6] for line in lines}
    expected = {
        (str(row["batch_size"]), str(row["workers"])): f"{100 * row['utilization']:.1f}"
        for row in analytic.source_rows()
        if row["scenario"] in ("workers: 8", "workers: 16")
    }
    assert busy == expected
    assert " ".join(last) == "up to a batch of 22 the accelerator is the slower one"


def test_it_fits_80_columns_and_needs_no_images() -> None:
    """In a process of its own: neither Hydra nor pandas nor torch is loaded."""
    program = (
        "import sys; from paper.__main__ import main; main(sys.argv[1:]);"
        "print([n for n in ('hydra', 'pandas', 'torch') if n in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "analytic", *case(1024).split()],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": f"{ROOT / 'code'}:{ROOT}", "COLUMNS": "80"},
    )
    *table, loaded = done.stdout.splitlines()
    assert len(table) == 2
    assert max(map(len, table)) <= 80
    assert loaded == "[]"


def test_the_sources_llm_comparison() -> None:
    (row,) = (row for row in analytic.source_rows() if row["scenario"] == "LLM, tokens")
    assert f"{1e3 * row['demand_gb_per_s']:.0f} MB/s" == "8 MB/s"
    assert row["bottleneck"] == "accelerator"
    assert "utilization" not in row, "the source names no transform of tokens"
    images = next(row for row in analytic.source_rows() if row["batch_size"] == 256)
    assert round(images["demand_gb_per_s"] / row["demand_gb_per_s"]) == 1300
