"""Canonical JSON, digests, and writes that are whole or absent."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import ROOT
from wallclock.files import (
    atomic_open,
    canonical_json,
    digest_of,
    pretty_json,
    sha256_file,
    write_bytes,
    write_text,
)

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
def test_both_forms_read_back(value: Any) -> None:
    assert json.loads(canonical_json(value)) == value
    assert json.loads(pretty_json(value)) == value
    assert pretty_json(value).endswith("\n")


@given(st.dictionaries(st.text(), st.integers(), min_size=2, max_size=8), st.randoms())
def test_equal_mappings_give_equal_bytes_in_whatever_order(value: dict[str, int], rng: Any) -> None:
    items = list(value.items())
    rng.shuffle(items)
    assert canonical_json(dict(items)) == canonical_json(value)
    assert digest_of(dict(items)) == digest_of(value)


def test_what_json_cannot_say_is_refused() -> None:
    for value in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match="JSON compliant"):
            canonical_json(value)
        with pytest.raises(ValueError, match="JSON compliant"):
            pretty_json(value)


def test_a_known_digest() -> None:
    assert digest_of({"b": 1, "a": "ü"}) == hashlib.sha256('{"a":"ü","b":1}'.encode()).hexdigest()


@given(st.binary(max_size=5000))
def test_bytes_are_written_and_digested_as_they_are(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "deep" / "er" / "file"
        write_bytes(target, data)
        assert target.read_bytes() == data
        assert sha256_file(target) == hashlib.sha256(data).hexdigest()
        assert [path.name for path in target.parent.iterdir()] == ["file"]


def test_text_is_utf8_with_lf_and_readable_by_others(tmp_path: Path) -> None:
    write_text(tmp_path / "a", "ü\nx\n")
    assert (tmp_path / "a").read_bytes() == b"\xc3\xbc\nx\n"
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt, OSError])
def test_a_failed_write_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, error: type[BaseException]
) -> None:
    target = tmp_path / "table.csv"
    write_text(target, "old")
    with pytest.raises(error), atomic_open(target) as handle:  # noqa: PT012 - the block is what fails half way
        handle.write("half of the n")
        handle.flush()
        raise error
    assert target.read_text(encoding="utf-8") == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_killed_in_the_middle_of_a_write_the_old_file_is_whole(tmp_path: Path) -> None:
    target = tmp_path / "table.csv"
    write_text(target, "old")
    program = (
        "import os, signal, sys; from pathlib import Path; from wallclock.files import atomic_open\n"
        "with atomic_open(Path(sys.argv[1])) as handle:\n"
        "    handle.write('new' * 100_000); handle.flush(); os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(target)], cwd=ROOT / "code", check=False
    )
    assert done.returncode == -9
    assert target.read_text(encoding="utf-8") == "old"
    write_text(target, "new")
    assert target.read_text(encoding="utf-8") == "new"
