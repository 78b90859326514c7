"""A job's runtime: decided at the first start, kept by OUT, checked by verify."""

import io
import re
import sys
import timeit
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from tests import making
from tests.families import FAMILIES
from tests.running import run_python
from tests.wallclock.job.conftest import opened
from wallclock.errors import UserError
from wallclock.infer import network
from wallclock.job import embed
from wallclock.job.run import Tally
from wallclock.job.runner import process
from wallclock.job.settings import JobSettings
from wallclock.job.start import Outcome
from wallclock.job.verify import verify
from wallclock.progress import format_duration
from wallclock.stages.forward import openvino

pytest.importorskip("openvino")
N = 12
Embed = Callable[..., str]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images and a model."""
    base = tmp_path_factory.mktemp("runtime")
    for name in ("images", "dinov2"):
        (base / name).mkdir()
    for seed in range(N):
        (base / "images" / f"{seed:02}.jpg").write_bytes(making.jpeg(320, 240, seed))
    FAMILIES["dinov2"](base / "dinov2")
    return base


@pytest.fixture
def run(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Embed:
    """What an `embed` prints, its last line included; the cache is the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def start(out: str, **values: Any) -> str:
        console = Console(file=io.StringIO(), width=500)
        settings = {"model": str(made / "dinov2"), "batch": 4, "device": "cpu", **values}
        outcome = embed(made / "images", tmp_path / out, console=console, **settings)
        return f"{console.file.getvalue()}{outcome}"  # type: ignore[attr-defined]

    return start


def runtime_of(out: Path) -> str:
    dataset = opened(out)
    assert dataset.about["identity"]["recipe"]["runtime"] == dataset.about["ran"]["runtime"]
    return str(dataset.about["ran"]["runtime"])


