"""Canonical JSON, digests, and atomic writes."""

import hashlib
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.digests import canonical_json, digest_of
from wallclock.files import atomic_open, pretty_json, sha256_file, write_bytes, write_text

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(JSON)
def test_json_reads_back(value: Any) -> None:
    assert json.loads(canonical_json(value)) == value
    assert json.loads(pretty_json(value)) == value
    assert pretty_json(value).endswith("\n")


def test_nan_and_infinity_are_refused() -> None:
    for value in (float("nan"), float("inf")):
        for write in (canonical_json, pretty_json):
            with pytest.raises(ValueError, match="JSON compliant"):
                write(value)


def test_a_known_digest() -> None:
    assert digest_of({"b": 1, "a": "ü"}) == hashlib.sha256('{"a":"ü","b":1}'.encode()).hexdigest()


@settings(max_examples=20)
@given(st.binary(max_size=5000))
def test_write_bytes_and_digest(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "deep" / "er" / "file"
        write_bytes(target, data)
        assert target.read_bytes() == data
        assert sha256_file(target) == hashlib.sha256(data).hexdigest()
        assert [path.name for path in target.parent.iterdir()] == ["file"]


def test_a_link_is_replaced(tmp_path: Path) -> None:
    write_text(tmp_path / "other", "old")
    (tmp_path / "a").symlink_to("other")
    write_text(tmp_path / "a", "new")
    assert (tmp_path / "other").read_text() == "old"
    assert not (tmp_path / "a").is_symlink()


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt, OSError])
def test_failed_write_leaves_the_old_file(tmp_path: Path, error: type[BaseException]) -> None:
    target = tmp_path / "table.csv"
    write_text(target, "old")
    with pytest.raises(error), atomic_open(target) as handle:  # noqa: PT012 - the block itself must fail
        handle.write("half of the n")
        handle.flush()
        raise error
    assert target.read_text(encoding="utf-8") == "old"
    assert list(tmp_path.iterdir()) == [target]
