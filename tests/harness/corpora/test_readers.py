"""Reading a file: its bytes, or the reason."""

import os
from pathlib import Path

import pytest

from harness.corpora import readers
from harness.corpora.manifest import Item, Manifest
from wallclock.errors import ImageError

GONE, CHANGED = "No such file or directory", "changed since it was listed"


def test_bytes_or_the_reason(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("nowhere")
    files = {"a": b"\0data", "empty": b"", "short": b"four", "long": b"longer than five"}
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    reader = readers.make(Manifest("folder", "original", tmp_path, ()))
    assert reader(Item("a", "a", 5)) == files["a"]
    reasons = {"gone": GONE, "link": GONE, ".": "Is a directory"}
    for name, reason in (reasons | dict.fromkeys(["empty", "short", "long"], CHANGED)).items():
        with pytest.raises(ImageError, match=f"^read: .*{reason}"):
            reader(Item(name, name, 5))


def test_a_cold_file_leaves_the_page_cache_after_each_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dropped: list[bytes] = []
    monkeypatch.setattr(
        os, "posix_fadvise", lambda fd, *how: dropped.append(os.pread(fd, 9, 0) + bytes(how))
    )
    (tmp_path / "a").write_bytes(b"data")
    for cold, expected in ((False, []), (True, [b"data" + bytes((0, 0, 4))])):
        manifest = Manifest("folder", "original", tmp_path, (), cold)
        assert readers.make(manifest)(Item("a", "a", 4)) == b"data"
        assert dropped == expected
