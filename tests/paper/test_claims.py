"""Claims: the facts of the paper, and each rule that leads to a verdict."""

import csv
import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import experiments
from experiments import cpu, decoders, profiler, serial
from paper import claims
from paper.claims import CANNOT_TELL, CLAIMS, DIFFERS, HELD, NOT_APPLICABLE, NOT_RUN, Claim, Verdict
from paper.csvfile import read_columns, read_table
from tests.conftest import ROOT
from tests.paper.tables import Copy, edit, fail, fault_of, save, write_cited
from wallclock.errors import UserError

FACTS = ROOT.parent / "shared" / "paper" / "claims.csv"
SMALL, ORIGINAL = serial.CSVS["small_256"], serial.CSVS["original"]
WALL, SHARE = "serial-small-pil-wall", "serial-small-pil-forward-share"
SPEEDUP, DECODE = "serial-original-speedup", "decode-original-speedup"
ON_CPU = {"device": "AMD EPYC", "device_kind": "cpu"}


def claim(name: str) -> Claim:
    return next(claim for claim in claims.load(CLAIMS) if claim.id == name)


def verdict_of(name: str, folder: Path) -> Verdict:
    """The verdict on the claim of that id, judged among all."""
    return next(
        verdict for verdict in claims.judge(claims.load(CLAIMS), folder) if verdict.claim.id == name
    )


class TestFile:
    def test_claims_are_the_facts_of_the_paper(self) -> None:
        if not FACTS.is_file():
            pytest.skip(f"the facts are not beside this checkout: {FACTS}")
        with FACTS.open(encoding="utf-8", newline="") as handle:
            facts = list(csv.DictReader(handle))
        ids = {fact["id"] for fact in facts}
        cited = [claim for claim in claims.load(CLAIMS) if claim.id in ids]
        assert len(facts) == 50
        for ours, fact in zip(cited, facts, strict=True):
            names = ("id", "experiment", "column", "unit", "kind", "statement")
            assert [getattr(ours, name) for name in names] == [fact[name] for name in names]
            assert ours.paper_value == float(fact["paper_value"])
            assert set(filter(None, [ours.csv, ours.over_csv])) == set(fact["csv"].split(" / "))

    def test_columns_are_those_of_the_experiments(self) -> None:
        faults = [fault_of(cited) for cited in claims.load(CLAIMS)]
        assert [fault for fault in faults if fault] == []

    @pytest.mark.parametrize(
        ("changes", "fault"),
        [
            ({"csv": "nobody.csv"}, "no experiment writes nobody.csv"),
            ({"column": "toy_s"}, f"{SMALL} has no column toy_s"),
            ({"row": "toy=1 decoder=pil"}, f"{SMALL} has no column toy"),
        ],
    )
    def test_a_fault_names_its_claim(self, changes: dict[str, Any], fault: str) -> None:
        assert fault_of(dataclasses.replace(claim(WALL), **changes)) == f"claim {WALL}: {fault}"

    def test_a_claim_on_a_table_that_the_fixture_lacks(self, tmp_path: Path) -> None:
        """One line in claims.csv is all that a claim of a new experiment takes."""
        cited = [claim(WALL), claim(SPEEDUP)]
        write_cited(tmp_path, cited)
        assert read_table(tmp_path / SMALL)[0]["decoder"] == "pil"
        assert [row["decoder"] for row in read_table(tmp_path / ORIGINAL)] == ["pil", "turbojpeg"]
        judged = claims.judge(cited, tmp_path)
        assert [verdict.ours for verdict in judged] == [1, 1]

    def test_needs_follow_from_the_subject(self) -> None:
        """Of the paper's claims, and of those of two other sources."""
        for cited in claims.load(CLAIMS):
            if cited.experiment not in (*experiments.ORDER, "ladder", "cluster"):
                continue
            if cited.experiment == "ladder":
                of_mock = cited.kind == "ratio"
                assert cited.needs == ("any" if of_mock else "t4-gpu"), cited.id
            elif cited.experiment == "cluster":
                assert cited.needs == "any", cited.id
            elif cited.needs == "any":
                cpu_only = cited.csv in (decoders.CSV, cpu.CSV, profiler.CSV)
                assert cpu_only or cited.column in ("size_mib", "resize_s"), cited.id
            elif cited.needs == "abo":
                assert cited.column == "median_kb", cited.id
            elif cited.id == "cpu-speedup":
                assert cited.needs == "t4", "of a CPU over a GPU"
            elif cited.kind in ("share", "ratio"):
                assert cited.needs == "cuda", cited.id
            else:
                forward_alone = cited.experiment == "onnx"
                needs = "t4-gpu" if forward_alone else "t4"
                assert cited.needs == needs or cited.column == "peak_gpu_mem_gib", cited.id

    def test_no_claim_contradicts_itself(self) -> None:
        cited = claims.load(CLAIMS)
        assert len({claim.id for claim in cited}) == len(cited)
        for claim in cited:
            assert claim.kind in ("absolute", "share", "ratio", "bound"), claim.id
            assert claim.needs in ("any", "abo", "cuda", "t4-gpu", "t4"), claim.id
            assert claim.paper_value, claim.id
            assert (claim.tolerance is None) == (claim.kind == "bound"), claim.id
            assert {bool(claim.over_csv), bool(claim.over_row)} == {claim.kind == "ratio"}, claim.id


