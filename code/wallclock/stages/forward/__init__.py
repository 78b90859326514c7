"""Stage `forward`: a batch on the device to pooled vectors, by PyTorch or OpenVINO.

There is no fallback: what cannot run as configured raises, before anything runs.
"""

import time
from collections.abc import Callable
from typing import Any

from wallclock import machine
from wallclock.preprocess import Preprocess
from wallclock.recipe import ModelSpec, Recipe
from wallclock.stages.forward.networks import Network, Step, digest_of, load_network

__all__ = ["Network", "Step", "make"]


def make(
    model: ModelSpec,
    recipe: Recipe,
    normalize: Step | None,
    sample: Callable[[], Any] | None = None,
) -> Network:
    """Load a model and make it ready to run as the recipe says.

    `normalize`: uint8 (n, h, w, 3) → float32 (n, 3, h, w), on the device; None: batches are
    normalized already. `sample`: as `openvino.make` takes it. Raises `UserError` for weights that
    cannot be loaded; `Unavailable` where a library or device is missing.
    """
    if model.weights == "none":
        return _mock(model)
    if recipe.runtime == "openvino":
        from wallclock.stages.forward import openvino

        return openvino.make(model, recipe, sample)
    if recipe.device == "cuda":
        machine.require_cuda()
    from wallclock.stages.forward import pytorch

    network = load_network(model, Preprocess.parse(recipe.preprocess, model.input_px).canvas)
    return pytorch.build(network, digest_of(network), recipe.dtype, recipe.device, normalize)


def _mock(model: ModelSpec) -> Network:
    """A model without a network, which takes as long as `service_ms` says."""

    def run(batch: Any) -> Any:
        service_ms = model.service_ms + model.service_ms_per_image * len(batch)
        if service_ms:
            time.sleep(service_ms / 1e3)
        # Pixels of the middle, so that a vector tells its image; the edge of a product's is white.
        flat = batch.reshape(len(batch), -1)
        start = max(0, flat.shape[1] - model.dim) // 2
        return flat[:, start : start + model.dim]

    return Network(run, weights_digest="none")
