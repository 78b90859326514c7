"""Reading a file: its bytes, or the reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from wallclock.corpus.readers import read_file
from wallclock.errors import ImageError


def reason(folder: Path, name: str) -> str:
    with pytest.raises(ImageError) as caught:
        read_file(folder, name, 5)
    assert caught.value.stage == "read"
    return caught.value.reason


def test_bytes_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"\0data")
    assert read_file(tmp_path, "a", 5) == b"\0data"


def test_missing_file_or_folder_has_a_reason(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("nowhere")
    assert reason(tmp_path, "vanished") == "No such file or directory"
    assert reason(tmp_path, "link") == "No such file or directory"
    assert reason(tmp_path, ".") == "Is a directory"


@pytest.mark.parametrize("data", [b"", b"four", b"longer than five"])
def test_changed_length_is_detected(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a").write_bytes(data)
    assert "changed since it was listed" in reason(tmp_path, "a")
