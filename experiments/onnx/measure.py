"""Protocol `runtime`: one batch through the network again and again, by one runtime.

The batch is real images of the corpus and lies on the device before the clock starts. The last
run's vectors are compared with those of PyTorch in FP32, computed in this process before; under
pretrained weights so are those of further images, and their nearest neighbours. OpenVINO's graph
takes pixels: it converts and normalizes them while the clock runs.
"""

import os
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from harness import models, runtimes, telemetry
from harness.corpora.manifest import Manifest
from harness.engines.pipeline import cache_of
from harness.measures import NEIGHBOURS, median, neighbours_kept
from harness.peers import import_or_unavailable
from harness.processes import set_threads
from harness.protocols import protocol
from harness.protocols.network import (
    ForwardPass,
    Images,
    first_batch,
    load_images,
    require_network,
    timed,
)
from harness.protocols.protocol import Measurement, Progress, no_progress
from harness.spec import Cell, Recipe
from wallclock import machine
from wallclock.errors import Unavailable, check_name
from wallclock.recipe import ModelSpec
from wallclock.stages import forward, transfer
from wallclock.stages.pixels import Vectors
from wallclock.summary import cosine, unit_length

#: A row's name → recipe.runtime, recipe.compile, and the device it needs.
VARIANTS = {
    "pytorch": ("pytorch", "none", "any"),
    "pytorch-compile": ("pytorch", "compile", "any"),
    "pytorch-cudagraph": ("pytorch", "cuda_graphs", "cuda"),
    "onnxruntime": ("onnxruntime", "none", "cuda"),
    "onnxruntime-tensorrt": ("tensorrt", "none", "cuda"),
    "onnxruntime-cpu": ("onnxruntime", "none", "cpu"),
    "openvino": ("openvino", "none", "cpu"),
}
#: Operators and kernels that compute attention at once.
_FUSED = re.compile("scaled_dot_product_(?:flash|efficient|cudnn|fused)|flash_fwd|fmha")


def runtime(cell: Cell, work: Path, progress: Progress) -> Measurement:
    """Build the runtime, warm it up, time `params.batches` batches, compare its vectors.

    Samples: `batch`, one for each. Values: seconds of export, compilation and warm-up, the provider
    that ran, and the distance of its vectors from the reference.
    """
    from harness.runtimes.pytorch import TORCH_DTYPES

    recipe, model = resolve(cell.recipe), cell.model
    require_network(model)
    threads = set_threads(recipe, uses_torch=True)
    manifest, on_host = protocol.open_corpus(cell), replace(recipe, normalize_on="host")
    images, n_unique = first_batch(manifest, on_host, model)
    further = _further(manifest, on_host, model, images)
    # A compiler cache that is warm from the last run would make compile_s a different figure.
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(work / "inductor")
    os.environ["TRITON_CACHE_DIR"] = str(work / "triton")
    stored = models.on_disk(model, cache_of(work).parent)
    request = runtimes.prepare(stored, recipe, None, cache_of(work))
    # Calibrated on images that its vectors are not compared on, where the corpus has more.
    calibration = further if len(further) else images
    request = replace(request, opset=int(cell.params["opset"]), calibration=calibration)
    move = transfer.make(recipe.device)
    if model.weights != "pretrained":
        further = further[:0]
    unpruned = request
    if model.pruned:
        unpruned = runtimes.prepare(replace(stored, pruned=0.0), recipe, None, request.cache)
    references = _reference(unpruned, move, [images, further])
    before_gib = _gpu_gib(recipe.device)
    if recipe.runtime == "openvino":
        import_or_unavailable("openvino")
        n_further, (images, _) = len(further), first_batch(manifest, recipe, model)
        further = _further(manifest, recipe, model, images)[:n_further]
        network = forward.make(stored, recipe, None, lambda: images)
        move, batch = transfer.make("null"), images
    else:
        network = runtimes.build(request)
        # In the network's dtype, which spares every run a conversion.
        batch = move.h2d(images).to(TORCH_DTYPES[network.dtype])
    if network.dtype != recipe.dtype:
        raise Unavailable(f"dtype={recipe.dtype}: of this network only {network.dtype} was made")
    last: list[Any] = []

    def run() -> None:
        last[:] = [network.run(batch)]

    # For seconds, too: a card that has just begun is cooler, and faster, than one at work.
    warmup_batches, warmup_s, began = 0, 0.0, perf_counter()
    least, least_s = int(cell.params["warmup_batches"]), float(cell.params.get("warmup_seconds", 0))
    while warmup_batches < least or warmup_s < least_s:
        timed(run, move.synchronize, 1, no_progress)
        warmup_batches, warmup_s = warmup_batches + 1, perf_counter() - began

    def report(done: int) -> None:
        progress(done * recipe.batch_size)

    with telemetry.of_gpu(recipe.device) as readings:
        samples = timed(run, move.synchronize, int(cell.params["batches"]), report)
    # Both libraries keep what they once allocated: what is in use at the end is the peak.
    after_gib = _gpu_gib(recipe.device)
    values: dict[str, Any] = dict(threads)
    values |= network.values
    values |= {
        "provider": network.provider + (", emulated" if _is_emulated(recipe) else ""),
        "warmup_batches": warmup_batches,
        "warmup_s": warmup_s,
        "weights_digest": network.weights_digest,
        "n_compared": n_unique,
        "peak_gpu_mem_gib": after_gib and after_gib - (before_gib or 0),
        "peak_memory_mib": protocol.peak_memory_mib(),
        **readings,
    }
    if network.runtime == "pytorch":
        values["attention"] = attention(run, move.synchronize)
    values |= compare(move.d2h(last[0]), references[: len(images)])
    if len(further):
        vectors = _vectors(network, move, [images, further], recipe.batch_size)
        distinct = [*range(n_unique), *range(len(images), len(vectors))]
        values["n_neighbours"] = len(distinct)
        values["neighbours_kept"] = recall(vectors[distinct], references[distinct])
    return Measurement({"batch": samples}, values)