class TestSelect:
    def test_row_number_or_cells(self) -> None:
        rows = [{"a": "x", "what": "stage call"}, {"a": "y", "what": "torch.profiler and cProfile"}]
        assert claims.select(rows, "1") is rows[0]
        assert claims.select(rows, "3") is None
        assert claims.select(rows, "what=torch.profiler and cProfile") is rows[1]
        assert claims.select(rows, "what=stage call a=x") is rows[0]
        assert claims.select(rows, "a=x what=torch.profiler and cProfile") is None
        assert claims.select(rows, "nothing=x") is None
        assert claims.select([], "a=x") is None

    @pytest.mark.parametrize("selector", ["", "0", "-1", "pil/turbojpeg", "pil", "a=x"])
    def test_other_selectors_are_refused(self, selector: str) -> None:
        with pytest.raises(ValueError, match=r"neither|2 rows match"):
            claims.select([{"a": "x"}, {"a": "x"}], selector)


class TestNotRun:
    def test_missing_tables_name_the_command(self, tmp_path: Path, t4_copy: Copy) -> None:
        verdict = verdict_of(WALL, tmp_path)
        assert (verdict.verdict, verdict.ours, verdict.ratio) == (NOT_RUN, None, None)
        assert f"no {SMALL}; run python code/main.py --experiment serial" in verdict.reason
        # Of a ratio, the denominator's.
        verdict = verdict_of("optimized-speedup", t4_copy("optimized-end-to-end.csv"))
        assert verdict.verdict == NOT_RUN
        assert "--experiment t4" in verdict.reason

    def test_missing_row(self, t4_copy: Copy) -> None:
        path = t4_copy(SMALL) / SMALL
        save(path, [row for row in read_table(path) if row["decoder"] != "pil"])
        assert "no row 'decoder=pil'" in verdict_of(WALL, path.parent).reason

    def test_failed_row_shows_status_and_reason(self, t4_copy: Copy) -> None:
        folder = t4_copy(ORIGINAL)
        fail(folder / ORIGINAL, "decoder=turbojpeg", "unavailable", "no libturbojpeg")
        for name in ("serial-original-turbojpeg-wall", SPEEDUP):
            verdict = verdict_of(name, folder)
            assert (verdict.verdict, verdict.ours) == (NOT_RUN, None)
            assert verdict.reason == "unavailable: no libturbojpeg"

    @pytest.mark.parametrize(
        ("name", "column", "value", "reason"),
        [
            (WALL, "seconds_per_100k", "", "empty"),
            (WALL, "origin", "paper", "the paper's, not a measurement"),
            (WALL, "status", "", "no status"),
            (SPEEDUP, "device", "Tesla V100", "unlike runs"),
            (SPEEDUP, "corpus", "synthetic", "unlike runs"),
            (SPEEDUP, "seconds_per_100k", 0.0, "cannot divide"),
        ],
    )
    def test_row_without_usable_number(
        self, t4_copy: Copy, name: str, column: str, value: object, reason: str
    ) -> None:
        folder = t4_copy(SMALL, ORIGINAL)
        edit(folder / SMALL, "decoder=pil", **{column: value})
        edit(folder / ORIGINAL, "decoder=turbojpeg", **{column: value})
        verdict = verdict_of(name, folder)
        assert (verdict.verdict, verdict.ours) == (NOT_RUN, None)
        assert reason in verdict.reason


