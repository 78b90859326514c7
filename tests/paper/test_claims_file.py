"""The file of claims: the facts of the paper, where each stands, and what it is about."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from experiments import serial
from paper import claims
from paper.claims import CLAIMS
from paper.csvfile import read_table
from tests.paper.tables import claim_of, fault_of, write_cited

SMALL, ORIGINAL = serial.CSVS["small_256"], serial.CSVS["original"]
WALL, SPEEDUP = "serial-small-pil-wall", "serial-original-speedup"


class TestFile:
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

    def test_no_claim_contradicts_itself(self) -> None:
        cited = claims.load(CLAIMS)
        assert len({claim.id for claim in cited}) == len(cited)
        for claim in cited:
            of_two = claim.kind in ("ratio", "difference")
            assert of_two or claim.kind in ("absolute", "share", "bound"), claim.id
            assert claim.needs in {"any", "abo", "cuda", *claims._MACHINES}, claim.id
            assert claim.paper_value, claim.id
            assert claim.scale > 0, claim.id
            assert (claim.tolerance is None) == (claim.kind == "bound"), claim.id
            assert {bool(claim.base_csv), bool(claim.base_row)} == {of_two}, claim.id
            assert of_two or not claim.base_column, claim.id

    def test_a_second_value_is_another_and_says_where(self) -> None:
        contradicted = [claim for claim in claims.load(CLAIMS) if claim.other_value is not None]
        assert len(contradicted) >= 20
        for cited in claims.load(CLAIMS):
            assert bool(cited.other_where) == (cited.other_value is not None), cited.id
            assert cited.other_value != cited.paper_value, cited.id
