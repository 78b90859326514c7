"""The journal: what was written whole is read back, wherever it was cut."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from wallclock.corpus.abo import journal
from wallclock.corpus.manifest import Item

ITEM = Item("id", "aa/x.jpg", 10, 4, 3, "0" * 64, "jpeg", "baseline", 3, 123, "", "", "etag")
ITEMS = [replace(ITEM, path=f"aa/{number}.jpg", bytes=number) for number in range(6)]
FAILED = replace(
    ITEM,
    path="aa/f.jpg",
    failed_stage="read",
    failed_reason='404 "quoted", with a comma — and more',
)


def test_what_was_appended_reads_back(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    with journal.Journal(path) as book:
        book.append(ITEMS[:3])
        book.append([])
        book.append([FAILED])
    with journal.Journal(path) as book:
        book.append(ITEMS[3:])
    assert list(journal.read(path).values()) == [*ITEMS[:3], FAILED, *ITEMS[3:]]
    journal.remove(path)
    assert journal.read(path) == {}
    journal.remove(path)


def test_the_last_line_of_an_image_counts(tmp_path: Path) -> None:
    with journal.Journal(tmp_path / "journal") as book:
        book.append([replace(ITEM, sha256="1" * 64), ITEM])
    assert journal.read(tmp_path / "journal") == {ITEM.path: ITEM}


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 900), st.integers(0, 255), st.booleans())
def test_a_torn_or_damaged_line_is_as_if_it_were_not_there(
    cut: int, byte: int, goes_on: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal"
        with journal.Journal(path) as book:
            book.append(ITEMS[:4])
        data = path.read_bytes()
        cut = min(cut, len(data) - 1)
        whole = data[:cut].count(b"\n")
        path.write_bytes(data[:cut] + (b"" if data[cut] == byte else bytes([byte])))
        if goes_on:
            with journal.Journal(path) as book:
                book.append(ITEMS[4:])
        found = list(journal.read(path).values())
        assert found[:whole] == ITEMS[:whole]
        assert set(found) <= set(ITEMS)
        assert found[-2:] == ITEMS[4:] or not goes_on
