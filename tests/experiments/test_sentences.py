"""The sentence that ends a run: who is asked first, and which rows may be compared."""

from types import SimpleNamespace

import pytest

import experiments
from experiments._sentences import MeasuredRows, TableRow, is_comparable

CSV = "toy.csv"


def toy_row(recipe: str, **cells: str) -> TableRow:
    measured = {"wall_s": recipe, "n_images": recipe, "psnr_db_min": recipe}
    return {"recipe": recipe, **measured, "corpus": "abo", "status": "ok", **cells}


@pytest.mark.parametrize(
    ("column", "is_free"),
    [("workers", True), ("decoder", True), ("service_ms", False), ("sampling", False)],
)
def test_recipes_are_comparable_where_all_else_is_equal(column: str, is_free: bool) -> None:
    """Also by a column that no list here has ever named."""
    row, base = dict(toy_row("1", **{column: "1"})), dict(toy_row("2", **{column: "2"}))
    assert is_comparable(row, base) == is_free
    assert is_comparable(row, base | {column: "1"})
    assert not is_comparable(row, base | {column: "1", "corpus": "synthetic"})


class TestWhoIsAsked:
    @pytest.fixture(autouse=True)
    def _toys(self, monkeypatch: pytest.MonkeyPatch) -> None:
        toys = {
            "without": SimpleNamespace(TABLES={CSV: ()}),
            "second": SimpleNamespace(TABLES={}, SENTENCE_RANK=2, sentence=lambda rows: "second"),
            "silent": SimpleNamespace(TABLES={}, SENTENCE_RANK=1, sentence=lambda rows: ""),
            "late": SimpleNamespace(TABLES={}, sentence=lambda rows: "late"),
        }
        monkeypatch.setattr(experiments, "load", toys.__getitem__)

    @pytest.mark.parametrize(
        ("ran", "sentence"),
        [
            (["late", "second", "silent"], "second"),
            (["without", "late"], "late"),
            (["without"], ""),
            (["silent"], ""),
            ([], ""),
        ],
    )
    def test_by_rank_then_in_the_order_of_the_run(self, ran: list[str], sentence: str) -> None:
        assert experiments.closing_sentence(ran, lambda csv: []) == sentence


def test_a_table_is_read_once_and_originals_come_first() -> None:
    asked = []

    def read(csv: str) -> list[TableRow]:
        asked.append(csv)
        return [{"image_set": "small_256", "n": "1"}, {"image_set": "original", "n": "2"}]

    rows = MeasuredRows(read)
    assert [row["n"] for row in rows[CSV]] == ["2", "1"]
    match = rows.first(CSV, image_set="small_256")
    assert match == {"image_set": "small_256", "n": "1"}
    assert rows.first(CSV, image_set="none") is None
    assert asked == [CSV]
