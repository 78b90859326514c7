"""The journal: complete lines are read back, wherever the file was cut."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from wallclock.corpus.abo.local import open_journal, read_journal
from wallclock.corpus.manifest import Item
from wallclock.errors import ImageError

ITEM = Item("id", "aa/x.jpg", 10, 4, 3, "0" * 64, "jpeg", "baseline", 3, 123, "", "", "etag")
ITEMS = [replace(ITEM, path=f"aa/{number}.jpg", bytes=number) for number in range(6)]
FAILED = replace(ITEM, path="aa/f.jpg").with_failure(ImageError("read", '404 "x", — and more'))


def test_appended_lines_read_back(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    assert read_journal(path) == {}
    with open_journal(path) as append:
        append(ITEMS[:3])
        append([])
        append([FAILED])
    with open_journal(path) as append:
        append(ITEMS[3:])
    assert list(read_journal(path).values()) == [*ITEMS[:3], FAILED, *ITEMS[3:]]


def test_last_line_of_an_image_counts(tmp_path: Path) -> None:
    with open_journal(tmp_path / "journal") as append:
        append([replace(ITEM, sha256="1" * 64), ITEM])
    assert read_journal(tmp_path / "journal") == {ITEM.path: ITEM}


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 900), st.integers(0, 255), st.booleans())
def test_torn_or_damaged_line_is_ignored(cut: int, byte: int, resumed: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal"
        with open_journal(path) as append:
            append(ITEMS[:4])
        data = path.read_bytes()
        cut = min(cut, len(data) - 1)
        complete = data[:cut].count(b"\n")
        path.write_bytes(data[:cut] + (b"" if data[cut] == byte else bytes([byte])))
        if resumed:
            with open_journal(path) as append:
                append(ITEMS[4:])
        items = list(read_journal(path).values())
        assert items[:complete] == ITEMS[:complete]
        assert set(items) <= set(ITEMS)
        assert items[-2:] == ITEMS[4:] or not resumed
