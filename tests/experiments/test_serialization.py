"""`serialization`: its grid, its table, and the claims that it backs."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments import serialization
from tests.experiments import made
from tests.experiments.conftest import Grid
from wallclock.paper import claims
from wallclock.paper.claims import CLAIMS
from wallclock.paper.csvfile import read_table, write_table
from wallclock.records import Record
from wallclock.spec import Cell

MACHINE = {**made.MACHINE, "gpus": [{"name": "Tesla T4"}]}
MINE = [claim for claim in claims.load(CLAIMS) if claim.experiment == "serialization"]


def record(cell: Cell, write_ms: int = 500, read_back: bool = True) -> Record:
    values = {"n_vectors": 50_000, "dim": 384, "read_back": read_back, "size_mib": 80.0}
    samples = {"write": [write_ms * made.MS]}
    return Record(cell, samples=samples, values=values, environment={"machine": MACHINE})


def table(records: list[Record], folder: Path) -> list[dict[str, str]]:
    """The rows as the CSV gives them back."""
    path, rows = folder / serialization.CSV, serialization.tables(records)[serialization.CSV]
    write_table(path, serialization.COLUMNS, rows)
    return read_table(path)


@pytest.mark.parametrize("profile", ["quick", "paper"])
def test_grid_has_the_papers_size(grid: Grid, profile: str) -> None:
    cells = grid("serialization", f"profile={profile}", "n=7")
    written = [(cell.recipe.sink, cell.params["fsync"]) for cell in cells if not cell.repeat]
    formats = ("parquet", "lmdb", "npy")
    assert written == [(sink, fsync) for sink in formats for fsync in (False, True)]
    assert {(cell.params["n_vectors"], cell.params["dim"]) for cell in cells} == {(50_000, 384)}
    assert {cell.recipe.batch_size for cell in cells} == {64}
    assert {(cell.corpus, cell.model) for cell in cells} == {(None, serialization.NO_MODEL)}


def test_every_claim_has_one_row(grid: Grid, tmp_path: Path) -> None:
    rows = table([record(cell) for cell in grid("serialization", "repeats=1")], tmp_path)
    assert [row["fsync"] for row in rows[:2]] == ["no", "yes"]
    assert len(MINE) == 5
    for claim in MINE:
        row = claims.select(rows, claim.row)
        assert row is not None
        assert row["fsync"] == "no", "the paper waited for no disk"
    verdicts = {verdict.claim.id: verdict for verdict in claims.judge(MINE, tmp_path)}
    assert verdicts["serialize-parquet-size"].verdict == "held"
    assert verdicts["serialize-npy"].ours == 100_000


def test_fewer_vectors_back_no_claim(grid: Grid, tmp_path: Path) -> None:
    cells = grid("serialization", "repeats=1", "experiment.serialization.n_vectors=1000")
    table([record(cell) for cell in cells], tmp_path)
    assert {verdict.verdict for verdict in claims.judge(MINE, tmp_path)} == {"not run"}


def test_times_are_of_the_median_repeat(grid: Grid, tmp_path: Path) -> None:
    cells = [cell for cell in grid("serialization", "repeats=3") if cell.label == "lmdb-fsync"]
    records = [record(cell, ms) for cell, ms in zip(cells, (400, 900, 500), strict=True)]
    (row,) = table(records, tmp_path)
    seconds = (row["write_s"], row["write_s_min"], row["write_s_max"], row["repeats"])
    assert seconds == ("0.5", "0.4", "0.9", "3")
    assert (row["vectors_per_s"], row["mib_per_s"], row["size_mib"]) == ("100000", "160", "80")
    assert (row["read_back"], row["origin"], row["status"]) == ("yes", "measured", "ok")
    assert (row["device"], row["device_kind"]) == ("Test CPU (4 cores, with Tesla T4)", "cpu")


def test_vectors_that_do_not_read_back_get_no_time(grid: Grid, tmp_path: Path) -> None:
    cells = [cell for cell in grid("serialization", "repeats=3") if cell.label == "npy"]
    records = [record(cells[0], 400), record(cells[1], 900, read_back=False), record(cells[2], 500)]
    (row,) = table(records, tmp_path)
    assert (row["status"], row["read_back"]) == ("gate failed", "no")
    assert (row["write_s"], row["size_mib"]) == ("", "")
