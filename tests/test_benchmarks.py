"""The benchmarks: regression, remote, training and trace, each on inputs that are generated."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from benchmarks import regression, remote, trace, training
from benchmarks._common import PX
from benchmarks.regression import RATIOS
from harness import provenance
from harness.protocols import protocol
from harness.table import read_table
from tests import making

#: Images a second in three rounds, the second on a machine that is half as fast.
RATES = {
    "ours": [400.0, 200.0, 400.0],
    "pillow": [50.0, 25.0, 40.0],
    "crop": [300.0, 150.0, 300.0],
    "ours_256": [5000.0, 2500.0, 5000.0],
    "same": [2500.0, 1250.0, 2500.0],
    "bare": [6250.0, 3125.0, 6250.0],
    "embed": [4500.0, 2250.0, 4500.0],
    "parts": [3600.0, 1800.0, 3600.0],
}
MEDIANS = {
    "loader_over_pillow": 8.0,
    "loader_over_same": 2.0,
    "loader_over_bare": 0.8,
    "embed_over_loader": 0.9,
    "parts_over_one": 0.8,
    "crop_over_squash": 0.75,
}


@pytest.fixture
def gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run the command on those rates; others keep so many cores busy."""
    monkeypatch.setattr(regression, "PATH", tmp_path / "regression.csv")

    def run(*arguments: str, rates: dict[str, list[float]] = RATES, busy: float = 0.0) -> int:
        class Competing:
            def __init__(self, values: dict[str, float]) -> None:
                values["other_cores"] = busy

            def __enter__(self) -> None: ...

            def __exit__(self, *error: object) -> None: ...

        monkeypatch.setattr(protocol, "competing", Competing)
        monkeypatch.setattr(regression, "measure", lambda work, rounds, seconds: rates)
        return regression.main(arguments)

    return run


def test_the_command_records_and_compares(gate: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert gate() == 2, "nothing is recorded yet"
    assert gate("--record", busy=0.5) == 2
    assert not regression.PATH.exists()
    assert "not recorded: a run counts on a quiet machine" in capsys.readouterr().err
    assert gate("--record") == gate("--record") == gate() == 0
    rows = read_table(regression.PATH)
    assert len(rows) == 2 * len(RATIOS)
    assert {row["ratio"]: row["value"] for row in rows} == pytest.approx(MEDIANS)
    assert {row["rounds"] for row in rows} == {"3"}
    slower = RATES | {"ours": [rate * 0.8 for rate in RATES["ours"]]}
    capsys.readouterr()
    assert gate(rates=slower) == 1
    printed = capsys.readouterr()
    assert [line.split()[1] for line in printed.err.splitlines()] == [
        "loader_over_pillow",
        "crop_over_squash",
    ]
    assert "6.400  (6.400 to 8.000; 7.273 to 8.800)" in printed.out


@pytest.mark.slow
def test_the_parts_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A round of short passes over few images."""
    monkeypatch.setattr(regression, "_FILES", {"original": 4, "small_256": 64})
    monkeypatch.setattr(provenance, "ROOT", tmp_path)
    rates = regression.measure(tmp_path, rounds=1, seconds=0.1)
    assert {name: len(values) for name, values in rates.items()} == dict.fromkeys(RATES, 1)
    assert min(value for values in rates.values() for value in values) > 0


def test_every_reader_reads_the_same_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files, HTTP, S3, `make data` and the peers that are installed; the others have a reason."""
    monkeypatch.setattr(os, "environ", os.environ.copy())
    paths = [tmp_path / f"{number}.jpg" for number in range(5)]
    for number, path in enumerate(paths):
        path.write_bytes(making.jpeg(60, 50, number))
    other = lambda place: [np.zeros((5, PX, PX, 3), np.uint8)]  # noqa: E731
    monkeypatch.setattr(remote, "READERS", {**remote.READERS, "another": other})
    (tmp_path / "served").mkdir()
    readers = [*remote.OURS, "boto3 in a pool", "obstore in a pool", "another"]
    passes, reasons = remote.measure(paths, tmp_path / "served", readers, 1, 0.0)
    rows = {row["reader"]: row for row in remote.make_rows("folder", 5, passes, reasons)}
    assert rows.keys() == {*readers}
    for name in readers[:5]:
        row = rows[name]
        assert (row["status"], row["rounds"]) == ("ok", 1)
        assert 0 < row["cpu_us_min"] <= row["cpu_us"] <= row["cpu_us_max"]
        assert 0 < row["img_per_s_min"] <= row["img_per_s"]
    assert rows["files"]["over_files_us"] == 0
    assert rows["another"]["reason"] == "its images are not those of the files"
    assert rows["another"]["cpu_us"] is None


@pytest.mark.parametrize("dtype", training.DTYPES)
def test_every_loader_for_training_makes_the_same_rows(tmp_path: Path, dtype: str) -> None:
    """Of images of one colour each, whose crops are all alike."""
    paths = [str(tmp_path / f"{number}.jpg") for number in range(3)]
    for number, path in enumerate(paths):
        Image.new("RGB", (700 - 200 * number, 500), (90 * number, 40, 200)).save(path)
    ours, theirs = (np.concatenate([*load(paths, dtype)]) for load in training.LOADERS.values())
    assert ours.dtype == theirs.dtype == dtype
    assert np.allclose(ours, theirs, atol=0.02 if dtype == "float32" else 1)


def test_stages_of_py_spys_frames() -> None:
    """The innermost known frame counts; of a program with no known one there is no difference."""
    lines = [
        "<module> (/a.py:3);Module._call_impl (/x/torch/nn/modules/module.py:9);relu (/y.py:2) 30",
        "<module> (/a.py:3);open (/x/PIL/Image.py:5);ImageFile.load (/x/PIL/ImageFile.py:7) 10",
        "<module> (/a.py:4);load (/elsewhere.py:7) 60",
    ]
    sampled = trace.sampled_shares(lines)
    assert sampled == {"forward": 0.75, "decode": 0.25}
    traced = {"main": {"forward": 2.0, "wait": 9.0}, "workers": {"decode": 2.0}}
    assert trace.greatest_difference(traced, sampled) == 0.25
    assert trace.greatest_difference(traced, {}) == ""
