"""Each rule that leads from a claim and our tables to a verdict."""

import dataclasses
import json
import re
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from experiments.cpu import cells as cpu
from experiments.decoders import cells as decoders
from experiments.ladder import cells as ladder
from experiments.serial import cells as serial
from harness.table import read_columns, read_table
from paper import claims
from paper.cited import select
from paper.claims import (
    CALIBRATION,
    CLAIMS,
    DIFFERS,
    HELD,
    INCONCLUSIVE,
    NOT_APPLICABLE,
    NOT_RUN,
    Verdict,
)
from paper.provenance_files import META, PACKED, packed, read_provenance
from tests.paper.tables import Copy, claim_of, edit, fail, save

SMALL, ORIGINAL = serial.CSVS["small_256"], serial.CSVS["original"]
WALL, SHARE = "serial-small-pil-wall", "serial-small-pil-forward-share"
SPEEDUP, DECODE = "serial-original-speedup", "decode-original-speedup"
RATE = re.compile("requests_per_s(_min|_max)?$")
LADDER = [claim.id for claim in claims.load(CLAIMS) if claim.row.startswith("setup=mock")]
ON_CPU = {"device": "AMD EPYC", "device_kind": "cpu"}
#: What the paper says that its own measured numbers do not make, or that is of a mock.
AT_ODDS = {
    "decode-million-pil": DIFFERS,
    "decode-million-turbojpeg": DIFFERS,
    "decode-twice-original": DIFFERS,
    "remaining-forward-small": DIFFERS,
    "library-factor-original": DIFFERS,
    "library-factor-small": DIFFERS,
    "checklist-decode": DIFFERS,
    "checklist-normalize": DIFFERS,
    "checklist-h2d": DIFFERS,
    "million-minutes": DIFFERS,
    "order-factor": DIFFERS,
    "fp16-halves": DIFFERS,
    "serialize-over-baseline": DIFFERS,
    "serialize-over-optimized": DIFFERS,
    **dict.fromkeys(LADDER, CALIBRATION),
}


def verdict_of(name: str, folder: Path) -> Verdict:
    """The verdict on the claim of that id, judged among all."""
    return next(
        verdict for verdict in claims.judge(claims.load(CLAIMS), folder) if verdict.claim.id == name
    )


def described(verdict: Verdict) -> str:
    """The claim, its cells and both values."""
    cited = verdict.claim
    cells = " over ".join(f"{csv}, {row}: {column}" for csv, row, column in cited.cells())
    return (
        f"{cited.id} ({cells}): paper {cited.paper_value:g}, ours {verdict.ours}; {verdict.verdict}"
    )


def repeats(
    column: str, value: float, low: float | None = None, high: float | None = None
) -> dict[str, float]:
    """A cell with the limits of its repeats; without them, all of one value."""
    low, high = value if low is None else low, value if high is None else high
    return {column: value, f"{column}_min": low, f"{column}_max": high}


class TestSelect:
    def test_row_number_or_cells(self) -> None:
        rows = [{"a": "x", "what": "stage call"}, {"a": "y", "what": "torch.profiler and cProfile"}]
        assert select(rows, "1") is rows[0]
        assert select(rows, "3") is None
        assert select(rows, "what=torch.profiler and cProfile") is rows[1]
        assert select(rows, "what=stage call a=x") is rows[0]
        assert select(rows, "a=x what=torch.profiler and cProfile") is None
        assert select(rows, "nothing=x") is None
        assert select([], "a=x") is None

    @pytest.mark.parametrize("selector", ["", "0", "-1", "pil/turbojpeg", "pil", "a=x"])
    def test_other_selectors_are_refused(self, selector: str) -> None:
        with pytest.raises(ValueError, match=r"neither|2 rows match"):
            select([{"a": "x"}, {"a": "x"}], selector)


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


def write_one(folder: Path, csv: str, **cells: object) -> None:
    """A table of one measured row."""
    cells |= {"status": "ok", "reason": ""}
    save(folder / csv, [{name: str(cell) for name, cell in cells.items()}], list(cells))


