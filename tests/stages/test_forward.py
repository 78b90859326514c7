"""The forward stage: seeded random weights, weights from a hub at a pinned revision, and no others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import hub
from tests.conftest import ROOT
from wallclock.errors import UserError
from wallclock.spec import ModelSpec
from wallclock.stages import forward, transfer

#: DINOv2's shape with narrow layers: seconds less.
RANDOM = ModelSpec("tiny", "random", input_px=28, dim=24)
REPO, REVISION = "facebook/dinov2-small", "ed25f3a31f01632728cabb09d1542f84ab7b0056"
PRETRAINED = ModelSpec("tiny", "pretrained", hub_id=REPO, revision=REVISION, input_px=28, dim=24)


@pytest.fixture(scope="module")
def batch() -> Any:
    images = np.random.default_rng(0).normal(size=(3, 3, 28, 28)).astype(np.float32)
    return transfer.make("cpu").h2d(images)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny DINOv2 in a folder, as the hub would hold it; and the same with pickled weights."""
    folder = tmp_path_factory.mktemp("model")
    import torch
    from transformers import Dinov2Config, Dinov2Model

    torch.manual_seed(7)
    config: Any = Dinov2Config(
        hidden_size=24, num_hidden_layers=2, num_attention_heads=2, patch_size=14, image_size=28
    )
    model = Dinov2Model(config)
    model.save_pretrained(folder / "safetensors")
    (folder / "pickled").mkdir()
    torch.save(model.state_dict(), folder / "pickled" / "pytorch_model.bin")
    (folder / "pickled" / "config.json").write_bytes(
        (folder / "safetensors" / "config.json").read_bytes()
    )
    return folder


def vectors(model: ModelSpec, batch: Any, dtype: str = "fp32") -> Any:
    return transfer.make("cpu").d2h(forward.make(model, "cpu", dtype).run(batch))


class TestRandom:
    def test_a_seed_gives_the_same_weights_every_time(self, batch: Any) -> None:
        one, other = forward.make(RANDOM, "cpu", "fp32"), forward.make(RANDOM, "cpu", "fp32")
        assert one.weights_digest == other.weights_digest
        assert one.parameters == other.parameters > 0
        np.testing.assert_array_equal(one.run(batch).numpy(), other.run(batch).numpy())

    def test_another_seed_gives_others(self, batch: Any) -> None:
        other = replace(RANDOM, seed=1)
        assert (
            forward.make(other, "cpu", "fp32").weights_digest
            != forward.make(RANDOM, "cpu", "fp32").weights_digest
        )
        assert not np.allclose(vectors(other, batch), vectors(RANDOM, batch))

    def test_one_vector_an_image_that_depends_on_no_other(self, batch: Any) -> None:
        together = vectors(RANDOM, batch)
        assert together.shape == (3, 24)
        assert together.dtype == np.float32
        assert np.isfinite(together).all()
        for row in range(3):
            np.testing.assert_allclose(
                vectors(RANDOM, batch[row : row + 1])[0], together[row], rtol=1e-4, atol=1e-5
            )

    def test_half_precision_is_near(self, batch: Any) -> None:
        exact, half = vectors(RANDOM, batch), vectors(RANDOM, batch, "bf16")
        similar = (
            (exact * half).sum(axis=1)
            / np.linalg.norm(exact, axis=1)
            / np.linalg.norm(half, axis=1)
        )
        assert similar.min() > 0.99

    def test_the_full_model_is_dinov2_small(self) -> None:
        network = forward.load_network(ModelSpec("dinov2-small", "random"))
        assert sum(value.numel() for value in network.parameters()) == 22_056_576
        assert network.config._attn_implementation == "sdpa"
        assert not network.training


class TestStandIn:
    """weights=none: a forward stage without a network."""

    def test_vectors_still_tell_their_images(self) -> None:
        images = np.random.default_rng(0).normal(size=(4, 3, 8, 8)).astype(np.float32)
        model = ModelSpec("null", "none", input_px=8, dim=16)
        found = transfer.make("null").d2h(forward.make(model, "cpu", "fp32").run(images))
        np.testing.assert_array_equal(found, images.reshape(4, -1)[:, :16])

    def test_it_waits_as_long_as_it_is_told(self) -> None:
        run = forward.make(ModelSpec("null", "none", dim=4, service_ms=30), "cpu", "fp32").run
        began = time.perf_counter()
        run(np.zeros((2, 3, 4, 4), np.float32))
        assert time.perf_counter() - began >= 0.03


