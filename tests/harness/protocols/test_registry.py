"""Protocols by name, what a record's digest covers, and what all of them share."""

import multiprocessing
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments import contents
from harness import provenance, records, sinks
from harness.corpora import readers
from harness.corpora.manifest import Item, Manifest
from harness.engines.pipeline import device_stages
from harness.processes import ProcessTree
from harness.protocols import fidelity, protocol, registry
from harness.protocols.sink_check import check_sink
from harness.spec import Cell, Recipe, Slice
from tests.experiments import made
from tests.harness.engines.conftest import manifest_in
from tests.test_layers import GROUND
from wallclock import files
from wallclock.errors import Unavailable, UserError
from wallclock.recipe import ModelSpec

# --- registry -------------------------------------------------------------------------------------


#: Protocol → an experiment whose cells have it.
PROTOCOLS = dict.fromkeys(sorted(registry.PROTOCOLS), "serial")
PROTOCOLS |= {"ladder": "ladder", "nms": "nms", "train_step": "train"}
digest = cache(files.sha256_file)
#: Of the product's modules in no package, those that no timed loop runs.
NOT_TIMED = {"words", "checkpoint", "constraints", "documents"}
NOT_TIMED |= {"options", "processor", "progress", "recipe"}


def test_an_unknown_protocol_is_named() -> None:
    cell = Cell("nms", "nsm", "x", 0, Recipe("x"), None, ModelSpec("x"))
    with pytest.raises(UserError, match=r"experiments\.nms\.measure has no protocol nsm"):
        protocol.find(cell)
    assert registry.is_known("nms", "nms")
    assert not registry.is_known("killed", "scaling"), "its folder has no measure.py"
    assert not registry.is_known("killed", "gone")


def test_every_cell_has_a_protocol_and_every_shared_protocol_a_cell(tmp_path: Path) -> None:
    names = (*contents.ORDER, *contents.ON_REQUEST)
    plan = made.plan(tmp_path, f"experiment=[{','.join(names)}]", "n=3")
    options = plan.settings.experiments
    cells = [cell for name in names for cell in contents.load(name).cells(plan, options[name])]
    for cell in cells:
        assert callable(protocol.find(cell)), cell.label
        assert provenance.source_files(registry.timed_by(cell.protocol, cell.experiment))
    assert registry.PROTOCOLS.keys() <= {cell.protocol for cell in cells}
    identities = [(cell.experiment, cell.label, cell.corpus, cell.repeat) for cell in cells]
    assert len({*identities}) == len(identities), "two cells of one name"


#: Modules beside a `measure.py` that only plan cells or fill tables.
FILL_TABLES = {"ladder.rows"}
FILL_TABLES |= {f"diagnose.{name}" for name in ("accelerators", "fixes", "predictions")}


def test_every_module_beside_a_measure_is_timed_or_fills_tables() -> None:
    for measure in (provenance.ROOT / "experiments").glob("*/measure.py"):
        name = measure.parent.name
        timed = registry.timed_by("its own", name)
        parts = {path.stem for path in measure.parent.iterdir() if path.stem != "__pycache__"}
        others = {f"{name}.{part}" for part in parts if not part.startswith(("cells", "figure"))}
        assert others - FILL_TABLES == {
            each.removeprefix("experiments.") for each in timed if each.startswith("experiments.")
        }


def test_every_module_of_the_products_ground_is_timed_or_not() -> None:
    timed = {name.removeprefix("wallclock.") for name in registry.TIMED}
    assert timed & GROUND == GROUND - NOT_TIMED


def keys() -> dict[str, str]:
    """Protocol → the key of one cell."""
    keys = {}
    for name, experiment in PROTOCOLS.items():
        cell = Cell("x", name, "x", 0, Recipe("x"), None, ModelSpec("x"))
        identity = provenance.identity(registry.timed_by(name, experiment))
        keys[name] = records.key_of(cell, identity)
    return keys


