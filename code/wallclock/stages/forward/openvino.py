"""OpenVINO: the network as a graph for this machine's CPU, made once and kept in the user's cache.

An entry of the cache is a folder named after the digest of all that the graph depends on. It has
`graph.xml` and `graph.bin`, in FP32; `check.npz`, images and the vectors that torch makes of them;
and `about.json`. Each time an entry is opened, the compiled graph has to make those vectors. With
an entry neither torch nor transformers is imported.
"""

import json
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from time import perf_counter
from typing import Any
from zipfile import BadZipFile

import numpy as np

from wallclock import checkpoint
from wallclock.checkpoint import quiet
from wallclock.errors import Unavailable, UserError, import_extra, reason_of
from wallclock.files import cache_folder, cache_key, pretty_json, sha256_file
from wallclock.preprocess import Preprocess
from wallclock.recipe import ModelSpec, Recipe
from wallclock.stages.forward.networks import Network, digest_of, load_network
from wallclock.stages.pixels import PixelArray, Vectors
from wallclock.summary import cosine

#: Least cosine of a vector with torch's in FP32, by the precision that the graph is executed in.
LEAST_COSINE = {"fp32": 0.99999, "bf16": 0.9995}
#: Bytes of all entries together; the one that was opened last may be larger.
_MOST_BYTES = 8 << 30
_HINTS = {"fp32": "f32", "bf16": "bf16"}
#: What the time goes into, and what is executed in the precision that was asked for.
_HEAVY = {"FullyConnected", "Convolution", "MatMul", "ScaledDotProductAttention"}
_GRAPH, _CHECK, _ABOUT = "graph.xml", "check.npz", "about.json"
#: Images of the check.
_N = 8
_LIBRARIES = ("openvino", "torch", "transformers")
_CURE = "set runtime=pytorch"


def is_kept(model: ModelSpec, recipe: Recipe) -> bool:
    """Whether the model's graph is in the cache."""
    return (_entry(model, recipe) / _ABOUT).is_file()


def make(
    model: ModelSpec, recipe: Recipe, sample: Callable[[], PixelArray] | None = None
) -> Network:
    """The model's graph from the cache, or converted; it takes batches in host memory.

    `sample`: uint8 images (n, h, w, 3) of the check, by default noise. Raises Unavailable: OpenVINO
    is not installed, or this CPU does not execute the dtype; UserError: the model does not convert,
    or the graph's vectors differ from torch's.
    """
    import_extra("openvino", "runtime=openvino", "cpu")
    entry = _entry(model, recipe)
    began = perf_counter()
    about = _read(entry)
    if about is None:
        shape = _N, *Preprocess.parse(recipe.preprocess, model.input_px).canvas, 3
        noise = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
        about = _convert(model, recipe, sample()[:_N] if sample else noise, entry)
    if "refused" in about:
        raise UserError(about["refused"], _CURE)
    run = _compile(entry, recipe)
    with np.load(entry / _CHECK) as check:
        least = cosine(run(check["images"]), check["vectors"]).min()
    if not least >= LEAST_COSINE[recipe.dtype]:
        why = f"cosine {least:.6f} in {recipe.dtype}, {LEAST_COSINE[recipe.dtype]} at least"
        again = f"remove {entry} to convert it again"
        raise UserError(f"OpenVINO's vectors differ from torch's: {why} ({again})", _CURE)
    os.utime(entry)
    return Network(
        run,
        about["weights"],
        runtime="openvino",
        provider=f"openvino cpu {recipe.dtype}",
        dtype=recipe.dtype,
        values={"compile_s": perf_counter() - began, "cosine": least},
    )


def _entry(model: ModelSpec, recipe: Recipe) -> Path:
    """The folder for a graph, by the files, settings and versions that it depends on."""
    depends: dict[str, Any] = {"pool": model.pool, "statistics": model.statistics}
    depends["canvas"] = Preprocess.parse(recipe.preprocess, model.input_px).canvas
    if model.weights == "random":
        depends["random"] = model.seed, model.dim
    else:
        files = checkpoint.weights_folder_of(model)
        names = ("*.json", "*.safetensors")
        paths = sorted(path for name in names for path in files.glob(name))
        depends["files"] = {path.name: sha256_file(path) for path in paths}
    return cache_folder("openvino") / cache_key(depends, _LIBRARIES)


def _read(entry: Path) -> dict[str, str] | None:
    """`about.json` of an entry; None where there is none, or it is damaged."""
    try:
        about = json.loads((entry / _ABOUT).read_bytes())
        with (entry / _CHECK).open("rb") as file, np.load(file) as check:
            whole = {"images", "vectors"} <= set(check)
        if whole and about["size"] == (entry / _GRAPH).with_suffix(".bin").stat().st_size:
            return {str(name): value for name, value in about.items()}
    except (OSError, ValueError, KeyError, TypeError, BadZipFile):
        pass
    shutil.rmtree(entry, ignore_errors=True)
    return None


