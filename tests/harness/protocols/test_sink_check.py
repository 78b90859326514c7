"""What a pass wrote, counted: what is missing, what is there too often, what is no number."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness import sinks
from harness.corpora.manifest import Item, Manifest
from harness.engines.pipeline import device_stages
from harness.protocols import fidelity, sink_check
from harness.protocols.sink_check import check_sink
from wallclock.recipe import ModelSpec, Recipe

MODEL = ModelSpec("none", "none", dim=4)
ITEMS = tuple(Item(f"{at}", f"{at}.jpg") for at in range(9))
MANIFEST = Manifest("folder", "original", Path("/images"), ITEMS)
FAILED = [{"id": "3", "stage": "read", "reason": "gone"}]
#: Twice all images.
BATCHES = [list(range(6)), list(range(6, 12)), list(range(12, 18))]
WRITTEN = [f"{at}" for at in [*range(9), *range(9)] if at != 3]


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The images whose vectors are compared; they are not."""
    names: list[str] = []

    def resized(recipe: Recipe, model: ModelSpec, manifest: Manifest, failed: Any) -> Any:
        names.extend(item.id for item in manifest.items)
        return {}

    monkeypatch.setattr(fidelity, "resized", resized)
    return names


def faults(folder: Path, ids: Sequence[str], failures: Any, bad: Sequence[int] = ()) -> Any:
    vectors = np.ones((len(ids), 4), np.float32)
    vectors[list(bad), 1] = np.nan
    stages = device_stages(Recipe("r", sink="npy"), MODEL, folder)
    stages.serialize(ids, vectors)
    stages.finish()
    path, failures = folder / "vectors.npy", [*failures, *stages.dropped]
    return check_sink(path, BATCHES, failures, MANIFEST, Recipe("r"), MODEL)["sink_faults"]


@pytest.mark.parametrize(
    ("ids", "failures", "expected"),
    [
        (WRITTEN, FAILED * 2, []),
        (WRITTEN, FAILED, ["1 missing"]),
        (WRITTEN[1:], FAILED * 2, ["1 missing"]),
        ([*WRITTEN, "0"], FAILED * 2, ["1 unexpected"]),
        ([*WRITTEN, "3"], FAILED * 2, ["1 unexpected"]),
        ([*WRITTEN[3:], "other", "other"], FAILED * 2, ["3 missing", "2 unexpected"]),
    ],
)
def test_every_image_is_accounted_for(
    ids: list[str], failures: Any, expected: list[str], tmp_path: Path, compared: list[str]
) -> None:
    assert faults(tmp_path, ids, failures) == expected


def test_one_number_spoils_a_vector(tmp_path: Path, compared: list[str]) -> None:
    """It is a failure, and not written."""
    assert faults(tmp_path, WRITTEN, FAILED * 2, bad=[2, 5]) == ["2 not finite"]
    written, _ = sinks.read(tmp_path / "vectors.npy")
    assert len(written) == len(WRITTEN) - 2


def test_the_images_compared_are_from_everywhere(
    tmp_path: Path, compared: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sink_check.IMAGES, "cpu", 3)
    faults(tmp_path, WRITTEN, FAILED * 2)
    assert compared == ["0", "5", "8"]
