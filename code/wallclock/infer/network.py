"""The model bound to one recipe: a batch to the device, through the network, its vectors back.

And which runtime it has where `runtime=auto` leaves it open.
"""

import timeit
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.util import find_spec
from time import perf_counter
from typing import Any, TypeAlias

import numpy as np

from wallclock.errors import UserError
from wallclock.machine import computes_bf16
from wallclock.recipe import ModelSpec, Recipe
from wallclock.stages import forward, normalize, transfer
from wallclock.stages.forward.openvino import LEAST_COSINE, is_kept
from wallclock.stages.pixels import PixelArray, Vectors
from wallclock.summary import cosine


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
#: Prints a line.
Say: TypeAlias = Callable[[str], None]


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


def open_fastest(
    recipe: Recipe, model: ModelSpec, say: Say, *, earns: bool, sample: Sample | None = None
) -> tuple[Recipe, Embedder]:
    """The network by OpenVINO if the job earns its conversion, else by torch; and its recipe."""
    by_openvino = replace(recipe, runtime="openvino")
    if _can(recipe, model) and (earns or is_kept(model, by_openvino)):
        try:
            return by_openvino, open_announced(by_openvino, model, say, sample)
        except UserError as error:
            say(f"{error.reason}: runtime=pytorch")
    return recipe, open_announced(recipe, model, say)


def open_announced(
    recipe: Recipe, model: ModelSpec, say: Say, sample: Sample | None = None
) -> Embedder:
    """`open_embedder`, with a line before it converts a model, and where torch emulates bf16."""
    if recipe.runtime == "openvino" and find_spec("openvino") and not is_kept(model, recipe):
        say(f"{model.name} is converted for OpenVINO, once: half a minute (not: runtime=pytorch)")
    embedder = open_embedder(recipe, model, sample=sample)
    in_bf16 = embedder.labels.get("provider") == "torch cpu bfloat16"
    if in_bf16 and (slower := slowdown_of_bf16()) > 1:
        say(f"dtype=bf16: this CPU takes {slower:.1f} times as long as for fp32")
    return embedder


def _can(recipe: Recipe, model: ModelSpec) -> bool:
    """Whether OpenVINO is here, and could run the recipe."""
    if model.weights == "none" or (recipe.device, recipe.normalize_on) != ("cpu", "device"):
        return False
    known = recipe.dtype == "fp32" or (recipe.dtype == "bf16" and computes_bf16())
    return known and find_spec("openvino") is not None


def gain_of_bf16(
    embedder: Embedder, recipe: Recipe, model: ModelSpec, images: PixelArray
) -> tuple[float, float] | None:
    """How much faster bf16 runs here, and its least cosine with FP32's; None: not, or not close."""
    if embedder.device != "cpu" or recipe.dtype != "fp32" or not computes_bf16() or not len(images):
        return None
    faster = open_embedder(replace(recipe, dtype="bf16"), model)
    seconds, vectors = [], []
    for opened in (embedder, faster):
        opened.embed(images[:1])
        began = perf_counter()
        vectors.append(np.array(opened.embed(images)))
        seconds.append(perf_counter() - began)
    least = cosine(*vectors).min()
    return (seconds[0] / seconds[1], least) if least >= LEAST_COSINE["bf16"] else None


def slowdown_of_bf16() -> float:
    """How many times longer torch takes on this CPU in bf16 than in FP32, for a layer's product."""
    import torch

    seconds = {}
    for dtype in (torch.float32, torch.bfloat16):
        rows, weights = torch.ones(512, 768, dtype=dtype), torch.ones(768, 768, dtype=dtype)
        repeats = timeit.repeat(partial(torch.matmul, rows, weights), number=1, repeat=4)
        seconds[dtype] = min(repeats)
    return seconds[torch.bfloat16] / seconds[torch.float32]
