"""The file of claims: the facts of the paper, where each stands, and what it is about."""

import csv
import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

import experiments
from experiments import cpu, decoders, nms, profiler, serial
from paper import claims
from paper.claims import CLAIMS, Claim
from paper.csvfile import read_table
from tests.conftest import ROOT
from tests.paper.tables import claim_of, fault_of, write_cited

FACTS = ROOT.parent / "shared" / "paper" / "claims.csv"
SMALL, ORIGINAL = serial.CSVS["small_256"], serial.CSVS["original"]
WALL, SPEEDUP = "serial-small-pil-wall", "serial-original-speedup"
#: Headings, figures and tables of the article.
IN_ARTICLE = re.compile(
    r"(Introduction|Setup|Reproducibility|The profiling setup|Small images: forward dominates"
    r"|Original-resolution images: decode and resize dominate|The decoder bench in isolation"
    r"|The batch-size knob, and why bigger isn't better|Workers help, until they don't"
    r"|FP16 is the second big lever|Serialization and disk write are basically free"
    r"|The CPU/GPU timeline tells the story|Combining the wins|A bottleneck checklist"
    r"|What the series leaves you with|Figure [1-9], (caption|box '.+')|Table [1-4], row '.+)"
    r"(; .+)?"
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
            assert set(filter(None, [ours.csv, ours.base_csv])) == set(fact["csv"].split(" / "))

    def test_columns_are_those_of_the_experiments(self) -> None:
        faults = [fault_of(cited) for cited in claims.load(CLAIMS)]
        assert [fault for fault in faults if fault] == []

    @pytest.mark.parametrize(
        ("changes", "fault"),
        [
            ({"csv": "nobody.csv"}, "no experiment writes nobody.csv"),
            ({"column": "toy_s"}, f"{SMALL} has no column toy_s, toy_s_min, toy_s_max"),
            ({"row": "toy=1 decoder=pil"}, f"{SMALL} has no column toy"),
        ],
    )
    def test_a_fault_names_its_claim(self, changes: dict[str, Any], fault: str) -> None:
        assert fault_of(dataclasses.replace(claim_of(WALL), **changes)) == f"claim {WALL}: {fault}"

    def test_a_claim_on_a_table_that_the_fixture_lacks(self, tmp_path: Path) -> None:
        """One line in claims.csv is all that a claim of a new experiment takes."""
        cited = [claim_of(WALL), claim_of(SPEEDUP)]
        write_cited(tmp_path, cited)
        assert read_table(tmp_path / SMALL)[0]["decoder"] == "pil"
        assert [row["decoder"] for row in read_table(tmp_path / ORIGINAL)] == ["pil", "turbojpeg"]
        judged = claims.judge(cited, tmp_path)
        assert [verdict.ours for verdict in judged] == [1, 1]

    def test_needs_follow_from_the_subject(self) -> None:
        """Of the paper's claims, and of those of two other sources."""
        for cited in claims.load(CLAIMS):
            if cited.experiment in (*experiments.ORDER, "ladder", "cluster"):
                assert cited.needs == needs_of(cited), cited.id

    def test_no_claim_contradicts_itself(self) -> None:
        cited = claims.load(CLAIMS)
        assert len({claim.id for claim in cited}) == len(cited)
        for claim in cited:
            of_two = claim.kind in ("ratio", "difference")
            assert of_two or claim.kind in ("absolute", "share", "bound"), claim.id
            assert claim.needs in ("any", "abo", "cuda", "t4-gpu", "t4", "t4-8"), claim.id
            assert claim.paper_value, claim.id
            assert claim.scale > 0, claim.id
            assert (claim.tolerance is None) == (claim.kind == "bound"), claim.id
            assert {bool(claim.base_csv), bool(claim.base_row)} == {of_two}, claim.id
            assert of_two or not claim.base_column, claim.id

    def test_every_claim_says_where_it_stands(self) -> None:
        for cited in claims.load(CLAIMS):
            if cited.experiment == "nms":
                assert cited.where.startswith("Computer Vision Under the Microscope, "), cited.id
            elif cited.experiment in experiments.ORDER:
                assert IN_ARTICLE.fullmatch(cited.where), f"{cited.id}: {cited.where}"
            elif cited.experiment == "ladder":
                assert cited.where.startswith("GumGum's article (Moarref, 2020), "), cited.id
            else:
                page, _, heading = cited.where.removeprefix("this suite: ").partition(", ")
                assert f"\n## {heading}\n" in (ROOT / page).read_text(encoding="utf-8"), cited.id

    def test_a_second_value_is_another_and_says_where(self) -> None:
        contradicted = [claim for claim in claims.load(CLAIMS) if claim.other_value is not None]
        assert len(contradicted) >= 20
        for cited in claims.load(CLAIMS):
            assert bool(cited.other_where) == (cited.other_value is not None), cited.id
            assert cited.other_value != cited.paper_value, cited.id

    def test_numbers_that_an_audit_missed_have_a_row(self) -> None:
        values = {claim.id: claim.paper_value for claim in claims.load(CLAIMS)}
        expected = {
            "decode-small-difference": 0.2,
            "decode-original-difference": 14,
            "decode-million-pil": 56,
            "decode-million-turbojpeg": 14,
            "decode-twice-original": 2,
            "decode-twice-small": 2,
            "remaining-forward-small": 0.9,
            "remaining-forward-original": 0.9,
            "serialize-over-baseline": 1000,
            "serialize-over-optimized": 1000,
            "workers-needed-pil": 4,
            "workers-needed-turbojpeg": 2,
            "model-load": 1,
            "million-minutes": 20,
            "order-factor": 5,
            "library-factor-original": 5,
            "library-factor-small": 5,
            "suite-minutes": 27.5,
            "suite-workers-minutes": 5,
            "profile-minutes": 5,
            "original-megapixels": 1,
            "model-parameters": 22,
            "small-turbojpeg-over-opencv": 1,
            "fp16-halves": 2,
        }
        assert {name: values[name] for name in expected} == expected


def needs_of(cited: Claim) -> str:
    """What a claim is about, by its column and its table."""
    if cited.experiment == "ladder":
        if cited.row.startswith("setup=model"):
            return "t4-8"
        return "any" if cited.kind == "ratio" else "t4-gpu"
    if cited.experiment in ("cluster", "nms") or cited.column in (
        "size_mib",
        "parameters",
        "resize_s",
    ):
        return "any"
    if cited.column in claims.EXACT:
        return "abo"
    if cited.id == "cpu-speedup" or cited.base_column:
        return "t4"  # of a CPU's work over a GPU's
    if cited.column == "peak_gpu_mem_gib":
        return "t4-gpu"  # the driver's count has the context in it
    if cited.kind in ("share", "ratio", "bound") and cited.unit != "min":
        return "any" if cited.csv in (decoders.CSV, cpu.CSV, nms.CSV, profiler.CSV) else "cuda"
    return "t4-gpu" if cited.experiment == "onnx" else "t4"
