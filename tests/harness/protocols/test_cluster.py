"""Jobs on other systems: what they are given, what is counted, and, slowly, the jobs themselves."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness import systems
from harness.protocols import cluster, protocol
from harness.protocols.protocol import no_progress
from harness.spec import Cell
from tests.experiments import made
from wallclock.errors import Unavailable
from wallclock.recipe import ModelSpec, Recipe

FEW = {"n": 24, "damaged": 0, "object_store_mib": 100, "page_cache": "warm", "fidelity": {}}
NULL = ModelSpec("null", weights="none")


def cell(folder: Path, name: str, **params: Any) -> Cell:
    corpus = next(iter(made.plan(folder, "experiment=[cluster]").slices({"original": 3}).values()))
    (folder / "work").mkdir()
    values = FEW | {"system": name} | params
    return Cell("cluster", "cluster", name, 0, Recipe(name, batch_size=4), corpus, NULL, values)


def run(folder: Path, name: str, **params: Any) -> dict[str, Any]:
    made_cell = cell(folder, name, **params)
    if "no " in systems.SYSTEMS[name].installed():
        pytest.skip("make setup-cluster")
    measured = cluster.cluster(made_cell, folder / "work", no_progress)
    return measured.values | dict(measured.samples)


def test_list_of_links_some_damaged(tmp_path: Path) -> None:
    manifest = protocol.open_corpus(cell(tmp_path, "ours"), "jpeg")
    listed = cluster.list_images(manifest, 7, tmp_path / "work" / "images", damaged=3)
    table = pq.read_table(listed).to_pydict()
    assert table["id"] == [f"{i:07}" for i in range(7)]
    sizes = [Path(path).stat().st_size for path in table["path"]]
    assert [Path(path).stem for path in table["path"]] == table["id"]
    assert sizes[2] == sizes[5] == sizes[0] // 2
    assert sizes[3] == sizes[0] == sizes[6]


def test_rate_is_between_first_and_last_batch() -> None:
    stamps = [(13.0, 8), (10.0, 8), (11.0, 8), (12.0, 4)]
    assert cluster.between(stamps) == (20, 3.0, 10.0)
    for few in ([], stamps[:3], [(1.0, 8)] * 5):
        with pytest.raises(RuntimeError, match="no rate"):
            cluster.between(few)


@pytest.mark.parametrize(
    ("most", "passes"), [(1_000_000, [24, 6000, 12_000]), (5000, [24, 5000]), (24, [24])]
)
def test_a_pass_that_is_too_short_is_repeated_with_more_images(
    most: int, passes: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten seconds: the first pass runs at 500 images a second, the others at 1,000."""
    ran: list[int] = []

    def run_pass(system: Any, cell: Any, manifest: Any, n: int, *others: Any) -> cluster.Pass:
        ran.append(n)
        job = SimpleNamespace(wall_ns=10**9, began=4.0)
        outcome: Any = SimpleNamespace(run=job, peak_mib=1.0, report={"library": ""}, error="")
        return cluster.Pass(outcome, n, n / (500 if n == 24 else 1000), 5.0)

    monkeypatch.setattr(cluster, "_pass", run_pass)
    short = cell(tmp_path, "ours", least_s=10.0, most_images=most)
    measured = cluster.cluster(short, tmp_path / "work", no_progress)
    assert ran == pytest.approx(passes, rel=1e-3)
    assert measured.values["n_images"] == measured.values["n_loaded"] == ran[-1]
    assert measured.values["startup_s"] == 1
    assert measured.samples["wall"][0] / 1e9 == pytest.approx(ran[-1] / 1000, rel=1)


def test_rows_and_counts(tmp_path: Path) -> None:
    files = {"a": ["0000000", "0000001"], ".part/b": ["0000009"], "c": ["0000001"]}
    for file, ids in files.items():
        (tmp_path / file).parent.mkdir(exist_ok=True)
        vectors = [[float(name), 1.0] for name in ids]
        pq.write_table(pa.table({"id": ids, "vector": vectors}), tmp_path / f"{file}.parquet")
    rows = list(cluster.rows(tmp_path))
    assert [name for name, _ in rows] == ["0000000", "0000001", "0000001"]
    assert {len(vector) for _, vector in rows} == {8}
    counts = cluster._counts(str(tmp_path), [0, 2, 3], [1])
    assert counts == {"lost": 2, "delivered": 1, "doubled": 1}


def test_not_installed_names_the_fix(tmp_path: Path) -> None:
    absent = replace(systems.SYSTEMS["daft"], distribution="no_such_library")
    with pytest.raises(Unavailable, match="not installed: make setup-cluster"):
        absent.check()
    assert absent.installed() == "no no_such_library"


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", systems.SYSTEMS)
def test_a_job(name: str, tmp_path: Path) -> None:
    values = run(tmp_path, name, n=64, fidelity={"images": 3})
    assert 0 < values["n_loaded"] < 64
    assert values["psnr_db_p5"] if "psnr_db_p5" in values else values["fidelity"]["psnr_db"] > 25
    assert 0 < values["startup_s"] < values["job_s"]
    assert values["peak_memory_mib"] > 50
    assert (values.get("stored_bytes", 0) > 0) == ("ray" in name)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ["ours", "daft", "ray-images"])
def test_a_damaged_file(name: str, tmp_path: Path) -> None:
    values = run(tmp_path, name, n=40, damaged=20)
    assert values["damaged"] == 2
    if name == "ray-images":
        assert "Error" in values["aborted"]
        assert values["errored"]["lost"] >= 0
    else:
        assert (values["aborted"], values["lost"]) == ("", 0)
