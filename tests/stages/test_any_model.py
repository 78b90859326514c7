"""Image models of other architectures, from a folder that `save_pretrained` wrote and from a hub."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import hub
from tests.conftest import ROOT
from wallclock import checkpoint
from wallclock.errors import Unavailable, UserError
from wallclock.spec import IMAGENET_MEAN, IMAGENET_STD, ModelSpec
from wallclock.stages import forward, transfer

SMALL: dict[str, Any] = {
    "hidden_size": 24,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 48,
    "image_size": 32,
    "patch_size": 16,
}
STAGES: dict[str, Any] = {"hidden_sizes": [8, 8, 8, 16], "depths": [1, 1, 1, 1]}


def network(kind: str) -> Any:
    import torch
    import transformers as t

    torch.manual_seed(3)
    made: dict[str, Any] = {
        "vit": lambda: t.ViTModel(t.ViTConfig(**SMALL)),
        "vit classifier": lambda: t.ViTForImageClassification(t.ViTConfig(**SMALL)),
        "convnext": lambda: t.ConvNextModel(t.ConvNextConfig(**STAGES)),
        "resnet": lambda: t.ResNetModel(t.ResNetConfig(embedding_size=8, **STAGES)),
        "clip": lambda: t.CLIPModel(
            t.CLIPConfig(vision_config=SMALL, text_config={**SMALL, "num_hidden_layers": 1})
        ),
        "clip vision": lambda: t.CLIPVisionModel(t.CLIPVisionConfig(**SMALL)),
    }
    return made[kind]()


def described(folder: Path) -> ModelSpec:
    return checkpoint.complete(
        ModelSpec("any", "pretrained", path=str(folder), input_px=0, dim=0, mean=(), std=())
    )


@pytest.mark.parametrize(
    ("kind", "preprocessor", "input_px", "dim"),
    [
        (
            "vit",
            {"size": {"height": 32, "width": 32}, "image_mean": [0.5] * 3, "image_std": [0.25] * 3},
            32,
            24,
        ),
        ("vit classifier", {}, 32, 24),
        (
            "convnext",
            {"size": {"shortest_edge": 64}, "crop_size": {"height": 48, "width": 48}},
            48,
            16,
        ),
        ("resnet", {"size": 32, "do_normalize": False}, 32, 16),
        ("clip", None, 32, 24),
        ("clip vision", None, 32, 24),
    ],
)
def test_a_folder_says_all_that_a_run_needs(
    kind: str, preprocessor: dict[str, Any] | None, input_px: int, dim: int, tmp_path: Path
) -> None:
    original = network(kind).eval()
    original.save_pretrained(tmp_path)
    if preprocessor is not None:
        (tmp_path / "preprocessor_config.json").write_text(
            json.dumps(preprocessor), encoding="utf-8"
        )
    model = described(tmp_path)
    assert (model.input_px, model.dim, model.name) == (input_px, dim, tmp_path.name)
    assert model.statistics == {
        "vit": ((0.5,) * 3, (0.25,) * 3),
        "resnet": ((0.0,) * 3, (1.0,) * 3),
    }.get(kind, (IMAGENET_MEAN, IMAGENET_STD))
    images = np.random.default_rng(0).normal(size=(2, 3, input_px, input_px)).astype(np.float32)
    move, loaded = transfer.make("cpu"), forward.make(model, "cpu", "fp32")
    vectors = move.d2h(loaded.run(move.h2d(images)))
    np.testing.assert_allclose(
        vectors, _expected(kind, original, move.h2d(images)), rtol=1e-4, atol=1e-5
    )
    assert vectors.shape == (2, dim)


def _expected(kind: str, original: Any, images: Any) -> Any:
    import torch

    with torch.inference_mode():
        if kind == "vit classifier":
            return original.vit(pixel_values=images).last_hidden_state[:, 0].numpy()
        seeing = original.vision_model if kind == "clip" else original
        return seeing(pixel_values=images).pooler_output.flatten(1).numpy()


def test_timms_configuration_is_read_and_its_absence_named(tmp_path: Path) -> None:
    config = {"architecture": "resnet18", "num_features": 512, "num_classes": 0}
    config["pretrained_cfg"] = {"input_size": [3, 176, 176], "mean": [0.5] * 3, "std": [0.5] * 3}
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    model = described(tmp_path)
    assert (model.input_px, model.dim, model.mean) == (176, 512, (0.5,) * 3)
    pytest.importorskip("transformers")
    try:
        import timm  # type: ignore[import-not-found] # noqa: F401
    except ImportError:
        with pytest.raises(Unavailable, match="pip install timm"):
            forward.load_network(model)


def test_a_hubs_model_is_pinned_to_its_commit(tmp_path: Path) -> None:
    commit = "a" * 40
    network("vit").save_pretrained(tmp_path / "model")
    program = (
        "from wallclock import checkpoint; from wallclock.spec import ModelSpec; "
        f"m = checkpoint.complete(ModelSpec('any', 'pretrained', 'me/vit', '{commit}', input_px=0, dim=0)); "
        "print(m.name, m.revision, m.dim, m.input_px)"
    )
    files = {
        f"me/vit/resolve/{commit}/{path.name}": path for path in (tmp_path / "model").iterdir()
    }
    with hub.serve(files) as (address, _):
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("HF_")
        }
        environment |= {
            "HF_ENDPOINT": address,
            "HF_HOME": str(tmp_path / "hf"),
            "PYTHONPATH": str(ROOT / "code"),
        }
        done = subprocess.run(
            [sys.executable, "-c", program],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    assert done.stdout.split() == ["vit", commit, "24", "32"], done.stderr


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({}, "no config.json in it"),
        ({"config.json": "{"}, "cannot be read"),
        ({"config.json": '{"hidden_size": 24}'}, r"does not tell input_px; set model\.input_px"),
        ({"config.json": '{"image_size": 24}'}, r"does not tell dim; set model\.dim"),
    ],
)
def test_a_folder_that_does_not_tell_is_one_line(
    files: dict[str, str], words: str, tmp_path: Path
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=words) as caught:
        described(tmp_path)
    assert "\n" not in str(caught.value)
