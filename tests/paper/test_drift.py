"""Drift between two folders of files, and its statistic against the textbook's definition."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paper.csvfile import read_table
from paper.drift import kolmogorov_smirnov
from tests import making
from tests.conftest import ROOT

samples = st.lists(st.floats(-100, 100), min_size=1, max_size=30)


@given(samples, samples)
def test_statistic_is_the_largest_distance(a: list[float], b: list[float]) -> None:
    distances = [abs(np.mean([v <= x for v in a]) - np.mean([v <= x for v in b])) for x in (*a, *b)]
    assert kolmogorov_smirnov(a, b) == pytest.approx(max(distances))
    assert kolmogorov_smirnov(a, a) == 0


def test_empty_sample_has_no_statistic() -> None:
    with pytest.raises(ValueError, match="empty"):
        kolmogorov_smirnov([], [1.0])


def drift(a: Path, b: Path, out: Path) -> tuple[str, dict[str, dict[str, str]]]:
    """What the command prints, and the rows of its table by measure."""
    command = [sys.executable, "-m", "paper.drift", "--a", str(a), "--b", str(b)]
    done = subprocess.run(
        [*command, "--out", str(out)], cwd=ROOT / "code", capture_output=True, text=True, timeout=60
    )
    if done.returncode:
        return done.stderr, {}
    return done.stdout, {row["measure"]: row for row in read_table(out / "drift.csv")}


def fill(path: Path, side: int, *, brighter: int = 0, progressive: bool = False) -> Path:
    path.mkdir()
    for seed in range(40):
        pixels = making.picture(side + seed, side, seed).astype(int) + brighter
        data = making.encode(pixels.clip(0, 255).astype(np.uint8), progressive=progressive)
        (path / f"{seed}.jpg").write_bytes(data)
    return path


def test_changed_measures_are_named(tmp_path: Path) -> None:
    small = fill(tmp_path / "small", 64)
    large = fill(tmp_path / "large, now", 128, progressive=True)
    printed, rows = drift(small, large, tmp_path / "out")
    drifted = {name for name, row in rows.items() if row["drifted"] == "yes"}
    shares = {"share of JPEG baseline", "share of JPEG progressive"}
    assert {"megapixels", "longest_px"} | shares <= drifted
    assert "brightness" not in drifted
    assert rows["share of JPEG progressive"]["verdict"] == "drifted: 0% to 100% of the images"
    assert float(rows["megapixels"]["shift"]) > 1
    assert rows["megapixels"]["status"] == "ok"
    assert "40 images of A, 40 of B: drift in " in " ".join(printed.split())


def test_brightness_alone_and_no_drift(tmp_path: Path) -> None:
    dark, bright = fill(tmp_path / "dark", 48), fill(tmp_path / "bright", 48, brighter=60)
    rows = drift(dark, bright, tmp_path / "out")[1]
    assert rows["brightness"]["drifted"] == "yes"
    assert rows["megapixels"]["drifted"] == rows["longest_px"]["drifted"] == "no"
    printed = drift(dark, dark, tmp_path / "out")[0]
    assert printed.splitlines()[-1] == "40 images of A, 40 of B: no drift"


def test_folder_without_images_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (line,) = drift(tmp_path / "empty", tmp_path, tmp_path / "out")[0].strip().splitlines()
    assert line.startswith("wallclock: no image under")
