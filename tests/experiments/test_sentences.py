"""The sentence that ends a run: who is asked first."""

from types import SimpleNamespace

import pytest

import experiments
from experiments._sentences import MeasuredRows, TableRow

CSV = "toy.csv"


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
