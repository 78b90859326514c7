"""One directory a cell: keys that know every setting, records that are whole or refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import ROOT
from wallclock import records
from wallclock.errors import UserError
from wallclock.records import Record
from wallclock.spec import Cell, ModelSpec, Recipe, Slice

CELL = Cell(
    "serial",
    "serial",
    "pil-small_256",
    1,
    Recipe("pil"),
    Slice("synthetic", "small_256", 4, "0" * 64, "/somewhere/small_256.csv"),
    ModelSpec("null", "none"),
    {"page_cache": "warm", "max_failures": 10},
)
IDENTITY = {"machine": {"cpu": "a"}, "versions": {"pillow": "13"}, "code": "c0de"}
RECORD = Record(
    CELL,
    samples={"wall": [12_345], "decode": [1, 2, 3]},
    values={"n_embedded": 3},
    failures=[{"id": "ü.jpg", "stage": "decode", "reason": "damaged"}],
    environment={**IDENTITY, "command": "python code/main.py"},
    seconds=1.5,
)


def other(value: Any) -> st.SearchStrategy[Any]:
    """A value of the same kind that is another one."""
    kinds: dict[type, st.SearchStrategy[Any]] = {
        bool: st.booleans(),
        int: st.integers(0, 10**6),
        float: st.floats(0, 1e6),
        str: st.text(max_size=20),
        tuple: st.tuples(*[st.floats(0, 1)] * 3),
    }
    return kinds[type(value)].filter(lambda found: found != value)


@st.composite
def changes(draw: st.DrawFn) -> Cell:
    """CELL with one field of it, of its recipe, its corpus, its model or its parameters changed."""
    part = draw(st.sampled_from(["cell", "recipe", "corpus", "model", "params"]))
    if part == "params":
        name = draw(st.sampled_from(sorted(CELL.params)) | st.text(min_size=1, max_size=8))
        value = draw(other(CELL.params[name]) if name in CELL.params else st.integers())
        return replace(CELL, params={**CELL.params, name: value})
    if part == "cell":
        name = draw(st.sampled_from(["experiment", "protocol", "label", "repeat", "corpus"]))
        changed: Any = None if name == "corpus" else draw(other(getattr(CELL, name)))
        return replace(CELL, **{name: changed})
    whole = getattr(CELL, part)
    names = [field.name for field in fields(whole) if (part, field.name) != ("corpus", "manifest")]
    name = draw(st.sampled_from(names))
    return replace(CELL, **{part: replace(whole, **{name: draw(other(getattr(whole, name)))})})


@given(changes())
def test_any_changed_setting_is_another_key(changed: Cell) -> None:
    assert records.key_of(changed, IDENTITY) != records.key_of(CELL, IDENTITY)


@pytest.mark.parametrize("part", sorted(IDENTITY))
def test_another_machine_library_or_code_is_another_key(part: str) -> None:
    assert records.key_of(CELL, {**IDENTITY, part: "other"}) != records.key_of(CELL, IDENTITY)


def test_where_the_manifest_lies_is_no_part_of_the_key() -> None:
    assert CELL.corpus is not None
    moved = replace(CELL, corpus=replace(CELL.corpus, manifest="/elsewhere.csv"))
    assert records.key_of(moved, IDENTITY) == records.key_of(CELL, IDENTITY)


@given(st.text(min_size=1, max_size=60), st.integers(0, 99))
def test_a_key_is_a_plain_name(label: str, repeat: int) -> None:
    key = records.key_of(replace(CELL, label=label, repeat=repeat), IDENTITY)
    assert "/" not in key
    assert key.isascii()
    assert f"-r{repeat}-" in key


@given(changes())
def test_a_cell_survives_json(cell: Cell) -> None:
    plain = json.loads(json.dumps(cell.to_json()))
    assert Cell.from_json(plain) == cell


def test_a_record_reads_back_and_the_files_beside_it_move_in(tmp_path: Path) -> None:
    vectors = tmp_path / "vectors.npy"
    vectors.write_bytes(b"v")
    target = tmp_path / "runs" / "serial" / "key"
    records.write(target, RECORD, [vectors])
    found = records.load(target)
    assert found.cell.identity() == CELL.identity()
    assert replace(found, cell=CELL) == RECORD
    assert (target / "vectors.npy").read_bytes() == b"v"
    assert not vectors.exists()
    assert found.ok
    assert found.seconds_in("decode") == 6e-9
    assert found.seconds_in("never ran") == 0


def test_the_same_record_is_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        records.write(tmp_path / name, RECORD)
    for file in sorted(path.name for path in (tmp_path / "a").iterdir()):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


@pytest.mark.parametrize("name", ["record.json", "samples.json", "COMPLETE"])
@pytest.mark.parametrize("how", ["one byte", "emptied", "not text"])
def test_an_edited_record_is_refused_and_never_reused(tmp_path: Path, name: str, how: str) -> None:
    target = tmp_path / "key"
    records.write(target, RECORD)
    path = target / name
    data = path.read_bytes()
    path.write_bytes(
        {"one byte": data[:-2] + b"0" + data[-1:], "emptied": b"", "not text": b"\xff\xfe"}[how]
    )
    assert records.reusable(target) is None
    with pytest.raises(UserError, match="changed after it was written"):
        records.load(target)


@pytest.mark.parametrize("name", ["record.json", "samples.json", "COMPLETE"])
def test_an_incomplete_record_is_refused_and_never_reused(tmp_path: Path, name: str) -> None:
    target = tmp_path / "key"
    records.write(target, RECORD)
    (target / name).unlink()
    assert records.reusable(target) is None
    with pytest.raises(UserError, match="no complete record"):
        records.load(target)


@pytest.mark.parametrize(
    ("status", "kept"),
    [("ok", True), ("unavailable", True), ("oom", True), ("error", False), ("anything", False)],
)
def test_only_a_final_outcome_is_reused(tmp_path: Path, status: str, kept: bool) -> None:
    target = tmp_path / "key"
    records.write(target, replace(RECORD, status=status, reason="why"))
    found = records.reusable(target)
    assert (found is not None) is kept
    if found is not None:
        assert (found.status, found.reason) == (status, "why")


def test_a_rewritten_record_replaces_the_old_one(tmp_path: Path) -> None:
    target = tmp_path / "key"
    records.write(target, replace(RECORD, status="error", reason="crashed"))
    records.write(target, RECORD)
    assert records.load(target).status == "ok"
    assert [path.name for path in tmp_path.iterdir()] == ["key"]


KILLED = """
import os, pathlib, signal, sys
from tests.test_records import RECORD
from wallclock import records
written = 0
def die_after(function):
    def call(*arguments):
        global written
        written += 1
        if written > int(sys.argv[2]):
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments)
    return call
