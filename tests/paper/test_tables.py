"""Tables 1 to 4: what they hold, where each number comes from, and three forms that agree."""

import re
from pathlib import Path

import pytest

from experiments.cpu import cells as cpu
from experiments.opt import cells as opt
from experiments.serialization import cells as serialization
from experiments.t4 import cells as t4
from harness.table import read_table
from paper.tables import TABLES, build, render
from paper.tables.table import Column, Source, Table, Value
from paper.tables.table import save as save_table
from tests.fixture_run import fixture_tables
from tests.paper.tables import Copy, edit, fail
from wallclock.errors import UserError

SINKS, END_TO_END, CHECKLIST, CLAIMS = TABLES


def values(table: Table, column: str) -> list[str | float | None]:
    return [row[column].value for row in table.rows]


class TestForms:
    def test_special_characters_survive_and_csv_only_columns(self, tmp_path: Path) -> None:
        odd = r"50 % of $PATH & a_b {x} \n #1 ~ ^ | <p> *"
        hidden = Column("reason", "reason", csv_only=True)
        columns = (Column("name", "na|me_1"), Column("value", "value", "number"), hidden)
        row = {"name": Value(odd), "value": Value(1234.5), "reason": Value("because")}
        table = Table(columns, (row,), "About 100 %.")
        csv, markdown, latex = save_table(table, "A & B", "table-x", tmp_path)
        assert read_table(csv) == [{"name": odd, "value": 1234.5, "reason": "because"}]
        text = markdown.read_text(encoding="utf-8")
        assert len(re.findall(r"(?<!\\)\|", text.split("\n")[4])) == 3
        assert r"na\|me_1" in text
        source = latex.read_text(encoding="utf-8")
        assert r"50 \% of \$PATH \& a\_\allowbreak{}b \{x\} \textbackslash{}n \#1" in source
        assert r"\caption{A \& B. About 100 \%.}" in source
        assert "because" not in text + source

    def test_three_forms_agree(self, t4_tables: Path, t4_copy: Copy, tmp_path: Path) -> None:
        copied = t4_copy()
        for stem in TABLES:
            paths = render(stem, t4_tables, tmp_path / "first").paths
            render(stem, copied, tmp_path / "again")
            assert [path.suffix for path in paths] == [".csv", ".md", ".tex"]
            for path in paths:
                assert path.read_bytes() == (tmp_path / "again" / path.name).read_bytes()
            rows = len(read_table(paths[0]))
            assert paths[1].read_text(encoding="utf-8").count("\n| ") == rows + 2
            latex = paths[2].read_text(encoding="utf-8")
            plain = latex.replace(r"\{", "").replace(r"\}", "")
            assert plain.count("{") == plain.count("}")
            body = [line for line in latex.split("\n") if line.endswith(r" \\")]
            assert len({len(re.findall(r"(?<!\\)&", line)) for line in body}) == 1
            assert not re.search(r"[×÷·–≥≤→…]", latex)

    @pytest.mark.parametrize("stem", [SINKS, END_TO_END, CHECKLIST])
    def test_every_number_names_its_cells(self, t4_tables: Path, stem: str) -> None:
        """A number is one cell, or one cell over another; scaled minutes excepted."""

        def number_at(source: Source) -> float:
            return float(read_table(t4_tables / source.csv)[source.row - 1][source.column])

        checked = 0
        for row in build(stem, t4_tables).rows:
            for name, value in row.items():
                if not isinstance(value.value, float | int) or name == "minutes_per_million":
                    continue
                cells = [number_at(source) for source in value.sources]
                assert len(cells) in (1, 2, 4), (stem, name)
                expected = cells[0] / cells[1] if len(cells) > 1 else cells[0]
                if len(cells) == 4:
                    expected /= cells[2] / cells[3]
                assert value.value == pytest.approx(expected)
                checked += 1
        assert checked >= 15

    def test_missing_sources_are_named(self, tmp_path: Path) -> None:
        reasons = {stem: render(stem, tmp_path, tmp_path / "out").skipped for stem in TABLES}
        assert reasons[SINKS] == f"no {serialization.CSV}"
        assert reasons[END_TO_END] == f"no {t4.CSV} nor {opt.CSV} nor {cpu.CSV}"
        assert reasons[CLAIMS] == "no claims.csv"
        assert not (tmp_path / "out").exists()
        with pytest.raises(UserError, match="did you mean table-2-end-to-end"):
            build("table-2", tmp_path)


class TestEndToEnd:
    def test_mock_model_is_not_compared_with_a_network(self, copy: Copy) -> None:
        folder = copy(t4.CSV, opt.CSV, cpu.CSV)
        for name in (t4.CSV, opt.CSV):
            edit(folder / name, weights="none", service_ms=40, n_images=64)
        table = build(END_TO_END, folder)
        assert "baseline and all wins on AMD EPYC (2 cores), n = 64" in table.caption
        assert values(table, "speed_up") == [1.0, pytest.approx(3.379 / 11.186, rel=1e-3), None]
        assert "forward: mock model of 40 ms per batch" in table.caption

    def test_unlike_failed_and_missing_runs_keep_their_row(self, copy: Copy) -> None:
        folder = copy(t4.CSV, opt.CSV)
        for change in ({"corpus": "abo"}, {"image_set": "original"}):
            edit(copy(t4.CSV, opt.CSV) / opt.CSV, **change)
            assert values(build(END_TO_END, folder), "speed_up")[1] is None
        fail(folder / t4.CSV, "1", "error", "killed")
        table = build(END_TO_END, folder)
        assert values(table, "status") == ["error", "ok", "not run"]
        assert values(table, "speed_up") == [None, None, None]
        assert values(table, "minutes_per_million")[0] is None


def test_failed_sinks_are_in_the_caption(copy: Copy) -> None:
    folder = copy(serialization.CSV)
    fail(folder / serialization.CSV, "format=lmdb fsync=no", "unavailable", "no lmdb")
    table = build(SINKS, folder)
    assert values(table, "format") == [
        row["format"] for row in read_table(fixture_tables() / serialization.CSV)
    ]
    assert None in values(table, "write_s")
    assert "Not measured: lmdb: unavailable (no lmdb)." in table.caption
    assert "50 K" in table.caption
