"""One archive of a run, or of several together: the same bytes again, or refused."""

import io
import shutil
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from experiments import frontier
from harness import records
from paper import packing
from tests.fixture_run import FIXTURES, fixture_runs
from tests.harness.test_records import KEPT, write_run
from wallclock.errors import UserError


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