class TestMachine:
    def test_papers_numbers_hold_on_its_machine(self, t4_tables: Path) -> None:
        """All but those that it contradicts itself, which its own numbers refute."""
        wrong = [
            described(verdict)
            for verdict in claims.judge(claims.load(CLAIMS), t4_tables)
            if verdict.verdict != AT_ODDS.get(verdict.claim.id, HELD)
        ]
        assert wrong == []

    def test_what_differs_is_the_papers_other_value(self, t4_tables: Path) -> None:
        for verdict in claims.judge(claims.load(CLAIMS), t4_tables):
            if verdict.verdict == DIFFERS:
                other = pytest.approx(verdict.claim.other_value, rel=0.06)
                assert verdict.ours == other, described(verdict)

    @pytest.mark.parametrize(
        ("name", "changes", "expected", "reason"),
        [
            (WALL, {"device": "NVIDIA Tesla T4"}, HELD, "within"),
            (WALL, {"device": "NVIDIA T400"}, NOT_APPLICABLE, "to a Tesla T4; here: NVIDIA T400"),
            (WALL, {"device": "NVIDIA T4G"}, NOT_APPLICABLE, "to a Tesla T4; here: NVIDIA T4G"),
            (SHARE, {"device": "NVIDIA H100 80GB"}, HELD, "within"),
            (SHARE, ON_CPU, NOT_APPLICABLE, "needs a CUDA GPU; here: AMD EPYC"),
            (DECODE, ON_CPU | {"corpus": "synthetic"}, HELD, "on synthetic images"),
            ("decode-original-pil", ON_CPU, NOT_APPLICABLE, "here: AMD EPYC"),
            ("original-median-kb", ON_CPU, HELD, "within"),
            ("original-median-kb", {"corpus": "folder"}, NOT_APPLICABLE, "here: folder images"),
            (WALL, {"corpus": "synthetic"}, NOT_APPLICABLE, "here: synthetic images"),
            ("runtime-pytorch-fp32", {"corpus": "synthetic"}, HELD, "on synthetic images"),
            (WALL, {"weights": "none"}, NOT_APPLICABLE, "mock model"),
            ("model-load", {"weights": "random"}, NOT_APPLICABLE, "made, not loaded"),
            ("ladder-model-4", {"cores": "8"}, HELD, "within"),
            ("ladder-model-4", {"cores": "16"}, NOT_APPLICABLE, "8 cores; here: 16"),
            ("ladder-model-4", {"device": "A10G"}, NOT_APPLICABLE, "T4; here: A10G"),
        ],
    )
    def test_claim_is_about_a_machine(
        self, t4_copy: Copy, name: str, changes: dict[str, str], expected: str, reason: str
    ) -> None:
        csv = claim_of(name).csv
        folder = t4_copy(*filter(None, {csv, claim_of(name).base_csv}))
        columns = changes.keys() & read_columns(folder / csv)
        edit(folder / csv, **{column: changes[column] for column in columns})
        verdict = verdict_of(name, folder)
        assert verdict.verdict == expected
        assert reason in verdict.reason
        expected_ours = {WALL: 588, SHARE: 0.58, DECODE: 2.4}
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
        assert (f"here: {cores}" in verdict.reason) == (expected == NOT_APPLICABLE)

    def test_a_reference_run_has_the_verdicts_of_its_run(
        self, t4_tables: Path, tmp_path: Path
    ) -> None:
        """The machine is in the one file that stands for those beside the tables."""
        folder = shutil.copytree(t4_tables, tmp_path / "reference")
        text = packed(read_provenance(folder))
        for path in folder.glob(f"*{META}"):
            path.unlink()
        expected = claims.judge(claims.load(CLAIMS), t4_tables)
        assert claims.judge(claims.load(CLAIMS), folder) != expected
        (folder / PACKED).write_text(text, encoding="utf-8")
        assert claims.judge(claims.load(CLAIMS), folder) == expected

    def test_a_cpus_rate_over_a_gpus_is_of_one_machine(self, t4_copy: Copy) -> None:
        folder = t4_copy(cpu.CSV, "t4-baseline-stages.csv")
        assert verdict_of("cpu-speedup", folder).verdict == HELD
        path = folder / Path(cpu.CSV).with_suffix(".meta.json")
        meta = json.loads(path.read_text(encoding="utf-8"))
        meta["machine"]["gpus"] = [{"name": "Tesla V100"}]
        path.write_text(json.dumps(meta), encoding="utf-8")
        verdict = verdict_of("cpu-speedup", folder)
        assert (verdict.verdict, verdict.ours) == (NOT_RUN, None)
        assert "unlike runs: two machines" in verdict.reason


