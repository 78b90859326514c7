"""`serialization`: its grid, its table, and the claims that it backs."""

from dataclasses import replace
from pathlib import Path

import pytest

from experiments import serialization
from paper import claims
from paper.claims import CLAIMS
from paper.csvfile import read_table, write_table
from tests.experiments.conftest import Grid
from tests.fixture_run import fixture_records, fixture_tables
from wallclock.recipe import SINKS

MINE = [claim for claim in claims.load(CLAIMS) if claim.experiment == "serialization"]


@pytest.mark.parametrize("profile", ["quick", "paper"])
def test_grid_has_the_papers_size(grid: Grid, profile: str) -> None:
    cells = grid("serialization", f"profile={profile}", "n=7")
    written = [(cell.recipe.sink, cell.params["fsync"]) for cell in cells if not cell.repeat]
    assert written == [(sink, fsync) for sink in SINKS for fsync in (False, True)]
    assert {(cell.params["n_vectors"], cell.params["dim"]) for cell in cells} == {(50_000, 384)}
    assert {cell.recipe.batch_size for cell in cells} == {64}
    assert {(cell.corpus, cell.model) for cell in cells} == {(None, serialization.NO_MODEL)}


def test_every_claim_has_one_row() -> None:
    rows = read_table(fixture_tables() / serialization.CSV)
    assert len(MINE) == 10
    for claim in MINE:
        row = claims.select(rows, claim.row)
        assert row is not None
        assert row["fsync"] == "no", "the paper waited for no disk"


def test_fewer_vectors_back_no_claim(tmp_path: Path) -> None:
    rows = [{**row, "n_vectors": 1000} for row in read_table(fixture_tables() / serialization.CSV)]
    write_table(tmp_path / serialization.CSV, serialization.COLUMNS, rows)
    assert {verdict.verdict for verdict in claims.judge(MINE, tmp_path)} == {"not run"}


def test_a_rate_has_the_limits_of_the_repeats() -> None:
    record = next(r for r in fixture_records("serialization") if r.cell.label == "npy")
    passes = [replace(record, samples={"write": [s * 1_000_000_000]}) for s in (4, 1, 2)]
    (row,) = serialization.tables(passes)[serialization.CSV]
    rates = [row[f"vectors_per_s{end}"] for end in ("", "_min", "_max")]
    assert rates == [25_000, 12_500, 50_000]
    assert [row[f"write_s{end}"] for end in ("", "_min", "_max")] == [2, 1, 4]


def test_vectors_that_do_not_read_back_get_no_time() -> None:
    records = [r for r in fixture_records("serialization") if r.cell.label == "npy"]
    records[1] = replace(records[1], values={**records[1].values, "read_back": False})
    (row,) = serialization.tables(records)[serialization.CSV]
    assert (row["status"], row["read_back"]) == ("gate failed", False)
    assert (row["write_s"], row["size_mib"]) == (None, None)
