"""Drift between two folders of real files, and its statistic against the textbook's definition."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import making
from tests.conftest import ROOT
from wallclock.paper.csvfile import read_columns, read_table
from wallclock.summary import kolmogorov_smirnov

numbers = st.lists(st.floats(-100, 100), min_size=1, max_size=30)


@given(numbers, numbers)
def test_the_statistic_is_the_largest_distance_of_the_two_distributions(
    a: list[float], b: list[float]
) -> None:
    distances = [abs(np.mean([v <= x for v in a]) - np.mean([v <= x for v in b])) for x in (*a, *b)]
    assert kolmogorov_smirnov(a, b) == pytest.approx(max(distances))
    assert kolmogorov_smirnov(a, a) == 0


def test_an_empty_sample_has_none() -> None:
    with pytest.raises(ValueError, match="empty"):
        kolmogorov_smirnov([], [1.0])


def drift(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "wallclock.drift", *arguments]
    return subprocess.run(
        command, cwd=ROOT / "code", capture_output=True, text=True, check=False, timeout=60
    )


def folder(path: Path, side: int, *, bright: int = 0, progressive: bool = False) -> Path:
    path.mkdir()
    for seed in range(40):
        pixels = np.clip(
            making.picture(side + seed, side, seed).astype(int) + bright, 0, 255
        ).astype(np.uint8)
        (path / f"{seed}.jpg").write_bytes(making.encode(pixels, progressive=progressive))
    return path


def test_what_changed_is_named_and_what_did_not_is_not(tmp_path: Path) -> None:
    was = folder(tmp_path / "was", 64)
    bigger = folder(tmp_path / "it is, now", 128, progressive=True)
    done = drift("--a", str(was), "--b", str(bigger), "--out", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    path = tmp_path / "out" / "drift.csv"
    rows = {row["measure"]: row for row in read_table(path)}
    assert "status" in read_columns(path)
    drifted = {name for name, row in rows.items() if row["drifted"] == "yes"}
    assert {
        "megapixels",
        "longest_px",
        "share of JPEG baseline",
        "share of JPEG progressive",
    } <= drifted
    assert "brightness" not in drifted
    assert rows["share of JPEG progressive"]["verdict"] == "drifted: 0% to 100% of the images"
    assert float(rows["megapixels"]["shift"]) > 1
    assert "40 images of A, 40 of B: drift in " in " ".join(done.stdout.split())


def test_brightness_alone_and_nothing_at_all(tmp_path: Path) -> None:
    was, lit = folder(tmp_path / "was", 48), folder(tmp_path / "lit", 48, bright=60)
    drift("--a", str(was), "--b", str(lit), "--out", str(tmp_path / "out"))
    rows = {row["measure"]: row for row in read_table(tmp_path / "out" / "drift.csv")}
    assert rows["brightness"]["drifted"] == "yes"
    assert rows["megapixels"]["drifted"] == rows["longest_px"]["drifted"] == "no"
    same = drift("--a", str(was), "--b", str(was), "--out", str(tmp_path / "out"))
    assert same.stdout.splitlines()[-1] == "40 images of A, 40 of B: no drift"


def test_a_folder_without_images_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    done = drift(
        "--a", str(tmp_path / "empty"), "--b", str(tmp_path), "--out", str(tmp_path / "out")
    )
    assert done.returncode == 1
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("wallclock: no image under")
