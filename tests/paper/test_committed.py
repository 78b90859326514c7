"""The claims, and the documents' lines on machine, commit and date."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from experiments.onnx import cells as onnx
from experiments.serial import cells as serial
from experiments.serialization import cells as serialization
from experiments.workers import cells as workers
from harness import provenance
from harness.table import read_table, write_table
from paper import claims, footnotes, quoted
from paper.__main__ import main
from paper.claims import CLAIMS
from paper.quoted import MARKED, TERM, sources
from tests.paper.tables import REFERENCE, claim_of, fault_of
from tests.test_docs import DOCUMENTS, text_of
from wallclock.errors import UserError

# --- claims file ----------------------------------------------------------------------------------


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

    @pytest.mark.parametrize(
        ("csv", "column", "values"),
        [
            (serialization.CSV, "format", ["parquet", "lmdb", "npy"]),
            (workers.CSV, "decoder", ["turbojpeg", "turbojpeg"]),
            (onnx.CSV, "runtime", ["pytorch", "onnxruntime"]),
        ],
    )
    def test_rows_that_the_paper_has(self, csv: str, column: str, values: list[str]) -> None:
        rows = [row for row in read_table(REFERENCE / csv) if row["in_paper"]]
        assert [row[column] for row in rows] == values

    def test_a_second_value_is_another_and_says_where(self) -> None:
        contradicted = [claim for claim in claims.load(CLAIMS) if claim.other_value is not None]
        assert len(contradicted) >= 20
        for cited in claims.load(CLAIMS):
            assert bool(cited.other_where) == (cited.other_value is not None), cited.id
            assert cited.other_value != cited.paper_value, cited.id


# --- footnotes ------------------------------------------------------------------------------------


#: README has few lines: the page that it links to has those of its tables.
STAND_IN = {"README.md": "docs/results.md"}
EPYC = {
    "cpu": "AMD EPYC",
    "cores": 2,
    "topology": {"family": "25", "model": "17", "l3": "32 MiB"},
    "gpus": [],
}
XEON = {
    "cpu": "Intel(R) Xeon(R) Processor",
    "cores": 1,
    "topology": {"family": "6", "model": "207"},
    "gpus": [{"name": "Tesla T4"}],
}


def table(folder: Path, meta: dict[str, Any] | None, **columns: Any) -> Path:
    """A table of two rows with these columns, and its provenance."""
    path = folder / "toy.csv"
    rows = [{name: values[row] for name, values in columns.items()} for row in range(2)]
    write_table(path, tuple(columns), rows)
    if meta is not None:
        path.with_suffix(".meta.json").write_text(json.dumps(meta), encoding="utf-8")
    return path


def test_what_is_not_as_it_should_be_is_said(tmp_path: Path) -> None:
    meta: dict[str, Any] = {
        "machine": XEON,
        "other_machines": [EPYC],
        "commits": ["b" * 40, "a" * 40],
        "modified": True,
        "measured": ["2026-11-22T23:00:00Z", "2026-11-24T01:00:00Z"],
    }
    assert footnotes.describe(table(tmp_path, meta, system=["a", "b"])) == (
        "Intel Xeon Processor (family 6, model 207), 1 core, with Tesla T4 and "
        "AMD EPYC (family 25, model 17), 2 cores; commits aaaaaaa, bbbbbbb with changes; "
        "2026-11-22 to 2026-11-24"
    )
    line = footnotes.describe(table(tmp_path, {"machine": EPYC}, system=["a", "b"]))
    assert line.endswith("2 cores; commit and date not recorded")
    (tmp_path / "toy.meta.json").unlink()
    with pytest.raises(UserError, match=r"has neither toy\.meta\.json nor provenance\.json"):
        footnotes.describe(tmp_path / "toy.csv")


def test_only_what_follows_a_marker_is_rewritten(tmp_path: Path) -> None:
    path = table(tmp_path, {"machine": EPYC}, system=["a", "b"])
    new = footnotes.rewritten("a\n<!--machine: toy-->old line\n<!--=toy-->3\n", {"toy": path})
    assert new == f"a\n<!--machine: toy-->{footnotes.describe(path)}.\n<!--=toy-->3\n"
    with pytest.raises(UserError, match="gone-->: no CSV of this name"):
        footnotes.rewritten("<!--machine: gone-->", {"toy": path})


def test_lines_in_documents_are_those_of_the_provenance(capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["footnotes"])
    assert status == 0, f"{capsys.readouterr().out}: run python -m paper footnotes --write"


def measured() -> set[str]:
    """Names of the tables in docs/numbers.txt that are measured or derived, not cited."""
    cited = provenance.ROOT / "data" / "paper"
    there = {name: path for name, path in quoted.files().items() if path.is_file()}
    return {name for name, path in there.items() if not path.is_relative_to(cited)}


def test_every_quoted_table_names_its_machine_commit_and_date() -> None:
    for name in sorted(measured()):
        metas = footnotes.metas_of(quoted.files()[name])
        assert metas, f"{name} has no provenance"
        for meta in metas:
            assert meta.get("commits"), f"{name} has no commit: measure it again"
            assert meta.get("measured"), f"{name} has no date: measure it again"
            for machine in footnotes.machines_of(meta):
                assert machine.get("topology", {}).get("family"), f"{name} has no CPU family"


def tables_quoted(text: str) -> set[str]:
    """Names of the tables whose numbers a document has."""
    bodies = [sources().get(body, body) for _, body, *_ in MARKED.findall(text)]
    terms = [TERM.fullmatch(term) for body in bodies for term in body.split(" / ")]
    return {match[2] for match in terms if match}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_document_says_where_its_numbers_are_from(name: str) -> None:
    text = text_of(name) + text_of(STAND_IN.get(name, name))
    tables = quoted.files()
    lines = [match[2] for match in footnotes.MARKER.finditer(text)]
    described = {tables[line] for line in lines}
    names = tables_quoted(text_of(name)) & measured()
    missing = {name for name in names if tables[name] not in described}
    assert not missing, f"{name}: add the lines <!--machine: NAME--> of {sorted(missing)}"
