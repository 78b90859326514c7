"""What `pooled` refuses: vectors that are drawn at random, and those of another width."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers.modeling_outputs import BaseModelOutputWithPooling

from wallclock.errors import UserError
from wallclock.recipe import ModelSpec
from wallclock.stages.forward.pooling import pooled

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
