"""Memory does not grow with the number of images."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import making
from tests.conftest import RunMain
from wallclock import records


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_peak_memory_is_flat_from_500_to_5000_images(run_main: RunMain, tmp_path: Path) -> None:
    """Small images, no forward pass: memory is one batch and one row group of vectors."""
    images = tmp_path / "images"
    images.mkdir()
    data = [making.jpeg(256, 192, seed=seed, quality=80) for seed in range(50)]
    for index in range(5_000):
        (images / f"{index:04}.jpg").write_bytes(data[index % 50])
    peaks: dict[int, dict[str, float]] = {}
    for n in (500, 5_000):
        out = tmp_path / f"data {n}"
        done = run_main(
            *("--experiment", "serial", "--n", f"{n}", "corpus=folder", f"corpus.path={images}"),
            *("corpus.image_set=small_256", "repeats=1", "model=null", "device=cpu"),
            *(f"out={out}", f"figures={tmp_path / 'figures'}"),
            timeout=600,
        )
        assert done.returncode == 0, done.stderr
        peaks[n] = {
            record.cell.label: record.values["peak_memory_mib"]
            for record in records.load_experiment(out / "runs", "serial")
            if record.cell.protocol == "serial"
        }
    assert len(peaks[500]) == 3
    for label, few in peaks[500].items():
        assert peaks[5_000][label] <= few * 1.1, label
