"""The model bound to one recipe: a batch to the device, through the network, its vectors back."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from wallclock.recipe import ModelSpec, Recipe
from wallclock.stages import forward, normalize, transfer
from wallclock.stages.pixels import PixelArray, Vectors


@dataclass(frozen=True)
class Embedder:
    """The three stages of a batch on its device, one callable each.

    `device`: cpu, cuda, or null for the mock model, whose arrays stay where they are.
    `synchronize` waits for the device; None where nothing is queued. `labels` says what really
    runs: runtime, provider, dtype.
    """

    h2d: Callable[[Any], Any]
    forward: Callable[[Any], Any]
    d2h: Callable[[Any], Vectors]
    device: str = "cpu"
    synchronize: Callable[[], object] | None = None
    weights_digest: str = "none"
    labels: Mapping[str, str] = field(default_factory=dict)

    def embed(self, images: Any) -> Vectors:
        """Vectors, float32 (n, dim), of a batch in host memory."""
        return self.d2h(self.forward(self.h2d(images)))


#: Images to check a converted network with, uint8 (n, height, width, 3).
Sample: TypeAlias = Callable[[], PixelArray]


def open_embedder(
    recipe: Recipe,
    model: ModelSpec,
    sample: Sample | None = None,
    make: Callable[..., forward.Network] = forward.make,
) -> Embedder:
    """Load the model and bind h2d, forward and d2h; `model.normalize` scales vectors to length 1.

    `sample`, `make`: as, and in the place of, `forward.make`. Raises UserError: weights that cannot
    be had; Unavailable: a library or device.
    """
    device = recipe.device if model.weights != "none" else "null"
    takes_arrays = device == "null" or recipe.runtime == "openvino"
    move = transfer.make("null" if takes_arrays else device)
    on_device = None
    if recipe.normalize_on == "device" and not takes_arrays:
        on_device = normalize.on_device(*model.statistics, device)
    network = make(model, recipe, on_device, sample)
    return Embedder(
        h2d=move.h2d,
        forward=_of_length_1(network.run) if model.normalize else network.run,
        d2h=move.d2h,
        device=device,
        synchronize=move.synchronize,
        weights_digest=network.weights_digest,
        labels={
            "runtime": network.runtime,
            "provider": network.provider,
            "dtype": network.dtype,
            "compile": network.compile,
        },
    )


def _of_length_1(run: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """`run`, with its vectors (n, dim) scaled to length 1 where they are; zeros stay zeros."""

    def run_and_scale(batch: Any) -> Any:
        # In float64: the sum of squares may be over the range of the others.
        vectors = run(batch)
        if isinstance(vectors, np.ndarray):
            vectors = vectors.astype(np.float64)
            lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
            return (vectors / np.where(lengths > 0, lengths, 1)).astype(np.float32)
        vectors = vectors.double()
        lengths = vectors.norm(dim=1, keepdim=True)
        return (vectors / lengths.where(lengths > 0, 1.0)).float()

    return run_and_scale
