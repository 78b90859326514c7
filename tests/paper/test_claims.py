"""Claims: the fifty facts, and each rule that leads to a verdict."""

from __future__ import annotations

import csv
import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wallclock.errors import UserError
from wallclock.paper.claims import (
    COLUMNS,
    DIFFERS,
    HELD,
    NOT_APPLICABLE,
    NOT_RUN,
    Claim,
    Verdict,
    judge,
    load,
    select,
    write,
)
from wallclock.paper.csvfile import read_columns, read_table

REPOSITORY = Path(__file__).parents[2]
CLAIMS = REPOSITORY / "data" / "paper" / "claims.csv"
FACTS = REPOSITORY.parent / "shared" / "paper" / "claims.csv"

SERIAL, ORIGINAL, DECODERS = (
    "t4-serial-stages.csv",
    "t4-serial-stages-original.csv",
    "decoder-comparison.csv",
)

Rows = list[dict[str, object]]
Make = Callable[..., Rows]
Save = Callable[[Path, str, Rows], Path]


def claim(name: str) -> Claim:
    """The claim of that id."""
    return next(claim for claim in load(CLAIMS) if claim.id == name)


def verdict_of(name: str, folder: Path) -> Verdict:
    """The verdict on the claim of that id, judged among all."""
    return next(verdict for verdict in judge(load(CLAIMS), folder) if verdict.claim.id == name)


# --- the file ---------------------------------------------------------------------------------


def test_claims_are_the_facts_of_the_paper() -> None:
    if not FACTS.is_file():
        pytest.skip(f"the facts are not beside this checkout: {FACTS}")
    with FACTS.open(encoding="utf-8", newline="") as handle:
        facts = list(csv.DictReader(handle))
    claims = load(CLAIMS)
    assert len(claims) == len(facts) == 50
    for ours, fact in zip(claims, facts, strict=True):
        names = ("id", "experiment", "column", "unit", "kind", "statement")
        assert [getattr(ours, name) for name in names] == [fact[name] for name in names]
        assert ours.paper_value == float(fact["paper_value"])
        assert set(filter(None, [ours.csv, ours.over_csv])) == set(fact["csv"].split(" / "))


def test_selectors_and_columns_are_those_of_the_experiments(
    schemas: Mapping[str, Sequence[str]],
) -> None:
    checked = 0
    for each in load(CLAIMS):
        for table, selector in ((each.csv, each.row), (each.over_csv, each.over_row)):
            if table in schemas:
                wanted = [each.column, *re.findall(r"(\w+)=", selector)]
                assert set(wanted) <= set(schemas[table]), each.id
                checked += 1
    assert checked > 25


def test_what_a_claim_needs_follows_from_what_it_speaks_of() -> None:
    for each in load(CLAIMS):
        if each.needs == "any":
            cpu_only = each.csv in (DECODERS, "cpu-baseline-stages.csv", "profiler-overhead.csv")
            assert cpu_only or each.column == "size_mib", each.id
        elif each.kind in ("share", "ratio"):
            assert each.needs == "cuda", each.id
        else:
            assert each.needs == "t4" or each.column == "peak_gpu_mem_gib", each.id


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (",absolute,t4,0.15,", ",guess,t4,0.15,"),
        (",absolute,t4,0.15,", ",absolute,v100,0.15,"),
        (",absolute,t4,0.15,", ",absolute,t4,,"),
        (",absolute,t4,0.15,", ",ratio,t4,0.15,"),
        (",588,", ",,"),
        (",588,", ",many,"),
        ("serial-small-opencv-wall", "serial-small-pil-wall"),
        ("id,experiment", "name,experiment"),
    ],
)
def test_a_claim_that_contradicts_itself_is_refused(
    tmp_path: Path, before: str, after: str
) -> None:
    text = CLAIMS.read_text(encoding="utf-8")
    assert before in text
    (tmp_path / "claims.csv").write_text(text.replace(before, after, 1), encoding="utf-8")
    with pytest.raises(UserError):
        load(tmp_path / "claims.csv")


# --- selectors --------------------------------------------------------------------------------


