"""Networks: seeded weights, weights from a folder or a pinned revision, any architecture."""

import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import transformers as t
from transformers.modeling_outputs import BaseModelOutputWithPooling

from tests import hub
from tests.families import FAMILIES
from wallclock import checkpoint
from wallclock.errors import Unavailable, UserError
from wallclock.job.settings import JobSettings
from wallclock.preprocess import Size
from wallclock.recipe import IMAGENET, ModelSpec
from wallclock.stages.forward import networks
from wallclock.stages.forward.pooling import pooled

SMALL: dict[str, Any] = {"hidden_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2}
SMALL |= {"intermediate_size": 48, "image_size": 32, "patch_size": 16}
RANDOM = ModelSpec("tiny", "random", input_px=28, dim=24)
REPO, REVISION = "facebook/dinov2-small", "ed25f3a31f01632728cabb09d1542f84ab7b0056"
PRETRAINED = ModelSpec("tiny", "pretrained", hub_id=REPO, revision=REVISION, input_px=28, dim=24)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny DINOv2 in a folder, as the hub would hold it; and the same with pickled weights."""
    folder = tmp_path_factory.mktemp("model")
    sizes: dict[str, Any] = {**SMALL, "patch_size": 14, "image_size": 28}
    model = t.Dinov2Model(t.Dinov2Config(**sizes))
    model.save_pretrained(folder / "safetensors")
    (folder / "pickled").mkdir()
    torch.save(model.state_dict(), folder / "pickled" / "pytorch_model.bin")
    shutil.copy(folder / "safetensors" / "config.json", folder / "pickled")
    return folder


@pytest.fixture(scope="module")
def digest(saved: Path) -> str:
    return networks.digest_of(t.Dinov2Model.from_pretrained(saved / "safetensors"))


def digest_of(model: ModelSpec) -> str:
    return networks.digest_of(networks.load_network(model))


class TestRandom:
    def test_seed_decides_the_weights(self) -> None:
        models = (RANDOM, RANDOM, replace(RANDOM, seed=1))
        first, same, other = map(digest_of, models)
        assert first == same != other

    def test_dinov2_small(self) -> None:
        network = networks.load_network(ModelSpec("dinov2-small", "random"))
        assert sum(value.numel() for value in network.parameters()) == 22_056_576
        assert network.config._attn_implementation == "sdpa"
        assert not network.training

    def test_a_missing_library_is_one_line(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "transformers", None)
        with pytest.raises(UserError, match=r"model tiny needs transformers.*\[embed\]'$"):
            networks.load_network(RANDOM)


class TestFolder:
    """model.path: a local folder."""

    def test_its_weights_are_loaded(self, saved: Path, digest: str) -> None:
        model = replace(PRETRAINED, path=str(saved / "safetensors"))
        assert digest_of(model) == digest

    @pytest.mark.parametrize(
        ("name", "words"),
        [
            ("pickled", "no file named model.safetensors"),
            ("missing", "is not a folder"),
            ("", "cannot load"),
            ("damaged", "cannot load"),
        ],
    )
    def test_refused_in_one_line(self, saved: Path, tmp_path: Path, name: str, words: str) -> None:
        folder = saved / name
        if name == "damaged":
            folder = tmp_path
            for path in (saved / "safetensors").iterdir():
                end = 5000 if path.suffix == ".safetensors" else None
                (folder / path.name).write_bytes(path.read_bytes()[:end])
        with pytest.raises(UserError, match=words):
            networks.load_network(replace(PRETRAINED, path=str(folder)))

    def test_another_width_is_refused(self, saved: Path) -> None:
        """The sinks' files have a fixed width."""
        with pytest.raises(UserError, match=r"set model\.dim=24"):
            networks.load_network(replace(PRETRAINED, path=str(saved / "safetensors"), dim=384))


class TestHub:
    """In a process with an empty cache and HF_ENDPOINT at a server of ours."""

    LOAD = """
import json, sys
from wallclock.errors import UserError
from wallclock.recipe import ModelSpec
from wallclock.stages.forward import networks
for model in json.loads(sys.argv[1]):
    try:
        print(networks.digest_of(networks.load_network(ModelSpec(**model))))
    except UserError as error:
        print(type(error).__name__, error)
"""
    COMPLETE = """
import json, sys
from wallclock import checkpoint
from wallclock.recipe import ModelSpec
model = checkpoint.resolve(ModelSpec(**json.loads(sys.argv[1])[0]), "tower")
print(model.name, model.revision, model.dim, model.input_px)
"""

    def run(self, home: Path, address: str, program: str, *models: ModelSpec) -> list[str]:
        """The lines that a program prints about models."""
        given = json.dumps([vars(model) for model in models])
        return hub.run(program, address, home, given)

    def files(self, folder: Path, repo: str, revision: str = REVISION) -> dict[str, Path]:
        return {f"{repo}/resolve/{revision}/{path.name}": path for path in folder.iterdir()}

    @pytest.mark.slow
    def test_only_pinned_safetensors_load(self, saved: Path, digest: str, tmp_path: Path) -> None:
        served = self.files(saved / "safetensors", REPO)
        served |= self.files(saved / "pickled", "a/pickled")
        served |= self.files(saved / "safetensors", "a/moved", "main")
        models = [replace(PRETRAINED, hub_id=name) for name in (REPO, "a/pickled", "a/moved")]
        with hub.serve(served) as (address, requests):
            loaded, pickled, moved = self.run(tmp_path, address, self.LOAD, *models)
        assert loaded == digest
        assert pickled.startswith("NoWeightsError cannot load a/pickled: ")
        assert moved.startswith("NoWeightsError cannot load a/moved: ")
        gets = {request for request in requests if request.startswith("GET")}
        assert f"GET {REPO}/resolve/{REVISION}/model.safetensors" in gets
        assert not [request for request in gets if "pytorch_model.bin" in request]
        assert all("/resolve/main/" not in request for request in requests)

    def test_model_is_pinned_to_its_commit(self, saved: Path, tmp_path: Path) -> None:
        model = replace(PRETRAINED, name="any", input_px=0, dim=0, mean=(), std=())
        with hub.serve(self.files(saved / "safetensors", REPO)) as (address, _):
            (output,) = self.run(tmp_path, address, self.COMPLETE, model)
        assert output.split() == ["dinov2-small", REVISION, "24", "28"]


def complete_folder(folder: Path) -> ModelSpec:
    model = ModelSpec("any", "pretrained", path=str(folder), input_px=0, dim=0, mean=(), std=())
    return checkpoint.resolve(model, "tower")


def vit_classifier() -> Any:
    return t.ViTForImageClassification(t.ViTConfig(**SMALL))


def test_a_classifier_has_the_vectors_of_its_backbone(tmp_path: Path) -> None:
    """Of a processor that says nothing, the statistics are ImageNet's."""
    original = vit_classifier().eval()
    original.save_pretrained(tmp_path)
    (tmp_path / "preprocessor_config.json").write_text("{}")
    model = complete_folder(tmp_path)
    assert (model.input_px, model.dim, model.name) == (32, 24, tmp_path.name)
    assert model.statistics == IMAGENET
    images = torch.from_numpy(np.random.default_rng(0).normal(size=(2, 3, 32, 32))).float()
    with torch.inference_mode():
        vectors = networks.load_network(model)(pixel_values=images).pooler_output
        expected = original.vit(pixel_values=images).last_hidden_state[:, 0]
    torch.testing.assert_close(vectors, expected, rtol=1e-4, atol=1e-5)


def test_timm_configuration(tmp_path: Path) -> None:
    pretrained = {"input_size": [3, 176, 176], "mean": [0.5] * 3, "std": [0.5] * 3}
    config = {"architecture": "resnet18", "num_features": 512, "pretrained_cfg": pretrained}
    (tmp_path / "config.json").write_text(json.dumps({**config, "num_classes": 0}))
    model = complete_folder(tmp_path)
    assert (model.input_px, model.dim, model.mean) == (176, 512, (0.5,) * 3)
    if find_spec("timm") is None:
        with pytest.raises(Unavailable, match="pip install timm"):
            networks.load_network(model)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "no config.json in it"),
        ({"config.json": "{"}, "cannot be read"),
        ({"config.json": '{"hidden_size": 24}'}, r"config\.json: Unrecognized model"),
        ({"config.json": '{"image_size": 24}'}, r"config\.json: Unrecognized model"),
    ],
)
def test_incomplete_folder_is_one_line(files: dict[str, str], message: str, tmp_path: Path) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=message):
        complete_folder(tmp_path)


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a family, written once."""
    base = tmp_path_factory.mktemp("families")

    def folder(name: str) -> Path:
        if not (base / name).exists():
            FAMILIES[name](base / name)
        return base / name

    return folder


def resolved(folder: Path, pool: str = "auto") -> ModelSpec:
    return JobSettings(model=str(folder), pool=pool).resolved_model()


IMAGES = torch.from_numpy(np.random.default_rng(5).normal(size=(4, 3, 224, 224))).float()


def vectors_of(model: ModelSpec, canvas: Size = (224, 224)) -> torch.Tensor:
    network = networks.load_network(model, canvas)
    with torch.inference_mode():
        vectors: torch.Tensor = network(pixel_values=IMAGES).pooler_output
    return vectors


def of_model(folder: Path, kind: str, pool: Callable[[Any], Any]) -> torch.Tensor:
    """What the library's own class computes."""
    network = getattr(t, kind).from_pretrained(folder).eval()
    with torch.inference_mode():
        vectors: torch.Tensor = pool(network)
    return vectors