def _is_emulated(recipe: Recipe) -> bool:
    """Whether the device computes this dtype by another's instructions: bf16 before Ampere, say."""
    if recipe.dtype != "bf16":
        return False
    if recipe.device == "cpu":
        return not machine.computes_bf16()
    import torch

    return torch.cuda.get_device_capability() < (8, 0)


def resolve(recipe: Recipe) -> Recipe:
    """The recipe of a row: its runtime is a name of `VARIANTS`.

    Raises `UserError` for an unknown name or dtype, `Unavailable` where it needs another device.
    """
    name = check_name(recipe.runtime, VARIANTS, "runtime")
    runtime, compiler, device = VARIANTS[name]
    if device not in ("any", recipe.device):
        wanted = {"cuda": "a CUDA GPU", "cpu": "the CPU"}[device]
        raise Unavailable(f"{name} runs on {wanted} only, this run on device={recipe.device}")
    normalize_on = "device" if runtime == "openvino" else "host"
    recipe = replace(recipe, runtime=runtime, compile=compiler, normalize_on=normalize_on)
    runtimes.check(recipe)
    return recipe


def attention(run: ForwardPass, wait: ForwardPass | None) -> str:
    """How a pass computes attention, by what runs: fused (one kernel), eager (several), or none."""
    from torch.profiler import ProfilerActivity, profile

    activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * (wait is not None)
    with profile(activities=activities) as recorded:
        run()
        if wait is not None:
            wait()
    names = [event.key.lower() for event in recorded.key_averages()]
    if any(map(_FUSED.search, names)):
        return "fused"
    return "eager" if any("softmax" in name for name in names) else "none"


def compare(vectors: Vectors, reference: Vectors) -> dict[str, Any]:
    """How far vectors are from the reference's.

    `cosine` (median) and `cosine_min` over the images; `max_rel_error`: the largest difference of
    any component over the reference's largest. All None where a vector is not finite.
    """
    if vectors.shape != reference.shape:
        raise ValueError(f"vectors of shape {vectors.shape}, the reference's is {reference.shape}")
    names = ("cosine", "cosine_min", "max_rel_error")
    if not np.isfinite(vectors).all() or not np.linalg.norm(vectors, axis=1).all():
        return dict.fromkeys(names)
    similar = [float(value) for value in cosine(vectors, reference)]
    error = float(np.abs(vectors - reference).max() / np.abs(reference).max())
    return dict(zip(names, (median(similar), min(similar), error), strict=True))


def _further(manifest: Manifest, recipe: Recipe, model: ModelSpec, images: Images) -> Vectors:
    """The images after the first batch, if this cell needs them and there are any."""
    items = manifest.valid[recipe.batch_size :]
    if not items or (model.weights != "pretrained" and recipe.dtype != "int8-static"):
        return images[:0]
    return load_images(manifest, items, recipe, model)


def recall(vectors: Vectors, references: Vectors) -> float | None:
    """The mean share of an image's ten nearest neighbours that remain; None: no ten, or NaN."""
    if len(vectors) <= NEIGHBOURS or not np.isfinite(vectors).all():
        return None
    ours, theirs = unit_length(vectors), unit_length(references)
    return float(neighbours_kept(theirs, ours, np.arange(len(ours)), NEIGHBOURS).mean())


def _vectors(
    network: forward.Network, move: transfer.Transfer, parts: Sequence[Images], size: int
) -> Vectors:
    """Vectors of all images of the parts, `size` of them at a time."""
    batches = [part[at : at + size] for part in parts for at in range(0, len(part), size)]
    return np.concatenate([move.d2h(network.run(move.h2d(batch))) for batch in batches])


def _reference(
    request: runtimes.NetworkRequest, move: transfer.Transfer, parts: Sequence[Images]
) -> Vectors:
    """Vectors of PyTorch in FP32 on the same device; the network is back in host memory after."""
    import torch

    network = runtimes.build(replace(request, runtime="pytorch", dtype="fp32", compile="none"))
    vectors = _vectors(network, move, parts, request.shape[0])
    del network
    request.network.cpu()
    torch.cuda.empty_cache()  # nothing where CUDA was never used
    return vectors


def _gpu_gib(device: str) -> float | None:
    """Memory in use on the GPU by its driver's count; torch's own leaves out ONNX Runtime's."""
    if device != "cuda":
        return None
    import torch

    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info()
    return float(total - free) / 2**30