class TestMachine:
    def test_papers_numbers_hold_on_its_machine(self, t4_tables: Path) -> None:
        verdicts = claims.judge(claims.load(CLAIMS), t4_tables)
        assert [verdict for verdict in verdicts if verdict.verdict != HELD] == []

    @pytest.mark.parametrize(
        ("name", "changes", "expected", "reason"),
        [
            (WALL, {"device": "NVIDIA Tesla T4"}, HELD, "within"),
            (WALL, {"device": "NVIDIA T400"}, NOT_APPLICABLE, "Tesla T4 only; here: NVIDIA T400"),
            (WALL, {"device": "NVIDIA T4G"}, NOT_APPLICABLE, "a Tesla T4 only; here: NVIDIA T4G"),
            (SHARE, {"device": "NVIDIA H100 80GB"}, HELD, "within"),
            (SHARE, ON_CPU, NOT_APPLICABLE, "needs a CUDA GPU; here: AMD EPYC"),
            (DECODE, ON_CPU | {"corpus": "synthetic"}, HELD, "on synthetic images"),
            ("decode-original-pil", ON_CPU, NOT_APPLICABLE, "here: AMD EPYC"),
            ("original-median-kb", ON_CPU, HELD, "within"),
            ("original-median-kb", {"corpus": "abo (tar)"}, HELD, "within"),
            ("original-median-kb", {"corpus": "folder"}, NOT_APPLICABLE, "here: folder images"),
            (WALL, {"weights": "none"}, NOT_APPLICABLE, "mock model"),
        ],
    )
    def test_claim_is_about_a_machine(
        self, t4_copy: Copy, name: str, changes: dict[str, str], expected: str, reason: str
    ) -> None:
        csv = claim(name).csv
        folder = t4_copy(*filter(None, {csv, claim(name).over_csv}))
        columns = changes.keys() & read_columns(folder / csv)
        edit(folder / csv, **{column: changes[column] for column in columns})
        verdict = verdict_of(name, folder)
        assert verdict.verdict == expected
        assert reason in verdict.reason
        expected_ours = {WALL: 588, SHARE: 0.58, DECODE: 24.8 / 10.2}
        assert verdict.ours == pytest.approx(expected_ours.get(name, verdict.ours or 0))

    @pytest.mark.parametrize(("cores", "expected"), [(15, NOT_APPLICABLE), (16, HELD), (64, HELD)])
    def test_a_claim_with_a_cpu_in_it_needs_as_many_cores(
        self, t4_copy: Copy, cores: int, expected: str
    ) -> None:
        path = t4_copy(SMALL) / Path(SMALL).with_suffix(".meta.json")
        meta = json.loads(path.read_text(encoding="utf-8"))
        meta["machine"]["cores"] = cores
        path.write_text(json.dumps(meta), encoding="utf-8")
        verdict = verdict_of(WALL, path.parent)
        assert verdict.verdict == expected
        assert (f"here: {cores} of them" in verdict.reason) == (expected == NOT_APPLICABLE)