OWN: dict[tuple[str, str], tuple[str, Callable[[Any], Any]]] = {
    ("clip", "auto"): ("CLIPModel", lambda n: n.get_image_features(IMAGES).pooler_output),
    ("clip", "tower"): ("CLIPModel", lambda n: n.vision_model(IMAGES).pooler_output),
    ("clip", "cls"): ("CLIPModel", lambda n: n.vision_model(IMAGES).last_hidden_state[:, 0]),
    ("clip-vision", "auto"): ("CLIPVisionModelWithProjection", lambda n: n(IMAGES).image_embeds),
    ("clip-vision", "tower"): ("CLIPVisionModel", lambda n: n(IMAGES).pooler_output),
    ("siglip", "auto"): ("SiglipModel", lambda n: n.get_image_features(IMAGES).pooler_output),
    ("siglip", "mean"): ("SiglipModel", lambda n: n.vision_model(IMAGES).last_hidden_state.mean(1)),
    ("align", "auto"): ("AlignModel", lambda n: n.get_image_features(IMAGES).pooler_output),
    ("vit", "auto"): ("ViTModel", lambda n: n(IMAGES).pooler_output),
    ("vit", "mean"): ("ViTModel", lambda n: n(IMAGES).last_hidden_state[:, 1:].mean(1)),
    ("dinov2", "auto"): ("Dinov2Model", lambda n: n(IMAGES).pooler_output),
    ("dinov2", "pooler"): ("Dinov2Model", lambda n: n(IMAGES).pooler_output),
    ("dinov2-registers", "mean"): (
        "Dinov2WithRegistersModel",
        lambda n: n(IMAGES).last_hidden_state[:, 4:].mean(1),
    ),
    ("dinov3", "cls"): ("DINOv3ViTModel", lambda n: n(IMAGES).last_hidden_state[:, 0]),
    ("dinov3", "mean"): ("DINOv3ViTModel", lambda n: n(IMAGES).last_hidden_state[:, 5:].mean(1)),
    ("swin", "mean"): ("SwinModel", lambda n: n(IMAGES).last_hidden_state.mean(1)),
    ("bit", "mean"): ("BitModel", lambda n: n(IMAGES).last_hidden_state.mean((2, 3))),
    ("mobilenet-v2", "auto"): ("MobileNetV2Model", lambda n: n(IMAGES).pooler_output),
}


