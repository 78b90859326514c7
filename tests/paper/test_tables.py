"""Tables 1 to 4: what they hold, where each number comes from, and three forms that agree."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.paper import made_up
from tests.paper.made_up import CPU, T4, Row, Rows
from wallclock.clock import STAGES
from wallclock.errors import UserError
from wallclock.paper.csvfile import read_table
from wallclock.paper.rendering import NothingToDrawError
from wallclock.paper.tables import TABLES, build, render_all
from wallclock.paper.tables.table import (
    COUNT,
    FACTOR,
    NUMBER,
    PERCENT,
    Cell,
    Column,
    Source,
    Table,
    save,
    shown,
    to_latex,
    to_markdown,
)

SINKS, END_TO_END, CHECKLIST, CLAIMS = TABLES
BASELINE, OPTIMIZED, CPU_TABLE = (
    "t4-baseline-stages.csv",
    "optimized-end-to-end.csv",
    "cpu-baseline-stages.csv",
)

Save = Callable[[Path, str, Rows], Path]


def values(table: Table, column: str) -> list[str | float | None]:
    return [row[column].value for row in table.rows]


# --- writing ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (None, NUMBER, "–"),
        ("", NUMBER, "–"),
        ("as it is", NUMBER, "as it is"),
        (0.0, NUMBER, "0"),
        (0.0852, NUMBER, "0.0852"),
        (16.87, NUMBER, "16.9"),
        (595.24, NUMBER, "595.2"),
        (75267.4, NUMBER, "75,267"),
        (50_000.0, COUNT, "50,000"),
        (0.5131, PERCENT, "51.3 %"),
        (0.0002, PERCENT, "< 0.1 %"),
        (0.0, PERCENT, "0.0 %"),
        (5.881, FACTOR, "5.88×"),
        (0.00791, FACTOR, "0.0079×"),
        (1234.5, FACTOR, "1,234×"),
    ],
)
def test_numbers_read_well(value: str | float | None, kind: str, text: str) -> None:
    assert shown(value, kind) == text


def test_odd_characters_survive_every_form(tmp_path: Path) -> None:
    odd = r"50 % of $PATH & a_b {x} \n #1 ~ ^ | <p> *"
    columns = (Column("name", "na|me_1"), Column("value", "value", NUMBER))
    table = Table(columns, ({"name": Cell(odd), "value": Cell(1234.5)},), "About 100 % of it.")
    csv, markdown, latex = save(table, "A & B", "table-x", tmp_path)
    assert read_table(csv) == [{"name": odd, "value": "1234.5"}]
    text = markdown.read_text(encoding="utf-8")
    assert len(re.findall(r"(?<!\\)\|", text.split("\n")[4])) == 3
    assert r"na\|me_1" in text
    source = latex.read_text(encoding="utf-8")
    assert r"50 \% of \$PATH \& a\_\allowbreak{}b \{x\} \textbackslash{}n \#1" in source
    assert r"\caption{A \& B. About 100 \% of it.}" in source


def test_a_column_for_machines_stays_out_of_what_people_read(tmp_path: Path) -> None:
    columns = (Column("name", "name"), Column("reason", "reason", csv_only=True))
    table = Table(columns, ({"name": Cell("n"), "reason": Cell("because")},), "")
    assert "because" not in to_markdown(table, "T") + to_latex(table, "T", "t")
    assert read_table(save(table, "T", "t", tmp_path)[0]) == [{"name": "n", "reason": "because"}]


def test_every_table_is_written_alike_in_three_forms(t4_run: Path, tmp_path: Path) -> None:
    found = render_all(t4_run / "data", tmp_path)
    assert [each.stem for each in found] == list(TABLES)
    for each in found:
        assert [path.suffix for path in each.paths] == [".csv", ".md", ".tex"]
        for path in each.paths:
            assert path.read_bytes() == (t4_run / "figures" / path.name).read_bytes()
        rows = len(read_table(each.paths[0]))
        assert each.paths[1].read_text(encoding="utf-8").count("\n| ") == rows + 2
        latex = each.paths[2].read_text(encoding="utf-8")
        plain = latex.replace(r"\{", "").replace(r"\}", "")
        assert plain.count("{") == plain.count("}")
        body = [line for line in latex.split("\n") if line.endswith(r" \\")]
        assert len({len(re.findall(r"(?<!\\)&", line)) for line in body}) == 1
        assert not re.search(r"[×÷·–≥≤→…]", latex)


def test_every_number_names_a_cell_that_holds_it(t4_run: Path) -> None:
    """A number is one cell, or one cell over another; scaled minutes excepted."""
    checked = 0
    for stem in (SINKS, END_TO_END, CHECKLIST):
        for row in build(stem, t4_run / "data").rows:
            for name, cell in row.items():
                if not isinstance(cell.value, float) or name == "minutes_per_million":
                    continue
                found = [number_at(t4_run / "data", source) for source in cell.sources]
                if len(found) == 1:
                    assert cell.value == found[0]
                elif len(found) == 2:
                    assert cell.value == pytest.approx(found[0] / found[1])
                else:
                    assert len(found) == 4, (stem, name)
                    assert cell.value == pytest.approx(found[0] / found[1] / (found[2] / found[3]))
                checked += 1
    assert checked > 60


def number_at(folder: Path, source: Source) -> float:
    return float(read_table(folder / source.csv)[source.row - 1][source.column])


# --- what they hold -----------------------------------------------------------------------------


def test_sinks_that_did_not_run_say_so(tmp_path: Path, save_table: Save) -> None:
    rows = made_up.serialization(T4)
    rows[1] = made_up.without(rows[1], "unavailable", "no lmdb")
    save_table(tmp_path, "serialization-comparison.csv", rows)
    table = build(SINKS, tmp_path)
    assert values(table, "format") == ["parquet", "lmdb", "npy"] * 2
    assert values(table, "write_s")[1] is None
    assert "Not measured: lmdb: unavailable (no lmdb)." in table.caption
    assert "50 K" in table.caption


def test_end_to_end_of_the_paper(t4_run: Path) -> None:
    table = build(END_TO_END, t4_run / "data")
    assert values(table, "run") == ["baseline", "all wins", "CPU, one thread"]
    assert values(table, "speed_up") == pytest.approx([1.0, 988 / 168, 1.3286 / 168], rel=1e-3)
    assert values(table, "minutes_per_million") == pytest.approx([99.2, 16.87, 12544], rel=1e-3)
    assert values(table, "minutes_per_million_origin") == ["extrapolated"] * 3
    assert table.rows[2]["usd_per_million"].value is None
    assert (
        "baseline and all wins on Tesla T4, n = 20,000 (Amazon Berkeley Objects; pretrained weights)"
        in table.caption
    )


def test_a_stand_in_is_not_compared_with_a_network(cpu_run: Path) -> None:
    table = build(END_TO_END, cpu_run / "data")
    assert values(table, "speed_up") == [1.0, pytest.approx(988 / 168, rel=1e-3), None]
    assert "forward: mock model of 40 ms a batch" in table.caption


@pytest.mark.parametrize(
    ("change", "factor"),
    [
        ({"corpus": "synthetic"}, None),
        ({"image_set": "original"}, None),
        ({}, pytest.approx(988 / 168, rel=1e-3)),
    ],
)
def test_speed_ups_are_of_like_images_only(
    change: Row, factor: object, tmp_path: Path, save_table: Save
) -> None:
    save_table(tmp_path, BASELINE, made_up.baseline(T4))
    save_table(tmp_path, OPTIMIZED, [row | change for row in made_up.optimized(T4)])
    assert values(build(END_TO_END, tmp_path), "speed_up")[1] == factor


def test_runs_that_failed_or_are_missing_keep_their_row(tmp_path: Path, save_table: Save) -> None:
    save_table(tmp_path, BASELINE, [made_up.without(made_up.baseline(T4)[0], "error", "killed")])
    save_table(tmp_path, OPTIMIZED, made_up.optimized(T4))
    table = build(END_TO_END, tmp_path)
    assert values(table, "status") == ["error", "ok", "not run"]
    assert values(table, "speed_up") == [None, None, None]
    assert values(table, "minutes_per_million")[0] is None


def test_the_checklist_has_the_stages_in_order_and_their_gains(t4_run: Path) -> None:
    table = build(CHECKLIST, t4_run / "data")
    assert values(table, "stage") == [*STAGES, "all together"]
    gains = dict(zip(values(table, "stage"), values(table, "gain"), strict=True))
    assert gains["decode"] == pytest.approx(24.8 / 10.2)
    assert gains["resize"] == pytest.approx(1923 / 110)
    assert gains["forward"] == pytest.approx(242 / 63.6, rel=1e-3)
    assert gains["serialize"] == pytest.approx(0.973 / 0.0852, rel=1e-3)
    assert gains["all together"] == pytest.approx(988 / 168, rel=1e-3)
    assert gains["h2d"] is None
    shares = dict(zip(values(table, "stage"), values(table, "share_original"), strict=True))
    assert shares["decode"] == pytest.approx(0.513, abs=1e-3)
    assert shares["all together"] is None


def test_the_checklist_stands_with_one_table(tmp_path: Path, save_table: Save) -> None:
    save_table(
        tmp_path,
        "onnx-vs-pytorch.csv",
        [row for row in made_up.runtimes(T4) if row["dtype"] != "fp16"],
    )
    table = build(CHECKLIST, tmp_path)
    forward = table.rows[STAGES.index("forward")]
    assert forward["gain"].value == pytest.approx(242 / 118)
    assert "BF16" in str(forward["gain_of"].value)
    assert values(table, "gain_of").count("not run") == 5
    assert "No shares" in table.caption


def test_the_checklist_needs_a_measurement(tmp_path: Path, save_table: Save) -> None:
    save_table(tmp_path, BASELINE, [made_up.without(made_up.baseline(CPU)[0], "error", "killed")])
    with pytest.raises(NothingToDrawError, match="no row with status ok"):
        build(CHECKLIST, tmp_path)


def test_unlike_runs_have_no_gain_together(tmp_path: Path, save_table: Save) -> None:
    save_table(tmp_path, BASELINE, made_up.baseline(T4))
    save_table(
        tmp_path, OPTIMIZED, [row | {"device": "NVIDIA L4"} for row in made_up.optimized(T4)]
    )
    last = build(CHECKLIST, tmp_path).rows[-1]
    assert (last["gain"].value, last["gain_of"].value) == (None, "the two runs are not alike")


def test_every_claim_is_in_the_last_table(t4_run: Path) -> None:
    table = build(CLAIMS, t4_run / "data")
    assert len(table.rows) == 50
    assert table.long
    assert re.match(
        r"50 claims: \d+ held, \d+ differs, \d+ not applicable, \d+ not run\.", table.caption
    )
    assert {"held", "not run"} <= set(values(table, "verdict"))


def test_what_is_missing_is_a_reason(tmp_path: Path) -> None:
    reasons = {each.stem: each.skipped for each in render_all(tmp_path, tmp_path / "out")}
    assert reasons[SINKS] == "no serialization-comparison.csv"
    assert reasons[END_TO_END] == f"no {BASELINE} nor {OPTIMIZED} nor {CPU_TABLE}"
    assert reasons[CLAIMS] == "no claims.csv"
    assert not (tmp_path / "out").exists()


def test_no_table_of_that_name(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="did you mean table-2-end-to-end"):
        build("table-2", tmp_path)
