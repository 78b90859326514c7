"""Reference runs: every edit of a record, an archive or a derived file is detected."""

import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from experiments.frontier import cells as frontier
from harness import provenance, records
from paper import check, footnotes, packing
from paper.__main__ import main
from paper.provenance_files import read_provenance
from tests.fixture_run import FIXTURES, fixture_runs
from tests.harness.test_records import KEPT, write_run
from wallclock.errors import UserError
from wallclock.files import write_text

# --- check ----------------------------------------------------------------------------------------


CSV = "cpu-baseline-stages.csv"
#: A table without records.
BENCHMARK = "benchmarks/toy.csv"
REFERENCES = check.references(provenance.ROOT / "data" / "reference")


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A reference of two runs, an experiment each, made by the documented command. Read-only."""
    base = tmp_path_factory.mktemp("reference")
    for experiment in ("cpu", "profiler"):
        shutil.copytree(fixture_runs() / experiment, base / experiment / experiment)
    folder = base / "some-cpu"
    folder.mkdir()
    (folder / "README.md").write_text("A CPU.\n", encoding="utf-8")
    write_text(folder / BENCHMARK, "ms\n1\n")
    runs = [str(base / "cpu"), str(base / "profiler")]
    assert main(["check", "--pack", *runs, "--reference", str(folder)]) == 0
    return folder


@pytest.fixture
def reference(packed: Path, tmp_path: Path) -> Path:
    """A copy of it that a test may change."""
    return shutil.copytree(packed, tmp_path / "some-cpu")


def edit_record(reference: Path, edit: Callable[[Path], None]) -> None:
    """Unpack, edit the first record's folder, pack again without the checks of `pack`."""
    runs = reference.parent / "runs"
    packing.unpack(reference / packing.ARCHIVE, runs)
    edit(next(runs.glob("cpu/*-r0-*")))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(records, "_seal", lambda folder: (folder / "COMPLETE").read_text())
        packing.pack([runs], reference / packing.ARCHIVE)