@pytest.fixture(autouse=True)
def _fresh_digests(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(provenance, "sha256_file", digest)
    yield
    provenance.code_digest.cache_clear()


@pytest.mark.parametrize(
    ("edited", "protocols"),
    [
        ("wallclock/loader/ring.py", set(PROTOCOLS)),
        ("wallclock/errors.py", set(PROTOCOLS)),
        ("harness/engines/serial.py", set(PROTOCOLS)),
        ("harness/engines/third_party/spdl.py", {"loading"}),
        ("experiments/train/measure.py", {"train_step"}),
        ("experiments/nms/measure.py", {"nms"}),
        ("experiments/nms/cells.py", set()),
        ("experiments/ladder/rungs.py", {"ladder"}),
        ("wallclock/service/logs.py", {"ladder"}),
        ("wallclock/trace/run.py", set()),
        ("wallclock/recipe.py", set()),
        ("harness/runner.py", set()),
        ("paper/check.py", set()),
    ],
)
def test_an_edit_changes_the_keys_of_what_times_it(
    edited: str, protocols: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = keys()
    base = provenance.ROOT if edited.startswith("experiments") else provenance.CODE

    def edited_digest(path: Path) -> str:
        return "edited" if path == base / edited else digest(path)

    monkeypatch.setattr(provenance, "sha256_file", edited_digest)
    provenance.code_digest.cache_clear()
    after = keys()
    assert {name for name in PROTOCOLS if after[name] != before[name]} == protocols
    assert (base / edited).is_file()


# --- protocol -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "share", "state"),
    [("warm", 1.0, "warm"), ("warm", 0.6, "partly warm"), ("cold", 0.01, "cold")],
)
def test_page_cache_is_read_back(
    asked: str, share: float, state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "cached_share", lambda paths: share)
    manifest = manifest_in(tmp_path, 2)
    cell = Cell("x", "x", "x", 0, Recipe("x"), None, ModelSpec("x"), {"page_cache": asked})
    values = protocol.set_page_cache(cell, manifest)
    assert (values["page_cache"], values["page_cache_share"]) == (state, share)
    monkeypatch.setattr(readers, "cached_share", lambda paths: 0.9)
    if asked == "cold":
        with pytest.raises(Unavailable, match=r"cold pages .* 90% of them"):
            protocol.set_page_cache(cell, manifest)


def test_memory_is_of_the_whole_tree() -> None:
    context = multiprocessing.get_context("fork")
    ready, done = context.Event(), context.Event()

    def hold() -> None:
        memory = bytearray(b"x" * (64 << 20))
        ready.set()
        done.wait()
        del memory

    alone, child = ProcessTree().pss_mib(), context.Process(target=hold)
    child.start()
    ready.wait()
    assert ProcessTree().pss_mib() > alone + 60
    assert protocol.peak_memory_mib() > alone + 60
    done.set()
    child.join()


def test_competing_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    busy, clock = iter([10.0, 11.0, 11.0, 11.0 + 2e-11]), iter([0, 2, 0, 2])
    monkeypatch.setattr(protocol, "_busy_s", lambda: next(busy))
    monkeypatch.setattr(protocol, "perf_counter_ns", lambda: 1_000_000_000 * next(clock))
    values: list[dict[str, float]] = [{}, {}]
    for added in values:
        with protocol.competing(added):
            pass
    assert values == [{"other_cores": 0.5}, {"other_cores": 0.0}]


@pytest.mark.parametrize("asked", ["warm", "cold"])
def test_a_cold_cell_reads_every_image_from_the_storage(asked: str, corpus: Slice) -> None:
    params = {"page_cache": asked}
    cell = Cell("x", "x", "x", 0, Recipe("x"), corpus, ModelSpec("x"), params)
    assert protocol.open_corpus(cell).cold == (asked == "cold")


# --- sink check -----------------------------------------------------------------------------------


MODEL = ModelSpec("none", "none", dim=4)
ITEMS = tuple(Item(f"{at}", f"{at}.jpg") for at in range(9))
MANIFEST = Manifest("folder", "original", Path("/images"), ITEMS)
FAILED = [{"id": "3", "stage": "read", "reason": "gone"}]
#: Twice all images.
BATCHES = [list(range(6)), list(range(6, 12)), list(range(12, 18))]
WRITTEN = [f"{at}" for at in [*range(9), *range(9)] if at != 3]


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The images whose vectors are compared; they are not."""
    names: list[str] = []

    def resized(recipe: Recipe, model: ModelSpec, manifest: Manifest, failed: Any) -> Any:
        names.extend(item.id for item in manifest.items)
        return {}

    monkeypatch.setattr(fidelity, "resized", resized)
    return names


def faults(folder: Path, ids: Sequence[str], failures: Any, bad: Sequence[int] = ()) -> Any:
    vectors = np.ones((len(ids), 4), np.float32)
    vectors[list(bad), 1] = np.nan
    stages = device_stages(Recipe("r", sink="npy"), MODEL, folder)
    stages.serialize(ids, vectors)
    stages.finish()
    path, failures = folder / "vectors.npy", [*failures, *stages.dropped]
    return check_sink(path, BATCHES, failures, MANIFEST, Recipe("r"), MODEL)["sink_faults"]


@pytest.mark.parametrize(
    ("ids", "failures", "expected"),
    [
        (WRITTEN, FAILED * 2, []),
        (WRITTEN, FAILED, ["1 missing"]),
        (WRITTEN[1:], FAILED * 2, ["1 missing"]),
        ([*WRITTEN, "0"], FAILED * 2, ["1 unexpected"]),
        ([*WRITTEN, "3"], FAILED * 2, ["1 unexpected"]),
        ([*WRITTEN[3:], "other", "other"], FAILED * 2, ["3 missing", "2 unexpected"]),
    ],
)
def test_every_image_is_accounted_for(
    ids: list[str], failures: Any, expected: list[str], tmp_path: Path, compared: list[str]
) -> None:
    assert faults(tmp_path, ids, failures) == expected


def test_one_number_spoils_a_vector(tmp_path: Path, compared: list[str]) -> None:
    """It is a failure, and not written."""
    assert faults(tmp_path, WRITTEN, FAILED * 2, bad=[2, 5]) == ["2 not finite"]
    written, _ = sinks.read(tmp_path / "vectors.npy")
    assert len(written) == len(WRITTEN) - 2