def _convert(model: ModelSpec, recipe: Recipe, images: PixelArray, entry: Path) -> dict[str, Any]:
    """Make an entry, also of a model that does not convert; its `about.json`. Raises UserError."""
    import torch

    canvas = Preprocess.parse(recipe.preprocess, model.input_px).canvas
    network = load_network(model, canvas)
    about: dict[str, Any] = {"weights": digest_of(network)}
    mean, std = (np.array(values, np.float32) for values in model.statistics)
    batch = ((images / np.float32(255) - mean) / std).transpose(0, 3, 1, 2)
    with torch.inference_mode():
        vectors = network(pixel_values=torch.from_numpy(np.ascontiguousarray(batch)))
    graph = None
    try:
        graph = _graph_of(network, model, canvas)
    except Exception as error:  # noqa: BLE001 - of what a tracer may raise there is no end
        about["refused"] = f"{model.name} does not convert to OpenVINO: {reason_of(error)}"
    try:
        _write(entry, about, graph, images, vectors.pooler_output.numpy())
    except (OSError, RuntimeError) as error:  # OpenVINO's, of a full disk
        why = f"OpenVINO's graph cannot be kept in {entry.parent}: {reason_of(error)}"
        raise UserError(f"{why}; free space or set XDG_CACHE_HOME") from error
    _trim(entry)
    return about


def _write(
    entry: Path, about: dict[str, Any], graph: Any, images: PixelArray, vectors: Vectors
) -> None:
    """Write an entry beside its place, and rename it: of two processes the first one counts."""
    from openvino import save_model

    entry.parent.mkdir(parents=True, exist_ok=True)
    made = Path(mkdtemp(prefix=".", dir=entry.parent))
    weights = (made / _GRAPH).with_suffix(".bin")
    try:
        if graph is None:
            weights.touch()
        else:
            save_model(graph, made / _GRAPH, compress_to_fp16=False)
        np.savez(made / _CHECK, images=images, vectors=vectors)
        about["size"] = weights.stat().st_size
        (made / _ABOUT).write_text(pretty_json(about))
        with suppress(OSError):
            made.rename(entry)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _graph_of(network: Any, model: ModelSpec, canvas: tuple[int, int]) -> Any:
    """The network traced: a graph that takes uint8 (n, h, w, 3) and normalizes."""
    import torch
    from openvino import Layout, PartialShape, Type
    from openvino.frontend import FrontEndManager
    from openvino.frontend.pytorch.ts_decoder import TorchScriptPythonDecoder
    from openvino.preprocess import PrePostProcessor

    class Vectors(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, pixel_values: Any) -> Any:
            return self.network(pixel_values=pixel_values).pooler_output

    with torch.inference_mode(), quiet("runtime=openvino"):
        # A check of the trace would run the network three times more; `make` checks.
        trace: Any = torch.jit.trace
        traced = trace(Vectors(), torch.zeros(2, 3, *canvas), check_trace=False)
        decoder = TorchScriptPythonDecoder(traced)  # which has to outlive the conversion
        frontend = FrontEndManager().load_by_framework("pytorch")
        graph = frontend.convert(frontend.load(decoder))
    graph.reshape(PartialShape([-1, 3, *canvas]))
    steps = PrePostProcessor(graph)
    steps.input().tensor().set_element_type(Type.u8).set_layout(Layout("NHWC"))
    steps.input().model().set_layout(Layout("NCHW"))
    mean, std = ([255 * value for value in values] for values in model.statistics)
    steps.input().preprocess().convert_element_type(Type.f32).mean(mean).scale(std)
    return steps.build()


def _compile(entry: Path, recipe: Recipe) -> Callable[[Any], Vectors]:
    """The graph compiled for this CPU. Raises Unavailable: it runs in another precision."""
    settings: dict[str, Any] = {"INFERENCE_PRECISION_HINT": _HINTS[recipe.dtype]}
    if recipe.torch_threads:
        settings["INFERENCE_NUM_THREADS"] = recipe.torch_threads
    try:
        compiled = _core().compile_model(entry / _GRAPH, "CPU", settings)
    except RuntimeError as error:
        raise UserError(f"OpenVINO: {reason_of(error)}", _CURE) from error
    executed = _executed(compiled)
    if executed != {_HINTS[recipe.dtype]}:
        has = " and ".join(sorted(executed))
        raise Unavailable(f"dtype={recipe.dtype}: this CPU runs it in {has}", "set dtype=fp32")

    def run(images: Any) -> Vectors:
        vectors: Vectors = compiled(images)[0]
        return vectors

    return run


@cache
def _core() -> Any:
    """One for the process: it gives its thread a stack for signal handlers, unmapped when it ends.

    If another thread dropped the last one, the next signal would end the process.
    """
    from openvino import Core

    return Core()


def _executed(compiled: Any) -> set[str]:
    """The precisions of what takes the time: a hint is not always followed."""
    infos = [node.get_rt_info() for node in compiled.get_runtime_model().get_ops()]
    heavy = [info for info in infos if info["layerType"].astype(str) in _HEAVY]
    return {info["runtimePrecision"].astype(str) for info in heavy}


def _trim(kept: Path) -> None:
    """Remove the entries that were not opened for the longest time, but `kept`."""
    entries = [path for path in kept.parent.iterdir() if path != kept and path.is_dir()]
    entries.sort(key=lambda path: path.stat().st_mtime, reverse=True)
    total = 0
    for entry in (kept, *entries):
        total += sum(path.stat().st_size for path in entry.iterdir())
        if total > _MOST_BYTES and entry != kept:
            shutil.rmtree(entry, ignore_errors=True)