def test_a_selector_is_a_row_number_or_cells() -> None:
    rows = [{"a": "x", "what": "stage call"}, {"a": "y", "what": "torch.profiler and cProfile"}]
    assert select(rows, "1") is rows[0]
    assert select(rows, "3") is None
    assert select(rows, "what=torch.profiler and cProfile") is rows[1]
    assert select(rows, "what=stage call a=x") is rows[0]
    assert select(rows, "a=x what=torch.profiler and cProfile") is None
    assert select(rows, "nothing=x") is None
    assert select([], "a=x") is None


@pytest.mark.parametrize("selector", ["", "0", "-1", "pil/turbojpeg", "pil"])
def test_other_selectors_are_refused(selector: str) -> None:
    with pytest.raises(ValueError, match="neither"):
        select([{"a": "x"}], selector)


@given(st.lists(st.sampled_from("xyz"), max_size=4), st.sampled_from("xyz"))
def test_cells_select_one_row_or_none_and_never_guess(cells: list[str], wanted: str) -> None:
    rows = [{"a": cell} for cell in cells]
    if cells.count(wanted) > 1:
        with pytest.raises(ValueError, match="rows match"):
            select(rows, f"a={wanted}")
    else:
        assert (select(rows, f"a={wanted}") is not None) == (wanted in cells)


# --- verdicts ---------------------------------------------------------------------------------


def test_the_papers_own_numbers_hold_on_its_machine(
    tmp_path: Path, serial_rows: Make, decoder_rows: Make, save_table: Save
) -> None:
    save_table(tmp_path, SERIAL, serial_rows("small_256"))
    save_table(tmp_path, ORIGINAL, serial_rows("original"))
    save_table(tmp_path, DECODERS, decoder_rows(device="Tesla T4"))
    for verdict in judge(load(CLAIMS), tmp_path):
        backed = verdict.claim.csv in (SERIAL, ORIGINAL, DECODERS)
        assert verdict.verdict == (HELD if backed else NOT_RUN), verdict


def test_a_missing_table_names_the_command(tmp_path: Path) -> None:
    verdict = verdict_of("serial-small-pil-wall", tmp_path)
    assert (verdict.verdict, verdict.ours, verdict.ratio) == (NOT_RUN, None, None)
    assert "no t4-serial-stages.csv" in verdict.reason
    assert "python code/main.py --experiment serial" in verdict.reason


def test_a_missing_denominator_names_its_own_experiment(tmp_path: Path) -> None:
    (tmp_path / "optimized-end-to-end.csv").write_text("img_per_s,status,reason\n988,ok,\n")
    pair = [each for each in load(CLAIMS) if each.id in ("baseline-rate", "optimized-speedup")]
    verdict = judge(pair, tmp_path)[1]
    assert verdict.verdict == NOT_RUN
    assert "--experiment t4" in verdict.reason


def test_a_missing_row_is_not_run(tmp_path: Path, serial_rows: Make, save_table: Save) -> None:
    save_table(tmp_path, SERIAL, [row for row in serial_rows() if row["decoder"] != "pil"])
    verdict = verdict_of("serial-small-pil-wall", tmp_path)
    assert verdict.verdict == NOT_RUN
    assert "no row 'decoder=pil'" in verdict.reason


def test_a_row_that_failed_shows_its_status_and_reason(
    tmp_path: Path, serial_rows: Make, save_table: Save
) -> None:
    rows = serial_rows("original")
    rows[2] |= {"status": "unavailable", "reason": "no libturbojpeg was found"}
    save_table(tmp_path, ORIGINAL, rows)
    for name in ("serial-original-turbojpeg-wall", "serial-original-speedup"):
        verdict = verdict_of(name, tmp_path)
        assert verdict.verdict == NOT_RUN
        assert verdict.ours is None
        assert verdict.reason == "unavailable: no libturbojpeg was found"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"seconds_per_100k": None}, "empty"),
        ({"origin": "paper"}, "copy of the paper's"),
        ({"status": ""}, "no status"),
    ],
)
def test_a_row_without_a_measured_number_is_not_run(
    tmp_path: Path, serial_rows: Make, save_table: Save, change: dict[str, object], reason: str
) -> None:
    rows = serial_rows()
    rows[0] |= change
    save_table(tmp_path, SERIAL, rows)
    verdict = verdict_of("serial-small-pil-wall", tmp_path)
    assert verdict.verdict == NOT_RUN
    assert reason in verdict.reason


