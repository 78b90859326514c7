"""The sentence that ends a run: who is asked first, and which rows may be compared."""

from collections.abc import Mapping, Sequence
from types import SimpleNamespace

import pytest

import experiments
from experiments._sentences import MeasuredRows, TableRow, best_versus_first, is_comparable

CSV = "toy.csv"


def measured(tables: Mapping[str, Sequence[TableRow]]) -> MeasuredRows:
    return MeasuredRows(lambda csv: tables.get(csv, ()))


def toy_row(decoder: str, quality: int, img_per_s: float, **cells: str) -> TableRow:
    row = {"decoder": decoder, "quality": str(quality), "img_per_s": str(img_per_s)}
    return {**row, "median_kb": str(quality), "status": "ok", **cells}


def best(*rows: TableRow) -> str:
    return best_versus_first(measured({CSV: rows}), [CSV])


class TestBestVersusFirst:
    def test_of_one_quality_only(self) -> None:
        """The fastest row of all has another quality than the first: it is not its rival."""
        rows = [toy_row("pil", 75, 100), toy_row("opencv", 75, 200), toy_row("opencv", 50, 846)]
        assert best(*rows) == "OpenCV reaches 200 img/s, 2.00× PIL"

    def test_nothing_is_said_where_all_others_differ_in_more(self) -> None:
        assert best(toy_row("pil", 75, 100), toy_row("opencv", 50, 846)) == ""
        assert best(toy_row("pil", 75, 100), toy_row("pil", 50, 846)) == "", "nothing names it"

    @pytest.mark.parametrize("column", ["workers", "batch_size", "sampling", "service_ms"])
    def test_any_setting_counts(self, column: str) -> None:
        """Also a column that no list here has ever named."""
        slow = toy_row("pil", 75, 100, **{column: "1"})
        assert best(slow, toy_row("opencv", 75, 200, **{column: "2"})) == ""
        assert best(slow, toy_row("opencv", 75, 200, **{column: "1"})) != ""

    def test_measured_values_may_differ(self) -> None:
        cells = {"wall_s": "1", "n_images": "9", "decode_share": "0.5", "psnr_db_min": "40"}
        changed = dict.fromkeys(cells, "2")
        assert best(toy_row("pil", 75, 100, **cells), toy_row("opencv", 75, 200, **changed))

    def test_a_recipe_stands_for_its_fields(self) -> None:
        slow = toy_row("pil", 75, 100, recipe="first", workers="4", corpus="abo")
        fast = toy_row("opencv", 75, 300, recipe="second", workers="8", corpus="abo")
        assert best(slow, fast) == "second reaches 300 img/s, 3.00× first"
        assert best(slow, {**fast, "corpus": "synthetic"}) == ""
        assert best(slow, {**fast, "recipe": "first"}) == "", "the decoder is not all that differs"

    def test_failed_checks_and_null_stages_take_no_part(self) -> None:
        slow, fast = toy_row("pil", 75, 100), toy_row("opencv", 75, 200)
        assert best(slow, {**fast, "gate": "failed"}) == ""
        assert (
            best({**slow, "decoder": "null"}, fast, slow) == "PIL reaches 100 img/s, 0.50× OpenCV"
        )


def test_rows_are_comparable_but_for_what_names_them() -> None:
    row, base = toy_row("pil", 75, 1), toy_row("opencv", 75, 2)
    assert is_comparable(row, base, ["decoder"])
    assert not is_comparable(row, base, ["quality"])


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
