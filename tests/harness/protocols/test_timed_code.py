"""A record's digest covers every function that runs while its cell is timed.

Each protocol measures a tiny cell under a trace, its threads, forks and commands included. What is
called between the first time that a clock is read and the last is in the digest (`TIMED` of the
protocol), or in `NOT_TIMED` with the reason. Where no clock is read, all is.
"""

import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from harness import provenance
from harness.engines import training
from harness.protocols import protocol, registry
from harness.protocols.protocol import no_progress
from harness.spec import Cell, Slice
from harness.testbed import serving
from tests.harness.protocols.conftest import FORKS
from tests.harness.protocols.test_ladder import SERVE
from tests.harness.protocols.test_train import Tiny
from tests.tracing import functions_called
from wallclock import errors, files, summary
from wallclock.errors import Unavailable
from wallclock.recipe import ModelSpec, Recipe
from wallclock.stages.forward import networks

pytestmark = FORKS

#: Called while the clock runs, without a part in what it says.
NOT_TIMED = {
    "harness/decoders/__init__.py": "adds decoders to the registry when it is imported",
    "harness/export.py": "metrics for a person who watches",
    "harness/native.py": "finds libturbojpeg; its version is in the cell's identity",
    "harness/peers.py": "imports a library when a loader is made",
    "harness/provenance.py": "describes the machine",
    "harness/spec.py": "the cell's own fields, which its key has",
    "wallclock/__init__.py": "names what is public",
    "wallclock/__main__.py": "hands a command line to the service",
    "wallclock/checkpoint.py": "finds files of weights, whose digest is in the record",
    "wallclock/constraints.py": "checks settings before anything is read",
    "wallclock/files.py": "digests of lists and weights; sinks and jobs, which write, cover it",
    "wallclock/predict/costs.py": "checks constants of the rungs when their module is imported",
    "wallclock/recipe.py": "the recipe's own fields, which the cell's key has",
    "wallclock/summary.py": "the images' sizes, for the record; who compares pixels covers it",
}

MOCK = ModelSpec("null", weights="none", input_px=32, dim=8, service_ms_per_image=0.1)
NETWORK = ModelSpec("tiny", dim=48, input_px=28)
RESNET = ModelSpec("resnet-50", "random", input_px=32)
SERIAL = Recipe("paper", "simplejpeg", "opencv", "linear", batch_size=4)
WORKERS = replace(SERIAL, engine="dataloader", workers=1)
FAST = replace(SERIAL, resizer="torch", interpolation="bilinear", dct_scale="auto")
FAST = replace(FAST, engine="threads", workers=2, normalize_on="device")
CHECKED = {"images": 6, "vectors": 0}
ONE_KILL = {"rounds": 1, "service_ms": 50, "batch": 4, "limit_s": 120, "seed": 0}
ON_A_NODE = {"system": "ours-ray", "nodes": 1, "service_ms": 50, "shard": 8}
JOBS = {"n": 40, "damaged": 0, "object_store_mib": 100, "fidelity": {}, "system": "ours"}
REQUESTS = {
    "n": 12,
    "warm_up": 4,
    "rate": 0.0,
    "seed": 0,
    "download_ms": 1.0,
    "callback_ms": 1.0,
    "preprocess_ms": 1.0,
    "queue_size": 300,
    "serve": SERVE,
    "services": 1,
}


@dataclass(frozen=True)
class Case:
    """A tiny cell of a protocol, and what is said of it in the test's name."""

    protocol: str
    recipe: Recipe = SERIAL
    params: Mapping[str, Any] = field(default_factory=dict)
    model: ModelSpec = MOCK
    what: str = ""
    slow: bool = False

    @property
    def name(self) -> str:
        """Protocol and variant."""
        return f"{self.protocol}-{self.what}".rstrip("-")


def ceilings(kind: str, recipe: Recipe) -> Case:
    return Case("ceiling", recipe, {"kind": kind, "seconds": 0.02}, what=f"{kind}-{recipe.engine}")


def end_to_end(protocol: str, params: Mapping[str, Any], *recipes: Recipe) -> list[Case]:
    return [Case(protocol, recipe, params, what=recipe.engine) for recipe in recipes]