def test_an_absolute_figure_binds_on_a_t4_only(
    tmp_path: Path, serial_rows: Make, save_table: Save
) -> None:
    save_table(tmp_path, SERIAL, serial_rows(device="NVIDIA H100 80GB HBM3"))
    verdict = verdict_of("serial-small-pil-wall", tmp_path)
    assert verdict.verdict == NOT_APPLICABLE
    assert verdict.ours == 588
    assert (
        verdict.reason
        == "an absolute figure: binds on a Tesla T4 only; here: NVIDIA H100 80GB HBM3"
    )
    assert verdict_of("serial-small-pil-forward-share", tmp_path).verdict == HELD


@pytest.mark.parametrize(
    ("device", "verdict"),
    [
        ("Tesla T4", HELD),
        ("NVIDIA Tesla T4", HELD),
        ("NVIDIA T400 4GB", NOT_APPLICABLE),
        ("NVIDIA T4G", NOT_APPLICABLE),
    ],
)
def test_only_a_t4_is_a_t4(
    tmp_path: Path, serial_rows: Make, save_table: Save, device: str, verdict: str
) -> None:
    save_table(tmp_path, SERIAL, serial_rows(device=device))
    assert verdict_of("serial-small-pil-wall", tmp_path).verdict == verdict


def test_a_share_with_a_gpu_in_it_needs_a_gpu(
    tmp_path: Path, serial_rows: Make, save_table: Save
) -> None:
    save_table(tmp_path, SERIAL, serial_rows(device="AMD EPYC", device_kind="cpu"))
    verdict = verdict_of("serial-small-pil-forward-share", tmp_path)
    assert (verdict.verdict, verdict.reason) == (NOT_APPLICABLE, "needs a CUDA GPU; here: AMD EPYC")
    assert verdict.ours == pytest.approx(0.58, abs=0.01)


def test_what_needs_no_device_is_judged_everywhere(
    tmp_path: Path, decoder_rows: Make, save_table: Save
) -> None:
    save_table(tmp_path, DECODERS, decoder_rows(corpus="synthetic"))
    verdict = verdict_of("decode-original-speedup", tmp_path)
    assert verdict.verdict == HELD
    assert verdict.ours == pytest.approx(24.8 / 10.2)
    assert verdict.reason.endswith("on synthetic images")
    assert verdict_of("decode-original-pil", tmp_path).verdict == NOT_APPLICABLE


def test_a_stand_in_for_the_network_backs_nothing(
    tmp_path: Path, serial_rows: Make, save_table: Save
) -> None:
    save_table(tmp_path, SERIAL, [row | {"weights": "none"} for row in serial_rows()])
    verdict = verdict_of("serial-small-pil-wall", tmp_path)
    assert verdict.verdict == NOT_APPLICABLE
    assert "mock model" in verdict.reason


@pytest.mark.parametrize(("column", "value"), [("device", "Tesla V100"), ("corpus", "synthetic")])
def test_rows_of_unlike_runs_are_not_divided(
    tmp_path: Path, serial_rows: Make, save_table: Save, column: str, value: str
) -> None:
    rows = serial_rows("original")
    rows[2][column] = value
    save_table(tmp_path, ORIGINAL, rows)
    verdict = verdict_of("serial-original-speedup", tmp_path)
    assert (verdict.verdict, verdict.ours) == (NOT_RUN, None)
    assert "unlike runs" in verdict.reason


def test_a_denominator_of_zero_is_not_a_number(
    tmp_path: Path, serial_rows: Make, save_table: Save
) -> None:
    rows = serial_rows("original")
    rows[2]["seconds_per_100k"] = 0.0
    save_table(tmp_path, ORIGINAL, rows)
    assert verdict_of("serial-original-speedup", tmp_path).verdict == NOT_RUN


