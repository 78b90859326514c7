"""Layer by layer: a small real network from the command line to tables and a trace that opens."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

from tests.conftest import RunMain
from wallclock.paper.csvfile import read_table


def test_modules_and_operators_of_a_small_network(run_main: RunMain, tmp_path: Path) -> None:
    import torch
    from transformers import ViTConfig, ViTModel

    torch.manual_seed(0)
    shape = {
        "hidden_size": 32,
        "num_attention_heads": 2,
        "intermediate_size": 64,
        "image_size": 64,
        "patch_size": 16,
    }
    ViTModel(ViTConfig(num_hidden_layers=3, **shape)).save_pretrained(tmp_path / "model")  # type: ignore[arg-type]
    out, figures = tmp_path / "data", tmp_path / "figures"
    done = run_main(
        *(
            "--experiment",
            "layers",
            "--n",
            "4",
            "model=any",
            f"model.path={tmp_path / 'model'}",
            "device=cpu",
        ),
        *(f"out={out}", f"figures={figures}"),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    layers = {row["layer"]: row for row in read_table(out / "layers.csv")}
    blocks = [row for row in layers.values() if row["kind"] == "ViTLayer"]
    assert len(blocks) == 3
    whole = float(layers[""]["ms"])
    assert layers[""]["share"] == "1"
    assert 0 < sum(float(row["ms"]) for row in blocks) < whole
    assert float(layers[""]["parameters"]) == sum(
        p.numel() for p in ViTModel.from_pretrained(tmp_path / "model").parameters()
    )
    operators = {row["operator"]: row for row in read_table(out / "operators.csv")}
    assert {"aten::addmm", "aten::native_layer_norm"} <= operators.keys()
    assert sum(float(row["ms"]) for row in operators.values()) <= whole * 1.01
    assert {row["status"] for row in (*layers.values(), *operators.values())} == {"ok"}
    trace = json.loads(gzip.decompress((figures / "trace-forward.json.gz").read_bytes()))
    assert any(
        "encoder" in event.get("name", "") or "layer" in event.get("name", "")
        for event in trace["traceEvents"]
    )


def test_a_stand_in_has_no_layers(run_main: RunMain, tmp_path: Path) -> None:
    done = run_main(
        *("--experiment", "layers", "--n", "2", "model=null", "device=cpu"),
        *(f"out={tmp_path / 'data'}", f"figures={tmp_path / 'figures'}"),
    )
    assert done.returncode == 0, done.stderr
    for name in ("layers.csv", "operators.csv"):
        (row,) = read_table(tmp_path / "data" / name)
        assert row["status"] == "unavailable"
        assert row["reason"].startswith("the model is a mock model without a network")
    assert not list((tmp_path / "figures").glob("trace-forward*"))
