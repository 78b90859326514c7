"""Damaged files of a dataset are found, named, and made again; nothing is silently different."""

import io
import json
import pickle
import random
import shutil
import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from rich.console import Console

from tests import thrift
from tests.changes import EVIL
from tests.mutants import mend
from tests.test_fuzz import takes_less_than
from tests.wallclock.job.conftest import Content, content
from wallclock.__main__ import main
from wallclock.errors import UserError
from wallclock.job.dataset import DamagedPartError
from wallclock.job.verify import verify

Run = Callable[..., Any]
Damage = Callable[[bytes], bytes]
PART = "part-00001.parquet"


def flip(data: bytes, bit: int) -> bytes:
    """The data with one bit changed."""
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def flip_a_vector(data: bytes) -> bytes:
    """Vectors are most of a part: its middle is one of theirs."""
    return flip(data, len(data) * 4)


CUT: dict[str, Damage] = {
    "empty": lambda data: b"",
    "half": lambda data: data[: len(data) // 2],
    "longer": lambda data: data + b"x",
    "another file": lambda data: b"PAR1" + bytes(len(data) - 8) + b"PAR1",
}


def change(path: Path, damage: Damage) -> None:
    path.write_bytes(damage(path.read_bytes()))


def lines_of(run: Run, **settings: Any) -> tuple[str, list[str]]:
    """What a job says, at its end and before it."""
    console = Console(record=True, quiet=False, width=500, file=io.StringIO())
    said = str(run(console=console, **settings))
    return said, console.export_text().splitlines()


@pytest.mark.parametrize("how", CUT)
def test_a_damaged_part_is_made_again(how: str, run: Run, reference: Content, out: Path) -> None:
    before = {path: path.read_bytes() for path in out.rglob("*part-*") if path.is_file()}
    change(out / PART, CUT[how])
    said, lines = lines_of(run)
    assert not said.startswith("complete already")
    (line,) = (line for line in lines if "damaged" in line)
    assert PART in line
    assert {path: path.read_bytes() for path in before} == before
    assert content(out) == reference
    assert lines_of(run)[0].startswith("complete already")


def test_each_file_of_a_part(run: Run, reference: Content, tmp_path: Path) -> None:
    """Each file of a part, cut, and gone."""
    run()
    out = tmp_path / "out"
    files = [path for path in out.rglob("part-00000.*") if path.is_file()]
    before = {path: path.read_bytes() for path in files}
    assert len(files) == 3
    for path in files:
        change(path, CUT["half"])
        assert [path.name in fault for fault in verify(out).faults] == [True]
        run()
        assert verify(out, n=4).faults == ()
        assert {path: path.read_bytes() for path in files} == before
        path.unlink()
        assert verify(out).faults
        assert not lines_of(run)[0].startswith("complete already")
        path.write_bytes(before[path])
    assert content(out) == reference


def test_verify_names_every_damaged_part(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run()
    out = tmp_path / "out"
    change(out / "part-00000.parquet", flip_a_vector)
    change(out / "_failures" / "part-00002.jsonl", flip_a_vector)
    assert main(["verify", str(out)]) == 1
    (line,) = capsys.readouterr().out.splitlines()
    for name in ("part-00000.parquet", "_failures/part-00002.jsonl"):
        assert f"{out}/{name} is damaged: its sha256 is not the recorded one" in line
    assert "remove part-00002.parquet, and run the job of" in line


def test_the_error_can_be_pickled() -> None:
    """It goes from an actor of a cluster to the driver."""
    error = DamagedPartError("out", PART, PART, "it is empty")
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.row_file) == (str(error), PART)


def test_pages_have_checksums(out: Path) -> None:
    """Any reader of Parquet that asks for them sees a changed page."""
    path = out / PART
    change(path, flip_a_vector)
    pq.read_table(path)
    with pytest.raises(OSError, match="CRC checksum verification failed"):
        pq.read_table(path, page_checksum_verification=True)


DESCRIPTIONS = {
    "nested": b"[" * 70_000,
    "binary": bytes(range(256)),
    "empty": b"",
    "a list": b"[]",
    "without identity": b'{"format": 1}',
    "another format": b'{"format": 99}',
    "identity is a list": b'{"format": 1, "identity": []}',
}


@pytest.mark.parametrize("how", DESCRIPTIONS)
def test_a_damaged_description_is_one_line(how: str, run: Run, out: Path) -> None:
    (out / "_dataset.json").write_bytes(DESCRIPTIONS[how])
    starts: list[Callable[[], object]] = [run, lambda: verify(out)]
    for start in starts:
        with pytest.raises(UserError, match=r"out/_dataset\.json (cannot be read|has format 99)"):
            start()


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        (("settings", "limit"), 0, "settings.limit=0: give a whole number"),
        (("earlier_versions",), [1], "earlier_versions=1: "),
        (("identity", "shard"), 0, "identity.shard=0: give a whole number"),
        (("identity", "model"), [], "identity.model=[]"),
        (("identity",), None, "it has no identity"),
        (("settings",), EVIL, "settings=x\\x1b]0;owned\\x07\\nFAKE"),
        (("identity", "recipe", "preprocess"), ["squash"], "preprocess=['squash']: give a text"),
        (("source",), "\ud800", "surrogates not allowed"),
        (("source",), {"a": 1}, "source={'a': 1}: give a text"),
        (("complete",), 1, "complete=1: give true or false"),
        (("ran",), float("nan"), "not JSON compliant: nan"),
        (("counts", "parts"), -1, "counts.parts=-1: give a whole number"),
        (("counts",), {}, "it has no vectors"),
        (("identity", "recipe", "dtype"), EVIL, "recipe.dtype was x\\x1b]0;owned\\x07\\nFAKE"),
        (("identity", "model", "name"), [EVIL] * 9, "model.name was ['x\\x1b]0;owned"),
    ],
)
def test_a_field_of_another_kind_is_one_line(
    place: tuple[str, ...], value: Any, words: str, run: Run, out: Path
) -> None:
    path = out / "_dataset.json"
    about = inside = json.loads(path.read_bytes())
    for name in place[:-1]:
        inside = inside[name]
    inside[place[-1]] = value
    path.write_text(json.dumps(about))
    with pytest.raises(UserError) as caught:
        run()
    line = str(caught.value).replace(str(out.parent), "")
    assert words in line


