"""Protocol `runtime`: one batch through the network, again and again, by one runtime.

The batch is real images of the corpus and lies on the device before the clock starts. What a run
computed last is compared with the vectors of PyTorch in FP32, made in this process before.
"""

from __future__ import annotations

from array import array
from dataclasses import replace
from pathlib import Path
from time import perf_counter, perf_counter_ns
from typing import Any

import numpy as np

from wallclock.clock import gc_disabled
from wallclock.corpus import readers
from wallclock.corpus.manifest import Manifest
from wallclock.errors import Unavailable, UserError
from wallclock.measure.protocol import Measurement, Progress, open_corpus, peak_memory_mib
from wallclock.spec import Cell, ModelSpec, Recipe
from wallclock.stages import assemble, decode, forward, normalize, resize, runtimes
from wallclock.stages.runtimes.base import Floats
from wallclock.summary import cosine, median
from wallclock.thread_counts import set_threads

_GIB = 2**30


def runtime(cell: Cell, work: Path, progress: Progress) -> Measurement:
    """Build the runtime, warm it up, time `params.batches` batches, compare its vectors.

    Samples: `batch`, one a batch. Values: seconds of export, compilation and warm-up, what really ran,
    and how far its vectors are from the reference.
    """
    recipe, model = cell.recipe, cell.model
    runtimes.check(recipe.runtime, recipe.device)
    if model.weights == "none":
        raise Unavailable("the model is a mock model without a network: there is nothing to run")
    threads = set_threads(recipe, uses_torch=True)
    manifest = open_corpus(cell)
    images, n_unique = first_batch(manifest, recipe, model)
    request = _request(forward.load_network(model), images, recipe, cell, work)
    _forbid_tf32()
    reference = _reference(request)
    used_before = _device_bytes(recipe.device)
    built = runtimes.build(recipe.runtime, request)
    warmup_batches = int(cell.params["warmup_batches"])
    began = perf_counter()
    timed(built, warmup_batches, lambda done: None)
    warmup_s = perf_counter() - began
    samples = timed(
        built, int(cell.params["batches"]), lambda done: progress(done * recipe.batch_size)
    )
    values: dict[str, Any] = {
        **threads,
        "provider": built.provider,
        "compile_s": built.compile_s,
        **built.values,
    }
    values |= {"warmup_batches": warmup_batches, "warmup_s": warmup_s, "tf32": "off"}
    values |= {
        "weights_digest": request.weights_digest,
        "n_compared": n_unique,
        **compare(built.vectors(), reference),
    }
    values |= {"peak_gpu_mem_gib": _gib(used_before, _device_bytes(recipe.device))}
    values["peak_memory_mib"] = peak_memory_mib()
    return Measurement({"batch": samples}, values)


def timed(built: runtimes.Runtime, batches: int, progress: Progress) -> array[int]:
    """Nanoseconds of each of `batches` runs, the device waited for before the clock stops."""
    samples = array("q")
    with gc_disabled():
        built.synchronize()
        for done in range(1, batches + 1):
            began = perf_counter_ns()
            built.run()
            built.synchronize()
            samples.append(perf_counter_ns() - began)
            progress(done)
    return samples


def compare(vectors: Floats, reference: Floats) -> dict[str, Any]:
    """How far vectors are from the reference's.

    `cosine` (median) and `cosine_min` over the images; `max_rel_error`: the largest difference in any
    component, over the largest component of the reference. All None where a vector is not finite.
    """
    if vectors.shape != reference.shape:
        raise ValueError(f"vectors of shape {vectors.shape}, the reference's is {reference.shape}")
    names = ("cosine", "cosine_min", "max_rel_error")
    if not np.isfinite(vectors).all() or not np.linalg.norm(vectors, axis=1).all():
        return dict.fromkeys(names)
    similar = [float(value) for value in cosine(vectors, reference)]
    error = float(np.abs(vectors - reference).max() / np.abs(reference).max())
    return dict(zip(names, (median(similar), min(similar), error), strict=True))


def first_batch(manifest: Manifest, recipe: Recipe, model: ModelSpec) -> tuple[Floats, int]:
    """The corpus's first images as one batch, and how many they are; a small corpus repeats."""
    items = manifest.valid[: recipe.batch_size]
    if not items:
        raise UserError("the corpus holds no sound image to run a network on")
    decoder = decode.make(recipe.decoder)
    resizer = resize.make(recipe.resizer, recipe.interpolation, model.input_px).resize
    reader, to_float_chw = readers.make(manifest.root), normalize.make(*model.statistics)
    images = []
    for item in items:
        data = reader(item)
        pixels = decoder(data) if item.plain_jpeg else decode.decode_other(data)
        images.append(to_float_chw(resizer(pixels)))
    repeated = [images[position % len(images)] for position in range(recipe.batch_size)]
    return assemble.stack(repeated), len(images)


def _request(
    network: Any, images: Floats, recipe: Recipe, cell: Cell, work: Path
) -> runtimes.Request:
    import torch

    return runtimes.Request(
        network=network,
        weights_digest=forward.digest_of(network)[0],
        images=images,
        dtype=recipe.dtype,
        device=recipe.device,
        # Beside the runs of this folder: <out>/runs/<experiment>/<the cell's scratch folder>.
        cache=work.parents[2] / "onnx",
        scratch=work,
        opset=int(cell.params["opset"]),
        threads=torch.get_num_threads(),
    )


def _reference(request: runtimes.Request) -> Floats:
    """The vectors of PyTorch in FP32 on the same device; the network is back in host memory after."""
    built = runtimes.build("pytorch", replace(request, dtype="fp32"))
    built.run()
    vectors = built.vectors()
    del built
    request.network.cpu()
    if request.device == "cuda":
        import torch

        torch.cuda.empty_cache()
    return vectors


def _forbid_tf32() -> None:
    """FP32 means FP32: cuDNN's convolutions would otherwise round to ten bits on newer GPUs."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False


def _device_bytes(device: str) -> int | None:
    """Memory in use on the GPU as its driver counts it: torch's own count knows nothing of ONNX Runtime's."""
    if device != "cuda":
        return None
    import torch

    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info()
    return int(total - free)


def _gib(before: int | None, after: int | None) -> float | None:
    # Both libraries keep what they once allocated, so that what is held at the end is the peak.
    return None if before is None or after is None else (after - before) / _GIB