class TestTolerance:
    def test_difference_is_quantified(self, t4_copy: Copy) -> None:
        folder = t4_copy(SMALL)
        edit(folder / SMALL, "decoder=pil", seconds_per_100k=588 * 1.2, decode_share=0.14)
        wall = verdict_of(WALL, folder)
        assert wall.verdict == DIFFERS
        assert wall.ratio == pytest.approx(1.2)
        assert wall.reason == "+20.0 %, beyond 15 %; extrapolated"
        share = verdict_of("serial-small-pil-decode-share", folder)
        assert (share.verdict, share.reason) == (
            DIFFERS,
            "+75.0 % of the smaller part, beyond 15 %",
        )

    def test_unchecked_pixels_are_a_caveat(self, t4_copy: Copy) -> None:
        folder = t4_copy(ORIGINAL)
        edit(folder / ORIGINAL, "decoder=turbojpeg", gate="not checked")
        assert "pixels not compared" in verdict_of(SPEEDUP, folder).reason
        assert "pixels" not in verdict_of("serial-original-pil-wall", folder).reason

    @given(
        st.sampled_from(["absolute", "share", "bound"]),
        st.floats(0.01, 1000),
        st.floats(0.01, 1000),
    )
    def test_tolerance_decides(
        self, tmp_path_factory: pytest.TempPathFactory, kind: str, paper: float, ours: float
    ) -> None:
        tolerance = None if kind == "bound" else 0.25
        paper = paper / 1001 if kind == "share" else paper
        changed = dataclasses.replace(
            claim(WALL), kind=kind, needs="any", paper_value=paper, tolerance=tolerance
        )
        folder = tmp_path_factory.mktemp("one", numbered=True)
        text = f"decoder,seconds_per_100k,status,reason\npil,{ours!r},ok,\n"
        (folder / SMALL).write_text(text)
        (verdict,) = claims.judge([changed], folder)
        limits = {
            "absolute": abs(ours - paper) <= 0.25 * paper,
            "share": abs(ours - paper) <= 0.25 * min(paper, 1 - paper),
            "bound": ours <= paper,
        }
        assert (verdict.verdict == HELD) == limits[kind]
        assert verdict.ours == ours

    def test_tolerance_includes_its_decimal_end(self, t4_copy: Copy) -> None:
        folder = t4_copy(SMALL)
        for ours, expected in ((0.643, HELD), (0.517, HELD), (0.644, DIFFERS), (0.516, DIFFERS)):
            edit(folder / SMALL, "decoder=pil", forward_share=ours)
            assert verdict_of(SHARE, folder).verdict == expected

    @pytest.mark.parametrize(
        ("low", "high", "expected"),
        [(0.95, 1.1, HELD), (0.8, 1.05, CANNOT_TELL), (1.1, 1.3, CANNOT_TELL)],
    )
    def test_repeats_across_the_limit(
        self, t4_copy: Copy, low: float, high: float, expected: str
    ) -> None:
        folder = t4_copy(SMALL)
        limits = {"wall_s_min": 100 * low, "wall_s": 100, "wall_s_max": 100 * high}
        edit(folder / SMALL, "decoder=pil", seconds_per_100k=588, **limits)
        verdict = verdict_of(WALL, folder)
        assert verdict.verdict == expected
        assert (verdict.ours_min, verdict.ours_max) == pytest.approx((588 * low, 588 * high))
        if expected == CANNOT_TELL:
            assert "repeats reach from" in verdict.reason

    @given(factor=st.floats(0.1, 10), repeats=st.sampled_from(["1", "3", ""]))
    def test_one_repeat_settles_sizes_only(
        self, tmp_path_factory: pytest.TempPathFactory, factor: float, repeats: str
    ) -> None:
        for name in ("serialize-parquet", "serialize-parquet-size"):
            changed = dataclasses.replace(claim(name), needs="any", row="1")
            folder = tmp_path_factory.mktemp("one", numbered=True)
            cells = f"{changed.paper_value * factor!r},{repeats},ok,"
            text = f"{changed.column},repeats,status,reason\n{cells}\n"
            (folder / changed.csv).write_text(text)
            (verdict,) = claims.judge([changed], folder)
            settled = repeats != "1" or changed.unit == "MiB"
            assert (verdict.verdict == CANNOT_TELL) == (not settled)
            assert ("of one repeat" in verdict.reason) == (not settled)

    def test_minutes_for_a_million(self, t4_copy: Copy) -> None:
        folder = t4_copy("t4-baseline-stages.csv")
        edit(folder / "t4-baseline-stages.csv", "1", seconds_per_100k=1200)
        verdict = verdict_of("baseline-minutes", folder)
        assert verdict.ours == pytest.approx(200)
        assert verdict.verdict == DIFFERS

    def test_ratio_takes_every_pair_of_repeats(self, t4_copy: Copy) -> None:
        folder = t4_copy(decoders.CSV)
        for name, low, ms, high in (("pil", 20.0, 24.0, 26.4), ("turbojpeg", 9.0, 10.0, 11.0)):
            times = {"mean_ms_min": low, "mean_ms": ms, "mean_ms_max": high}
            edit(folder / decoders.CSV, f"image_set=original decoder={name}", **times)
        verdict = verdict_of(DECODE, folder)
        assert (verdict.ours_min, verdict.ours_max) == pytest.approx((20 / 11, 26.4 / 9))
        assert verdict.verdict == CANNOT_TELL

    @pytest.mark.parametrize("name", ["pil", "turbojpeg"])
    def test_either_row_of_a_ratio_brings_its_caveat(self, t4_copy: Copy, name: str) -> None:
        folder = t4_copy(decoders.CSV)
        row = f"image_set=original decoder={name}"
        assert verdict_of(DECODE, folder).verdict == HELD
        edit(folder / decoders.CSV, row, origin="extrapolated", gate="not checked")
        verdict = verdict_of(DECODE, folder)
        assert verdict.verdict == HELD
        assert verdict.reason.endswith("; extrapolated; pixels not compared")
        edit(folder / decoders.CSV, row, repeats="1")
        verdict = verdict_of(DECODE, folder)
        assert verdict.verdict == CANNOT_TELL
        assert "of one repeat" in verdict.reason


class TestTable:
    def test_missing_column_or_two_rows(self, tmp_path: Path) -> None:
        texts = {"seconds_per_100k": "decoder,status,reason\npil,ok,\n"}
        texts["2 rows match"] = "decoder,seconds_per_100k\npil,1\npil,1\n"
        for error, text in texts.items():
            (tmp_path / SMALL).write_text(text)
            with pytest.raises(UserError, match=error):
                claims.judge([claim(WALL)], tmp_path)

    def test_verdicts_become_a_table(self, t4_copy: Copy) -> None:
        folder = t4_copy(SMALL)
        verdicts = claims.judge(claims.load(CLAIMS), folder)
        claims.write(verdicts, folder / "claims.csv")
        assert read_columns(folder / "claims.csv") == list(claims.COLUMNS)
        rows = {row["id"]: row for row in read_table(folder / "claims.csv")}
        assert list(rows) == [verdict.claim.id for verdict in verdicts]
        assert rows[WALL]["ours"] == "588"
        both = "optimized-end-to-end.csv / t4-baseline-stages.csv"
        assert rows["optimized-speedup"]["csv"] == both
        assert rows["decode-small-speedup"]["csv"] == decoders.CSV
        assert rows["decode-small-speedup"]["ours"] == ""
