"""Every document says on which machine, at which commit and when its numbers were measured."""

import json
from pathlib import Path
from typing import Any

import pytest

from harness import provenance
from paper import accuracy, footnotes
from paper.__main__ import main
from paper.csvfile import write_table
from tests.test_docs import DOCUMENTS, MARKED, TERM, sources, text_of
from wallclock.errors import UserError

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


def test_a_line_names_machine_commit_date_and_repeats(tmp_path: Path) -> None:
    meta: dict[str, Any] = {
        "machine": EPYC,
        "commits": ["abc1234" + "0" * 33],
        "modified": False,
        "measured": ["2026-11-24T05:00:00Z", "2026-11-24T07:00:00Z"],
    }
    expected = "AMD EPYC (family 25, model 17), 2 cores; commit abc1234; 2026-11-24"
    path = table(tmp_path, meta, system=["a", "b"], repeats=[7, 7])
    assert footnotes.describe(path) == f"{expected}; n = 7"
    path = table(tmp_path, meta, system=["a", "b"], rounds=[3, 7])
    assert footnotes.describe(path) == f"{expected}; n = 3 to 7"
    assert footnotes.describe(table(tmp_path, meta, system=["a", "b"])) == expected
    records = [{"repeat": 0}, {"repeat": 2}, {"repeat": 1}]
    path = table(tmp_path, meta | {"records": records}, system=["a", "b"])
    assert footnotes.describe(path) == f"{expected}; n = 3"


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


def test_derived_tables_have_the_provenance_of_their_sources() -> None:
    verdicts = footnotes.files()["verdicts"]
    assert len(footnotes.metas_of(verdicts)) > 20
    assert len(footnotes.metas_of(accuracy.PATH)) == len(accuracy.tables()) > 1


def test_lines_in_documents_are_those_of_the_provenance(capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["footnotes"])
    assert status == 0, f"{capsys.readouterr().out}: run python -m paper footnotes --write"


def measured() -> set[str]:
    """Names of the tables in docs/numbers.txt that are measured or derived, not cited."""
    cited = provenance.ROOT / "data" / "paper"
    there = {name: path for name, path in footnotes.files().items() if path.is_file()}
    return {name for name, path in there.items() if not path.is_relative_to(cited)}


def test_every_quoted_table_names_its_machine_commit_and_date() -> None:
    for name in sorted(measured()):
        metas = footnotes.metas_of(footnotes.files()[name])
        assert metas, f"{name} has no provenance"
        for meta in metas:
            assert meta.get("commits"), f"{name} has no commit: measure it again"
            assert meta.get("measured"), f"{name} has no date: measure it again"
            for machine in footnotes.machines_of(meta):
                assert machine.get("topology", {}).get("family"), f"{name} has no CPU family"


def quoted(text: str) -> set[str]:
    """Names of the tables whose numbers a document has."""
    bodies = [sources().get(body, body) for body, *_ in MARKED.findall(text)]
    terms = [TERM.fullmatch(term) for body in bodies for term in body.split(" / ")]
    return {match[2] for match in terms if match}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_document_says_where_its_numbers_are_from(name: str) -> None:
    text = text_of(name) + text_of(STAND_IN.get(name, name))
    tables = footnotes.files()
    lines = [match[2] for match in footnotes.MARKER.finditer(text)]
    described = {tables[line] for line in lines}
    names = quoted(text_of(name)) & measured()
    missing = {name for name in names if tables[name] not in described}
    assert not missing, f"{name}: add the lines <!--machine: NAME--> of {sorted(missing)}"
