"""Canonical JSON, digests, and atomic writes."""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.digests import canonical_json, digest_of
from tests.conftest import ROOT
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


@given(st.dictionaries(st.text(), st.integers(), min_size=2, max_size=8), st.randoms())
def test_order_of_keys_does_not_matter(value: dict[str, int], rng: Any) -> None:
    items = list(value.items())
    rng.shuffle(items)
    assert canonical_json(dict(items)) == canonical_json(value)
    assert digest_of(dict(items)) == digest_of(value)


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


def test_text_is_utf8_with_lf(tmp_path: Path) -> None:
    write_text(tmp_path / "a", "ü\nx\n")
    assert (tmp_path / "a").read_bytes() == b"\xc3\xbc\nx\n"


@pytest.mark.parametrize("umask", [0o077, 0o022, 0o002])
def test_the_mode_is_the_umasks(umask: int, tmp_path: Path) -> None:
    before = os.umask(umask)
    try:
        write_text(tmp_path / "a", "x")
    finally:
        os.umask(before)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o666 & ~umask


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


def test_a_limit_of_a_files_size_is_one_line(tmp_path: Path) -> None:
    """Python ignores the signal, and the write fails."""
    program = (
        "import resource, sys\nfrom pathlib import Path\n"
        "from wallclock.errors import UserError\nfrom wallclock.files import write_text\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 10, 1 << 10))\n"
        "try:\n    write_text(Path(sys.argv[1]), 'new' * 1000)\n"
        "except UserError as error:\n    sys.exit(str(error))\n"
    )
    target = tmp_path / "a"
    write_text(target, "old")
    done = subprocess.run(
        [sys.executable, "-c", program, str(target)],
        cwd=ROOT / "code",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr.startswith(f"a file reached its size limit while writing {target}; ")
    assert target.read_text(encoding="utf-8") == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_killed_write_leaves_the_old_file(tmp_path: Path) -> None:
    target = tmp_path / "table.csv"
    write_text(target, "old")
    program = (
        "import os, signal, sys\nfrom pathlib import Path\n"
        "from wallclock.files import atomic_open\n"
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