def test_reference_matches(reference: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = {str(path.relative_to(reference)) for path in reference.rglob("*") if path.is_file()}
    assert {CSV, BENCHMARK, "claims.csv", "README.md", packing.ARCHIVE} <= names
    assert "figures/table-2-end-to-end.md" in names
    left_out = (".png", ".pdf", ".tex", ".mmd", ".meta.json", "report.html")
    assert not any(name.endswith(left_out) for name in names)
    assert not any(name.startswith("figures/") and name.endswith(".csv") for name in names)
    assert check.check(reference) == {}
    assert check.references(reference.parent) == [reference]
    assert main(["check", "--reference", str(reference)]) == 0
    assert "byte for byte" in capsys.readouterr().out


def test_one_file_has_the_provenance_of_all_tables(reference: Path) -> None:
    by_table = read_provenance(reference)
    verdicts = {"claims.csv", "failures.csv"}
    assert by_table.keys() == {path.name for path in reference.glob("*.csv")} - verdicts
    assert footnotes.metas_of(reference / CSV) == [by_table[CSV]]
    assert by_table[CSV]["records"]
    assert footnotes.metas_of(reference / "claims.csv") == [*by_table.values()]


def test_edited_files(reference: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (reference / CSV).read_text(encoding="utf-8")
    edited = re.sub(r"\d(?=\D*\Z)", lambda digit: str((int(digit[0]) + 1) % 10), text)
    (reference / CSV).write_text(edited, encoding="utf-8")
    lines = (reference / "claims.csv").read_text(encoding="utf-8").split("\n")
    number = next(index for index, line in enumerate(lines) if ",not run," in line)
    lines[number] = lines[number].replace(",not run,", ",held,")
    (reference / "claims.csv").write_text("\n".join(lines), encoding="utf-8")
    (reference / "figures" / "table-2-end-to-end.md").unlink()
    (reference / "figures" / "fig-02-batch-sweep.png").touch()
    differences = check.check(reference)
    line, committed, rebuilt = differences.pop("claims.csv").split("\n")
    assert line == f"differs in line {number + 1}"
    assert "held" in committed
    assert "not run" in rebuilt
    assert len(committed) < 80
    expected = {
        CSV: "differs",
        "figures/fig-02-batch-sweep.png": "extra",
        "figures/table-2-end-to-end.md": "missing",
    }
    assert {path: re.split(r"\W", text)[0] for path, text in differences.items()} == expected
    assert main(["check", "--reference", str(reference)]) == 1
    printed = capsys.readouterr().out
    assert all(f"{path}  {word}" in printed for path, word in expected.items())
    assert main(["check", "--write", "--reference", str(reference)]) == 0
    assert check.check(reference) == {}
    assert (reference / BENCHMARK).is_file()


def test_edited_record_is_refused(reference: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def edit(folder: Path) -> None:
        path = folder / "samples.json"
        text = path.read_text(encoding="utf-8")
        path.write_text(re.sub(r"\d(?=\])", "", text, count=1), encoding="utf-8")

    edit_record(reference, edit)
    with pytest.raises(UserError, match="was changed after it was written"):
        check.check(reference)
    assert main(["check", "--reference", str(reference)]) == 1
    assert "was changed after it was written" in capsys.readouterr().err


def test_resealed_record_changes_derived_files(reference: Path) -> None:
    def edit(folder: Path) -> None:
        record = records.load(folder)
        samples = {**record.samples, "wall": [record.samples["wall"][0] + 10**9]}
        records.write(folder, replace(record, samples=samples))

    edit_record(reference, edit)
    assert CSV in check.check(reference)


def test_removed_record_changes_derived_files(reference: Path) -> None:
    edit_record(reference, shutil.rmtree)
    assert check.check(reference)[CSV].startswith("extra")


def test_no_reference(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UserError, match="no archive of records at"):
        check.check(tmp_path / "absent")
    assert main(["check", "--pack", str(tmp_path), "--reference", str(tmp_path)]) == 1
    assert main(["check", "--pack", str(tmp_path)]) == 2
    no_records, no_reference = capsys.readouterr().err.splitlines()
    assert "no records under" in no_records
    assert "--pack needs the folder" in no_reference


def test_a_committed_reference_is_one_archive() -> None:
    folder = provenance.ROOT / "data" / "reference"
    archives = [reference / packing.ARCHIVE for reference in check.references(folder)]
    assert sorted(folder.rglob("*.xz")) == archives != []
    assert not list(folder.rglob("record.json"))


#: Prints the digests of the code that cells time, of the code that is first on the path. Words:
#: protocol/experiment. Until experiments had folders, the protocol alone said which code.
DIGESTS = """
import json, sys
from harness import provenance
from harness.protocols import registry

def digest(*names):
    arguments = names[: registry.timed_by.__code__.co_argcount]
    return provenance.code_digest(registry.timed_by(*arguments))

print(json.dumps({word: digest(*word.split("/")) for word in sys.argv[1:]}))
"""


#: A reference's experiment that ran while a test was modified, as its README says.
TEST_MODIFIED = ("nvidia-h200-intel-r-xeon-r-processor-16-cores", "fast")


def digests_at(commit: str, timed: set[str], folder: Path) -> Mapping[str, str]:
    """Digests of the code that was timed at a commit; skips where that is unknown."""
    folder.mkdir()
    archive = ["git", "archive", "--format=tar", f"--output={folder}/code.tar", commit]
    archive += ["code", "experiments"]
    done = subprocess.run(archive, cwd=provenance.ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no history here: {done.stderr.strip()}")
    shutil.unpack_archive(folder / "code.tar", folder)
    path = os.environ | {"PYTHONPATH": f"{folder}/code:{folder}"}
    command = [sys.executable, "-c", DIGESTS, *timed]
    printed = subprocess.run(command, env=path, capture_output=True, text=True, check=True)
    digests: Mapping[str, str] = json.loads(printed.stdout)
    return digests


@pytest.mark.slow
@pytest.mark.parametrize("reference", REFERENCES, ids=lambda path: path.name)
def test_a_committed_reference_timed_the_code_of_the_commits_that_it_names(
    reference: Path, tmp_path: Path
) -> None:
    packing.unpack(reference / packing.ARCHIVE, tmp_path / "runs")
    #: Commit → protocol and experiment → digests of the code that its records timed.
    timed: dict[str, dict[str, set[str]]] = {}
    for file in (tmp_path / "runs").glob("*/*/record.json"):
        record = json.loads(file.read_text(encoding="utf-8"))
        environment = record["environment"]
        state = environment["after"]["git"]
        assert not state["modified"] or (reference.name, file.parts[-3]) == TEST_MODIFIED, file
        if record["status"] == "ok":
            words = f"{record['cell']['protocol']}/{record['cell']['experiment']}"
            timed.setdefault(state["commit"], {}).setdefault(words, set()).add(environment["code"])
    assert timed
    for commit, digests in timed.items():
        expected = digests_at(commit, {*digests}, tmp_path / commit)
        assert digests == {words: {digest} for words, digest in expected.items()}, commit


# --- packing --------------------------------------------------------------------------------------


def test_pack_round_trip(tmp_path: Path) -> None:
    write_run(tmp_path / "runs")
    archive = tmp_path / packing.ARCHIVE
    (tmp_path / "runs" / "serial" / "a" / "vectors.parquet").write_bytes(b"a cell's output")
    assert packing.pack([tmp_path / "runs"], archive) == 2
    packing.unpack(archive, tmp_path / "unpacked")
    assert not list((tmp_path / "unpacked").rglob("vectors.parquet"))
    names = sorted(path.name for path in (tmp_path / "unpacked" / "serial").iterdir())
    assert names == ["a", "b", "index.json"]
    packed, unpacked = (
        records.load_experiment(tmp_path / name, "serial") for name in ("runs", "unpacked")
    )
    assert packed == unpacked
    before = archive.read_bytes()
    (tmp_path / "runs" / "serial" / "a" / "record.json").touch(mode=0o600)
    packing.pack([tmp_path / "unpacked"], archive)
    assert archive.read_bytes() == before


def test_pack_refuses_edited_and_empty(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no records under"):
        packing.pack([tmp_path / "runs"], tmp_path / packing.ARCHIVE)
    write_run(tmp_path / "runs")
    (tmp_path / "runs" / "serial" / "a" / "samples.json").write_text("{}", encoding="utf-8")
    with pytest.raises(UserError, match="changed after it was written"):
        packing.pack([tmp_path / "runs"], tmp_path / packing.ARCHIVE)
    assert not (tmp_path / packing.ARCHIVE).exists()


@pytest.fixture
def two_runs(tmp_path: Path) -> list[Path]:
    """Our cells of the frontier, once; of one a copy of that and two more repeats."""
    source, runs = fixture_runs() / "frontier", [tmp_path / "a", tmp_path / "b"]
    keys = [path.name for path in sorted(source.glob("ours-*"))]
    first, second = [key for key in keys if "-r0-" in key], [key for key in keys if KEPT in key]
    for run, names in zip(runs, (first, second), strict=True):
        for name in names:
            shutil.copytree(source / name, run / "frontier" / name)
        records.write_index(run, "frontier", names)
    return runs


def test_runs_are_joined(two_runs: list[Path], tmp_path: Path) -> None:
    """As `repeats=1` and then `repeats=3` of a few systems leave them."""
    archive = tmp_path / packing.ARCHIVE
    assert packing.pack(two_runs, archive) == 6
    packing.unpack(archive, tmp_path / "joined")
    once, more, joined = (
        records.load_experiment(run, "frontier") for run in (*two_runs, tmp_path / "joined")
    )
    assert [record.cell.repeat for record in more] == [0, 1, 2]
    assert joined == [*once, *more[1:]]
    rows = frontier.tables(joined)[frontier.CSV]
    (row,) = (r for r in rows if (r["system"], r["image_set"]) == ("ours", "original"))
    assert row["repeats"] == 3


@pytest.mark.parametrize("key", ["same", "of another commit"])
def test_a_cell_measured_in_two_runs_is_refused(
    two_runs: list[Path], tmp_path: Path, key: str
) -> None:
    (folder,) = (two_runs[1] / "frontier").glob(f"{KEPT}*-r0-*")
    records.write(folder, replace(records.load(folder), seconds=7.0))
    if key != "same":
        folder = folder.rename(folder.with_name(f"{KEPT}-r0-0123"))
        names = [path.name for path in folder.parent.glob("ours-*")]
        records.write_index(two_runs[1], "frontier", names)
    with pytest.raises(UserError, match=rf"a/.* and {folder} measured the same cell: delete one"):
        packing.pack(two_runs, tmp_path / packing.ARCHIVE)
    with pytest.raises(UserError, match=r"no records under .*absent"):
        packing.pack([two_runs[0], tmp_path / "absent"], tmp_path / packing.ARCHIVE)
    assert not (tmp_path / packing.ARCHIVE).exists()


@pytest.mark.parametrize("run", [0, 1])
def test_a_cell_measured_in_one_of_two_runs_is_kept(
    two_runs: list[Path], tmp_path: Path, run: int
) -> None:
    (folder,) = (two_runs[run] / "frontier").glob(f"{KEPT}*-r0-*")
    measured = records.load(folder)
    records.write(folder, replace(measured, status="unavailable", reason="no library", seconds=7.0))
    packing.pack(two_runs, tmp_path / packing.ARCHIVE)
    packing.unpack(tmp_path / packing.ARCHIVE, tmp_path / "joined")
    joined = records.load_experiment(tmp_path / "joined", "frontier")
    assert [r for r in joined if r.cell == measured.cell] == [measured]


@pytest.mark.parametrize("status", ["ok", "unavailable"])
def test_records_of_two_states_of_the_code_are_refused(
    two_runs: list[Path], tmp_path: Path, status: str
) -> None:
    """Nothing was timed where a cell was unavailable, so its code does not matter."""
    (folder,) = (two_runs[1] / "frontier").glob(f"{KEPT}*-r2-*")
    measured = records.load(folder)
    changed = {**measured.environment, "code": "changed"}
    records.write(folder, replace(measured, environment=changed, status=status))
    archive = tmp_path / packing.ARCHIVE
    if status == "unavailable":
        assert packing.pack(two_runs, archive) == 6
        return
    with pytest.raises(UserError, match=rf"a/.* and {folder} timed different code \(loading\)"):
        packing.pack(two_runs, archive)
    assert not archive.exists()


@pytest.mark.parametrize("damage", ["absent", "truncated", "not an archive"])
def test_unpack_refuses_damage(tmp_path: Path, damage: str) -> None:
    archive = tmp_path / packing.ARCHIVE
    if damage != "absent":
        intact = (FIXTURES / packing.ARCHIVE).read_bytes()
        archive.write_bytes(intact[: len(intact) // 2] if damage == "truncated" else b"text")
    with pytest.raises(UserError, match="no archive" if damage == "absent" else "is damaged"):
        packing.unpack(archive, tmp_path / "runs")


@pytest.mark.parametrize("name", ["../outside", "/tmp/outside", "a/../../outside", "link"])
def test_unpack_refuses_unsafe_paths(tmp_path: Path, name: str) -> None:
    archive = tmp_path / packing.ARCHIVE
    with tarfile.open(archive, "w:xz") as packed:
        member = tarfile.TarInfo(name)
        if name == "link":
            member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
        packed.addfile(member, io.BytesIO())
    with pytest.raises(UserError, match="is not a plain file"):
        packing.unpack(archive, tmp_path / "runs")
    assert {path.name for path in tmp_path.iterdir()} <= {packing.ARCHIVE, "runs"}
