"""Experiment serialization: its grid, its table from made records, and the claims that it backs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir

from experiments import serialization
from wallclock import settings
from wallclock.paper import claims
from wallclock.paper.csvfile import read_table, write_table
from wallclock.paper.claims import CLAIMS
from wallclock.records import Record
from wallclock.run.plan import Plan
from wallclock.spec import Cell

MACHINE = {"cpu": "Test CPU", "cores": 4, "gpus": [{"name": "Tesla T4"}], "memory_gib": 8}


def grid(folder: Path, *overrides: str) -> list[Cell]:
    with initialize_config_dir(str(settings.CONF), version_base="1.3"):
        config = compose(
            "config", overrides=["experiment=[serialization]", f"out={folder}", *overrides]
        )
    plan = Plan(settings.resolve(config), lambda done, total, what: None)
    return serialization.cells(plan, plan.settings.experiments["serialization"])


def record(cell: Cell, write_ms: int = 500, read_back: bool = True, **changes: Any) -> Record:
    values = {"n_vectors": 50_000, "dim": 384, "read_back": read_back, "size_mib": 80.0}
    samples = {"write": [write_ms * 1_000_000]}
    return Record(cell, samples=samples, values=values, environment={"machine": MACHINE}, **changes)


def table(records: list[Record], folder: Path) -> list[dict[str, str]]:
    """The rows as the CSV gives them back."""
    write_table(
        folder / serialization.CSV,
        serialization.COLUMNS,
        serialization.tables(records)[serialization.CSV],
    )
    return read_table(folder / serialization.CSV)


@pytest.mark.parametrize("profile", ["quick", "paper"])
def test_the_grid_is_the_papers_size_in_every_profile(tmp_path: Path, profile: str) -> None:
    cells = grid(tmp_path, f"profile={profile}", "repeats=2", "n=7")
    shown = [(cell.recipe.sink, cell.params["fsync"]) for cell in cells if cell.recipe]
    assert shown == 2 * [
        (sink, fsync) for sink in ("parquet", "lmdb", "npy") for fsync in (False, True)
    ]
    assert {(cell.params["n_vectors"], cell.params["dim"]) for cell in cells} == {(50_000, 384)}
    assert {cell.recipe.batch_size for cell in cells if cell.recipe} == {64}
    assert not any(cell.corpus or cell.model for cell in cells)


def test_every_claim_finds_its_one_row(tmp_path: Path) -> None:
    rows = table([record(cell) for cell in grid(tmp_path, "repeats=1")], tmp_path)
    assert [(row["format"], row["fsync"]) for row in rows[:2]] == [
        ("parquet", "no"),
        ("parquet", "yes"),
    ]
    mine = [claim for claim in claims.load(CLAIMS) if claim.experiment == "serialization"]
    assert len(mine) == 5
    for claim in mine:
        row = claims.select(rows, claim.row)
        assert row is not None
        assert row["fsync"] == "no", "the paper waited for no disk"
    verdicts = {verdict.claim.id: verdict for verdict in claims.judge(mine, tmp_path)}
    assert verdicts["serialize-parquet-size"].verdict == "held"
    assert verdicts["serialize-npy"].ours == 100_000


def test_fewer_vectors_back_no_claim(tmp_path: Path) -> None:
    cells = grid(tmp_path, "repeats=1", "experiment.serialization.n_vectors=1000")
    table([record(cell) for cell in cells], tmp_path)
    mine = [claim for claim in claims.load(CLAIMS) if claim.experiment == "serialization"]
    assert {verdict.verdict for verdict in claims.judge(mine, tmp_path)} == {"not run"}


def test_times_are_of_the_median_repeat(tmp_path: Path) -> None:
    cells = [cell for cell in grid(tmp_path, "repeats=3") if cell.label == "lmdb-fsync"]
    (row,) = table(
        [record(cell, ms) for cell, ms in zip(cells, (400, 900, 500), strict=True)], tmp_path
    )
    assert (row["write_s"], row["write_s_min"], row["write_s_max"], row["repeats"]) == (
        "0.5",
        "0.4",
        "0.9",
        "3",
    )
    assert (row["vectors_per_s"], row["mib_per_s"], row["size_mib"]) == ("100000", "160", "80")
    assert (row["read_back"], row["origin"], row["status"]) == ("yes", "measured", "ok")
    assert (row["device"], row["device_kind"]) == ("Test CPU (4 cores, beside Tesla T4)", "cpu")


def test_what_does_not_read_back_gets_no_time(tmp_path: Path) -> None:
    cells = [cell for cell in grid(tmp_path, "repeats=3") if cell.label == "npy"]
    records = [record(cells[0], 400), record(cells[1], 900, read_back=False), record(cells[2], 500)]
    (row,) = table(records, tmp_path)
    assert (row["status"], row["read_back"], row["write_s"], row["size_mib"]) == (
        "gate failed",
        "no",
        "",
        "",
    )


def test_a_cell_that_did_not_run_is_a_row_with_the_reason(tmp_path: Path) -> None:
    cell = grid(tmp_path, "repeats=1")[0]
    failed = Record(cell, "error", "lmdb is broken", environment={"machine": MACHINE})
    (row,) = table([failed], tmp_path)
    assert (row["status"], row["reason"], row["format"], row["write_s"]) == (
        "error",
        "lmdb is broken",
        "parquet",
        "",
    )
