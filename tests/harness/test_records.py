"""Records: keys that identify every setting; complete or refused."""

import json
from collections.abc import Iterator
from dataclasses import asdict, fields, make_dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness import records
from harness.records import Record
from harness.spec import Cell, Recipe, Slice
from wallclock import files
from wallclock.errors import UserError
from wallclock.recipe import ModelSpec

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
    environment=IDENTITY | {"command": "python code/main.py"},
    seconds=1.5,
)
FILES = ["record.json", "samples.json", "COMPLETE"]
#: A cell of the fixture run with three repeats.
KEPT = "ours-allocator-keep-synthetic-original-all"


def changed() -> Iterator[Cell]:
    """CELL with one field of it, its recipe, corpus, model or parameters changed."""
    others: dict[type, Any] = {int: 7, float: 0.5, str: "other", tuple: (0.1, 0.2, 0.3)}
    for part in ("recipe", "corpus", "model"):
        owner = getattr(CELL, part)
        for name in {field.name for field in fields(owner)} - {"manifest"}:
            value = getattr(owner, name)
            value = not value if isinstance(value, bool) else others[type(value)]
            yield replace(CELL, **{part: replace(owner, **{name: value})})
    for name in ("experiment", "protocol", "label", "repeat"):
        yield replace(CELL, **{name: others[type(getattr(CELL, name))]})
    for name in ("page_cache", "new"):
        yield replace(CELL, params=dict(CELL.params) | {name: "other"})
    yield replace(CELL, corpus=None)


# --- keys ---------------------------------------------------------------------------------------


def test_changed_setting_changes_key() -> None:
    keys = [records.key_of(cell, IDENTITY) for cell in (CELL, *changed())]
    assert len({*keys}) == len(keys) > 30


@pytest.mark.parametrize("part", sorted(IDENTITY))
def test_changed_identity_changes_key(part: str) -> None:
    assert records.key_of(CELL, IDENTITY | {part: "other"}) != records.key_of(CELL, IDENTITY)


def test_a_field_that_is_added_and_not_used_leaves_the_key() -> None:
    """Of a recipe as of a model: an older record without it is still the cell's."""
    for part in ("recipe", "model"):
        owner = getattr(CELL, part)
        wider = make_dataclass("Wider", [("added", float, 0.25)], bases=(type(owner),), frozen=True)
        values = {item.name: getattr(owner, item.name) for item in fields(owner)}
        cells = [replace(CELL, **{part: wider(**values, added=added)}) for added in (0.25, 0.5)]
        same, other = (records.key_of(cell, IDENTITY) for cell in cells)
        assert same == records.key_of(CELL, IDENTITY) != other


def test_a_record_under_another_default_is_not_reused(tmp_path: Path) -> None:
    """Its key is the same: neither value was in it."""
    records.write(tmp_path / "key", RECORD)
    path = tmp_path / "key" / "record.json"
    path.write_text(path.read_text("utf-8").replace('"batch_size": 32', '"batch_size": 2'), "utf-8")
    (tmp_path / "key" / "COMPLETE").write_text(records._seal(tmp_path / "key"))
    assert records.load(tmp_path / "key").cell.recipe.batch_size == 2
    assert not records.is_reusable(tmp_path / "key", CELL)
    older = replace(CELL, recipe=replace(CELL.recipe, batch_size=2))
    assert records.is_reusable(tmp_path / "key", older)


@given(st.text(min_size=1, max_size=60), st.integers(0, 99))
def test_key_is_a_file_name(label: str, repeat: int) -> None:
    key = records.key_of(replace(CELL, label=label, repeat=repeat), IDENTITY)
    assert "/" not in key
    assert key.isascii()
    assert f"-r{repeat}-" in key


def test_cell_json_round_trip() -> None:
    for cell in changed():
        assert Cell.from_json(json.loads(json.dumps(asdict(cell)))) == cell


# --- one record ---------------------------------------------------------------------------------


def test_round_trip_with_extra_file(tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    trace.write_bytes(b"{}")
    target = tmp_path / "runs" / "serial" / "key"
    records.write(target, RECORD, [trace])
    loaded = records.load(target)
    assert loaded.cell.identity() == CELL.identity()
    assert replace(loaded, cell=CELL) == RECORD
    assert (target / "trace.json").read_bytes() == b"{}"
    assert not trace.exists()
    assert loaded.ok
    assert loaded.seconds_in("decode") == 6e-9
    assert loaded.seconds_in("never ran") == 0


def test_equal_records_give_equal_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        records.write(tmp_path / name, RECORD)
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("edit", ["one byte", "emptied", "not text", "removed"])
def test_edited_record_is_refused(tmp_path: Path, name: str, edit: str) -> None:
    records.write(tmp_path / "key", RECORD)
    path = tmp_path / "key" / name
    data = path.read_bytes()
    path.unlink()
    edits = {"one byte": data[:-2] + b"0" + data[-1:], "emptied": b"", "not text": b"\xff\xfe"}
    if edit in edits:
        path.write_bytes(edits[edit])
    assert not records.is_reusable(tmp_path / "key", CELL)
    words = "changed after it was written" if edit in edits else "no complete record"
    with pytest.raises(UserError, match=words):
        records.load(tmp_path / "key")


@pytest.mark.parametrize("status", ["ok", "unavailable", "oom", "error"])
def test_what_was_measured_is_reused(tmp_path: Path, status: str) -> None:
    records.write(tmp_path / "key", replace(RECORD, status=status, reason="why"))
    assert records.is_reusable(tmp_path / "key", CELL) == (status == "ok")


class Killed(BaseException):
    """Nothing in `records.write` handles it: it ends there as at a kill."""


@pytest.mark.parametrize("writes", [0, 1, 2, 3])
def test_killed_write_leaves_no_record(
    tmp_path: Path, writes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, remaining = tmp_path / "runs" / "serial" / "key", iter(range(writes))

    def limited(function: Any) -> Any:
        def call(*arguments: Any) -> Any:
            if next(remaining, None) is None:
                raise Killed
            return function(*arguments)

        return call

    monkeypatch.setattr(records, "write_text", limited(files.write_text))
    monkeypatch.setattr(Path, "rename", limited(Path.rename))
    with pytest.raises(Killed):
        records.write(target, RECORD)
    monkeypatch.undo()
    assert not records.is_reusable(target, CELL)
    records.write_index(tmp_path / "runs", "serial", ["key"])
    assert records.load_experiment(tmp_path / "runs", "serial") == []
    records.write(target, RECORD)  # leftovers of the killed write do not interfere
    assert records.is_reusable(target, CELL)
    assert len(records.load_experiment(tmp_path / "runs", "serial")) == 1
    assert sorted(path.name for path in target.parent.iterdir()) == ["index.json", "key"]


# --- runs ---------------------------------------------------------------------------------------


def write_run(runs: Path) -> None:
    """Records b, a (in this order) and one that the index does not name."""
    for key, repeat in (("a", 0), ("b", 1), ("old", 2)):
        record = replace(RECORD, cell=replace(CELL, repeat=repeat))
        records.write(runs / "serial" / key, record)
    records.write_index(runs, "serial", ["b", "never measured", "a"])


def test_index_selects_and_orders(tmp_path: Path) -> None:
    write_run(tmp_path)
    assert [record.cell.repeat for record in records.load_experiment(tmp_path, "serial")] == [1, 0]
    assert records.load_experiment(tmp_path, "decoders") == []
