"""`layers`: a small real network from the command line to tables."""

from pathlib import Path
from typing import Any

import pytest

from experiments import layers as experiment
from harness.protocols.protocol import no_progress
from harness.protocols.runtimes import layers
from harness.spec import Cell
from paper.csvfile import read_table
from tests.conftest import RunMain
from wallclock.errors import Unavailable
from wallclock.recipe import ModelSpec, Recipe


@pytest.mark.slow
def test_modules_of_a_small_network(run_main: RunMain, tmp_path: Path) -> None:
    import torch
    from transformers import ViTConfig, ViTModel

    torch.manual_seed(0)
    sizes: Any = {"hidden_size": 32, "intermediate_size": 64, "image_size": 64, "patch_size": 16}
    network = ViTModel(ViTConfig(num_hidden_layers=3, num_attention_heads=2, **sizes))
    network.save_pretrained(tmp_path / "model")
    out, figures = tmp_path / "data", tmp_path / "figures"
    model = ("model=any", f"model.path={tmp_path / 'model'}", "device=cpu")
    done = run_main("--experiment=layers", "--n=4", *model, f"out={out}", f"figures={figures}")
    assert done.returncode == 0, done.stdout + done.stderr
    modules = {row["layer"]: row for row in read_table(out / experiment.CSV)}
    blocks = [row for row in modules.values() if row["kind"] == "ViTLayer"]
    assert len(blocks) == 3
    total_ms = float(modules[""]["ms"])
    assert modules[""]["share"] == "1"
    assert 0 < sum(float(row["ms"]) for row in blocks) < total_ms
    assert float(modules[""]["parameters"]) == sum(p.numel() for p in network.parameters())
    assert {row["status"] for row in modules.values()} == {"ok"}


def test_mock_model_has_no_layers(tmp_path: Path) -> None:
    mock = ModelSpec("null", weights="none")
    cell = Cell("layers", "layers", "layers", 0, Recipe("x"), None, mock)
    with pytest.raises(Unavailable, match="the model is a mock model without a network"):
        layers(cell, tmp_path, no_progress)