@pytest.mark.parametrize("name", ["part-x.parquet", "part-1.parquet", "part-00000\x1b.parquet"])
def test_a_table_that_is_no_part(name: str, run: Run, out: Path) -> None:
    """Who reads the folder as one table would read it, too."""
    shutil.copy(out / PART, out / name)
    for start in (run, lambda: verify(out)):
        with pytest.raises(UserError, match="is not part of its job; move it away"):
            start()


def test_rows_that_a_footer_claims(run: Run, out: Path) -> None:
    """A checksum finds no one who wrote it, too; Arrow would take memory for so many rows."""
    path = out / "part-00000.parquet"
    data = path.read_bytes()
    start = len(data) - 8 - struct.unpack("<I", data[-8:-4])[0]
    footer = thrift.parse(data, start)[0]
    thrift.set_field(thrift.field(footer, 4).items[0], 3, 1 << 31)
    said = thrift.dump(footer)
    path.write_bytes(data[:start] + said + struct.pack("<I", len(said)) + b"PAR1")
    mend(out, path.name)
    (out / PART).unlink()
    with takes_less_than(1e8), suppress(UserError):
        run()


@pytest.fixture
def whole(run: Run, tmp_path: Path) -> Path:
    run()
    return tmp_path / "out"


def bits(out: Path, n: int) -> list[tuple[Path, int]]:
    """Bits of files of parts, half of them of the row files."""
    rng = random.Random(n)
    rows = sorted(out.glob("part-*.parquet"))
    others = sorted(path for path in out.glob("_*/part-*"))
    paths = [rng.choice(rows if at % 2 else others) for at in range(n)]
    sizes = [path.stat().st_size for path in paths]
    # Of a row file every second bit is one of its last bytes: page headers and the footer.
    tails = [min(size, 3000) if at % 4 == 1 else size for at, size in enumerate(sizes)]
    return [
        (path, 8 * size - 1 - rng.randrange(8 * tail))
        for path, size, tail in zip(paths, sizes, tails, strict=True)
    ]


@pytest.mark.parametrize("n", [40, pytest.param(400, marks=pytest.mark.slow)])
def test_verify_finds_every_changed_bit(n: int, whole: Path) -> None:
    for path, bit in bits(whole, n):
        data = path.read_bytes()
        path.write_bytes(flip(data, bit))
        (fault,) = verify(whole).faults
        assert path.stem in fault
        path.write_bytes(data)
    assert verify(whole, n=4).faults == ()
