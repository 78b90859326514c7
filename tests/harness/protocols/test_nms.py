"""Protocol `nms`: the same boxes in every way, and times only of those ways that are here."""

import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.protocols.nms import IMPLEMENTATIONS, Detections, detections, in_numpy, in_python, nms
from harness.protocols.protocol import no_progress
from harness.spec import Cell
from wallclock.recipe import ModelSpec, Recipe

MODEL = ModelSpec("null", weights="none")


def measured(tmp_path: Path, **changes: Any) -> Any:
    params = {"boxes": 40, "n_images": 3, "iou_threshold": 0.5, "seconds": 0.001, **changes}
    cell = Cell("nms", "nms", "boxes-40", 0, Recipe("nms"), None, MODEL, params)
    return nms(cell, tmp_path, no_progress)


def kept_by_definition(proposed: Detections, threshold: float) -> list[int]:
    """Each box against all that were kept before it, overlaps counted on a grid of squares."""
    kept: list[int] = []
    for row in np.argsort(-proposed.scores, kind="stable").tolist():
        overlaps = [overlap(proposed.boxes[row], proposed.boxes[other]) for other in kept]
        if all(value <= threshold for value in overlaps):
            kept.append(row)
    return kept


def overlap(a: Any, b: Any) -> float:
    def covered(box: Any) -> set[tuple[int, int]]:
        left, top, right, bottom = map(int, box)
        return {(x, y) for x in range(left, right) for y in range(top, bottom)}

    return len(covered(a) & covered(b)) / len(covered(a) | covered(b))


@given(st.integers(1, 12), st.integers(0, 1000), st.sampled_from([0.0, 0.3, 0.5, 1.0]))
def test_what_is_kept_by_definition(n: int, seed: int, threshold: float) -> None:
    """Of small boxes at whole pixels, whose overlap can be counted."""
    rng = np.random.default_rng(seed)
    corners = rng.integers(0, 12, (n, 2))
    boxes = np.concatenate([corners, corners + rng.integers(1, 8, (n, 2))], axis=1).astype(float)
    proposed = Detections(boxes, rng.integers(0, 4, n) / 4)
    expected = kept_by_definition(proposed, threshold)
    assert in_python(boxes.tolist(), proposed.scores.tolist(), threshold) == expected
    assert in_numpy(boxes, proposed.scores, threshold).tolist() == expected


@given(st.integers(1, 120), st.integers(0, 10_000), st.floats(0.05, 0.95))
def test_all_ways_keep_the_same_boxes(n: int, seed: int, threshold: float) -> None:
    proposed = detections(n, seed)
    assert proposed.boxes.shape == (n, 4)
    assert (proposed.boxes[:, 2:] > proposed.boxes[:, :2]).all()
    plain = in_python(proposed.boxes.tolist(), proposed.scores.tolist(), threshold)
    assert in_numpy(proposed.boxes, proposed.scores, threshold).tolist() == plain
    assert sorted(proposed.scores[plain], reverse=True) == proposed.scores[plain].tolist()
    assert detections(n, seed).boxes.tolist() == proposed.boxes.tolist()


def test_torchvision_keeps_the_same_boxes() -> None:
    ops = pytest.importorskip("torchvision.ops")
    assert ops
    for seed in range(20):
        proposed = detections(300, seed)
        calls = [prepare(proposed, 0.5) for prepare in IMPLEMENTATIONS.values()]
        plain, *others = [np.asarray(call()).tolist() for call in calls]
        assert others == [plain, plain]


def test_boxes_overlap_as_a_detectors_do() -> None:
    """Some eight boxes an object: a good part is dropped, not nearly all."""
    proposed = detections(1000, 0)
    assert 100 < len(in_numpy(proposed.boxes, proposed.scores, 0.5)) < 600


def torchvision_of(monkeypatch: pytest.MonkeyPatch, nms_of: Any) -> None:
    """A torchvision whose kernel is `nms_of`."""
    package, ops = ModuleType("torchvision"), ModuleType("torchvision.ops")
    package.__spec__ = ModuleSpec("torchvision", None)
    ops.nms = nms_of  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torchvision", package)
    monkeypatch.setitem(sys.modules, "torchvision.ops", ops)


def test_samples_of_every_way_that_is_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def kernel(boxes: Any, scores: Any, threshold: float) -> Any:
        return in_numpy(boxes.numpy(), scores.numpy(), threshold)

    torchvision_of(monkeypatch, kernel)
    result = measured(tmp_path)
    assert list(result.samples) == ["python", "numpy", "torchvision"]
    for taken in result.samples.values():
        assert len(taken) >= 5 * 3
        assert len(taken) % 3 == 0
        assert min(taken) > 0
    assert result.values["different"] == {"python": 0, "numpy": 0, "torchvision": 0}
    assert result.values["unavailable"] == {}
    kept = [in_numpy(d.boxes, d.scores, 0.5) for d in (detections(40, seed) for seed in range(3))]
    assert result.values["n_kept"] == pytest.approx(sum(map(len, kept)) / 3)


def test_other_boxes_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torchvision_of(monkeypatch, lambda boxes, scores, threshold: np.arange(2))
    assert measured(tmp_path).values["different"] == {"python": 0, "numpy": 0, "torchvision": 3}


def test_without_torchvision_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.peers.util.find_spec", lambda name: None)
    result = measured(tmp_path)
    assert list(result.samples) == ["python", "numpy"]
    (reason,) = result.values["unavailable"].values()
    assert reason == "torchvision is not installed: make setup-peers"
