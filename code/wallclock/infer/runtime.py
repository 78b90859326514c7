"""Which runtime a network has where `runtime=auto` leaves it open."""

import timeit
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib.util import find_spec

from wallclock.errors import UserError
from wallclock.infer.network import Embedder, Sample, open_embedder
from wallclock.machine import computes_bf16
from wallclock.recipe import ModelSpec, Recipe
from wallclock.stages.forward.openvino import is_kept

#: Prints a line.
Say = Callable[[str], None]


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


def slowdown_of_bf16() -> float:
    """How many times longer torch takes on this CPU in bf16 than in FP32, for a layer's product."""
    import torch

    seconds = {}
    for dtype in (torch.float32, torch.bfloat16):
        rows, weights = torch.ones(512, 768, dtype=dtype), torch.ones(768, 768, dtype=dtype)
        repeats = timeit.repeat(partial(torch.matmul, rows, weights), number=1, repeat=4)
        seconds[dtype] = min(repeats)
    return seconds[torch.bfloat16] / seconds[torch.float32]