CASES = [
    Case("agreement", params={"images": 3}),
    Case("batch_transfer", WORKERS, {"batch_sizes": [1, 4], "batches": 3}),
    *(ceilings(kind, FAST) for kind in ("decode_files", "decode_memory", "engine", "synthetic")),
    ceilings("decode_files", WORKERS),
    ceilings("forward", FAST),
    Case("cluster", params=JOBS, slow=True),
    Case("contention", WORKERS, {"seconds": 0.02}),
    Case("copies", params={"copies": "baseline", "seconds": 0.1}),
    Case("decode"),
    Case("fidelity", params={"recipes": [{"name": "fast", "decoder": "simplejpeg"}]}),
    Case("floor"),
    Case("formats", params={"encodings": ["jpeg_baseline-80", "png"]}),
    *(
        Case(
            "forms",
            FAST,
            {"form": form, "where": ["warm", "http-0"], "in_flight": 2, "seconds": 0.001},
            what=form,
        )
        for form in ("files", "tar", "parquet", "lmdb")
    ),
    Case("image_stats"),
    Case(
        "job",
        FAST,
        {"n": 40, "files": "distinct", "settings": {"shard": 20, "device": "cpu"}},
        slow=True,
    ),
    Case("killed", params=JOBS | ONE_KILL, slow=True),
    *(
        Case("ladder", FAST, REQUESTS | {"rung": rung}, what=str(rung), slow=True)
        for rung in (1, 2, 3, 4, 5)
    ),
    Case("layers", params={"batches": 1}, model=NETWORK, slow=True),
    *end_to_end("load_n", {"n": 20}, SERIAL, WORKERS, FAST),
    *end_to_end("loading", {"seconds": 0.01, "fidelity": CHECKED}, WORKERS, FAST),
    Case("loading", Recipe("pil", engine="pil", batch_size=4), {"seconds": 0.01}, what="pil"),
    Case(
        "nms",
        replace(SERIAL, workers=0),
        {"boxes": 8, "n_images": 1, "iou_threshold": 0.5, "seconds": 0.01},
    ),
    Case("profiler", params={"rounds": 1, "calls_per_round": 10}, slow=True),
    Case(
        "redelivery",
        FAST,
        REQUESTS | {"rung": 2, "queue_size": 4, "visibility_s": 4, "seconds": 30},
        slow=True,
    ),
    Case(
        "runtime", params={"batches": 1, "warmup_batches": 1, "opset": 23}, model=NETWORK, slow=True
    ),
    Case("scaled", params=JOBS | ON_A_NODE, slow=True),
    Case("serial", params={"max_failures": 0}),
    Case("serial", params={"max_failures": 0}, model=NETWORK, what="network", slow=True),
    Case("serialization", params={"n_vectors": 30, "dim": 8, "seed": 1, "fsync": True}),
    Case("stage_fix", params={"stage": "assemble", "seconds": 0.01}),
    Case("step", FAST, {"batch_sizes": [1, 4], "batches": 2, "seconds": 1}),
    Case("storage", params={"readers": [1, 2], "rounds": 1, "seconds": 0.001}),
    *end_to_end("throughput", {"max_failures": 0}, SERIAL, WORKERS, FAST),
    Case(
        "train",
        replace(FAST, augment="cpu"),
        {"max_failures": 0, "seconds": 0.01, "batches": 3},
        RESNET,
    ),
    Case(
        "train_step",
        replace(FAST, augment="device"),
        {"seconds": 0.01, "batches": 2, "batch_sizes": [2]},
        RESNET,
    ),
]


@pytest.fixture(autouse=True)
def _small_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    """What networks compute is not looked at; the compiler's folders are put back."""
    monkeypatch.setattr(training, "resnet50", lambda seed: Tiny())
    monkeypatch.setattr(networks, "_LAYERS", 1)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "")
    monkeypatch.setenv("TRITON_CACHE_DIR", "")


def traced(case: Case, corpus: Slice, folder: Path) -> Mapping[str, set[str]]:
    """The functions that measuring a cell calls, by file."""
    cell = Cell("x", case.protocol, "x", 0, case.recipe, corpus, case.model, case.params)
    measure = protocol.find(case.protocol)
    work = folder / "runs" / "x" / ".x.work"
    work.mkdir(parents=True)
    with functions_called(folder / "called") as called:
        try:
            measure(cell, work, no_progress)
        except Unavailable as error:
            pytest.skip(str(error))
    return called


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=case.name, marks=[pytest.mark.slow] if case.slow else [])
        for case in CASES
    ],
)
def test_the_digest_covers_what_is_called(case: Case, corpus: Slice, tmp_path: Path) -> None:
    called = traced(case, corpus, tmp_path)
    covered = {*provenance.source_files(registry.timed_by(case.protocol))}
    module = registry.module_of(case.protocol).replace(".", "/")
    assert called.keys() & covered
    missing = {file: sorted(called[file]) for file in called.keys() - covered - NOT_TIMED.keys()}
    assert not missing, f"add to TIMED of {module}.py, or here to NOT_TIMED: {missing}"


def test_every_protocol_has_a_case() -> None:
    assert {case.protocol for case in CASES} == {*registry.declarations()}


def test_what_is_not_timed_exists() -> None:
    for file in NOT_TIMED:
        assert (provenance.CODE / file).is_file()


def test_threads_forks_and_commands_are_seen(tmp_path: Path) -> None:
    """The tests above would pass on a trace that sees nothing."""

    def in_a_fork() -> int:
        try:
            errors.describe({"id": "a", "stage": "read", "reason": "b"})
        finally:
            os._exit(0)

    with functions_called(tmp_path / "called") as called:
        files.canonical_json({})  # before the clock
        protocol.repeat_for(0.0, int)  # which reads it
        thread = threading.Thread(target=summary.median, args=([1.0],))
        thread.start()
        thread.join()
        process = os.fork() or in_a_fork()
        os.waitpid(process, 0)
        with serving.process("callbacks"):
            pass
        protocol.repeat_for(0.0, int)
        files.canonical_json({})  # and after it
    assert "median" in called["wallclock/summary.py"]
    assert "describe" in called["wallclock/errors.py"]
    assert "main" in called["harness/testbed/__main__.py"]
    assert "wallclock/files.py" not in called