@pytest.mark.parametrize(("name", "pool"), OWN)
def test_pool(name: str, pool: str, family: Callable[[str], Path]) -> None:
    folder = family(name)
    vectors = vectors_of(resolved(folder, pool))
    torch.testing.assert_close(vectors, of_model(folder, *OWN[name, pool]), rtol=1e-4, atol=1e-5)
    # Not by chance: vectors of other images are others.
    assert not torch.allclose(vectors[0], vectors[1], rtol=1e-2)


@pytest.mark.parametrize(
    ("name", "pool", "words"),
    [
        ("vit", "projection", "a model of images and text"),
        ("siglip", "cls", "no class token"),
        ("swin", "cls", "no class token"),
        ("bit", "cls", "it has a map"),
    ],
)
def test_no_such_vector(name: str, pool: str, words: str, family: Callable[[str], Path]) -> None:
    folder = family(name)
    model = replace(resolved(folder, "tower"), pool=pool)
    with pytest.raises(UserError, match=words):
        networks.load_network(model, (224, 224))


def masked() -> Any:
    return t.ViTMAEModel(t.ViTMAEConfig(**SMALL, decoder_num_hidden_layers=1))


def text_model() -> Any:
    return t.BertModel(t.BertConfig(**{**SMALL, "vocab_size": 32}))


