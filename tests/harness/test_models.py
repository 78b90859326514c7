"""Networks with random weights: as a folder they are what their specification says."""

from pathlib import Path

import pytest
import torch

from harness import models
from wallclock.job.settings import JobSettings
from wallclock.recipe import ModelSpec
from wallclock.stages.forward.networks import load_network

_SMALL = {"hidden_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2}


def test_a_network_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, _, sizes, processor = models._NETWORKS["clip-vit-b32"]
    tiny = (kind, 24, {**sizes, **_SMALL, "intermediate_size": 48}, processor)
    monkeypatch.setattr(models, "_NETWORKS", {"clip-vit-b32": tiny})
    spec = models.spec("clip-vit-b32")
    stored = models.on_disk(spec, tmp_path)
    vectors = load_network(stored)(pixel_values=torch.zeros(1, 3, 224, 224)).pooler_output
    assert vectors.shape == (1, spec.dim)
    _, read, _ = JobSettings(model=stored.path).resolved("cpu")
    assert (read.dim, read.input_px, read.statistics) == (24, 224, spec.statistics)
    monkeypatch.setattr(torch, "manual_seed", None)  # it is not made again
    assert models.on_disk(spec, tmp_path) == stored
    for other in (ModelSpec("dinov2-small"), ModelSpec("null", weights="none")):
        assert models.on_disk(other, tmp_path) == other