def test_a_mutated_number_differs_and_says_by_how_much(
    tmp_path: Path, serial_rows: Make, save_table: Save
) -> None:
    rows = serial_rows()
    rows[0] |= {"seconds_per_100k": 588 * 1.2, "decode_share": 0.14}
    save_table(tmp_path, SERIAL, rows)
    wall = verdict_of("serial-small-pil-wall", tmp_path)
    assert wall.verdict == DIFFERS
    assert wall.ratio == pytest.approx(1.2)
    assert wall.reason == "+20.0 %, beyond 15 %; extrapolated"
    share = verdict_of("serial-small-pil-decode-share", tmp_path)
    assert (share.verdict, share.reason) == (DIFFERS, "+0.060, beyond 0.05")


def test_an_unchecked_gate_is_said_beside_the_number(
    tmp_path: Path, serial_rows: Make, save_table: Save
) -> None:
    rows = serial_rows("original")
    rows[2]["gate"] = "not checked"
    save_table(tmp_path, ORIGINAL, rows)
    assert "pixels not compared" in verdict_of("serial-original-speedup", tmp_path).reason
    assert "pixels" not in verdict_of("serial-original-pil-wall", tmp_path).reason


@given(
    st.sampled_from(["absolute", "share", "bound"]), st.floats(0.01, 1000), st.floats(0.01, 1000)
)
def test_the_tolerance_decides_and_its_end_belongs_to_it(
    tmp_path_factory: pytest.TempPathFactory, kind: str, paper: float, ours: float
) -> None:
    tolerance = None if kind == "bound" else 0.25
    made_up = dataclasses.replace(
        claim("serial-small-pil-wall"),
        kind=kind,
        needs="any",
        paper_value=paper,
        tolerance=tolerance,
    )
    folder = tmp_path_factory.mktemp("one", numbered=True)
    cell = f"{ours!r}"
    (folder / SERIAL).write_text(f"decoder,seconds_per_100k,status,reason\npil,{cell},ok,\n")
    (verdict,) = judge([made_up], folder)
    limits = {
        "absolute": abs(ours - paper) <= 0.25 * paper,
        "share": abs(ours - paper) <= 0.25,
        "bound": ours <= paper,
    }
    assert (verdict.verdict == HELD) == limits[kind]
    assert verdict.ours == ours


@pytest.mark.parametrize(
    ("ours", "verdict"), [("0.63", HELD), ("0.53", HELD), ("0.631", DIFFERS), ("0.529", DIFFERS)]
)
def test_the_end_of_a_tolerance_in_decimal(tmp_path: Path, ours: str, verdict: str) -> None:
    line = f"pil,{ours},Tesla T4,cuda,ok,"
    (tmp_path / SERIAL).write_text(
        f"decoder,forward_share,device,device_kind,status,reason\n{line}\n"
    )
    assert judge([claim("serial-small-pil-forward-share")], tmp_path)[0].verdict == verdict


def test_a_table_without_the_cited_column_is_an_error(tmp_path: Path) -> None:
    (tmp_path / SERIAL).write_text("decoder,status,reason\npil,ok,\n")
    with pytest.raises(UserError, match="seconds_per_100k"):
        judge([claim("serial-small-pil-wall")], tmp_path)


def test_two_rows_for_one_claim_are_an_error(
    tmp_path: Path, serial_rows: Make, save_table: Save
) -> None:
    save_table(tmp_path, SERIAL, serial_rows() + serial_rows())
    with pytest.raises(UserError, match="2 rows match"):
        judge(load(CLAIMS), tmp_path)


def test_verdicts_become_a_table(tmp_path: Path, serial_rows: Make, save_table: Save) -> None:
    save_table(tmp_path, SERIAL, serial_rows())
    verdicts = judge(load(CLAIMS), tmp_path)
    write(verdicts, tmp_path / "claims.csv")
    assert read_columns(tmp_path / "claims.csv") == list(COLUMNS)
    rows = {row["id"]: row for row in read_table(tmp_path / "claims.csv")}
    assert list(rows) == [verdict.claim.id for verdict in verdicts]
    assert rows["serial-small-pil-wall"]["ours"] == "588"
    assert rows["optimized-speedup"]["csv"] == "optimized-end-to-end.csv / t4-baseline-stages.csv"
    assert rows["decode-small-speedup"]["csv"] == DECODERS
    assert rows["decode-small-speedup"]["ours"] == ""