def detector() -> Any:
    return t.YolosModel(t.YolosConfig(**{**SMALL, "image_size": [32, 32]}))


def classifier() -> Any:
    """Of CLIP: its checkpoint has no projection."""
    return t.CLIPForImageClassification(t.CLIPConfig(vision_config=SMALL, text_config=SMALL))


@pytest.mark.parametrize(
    ("kind", "pool", "words"),
    [
        (masked, "cls", "cannot be told apart|draws at random"),
        (masked, "tower", "cannot be told apart|draws at random"),
        (text_model, "tower", "bert cannot embed an image"),
        (detector, "mean", "cannot be told apart"),
        (classifier, "projection", "needs weights that its files lack: visual_projection"),
        (vit_classifier, "pooler", "no trained pooler"),
    ],
)
def test_no_vector_is_one_line(
    kind: Callable[[], Any], pool: str, words: str, tmp_path: Path
) -> None:
    kind().save_pretrained(tmp_path)
    model = ModelSpec("any", "pretrained", path=str(tmp_path), input_px=32, dim=24, pool=pool)
    with pytest.raises(UserError, match=words):
        networks.load_network(model)


def test_images_that_are_not_square(family: Callable[[str], Path]) -> None:
    """Height comes first; a network of a fixed size refuses in one line."""
    model = resolved(family("dinov2"), "mean")
    network = networks.load_network(model, (32, 48))
    with torch.inference_mode():
        assert network(pixel_values=torch.zeros(1, 3, 32, 48)).pooler_output.shape == (1, 24)
    with pytest.raises(UserError, match="vit cannot embed an image of 32x48 px"):
        networks.load_network(resolved(family("vit")), (32, 48))


DIM = 8
MODEL = ModelSpec("toy", "pretrained", path="toy", input_px=4, dim=DIM)


class Network(torch.nn.Module):
    """The mean of the pixels as a vector, and noise."""

    def __init__(self, noise: float = 0.0) -> None:
        super().__init__()
        self.config = SimpleNamespace(model_type="toy")
        self._noise = noise

    def forward(self, pixel_values: Any) -> Any:
        vectors = pixel_values.mean(dim=(1, 2, 3))[:, None].repeat(1, DIM)
        return BaseModelOutputWithPooling(
            pooler_output=vectors + self._noise * torch.rand_like(vectors)
        )


class Multimodal(torch.nn.Module):
    """A model with a vision tower."""

    def __init__(self) -> None:
        super().__init__()
        self.vision_model = Network()


def test_a_network_that_draws_at_random_is_refused() -> None:
    assert pooled(Network(), MODEL, [], (4, 4))
    with pytest.raises(UserError, match="two passes over an image differ: toy draws at random"):
        pooled(Network(noise=0.1), MODEL, [], (4, 4))


def test_weights_that_are_not_finite_are_named() -> None:
    network = Network()
    network.layer = torch.nn.Linear(1, 1)
    torch.nn.init.constant_(network.layer.weight, float("nan"))
    with pytest.raises(UserError, match=r"model toy: its weights layer\.weight are not finite"):
        pooled(network, MODEL, [], (4, 4))


@pytest.mark.parametrize("dim", [DIM - 1, DIM + 1])
def test_vectors_of_another_width_are_refused(dim: int) -> None:
    says = f"the model's vectors have {DIM} numbers, model.dim says {dim}; set model.dim={DIM}"
    with pytest.raises(UserError, match=says):
        pooled(Network(), ModelSpec("toy", "pretrained", dim=dim), [], (4, 4))


def test_weights_that_are_missing_are_refused() -> None:
    """Of the tower alone: what texts need is not used."""
    model = Multimodal()
    assert pooled(model, MODEL, ["text_model.layer.weight"], (4, 4)) is model.vision_model
    with pytest.raises(UserError, match=r"needs weights that its files lack: layer\.weight"):
        pooled(model, MODEL, ["vision_model.layer.weight"], (4, 4))
