"""`verify` counts images and judges each figure for itself; its sample is the seed's."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.wallclock.job.conftest import DAMAGED, N
from wallclock.job import verify as verification
from wallclock.job.dataset import Dataset, open_existing
from wallclock.job.part import Part
from wallclock.job.verify import verify

Run = Callable[..., Any]
BELOW = "cosines below 0.99 (median) or 0.9 (least)"


def opened(out: Path) -> Dataset:
    dataset = open_existing(out)
    assert dataset is not None
    return dataset


def turned(vectors: npt.NDArray[np.float32], cosine: float) -> npt.NDArray[np.float32]:
    """Vectors of the same lengths with this cosine to each."""
    rng = np.random.default_rng(1)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    units = vectors / lengths
    beside = rng.normal(size=vectors.shape)
    beside -= (beside * units).sum(axis=1, keepdims=True) * units
    beside /= np.linalg.norm(beside, axis=1, keepdims=True)
    mixed = cosine * units + np.sqrt(1 - cosine**2) * beside
    return np.asarray(mixed * lengths, np.float32)


@pytest.mark.parametrize(
    ("share", "cosine", "is_fault"),
    [(1.0, 0.95, True), (0.1, 0.8, True), (0.1, 0.95, False), (1.0, 0.995, False)],
)
def test_median_and_least_are_judged_each(
    share: float,
    cosine: float,
    is_fault: bool,
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All vectors a little off, or some of them by much."""
    run(shard=100)
    right = opened(tmp_path / "out").vectors(0)
    wrong, n = right.copy(), round(share * len(right))
    wrong[:n] = turned(right[:n], cosine)
    monkeypatch.setattr(Dataset, "vectors", lambda *_: wrong)
    verdict = verify(tmp_path / "out", n=N)
    assert (BELOW in verdict.faults) == is_fault
    assert verdict.cosine_min == pytest.approx(cosine, abs=1e-3)


@pytest.mark.parametrize("kind", ["vectors", "failures"])
def test_an_image_that_is_there_twice(kind: str, run: Run, tmp_path: Path) -> None:
    """In place of another one, so that the number of rows is right."""
    out = tmp_path / "out"
    run(shard=100)
    dataset = opened(out)
    rows, vectors, failures = dataset.rows(0), dataset.vectors(0), dataset.failures(0)
    columns = {name: rows[name].to_pylist() for name in rows.column_names}
    assert len(failures) == DAMAGED
    if kind == "vectors":
        columns["id"][1] = columns["id"][0]
    else:
        failures[1] = failures[0]
    (out / dataset.row_file(0)).unlink()
    dataset.commit(0, Part(columns, vectors, failures))
    faults = verify(out, n=4).faults
    assert f"{N - DAMAGED} vectors and {DAMAGED} failures of {N} images" in faults


def test_the_sample_is_the_seeds(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    samples: list[tuple[int, ...]] = []
    stored = verification._stored

    def recorded(dataset: Dataset, numbers: Any, rows: npt.NDArray[np.intp]) -> Any:
        samples.append(tuple(rows.tolist()))
        return stored(dataset, numbers, rows)

    monkeypatch.setattr(verification, "_stored", recorded)
    for seed in (0, 1, 0):
        assert verify(out, n=6, seed=seed).faults == ()
    first, second, again = samples
    assert first == again != second
    assert len(set(first)) == 6
