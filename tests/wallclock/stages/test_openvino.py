"""OpenVINO's graphs: torch's vectors, from a cache that may be damaged, full, or shared."""

import json
import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.families import FAMILIES
from tests.running import run_python
from wallclock import files
from wallclock.errors import Unavailable, UserError
from wallclock.infer.network import open_embedder
from wallclock.job.settings import JobSettings
from wallclock.preprocess import Preprocess
from wallclock.recipe import ModelSpec, Recipe
from wallclock.stages.forward import openvino

pytest.importorskip("openvino")


def resolved(folder: Path) -> tuple[ModelSpec, Recipe]:
    recipe, model, _ = JobSettings(model=str(folder)).resolved("cpu")
    return model, replace(recipe, runtime="openvino", batch_size=4)


def pixels(n: int, model: ModelSpec, recipe: Recipe) -> Any:
    canvas = Preprocess.parse(recipe.preprocess, model.input_px).canvas
    return np.random.default_rng(0).integers(0, 256, (n, *canvas, 3), np.uint8)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A model's folder, and a cache with its graph."""
    folder, cache = tmp_path_factory.mktemp("dinov2"), tmp_path_factory.mktemp("cache")
    FAMILIES["dinov2"](folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(cache))
        openvino.make(*resolved(folder))
    return folder, cache


@pytest.fixture
def folder(made: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The model's folder; the cache is the test's own."""
    shutil.copytree(made[1], tmp_path / "cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return made[0]


def entry() -> Path:
    (entry,) = files.cache_folder("openvino").iterdir()
    return entry


def refuse(*_: object) -> None:
    raise AssertionError("converted again")


#: Drops a network in another thread than the one that opened it, and then handles a signal.
DROPPED = """
import signal, sys, threading
from dataclasses import replace
from wallclock.infer.network import open_embedder
from wallclock.job.settings import JobSettings

recipe, model, _ = JobSettings(model=sys.argv[1]).resolved("cpu")
held = [open_embedder(replace(recipe, runtime="openvino", batch_size=4), model)]
thread = threading.Thread(target=held.clear)
thread.start()
thread.join()
signal.signal(signal.SIGUSR1, lambda *_: print("handled"))
signal.raise_signal(signal.SIGUSR1)
"""


def test_signals_are_handled_after_it(folder: Path) -> None:
    ended = run_python("-c", DROPPED, folder)
    assert ended.stdout == "handled\n", ended.stderr


def test_torchs_vectors(folder: Path) -> None:
    """Of batches of any size; a canvas or another network is another graph."""
    model, recipe = resolved(folder)
    embedder = open_embedder(recipe, model)
    by_torch = open_embedder(replace(recipe, runtime="pytorch"), model)
    for n in (1, 5):
        images = pixels(n, model, recipe)
        vectors, expected = embedder.embed(images), by_torch.embed(images)
        assert vectors.dtype == np.float32
        np.testing.assert_allclose(vectors, expected, rtol=1e-4, atol=1e-4)
    assert embedder.labels == {
        "runtime": "openvino",
        "provider": "openvino cpu fp32",
        "dtype": "fp32",
        "compile": "none",
    }
    assert embedder.weights_digest == by_torch.weights_digest
    for changed in (replace(recipe, preprocess="squash:112x112,bilinear"), recipe):
        assert openvino.is_kept(model, changed) == (changed == recipe)
    assert not openvino.is_kept(replace(model, pool="mean"), recipe)


def test_a_kept_graph_needs_no_torch(folder: Path) -> None:
    code = (
        "import sys, numpy as np\n"
        "from dataclasses import replace\n"
        "from wallclock.job.settings import JobSettings\n"
        "from wallclock.infer.network import open_embedder\n"
        f"recipe, model, _ = JobSettings(model={str(folder)!r}).resolved('cpu')\n"
        "embedder = open_embedder(replace(recipe, runtime='openvino'), model)\n"
        "px = model.input_px\n"
        "embedder.embed(np.zeros((1, px, px, 3), np.uint8))\n"
        "print({'torch', 'transformers'} & {*sys.modules})\n"
    )
    done = run_python("-c", code)
    assert done.stdout == "set()\n", done.stderr


@pytest.mark.parametrize("name", ["graph.bin", "check.npz", "about.json"])
@pytest.mark.parametrize("how", ["cut", "gone"])
def test_a_damaged_entry_is_made_again(folder: Path, name: str, how: str) -> None:
    path = entry() / name
    whole = path.read_bytes()
    path.unlink()
    if how == "cut":
        path.write_bytes(whole[: len(whole) // 2])
    model, recipe = resolved(folder)
    openvino.make(model, recipe)
    assert path.stat().st_size == pytest.approx(len(whole), rel=0.01)


def test_other_vectors_are_refused(folder: Path) -> None:
    """As of another processor's kernels: the check's vectors are torch's."""
    path = entry() / "check.npz"
    with np.load(path) as check:
        images, vectors = check["images"], check["vectors"]
    vectors[3] += 0.1 * np.abs(vectors[3]).max()
    np.savez(path, images=images, vectors=vectors)
    with pytest.raises(UserError, match=r"differ from torch's: cosine 0\.9.* set runtime=pytorch"):
        openvino.make(*resolved(folder))


def test_a_model_that_does_not_convert(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """EfficientNet's pooling has a window larger than its map. It is not tried again."""
    FAMILIES["efficientnet"](tmp_path)
    why = "does not convert to OpenVINO: .*set runtime=pytorch"
    with pytest.raises(UserError, match=why):
        openvino.make(*resolved(tmp_path))
    monkeypatch.setattr(openvino, "load_network", refuse)
    with pytest.raises(UserError, match=why):
        openvino.make(*resolved(tmp_path))


def test_the_cache_is_bounded(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What was not opened for the longest time goes."""
    old, new = (files.cache_folder("openvino") / name for name in ("old", "new"))
    for number, path in enumerate((old, new)):
        path.mkdir()
        with (path / "graph.bin").open("wb") as file:
            file.truncate(100_000_000)
        os.utime(path, (number, number))
    monkeypatch.setattr(openvino, "_MOST_BYTES", 150_000_000)
    FAMILIES["resnet"](tmp_path / "resnet")
    openvino.make(*resolved(tmp_path / "resnet"))
    assert new.exists()
    assert not old.exists()


def test_the_sample_is_the_check(folder: Path) -> None:
    model, recipe = resolved(folder)
    shutil.rmtree(entry())
    images = pixels(openvino._N + 2, model, recipe)
    openvino.make(model, recipe, lambda: images)
    with np.load(entry() / "check.npz") as check:
        assert np.array_equal(check["images"], images[: openvino._N])
    assert json.loads((entry() / "about.json").read_bytes())["size"] > 0


@pytest.mark.parametrize("executed", ["f32", "bf16"])
def test_bf16(folder: Path, executed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A processor without it executes FP32, whatever is asked for."""
    model, recipe = resolved(folder)
    monkeypatch.setattr(openvino, "_executed", lambda compiled: {executed})
    monkeypatch.setitem(openvino.LEAST_COSINE, "bf16", 0.99)  # of noise
    if executed == "bf16":
        assert openvino.make(model, replace(recipe, dtype="bf16")).dtype == "bf16"
        return
    with pytest.raises(Unavailable, match="dtype=bf16: this CPU runs it in f32; set dtype=fp32"):
        openvino.make(model, replace(recipe, dtype="bf16"))


def test_it_is_not_installed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openvino", None)
    with pytest.raises(UserError, match=r"runtime=openvino needs openvino.*\[cpu\]"):
        openvino.make(*resolved(folder))
