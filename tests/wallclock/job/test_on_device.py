"""The job on a device: the same rows as on the host, failures and equal bytes included."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.devices import Device
from tests.families import FAMILIES
from tests.wallclock.job.conftest import Content, content, opened
from wallclock.infer.inference import CudaInference, Inference, open_inference
from wallclock.job import embed
from wallclock.summary import cosine

Run = Callable[..., Any]
NETWORK: dict[str, Any] = {"recipe": "fast", "dtype": "fp32", "batch": 4, "shard": 16}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small DINOv2."""
    folder = tmp_path_factory.mktemp("model")
    FAMILIES["dinov2"](folder)
    return folder


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The inference steps that jobs open."""
    opened: list[Any] = []

    def note(*arguments: Any) -> Any:
        opened.append(open_inference(*arguments))
        return opened[-1]

    monkeypatch.setattr("wallclock.job.run.open_inference", note)
    return opened


@pytest.mark.parametrize("settings", [{}, {"device": "cuda"}, {"recipe": "fast"}])
def test_the_mock_beside_a_gpu(
    device: Device,
    run: Run,
    reference: Content,
    used: list[Any],
    settings: dict[str, str],
    tmp_path: Path,
) -> None:
    run(**settings)
    assert [type(inference) for inference in used] == [Inference]
    written = content(tmp_path / "out")
    assert written.rows.keys() == reference.rows.keys()
    assert [name for name, _ in written.failures] == [name for name, _ in reference.failures]
    if "recipe" not in settings:
        assert written == reference


def test_vectors_are_the_hosts(
    device: Device, images: Path, model: Path, used: list[Any], tmp_path: Path
) -> None:
    """Of batches with damaged images, copies and a last one that is not full."""
    outcomes = {
        name: embed(images, tmp_path / name, model=str(model), device=name, **NETWORK)
        for name in ("cpu", "cuda")
    }
    assert [type(inference) for inference in used] == [Inference, CudaInference]
    assert outcomes["cpu"].counts == outcomes["cuda"].counts
    host, there = (content(tmp_path / name) for name in ("cpu", "cuda"))
    assert there.failures == host.failures
    assert [*there.rows] == [*host.rows]
    ours, theirs = (_vectors(tmp_path / name) for name in ("cuda", "cpu"))
    assert len(np.unique(theirs, axis=0)) > 30, "pictures have vectors of their own"
    assert cosine(ours, theirs).min() > 0.99999


def _vectors(out: Path) -> Any:
    dataset = opened(out)
    return np.concatenate([dataset.vectors(number) for number in dataset.committed()])
