"""`python -m paper.cores`: the committed predictions follow from the records that they name."""

import json
from pathlib import Path

import pytest

from experiments import _core_predictions
from harness import records
from paper import cores
from paper.csvfile import read_columns, read_table
from tests.conftest import ROOT
from tests.experiments import made
from wallclock.files import sha256_file


def test_predictions_name_records_that_are_here_and_make_them() -> None:
    """Until a reference is measured again: what was predicted before stays as it was."""
    meta = json.loads(_core_predictions.PATH.with_suffix(".meta.json").read_text(encoding="utf-8"))
    assert meta["command"].startswith("python -m paper.cores")
    assert len(meta["date"]) == len("2026-01-01")
    archives = [(ROOT / source["records"], source["sha256"]) for source in meta["from"]]
    assert all(source["commits"] and source["measured"] for source in meta["from"])
    if any(not path.is_file() or sha256_file(path) != digest for path, digest in archives):
        pytest.skip("a reference was measured again since")
    assert not cores.differs(list(dict.fromkeys(path.parent for path, _ in archives)))


def test_the_command_writes_the_table_and_what_it_is_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "predictions" / "cores.csv"
    monkeypatch.setattr(_core_predictions, "PATH", path)
    assert cores.main([]) == 1
    assert "these records make another table" in capsys.readouterr().err
    assert cores.main(["--write"]) == 0
    assert "on 16 cores" in capsys.readouterr().out
    assert read_columns(path) == [*_core_predictions.COLUMNS]
    assert {row["origin"] for row in read_table(path)} == {"predicted"}
    meta = json.loads(path.with_suffix(".meta.json").read_text(encoding="utf-8"))
    assert meta["command"] == "python -m paper.cores --write"
    assert [source["experiment"] for source in meta["from"]] == ["frontier", "predict", "scaling"]
    assert cores.main([]) == 0


def test_a_reference_without_a_frontier(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cores.main(["--from", str(tmp_path)]) == 1
    assert f"no archive of records at {tmp_path / records.ARCHIVE}" in capsys.readouterr().err
    records.write(
        tmp_path / "runs" / "serial" / "key", made.record("serial", "serial", "pil", {}, {})
    )
    records.write_index(tmp_path / "runs", "serial", ["key"])
    records.pack([tmp_path / "runs"], tmp_path / records.ARCHIVE)
    assert cores.main(["--from", str(tmp_path)]) == 1
    assert "no records of frontier" in capsys.readouterr().err