@pytest.mark.parametrize(
    ("model", "dtype", "words"),
    [
        (
            replace(RANDOM, weights="randon"),
            "fp32",
            "no model.weights is called 'randon'; did you mean random",
        ),
        (RANDOM, "fp23", "no dtype is called 'fp23'; did you mean fp32"),
    ],
)
def test_unknown_names_get_the_nearest(model: ModelSpec, dtype: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        forward.make(model, "cpu", dtype)


class TestFolder:
    """model.path: a local folder."""

    def test_its_weights_are_the_ones_that_run(self, saved: Path) -> None:
        model = replace(PRETRAINED, path=str(saved / "safetensors"))
        assert forward.make(model, "cpu", "fp32").weights_digest == digest_in(saved)

    @pytest.mark.parametrize(
        ("name", "words"),
        [
            ("pickled", "no file named model.safetensors"),
            ("missing", "is no folder"),
            ("", "cannot load"),
        ],
    )
    def test_without_safetensors_it_is_refused_in_one_line(
        self, saved: Path, name: str, words: str
    ) -> None:
        with pytest.raises(UserError, match=words) as caught:
            forward.load_network(replace(PRETRAINED, path=str(saved / name)))
        assert "\n" not in str(caught.value)

    def test_damaged_weights_are_refused_in_one_line(self, saved: Path, tmp_path: Path) -> None:
        for path in (saved / "safetensors").iterdir():
            (tmp_path / path.name).write_bytes(
                path.read_bytes()[: 5000 if path.suffix == ".safetensors" else None]
            )
        with pytest.raises(UserError, match="cannot load") as caught:
            forward.load_network(replace(PRETRAINED, path=str(tmp_path)))
        assert "\n" not in str(caught.value)

    def test_a_model_of_another_width_is_refused(self, saved: Path) -> None:
        """The sinks' files say how wide a vector is; rows of another width would not fit them."""
        with pytest.raises(UserError, match=r"set model\.dim=24"):
            forward.load_network(replace(PRETRAINED, path=str(saved / "safetensors"), dim=384))


def digest_in(saved: Path) -> str:
    from transformers import Dinov2Model

    return forward.digest_of(Dinov2Model.from_pretrained(saved / "safetensors"))[0]


class TestHub:
    """weights=pretrained, in a process with an empty cache and HF_ENDPOINT at a server of ours."""

    PROGRAM = """
import json, sys, time
time.sleep = lambda seconds: None  # between the client's tries
from wallclock.errors import UserError
from wallclock.spec import ModelSpec
from wallclock.stages import forward
try:
    print(forward.make(ModelSpec(**json.loads(sys.argv[1])), "cpu", "fp32").weights_digest)
except UserError as error:
    print("UserError", error)
"""

    @pytest.fixture
    def load(self, tmp_path: Path) -> Callable[[str], str]:
        def run(address: str) -> str:
            environment = {
                name: value for name, value in os.environ.items() if not name.startswith("HF_")
            }
            environment |= {
                "HF_ENDPOINT": address,
                "HF_HOME": str(tmp_path / "hf"),
                "PYTHONPATH": str(ROOT / "code"),
            }
            model = json.dumps(vars(PRETRAINED))
            command = [sys.executable, "-c", self.PROGRAM, model]
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, check=True, timeout=100
            )
            return done.stdout.strip()

        return run

    def files(self, folder: Path, revision: str = REVISION) -> dict[str, Path]:
        return {f"{REPO}/resolve/{revision}/{path.name}": path for path in folder.iterdir()}

    def test_weights_come_from_the_pinned_revision(
        self, saved: Path, load: Callable[[str], str]
    ) -> None:
        with hub.serve(self.files(saved / "safetensors")) as (address, requests):
            assert load(address) == digest_in(saved)
            assert f"GET {REPO}/resolve/{REVISION}/model.safetensors" in requests
            assert all("/resolve/main/" not in request for request in requests)

    def test_pickled_weights_are_refused(self, saved: Path, load: Callable[[str], str]) -> None:
        with hub.serve(self.files(saved / "pickled")) as (address, requests):
            found = load(address)
        assert found.startswith(f"UserError cannot load {REPO}: ")
        assert len(found.splitlines()) == 1
        assert not [
            request
            for request in requests
            if request.startswith("GET") and "pytorch_model.bin" in request
        ]

    def test_another_revision_will_not_do(self, saved: Path, load: Callable[[str], str]) -> None:
        with hub.serve(self.files(saved / "safetensors", "main")) as (address, _):
            found = load(address)
        assert found.startswith(f"UserError cannot load {REPO}: ")
        assert len(found.splitlines()) == 1

    def test_a_hub_that_is_down_is_one_line_with_the_way_out(
        self, load: Callable[[str], str]
    ) -> None:
        found = load("http://127.0.0.1:9")
        assert found.startswith(f"UserError cannot load {REPO}: ")
        assert "model.weights=random" in found
        assert len(found.splitlines()) == 1