class TestTolerance:
    def test_difference_is_quantified(self, t4_copy: Copy) -> None:
        folder = t4_copy(SMALL)
        changed = repeats("seconds_per_100k", 588 * 1.2) | repeats("decode_share", 0.14)
        edit(folder / SMALL, "decoder=pil", **changed)
        wall = verdict_of(WALL, folder)
        assert wall.verdict == DIFFERS
        assert wall.ratio == pytest.approx(1.2)
        assert wall.reason == "+20.0 %, beyond 15 %; extrapolated"
        share = verdict_of("serial-small-pil-decode-share", folder)
        assert (share.verdict, share.reason) == (
            DIFFERS,
            "decode takes 14.0 %; the paper says 8.0 %: beyond 15 %",
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
            claim_of(WALL), kind=kind, needs="any", paper_value=paper, tolerance=tolerance
        )
        folder = tmp_path_factory.mktemp("one", numbered=True)
        write_one(folder, SMALL, decoder="pil", **repeats("seconds_per_100k", ours))
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
            edit(folder / SMALL, "decoder=pil", **repeats("forward_share", ours))
            assert verdict_of(SHARE, folder).verdict == expected

    @pytest.mark.parametrize(
        ("low", "high", "expected"),
        [(0.95, 1.1, HELD), (0.8, 1.05, INCONCLUSIVE), (1.1, 1.3, INCONCLUSIVE)],
    )
    def test_repeats_across_the_limit(
        self, t4_copy: Copy, low: float, high: float, expected: str
    ) -> None:
        folder = t4_copy(SMALL)
        limits = repeats("seconds_per_100k", 588, 588 * low, 588 * high)
        edit(folder / SMALL, "decoder=pil", **limits)
        verdict = verdict_of(WALL, folder)
        assert verdict.verdict == expected
        assert (verdict.ours_min, verdict.ours_max) == pytest.approx((588 * low, 588 * high))
        if expected == INCONCLUSIVE:
            assert "repeats reach from" in verdict.reason

    @given(factor=st.floats(0.1, 10), n=st.sampled_from(["1", "3", ""]))
    def test_one_repeat_settles_sizes_only(
        self, tmp_path_factory: pytest.TempPathFactory, factor: float, n: str
    ) -> None:
        for name in ("serialize-parquet", "serialize-parquet-size"):
            changed = dataclasses.replace(claim_of(name), needs="any", row="1")
            folder = tmp_path_factory.mktemp("one", numbered=True)
            cells = repeats(changed.column, changed.paper_value * factor)
            write_one(folder, changed.csv, repeats=n, **cells)
            (verdict,) = claims.judge([changed], folder)
            settled = n != "1" or changed.unit == "MiB"
            assert (verdict.verdict == INCONCLUSIVE) == (not settled)
            assert ("One repeat: inconclusive" in verdict.reason) == (not settled)

    def test_two_cells_take_every_pair_of_repeats(self, t4_copy: Copy) -> None:
        folder = t4_copy(decoders.CSV, ORIGINAL)
        for name, low, ms, high in (("pil", 20.0, 24.0, 26.4), ("turbojpeg", 9.0, 10.0, 11.0)):
            times = repeats("mean_ms", ms, low, high)
            edit(folder / decoders.CSV, f"image_set=original decoder={name}", **times)
            walls = repeats("seconds_per_100k", ms, low, high)
            edit(folder / ORIGINAL, f"decoder={name}", **walls)
        verdict = verdict_of(SPEEDUP, folder)
        assert (verdict.ours_min, verdict.ours_max) == pytest.approx((20 / 11, 26.4 / 9))
        assert verdict.verdict == INCONCLUSIVE
        verdict = verdict_of("decode-original-difference", folder)
        assert verdict.ours == pytest.approx(14)
        assert (verdict.ours_min, verdict.ours_max) == pytest.approx((20 - 11, 26.4 - 9))
        assert verdict.verdict == INCONCLUSIVE
        million = verdict_of("decode-million-turbojpeg", folder)
        in_minutes = [1e6 * ms / 60_000 for ms in (10, 9, 11)]
        assert [million.ours, million.ours_min, million.ours_max] == pytest.approx(in_minutes)

    def test_a_second_column_of_another_table(self, t4_copy: Copy) -> None:
        folder = t4_copy("serialization-comparison.csv", "t4-baseline-stages.csv")
        vectors = repeats("vectors_per_s", 90_000, 80_000, 100_000)
        where = "format=parquet fsync=no n_vectors=50000"
        edit(folder / "serialization-comparison.csv", where, **vectors)
        rate = repeats("img_per_s", 100, 50, 125)
        edit(folder / "t4-baseline-stages.csv", "image_set=small_256", **rate)
        verdict = verdict_of("serialize-over-baseline", folder)
        assert (verdict.ours, verdict.ours_min, verdict.ours_max) == (900, 640, 2000)
        assert verdict.verdict == INCONCLUSIVE
        claims.write([verdict], folder / "claims.csv")
        (row,) = read_table(folder / "claims.csv")
        assert (row["column"], row["kind"]) == ("vectors_per_s / img_per_s", "ratio")

    @pytest.mark.parametrize("name", [SHARE, SPEEDUP, "baseline-utilization", "profiler-agreement"])
    def test_no_interval_is_borrowed(self, t4_copy: Copy, name: str) -> None:
        """Without limits of its own a number is not judged, whatever the wall time's are."""
        folder = t4_copy()
        assert verdict_of(name, folder).verdict == HELD
        cited = claim_of(name)
        ends = (f"{cited.column}_min", f"{cited.column}_max")
        edit(folder / cited.csv, cited.row, **dict.fromkeys(ends, ""))
        verdict = verdict_of(name, folder)
        assert (verdict.verdict, verdict.ours_min, verdict.ours_max) == (INCONCLUSIVE, None, None)
        assert f"the repeats' limits of {cited.column} are not known" in verdict.reason
        assert verdict.ours is not None

    @hypothesis_settings(max_examples=20)
    @given(factor=st.floats(0.01, 100))
    def test_a_mock_of_the_sources_numbers_is_never_held(
        self, t4_tables: Path, tmp_path_factory: pytest.TempPathFactory, factor: float
    ) -> None:
        folder = tmp_path_factory.mktemp("one", numbered=True)
        rows = [
            row | {name: f"{factor * float(row[name])!r}" for name in row if RATE.match(name)}
            for row in read_table(t4_tables / ladder.CSV)
            if row["setup"] == ladder.MOCK
        ]
        save(folder / ladder.CSV, rows, list(ladder.TABLES[ladder.CSV]))
        judged = claims.judge([claim_of(name) for name in LADDER], folder)
        assert {verdict.verdict for verdict in judged} == {CALIBRATION}
        assert all(verdict.ours for verdict in judged)

    @pytest.mark.parametrize("name", ["pil", "turbojpeg"])
    def test_either_row_of_a_ratio_brings_its_caveat(self, t4_copy: Copy, name: str) -> None:
        folder = t4_copy(ORIGINAL)
        row = f"decoder={name}"
        assert verdict_of(SPEEDUP, folder).verdict == HELD
        edit(folder / ORIGINAL, row, seconds_per_100k_origin="extrapolated", gate="not checked")
        verdict = verdict_of(SPEEDUP, folder)
        assert verdict.verdict == HELD
        assert verdict.reason.endswith("; extrapolated; pixels not compared")
        edit(folder / ORIGINAL, row, repeats="1")
        verdict = verdict_of(SPEEDUP, folder)
        assert verdict.verdict == INCONCLUSIVE
        assert "One repeat: inconclusive" in verdict.reason