records.write_text = die_after(records.write_text)
pathlib.Path.rename = die_after(pathlib.Path.rename)
records.write(pathlib.Path(sys.argv[1]), RECORD)
"""


@pytest.mark.parametrize("writes", [0, 1, 2, 3])
def test_killed_at_any_moment_there_is_no_half_record(tmp_path: Path, writes: int) -> None:
    target = tmp_path / "runs" / "serial" / "key"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "code")])}
    done = subprocess.run(
        [sys.executable, "-c", KILLED, target, str(writes)], env=environment, check=False
    )
    assert done.returncode == -9
    assert records.reusable(target) is None
    records.write_index(tmp_path / "runs", "serial", ["key"])
    assert records.load_experiment(tmp_path / "runs", "serial") == []
    records.write(target, RECORD)  # what was left over is in nobody's way
    assert records.reusable(target) is not None
    assert [found.status for found in records.load_experiment(tmp_path / "runs", "serial")] == [
        "ok"
    ]
    assert sorted(path.name for path in target.parent.iterdir()) == ["index.json", "key"]


def test_the_index_says_which_records_count_and_in_which_order(tmp_path: Path) -> None:
    for key, repeat in (("a", 0), ("b", 1), ("old", 2)):
        records.write(tmp_path / "serial" / key, replace(RECORD, cell=replace(CELL, repeat=repeat)))
    records.write_index(tmp_path, "serial", ["b", "never measured", "a"])
    assert [found.cell.repeat for found in records.load_experiment(tmp_path, "serial")] == [1, 0]
    assert records.load_experiment(tmp_path, "decoders") == []


def test_durations_come_from_what_was_measured(tmp_path: Path) -> None:
    records.write(tmp_path / "serial" / "a", RECORD)
    records.write(tmp_path / "serial" / "crashed", replace(RECORD, status="error", seconds=0.0))
    (tmp_path / "serial" / "junk").mkdir()
    (tmp_path / "serial" / "junk" / "record.json").write_text("{", encoding="utf-8")
    assert [seconds for _, seconds in records.durations(tmp_path)] == [1.5]


def test_a_cell_without_a_corpus_has_no_images() -> None:
    assert CELL.images == CELL.corpus
    with pytest.raises(ValueError, match="has no corpus"):
        _ = replace(CELL, corpus=None).images