def test_auto_converts_for_a_long_job_and_goes_on_with_what_out_has(
    run: Embed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "converted" not in run("short", limit=6)
    monkeypatch.setattr(process, "LEAST", N)
    assert "dinov2 is converted for OpenVINO, once" in run("long")
    with np.load(next((tmp_path / "cache").rglob("check.npz"))) as check:
        assert len(np.unique(check["images"][:, 0, 0], axis=0)) > 1, "the job's own images"
    run("cached", limit=2)
    run("short")
    outs = {name: runtime_of(tmp_path / name) for name in ("short", "long", "cached")}
    assert outs == {"short": "pytorch", "long": "openvino", "cached": "openvino"}
    assert not verify(tmp_path / "long").faults
    with pytest.raises(UserError, match=r"recipe\.runtime was openvino, is pytorch"):
        run("long", runtime="pytorch")


@pytest.mark.parametrize("how", ["does not convert", "other vectors", "full"])
def test_auto_says_why_it_is_torch(
    how: str, run: Embed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "LEAST", 1)
    words = "does not convert to OpenVINO"
    if how == "does not convert":
        monkeypatch.setattr(openvino, "_graph_of", partial(_raise, RuntimeError("no such op")))
    if how == "other vectors":
        monkeypatch.setitem(openvino.LEAST_COSINE, "fp32", 1.1)
        words = "OpenVINO's vectors differ from torch's"
    if how == "full":
        words = "OpenVINO's graph cannot be kept in .*No space left"
        refuse = partial(_raise, OSError(28, "No space left on device"))
        monkeypatch.setattr(np, "savez", refuse)
    said = run("out")
    (line,) = [line for line in said.splitlines() if line.endswith(": runtime=pytorch")]
    assert re.search(words, line)
    assert runtime_of(tmp_path / "out") == "pytorch"
    if how == "full":
        assert [*(tmp_path / "cache" / "wallclock" / "openvino").iterdir()] == []
        with pytest.raises(UserError, match=r"free space or set XDG_CACHE_HOME"):
            run("other", runtime="openvino")


def test_an_out_that_was_begun_refuses_what_a_new_one_is_told(
    run: Embed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another runtime and dtype are no cure for it. Without OpenVINO, `auto` is torch."""
    run("begun", limit=6, runtime="openvino")
    with monkeypatch.context() as patch:
        patch.setitem(openvino.LEAST_COSINE, "fp32", 1.1)
        _refused(run, "set runtime=pytorch")
    with monkeypatch.context() as patch:
        patch.setattr(openvino, "_executed", lambda compiled: {"bf16"})
        _refused(run, "set dtype=fp32")
    monkeypatch.setitem(sys.modules, "openvino", None)
    with pytest.raises(UserError, match=r"runtime=openvino needs openvino.*\[cpu\]"):
        run("begun")
    monkeypatch.setattr(process, "LEAST", 1)
    assert "OpenVINO" not in run("out")
    assert runtime_of(tmp_path / "out") == "pytorch"


def _refused(run: Embed, cure: str) -> None:
    with pytest.raises(UserError, match=r"give another OUT$") as raised:
        run("begun")
    assert "set " not in str(raised.value)
    with pytest.raises(UserError, match=f"{cure}$"):
        run("other", runtime="openvino")


def _raise(error: Exception, *_: object, **__: object) -> None:
    raise error


@pytest.mark.slow
def test_killed_while_it_converts(run: Embed, made: Path, tmp_path: Path) -> None:
    """OUT has no job yet, and the cache no entry: the next start decides anew."""
    code = (
        "import os, sys, numpy\n"
        "numpy.savez = lambda *a, **k: os.kill(os.getpid(), 9)\n"
        "from wallclock.job import embed\n"
        "embed(*sys.argv[1:3], model=sys.argv[3], device='cpu', runtime='openvino')\n"
    )
    done = run_python("-c", code, made / "images", tmp_path / "out", made / "dinov2")
    assert done.returncode == -9
    assert "converted" in run("out", runtime="openvino")
    assert runtime_of(tmp_path / "out") == "openvino"


@pytest.mark.parametrize(
    ("values", "fault"),
    [
        ({"recipe": "pillow"}, "needs another recipe="),
        ({"dtype": "fp16"}, "needs another dtype="),
        ({"model": "null"}, "needs another model="),
    ],
)
def test_what_openvino_cannot_run(values: dict[str, Any], fault: str) -> None:
    with pytest.raises(UserError, match=fault):
        JobSettings(runtime="openvino", **values).resolved_recipe("cpu")


@pytest.mark.parametrize("gain", [2.0, 1.05])
def test_bf16_is_offered(gain: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of ten minutes the network had nine, of which half would be left."""
    monkeypatch.setattr(process, "gain_of_bf16", lambda *_: (gain, 0.99995))
    monkeypatch.setattr(process, "sample_images", lambda *_: range(32))
    place: Any = process.ThisProcess(JobSettings(device="cpu"), Console(quiet=True))
    place._embedder = None
    tally = Tally(wall_s=600.0, wait_s={"loader": 60.0, "sink": 0.0})
    job: Any = SimpleNamespace(recipe=None, model=None)
    times = f"{format_duration(330)} instead of {format_duration(600)}"
    line = f"dtype=bf16 in a new OUT would take {times} (cosine 0.99995 on 32 of your images)"
    assert place._offer(job, None, tally) == (line if gain == 2 else "")
    counts = {"vectors": 9, "failures": 0, "skipped": 0, "parts": 1, "unreached": 0, "gone": 0}
    outcome = Outcome("out", counts, replace(tally, faster=line))
    assert f"bottleneck: forward; {line}" in str(outcome)


@pytest.mark.parametrize("has_it", [True, False])
def test_gain_of_bf16(has_it: bool, made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Measured where the CPU computes in bf16, and the vectors are close."""
    monkeypatch.setattr(network, "computes_bf16", lambda: has_it)
    monkeypatch.setitem(openvino.LEAST_COSINE, "bf16", 0.9)  # of a small random network
    recipe, model, _ = JobSettings(model=str(made / "dinov2")).resolved("cpu")
    embedder = network.open_embedder(recipe, model)
    shape = (4, model.input_px, model.input_px, 3)
    images = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    gain = network.gain_of_bf16(embedder, recipe, model, images)
    assert (gain is not None) == has_it
    if gain:
        assert gain[0] > 0
        assert 0.9 < gain[1] < 1


@pytest.mark.parametrize("slower", [3.0, 0.5])
def test_a_cpu_that_emulates_bf16_is_named(
    slower: float, run: Embed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By what torch's product of two matrices takes."""
    clock = iter([2.0, 1.0, 3.0, 2.0, 9.0, slower, 9.0, 9.0])
    monkeypatch.setattr(timeit, "repeat", lambda *_, repeat, **__: [*islice(clock, repeat)])
    said = run("out", limit=4, runtime="pytorch", dtype="bf16")
    line = f"dtype=bf16: this CPU takes {slower} times as long as for fp32"
    assert (line in said) is (slower > 1)


def test_fast_uses_fp16_on_a_gpu_only() -> None:
    dtypes = [JobSettings().resolved_recipe(device).dtype for device in ("cpu", "cuda")]
    assert dtypes == ["fp32", "fp16"]
    assert JobSettings(recipe="pillow").resolved_recipe("cuda").dtype == "fp32"
