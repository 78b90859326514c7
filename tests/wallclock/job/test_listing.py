"""What a job can be given: folders, lists, buckets, URLs."""

import gzip
import os
import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from moto.server import ThreadedMotoServer

from tests.harness.corpora.abo.conftest import fill
from tests.harness.corpora.abo.faulty_store import FaultyStore
from tests.wallclock.job.conftest import QUICK, N, content
from wallclock.__main__ import main
from wallclock.errors import UserError
from wallclock.fetch import folder
from wallclock.job import embed, listing
from wallclock.job.listing import list_items
from wallclock.outside import path_of


def test_folder(images: Path) -> None:
    items = list_items(str(images))
    assert len(items) == N
    assert items.ids.to_pylist() == sorted(items.ids.to_pylist(), key=os.fsencode)
    for source, version in zip(items, items.versions.to_pylist(), strict=True):
        assert source.where == str(images / source.id)
        assert version == f"{os.stat(source.where).st_size}-{os.stat(source.where).st_mtime_ns}"
    assert items.digest() == list_items(str(images)).digest() != items_of(images, 5)


def items_of(folder: Path, limit: int) -> str:
    return list_items(str(folder), limit).digest()


def test_a_name_that_looks_escaped(tmp_path: Path) -> None:
    names = (b"\xff.jpg", b"\\xff.jpg", b"\\x5cxff.jpg", b"\\x41.jpg")
    for name in names:
        with open(os.fsencode(tmp_path) + b"/" + name, "wb") as file:
            file.write(b"x")
    ids = {
        os.path.basename(os.fsencode(str(item.where))): item.id
        for item in list_items(str(tmp_path))
    }
    assert ids == dict(
        zip(names, ("\\xff.jpg", "\\x5cxff.jpg", "\\x5cx5cxff.jpg", "\\x41.jpg"), strict=True)
    )


#: Bytes of which escapes are made.
_BYTES = st.lists(st.sampled_from([b"\\", b"x", b"5c", b"ff", b"\xff", b"a"]), max_size=8)


@given(_BYTES.map(b"".join))
def test_a_path_and_its_text(name: bytes) -> None:
    assert os.fsencode(path_of(folder.id_of(os.fsdecode(name)))) == name


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("id, ID ,path\n,x,y\n", "the columns 'id' and ' ID ' have one name"),
        ("id,path\ra,1\r", "cannot be read as a list: its first line: new-line character"),
        (b"id,path\n1,caf\xe9.jpg", "0xe9 is not UTF-8, perhaps Windows-1252; save it as UTF-8"),
        ("id,path\n1,a".encode("utf-16-le"), "zero bytes, as UTF-16 without a byte-order mark"),
    ],
)
def test_bad_lists_are_one_line(text: str | bytes, reason: str, tmp_path: Path) -> None:
    (tmp_path / "list.csv").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(UserError, match=reason) as caught:
        list_items(str(tmp_path / "list.csv"))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("none.csv", None, "none.csv does not exist; give a folder, a list"),
        ("list.csv", "id,place\na,1\n", "it has ['id', 'place']; call the one of the places path"),
        ("list.csv", "id,path\n", "no image in"),
        ("list.txt", "", "no image in"),
        ("list.csv", "id,path\na,1\na,3\n", "'a' 2 times; give each image an id of its own"),
        ("list.csv", "id,path,vector\na,1,2\n", "has the name of a column of the dataset; rename"),
        ("list.parquet", "PAR1 and nothing else", "cannot be read as a list"),
        ("list.xlsx", "PK", ".xlsx is none of its formats, which are .csv, .tsv, .jsonl"),
        ("list.json", '{"path": {"0": "a.jpg"}}', "the column path has the type struct<0"),
        ("", None, "names no bucket; give s3://bucket/prefix"),
    ],
)
def test_a_mistake_with_a_list_is_one_line_and_status_2(
    name: str,
    text: str | None,
    line: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("signal.signal", lambda *_: None)
    source = str(tmp_path / name) if name else "s3:///key"
    if text is not None:
        Path(source).write_text(text)
    assert main(["embed", source, str(tmp_path / "out"), "model=null", "device=cpu"]) == 2
    printed = capsys.readouterr()
    assert line in printed.err
    assert (printed.out, printed.err.count("\n")) == ("", 1)
    assert not list(tmp_path.glob("out/[!.]*")), "no more than a lock"


#: Columns that are no text; their names in Arrow.
TYPES = {
    "list<element: string>": pa.array([["a.jpg"]]),
    "struct<x: string>": pa.array([{"x": "a.jpg"}]),
    "map<string, string>": pa.array([[("a", "b")]], pa.map_(pa.string(), pa.string())),
    "fixed_size_list<element: float>[2]": pa.array([[1.0, 2.0]], pa.list_(pa.float32(), 2)),
}
#: Columns that are no places, but may be ids.
NOT_PLACES = {
    "timestamp[us]": pa.array([datetime(2026, 1, 2)]),
    "int64": pa.array([7]),
    "bool": pa.array([True]),
    "double": pa.array([1.5]),
}


@pytest.mark.parametrize("kind", [*TYPES, *NOT_PLACES])
def test_columns_of_other_types(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "list.parquet"
    column = {**TYPES, **NOT_PLACES}[kind]
    pq.write_table(pa.table({"id": ["1"], "path": column}), path)
    with pytest.raises(UserError) as caught:
        list_items(str(path))
    named = re.escape(kind.format("path"))
    assert re.fullmatch(rf".*: the column path has the type {named}; give text", str(caught.value))
    pq.write_table(pa.table({"id": column, "path": ["a.jpg"]}), path)
    if kind in NOT_PLACES:
        assert len(list_items(str(path))) == 1
    else:
        with pytest.raises(UserError, match="the column id is not text"):
            list_items(str(path))


@pytest.mark.parametrize(
    "column",
    [
        pa.array([b"a.jpg"]),
        pa.array(["a.jpg"], pa.large_string()),
        pa.array(["a.jpg"]).dictionary_encode(),
    ],
)
def test_other_types_of_text(column: Any, tmp_path: Path) -> None:
    pq.write_table(pa.table({"path": column}), tmp_path / "list.parquet")
    (source,) = list_items(str(tmp_path / "list.parquet"))
    assert (source.id, source.where) == ("a.jpg", str(tmp_path / "a.jpg"))


def test_places_that_are_no_text(tmp_path: Path) -> None:
    pq.write_table(pa.table({"path": pa.array([b"\xff"])}), tmp_path / "list.parquet")
    with pytest.raises(UserError, match="the column path is not text"):
        list_items(str(tmp_path / "list.parquet"))


@pytest.mark.parametrize("what", ["cut", "page"])
def test_a_damaged_list(what: str, tmp_path: Path) -> None:
    path = tmp_path / "list.parquet"
    table = pa.table({"path": [f"{n}.jpg" for n in range(1000)]})
    pq.write_table(table, path, use_dictionary=False, write_page_checksum=True)
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 1
    path.write_bytes(data if what == "page" else data[: len(data) // 2])
    with pytest.raises(UserError, match=r"list.parquet cannot be read as a list: ") as caught:
        list_items(str(path))
    assert "\n" not in str(caught.value)


def test_a_list_is_a_regular_file(tmp_path: Path) -> None:
    """The device has no end; the pipe has no writer."""
    os.mkfifo(tmp_path / "pipe")
    for src in ("/dev/zero", str(tmp_path / "pipe")):
        with pytest.raises(UserError, match=f"{src} is neither a folder nor a regular file"):
            list_items(src)


def test_a_list_behind_a_url(images: Path, tmp_path: Path) -> None:
    """Its relative places are relative to it, and it names no file of this machine."""
    objects = {f"images/{path.name}": path.read_bytes() for path in images.glob("0*.jpg")}
    lines = [key.removeprefix("images/") for key in objects]
    file = str(images / "00.jpg")
    elsewhere = [file, f"FILE://{file}", f"file:{file}", f"local://{file}", f"\\\\host{file}"]
    elsewhere += [
        f"simplecache::file://{file}",
        f"//host{file}",
        f"%66ile:{file}",
        f"\1file:{file}",
    ]
    lines += elsewhere
    objects["images/list.txt"] = "\n".join(lines).encode()
    long = b"".join(b"%d.jpg\n" % at for at in range(100_000))
    packed = gzip.compress(long)
    objects |= {"long.txt": long, "packed.txt": packed, "cut.txt": packed[:-20]}
    with FaultyStore(objects) as store:
        src = f"{store.endpoint}/bucket/images/list.txt"
        embed(src, tmp_path / "out", **QUICK)
        for name in ("long", "packed"):
            assert len(list_items(f"{store.endpoint}/bucket/{name}.txt")) == 100_000
        with pytest.raises(UserError, match=r"cut\.txt cannot be fetched: Compressed file ended"):
            list_items(f"{store.endpoint}/bucket/cut.txt")
    dataset = content(tmp_path / "out")
    assert {*dataset.rows} == {*lines} - {"07-cut.jpg", *elsewhere}
    failures = dict(dataset.failures)
    assert all("a list from elsewhere names http, https" in failures[name] for name in elsewhere)


@pytest.fixture
def bucket(images: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    endpoint = f"http://127.0.0.1:{server.get_host_and_port()[1]}"
    fill(endpoint, "photos", {f"x/{p.name}": p.read_bytes() for p in images.glob("1*.jpg")})
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    yield "s3://photos/x"
    server.stop()


def test_bucket(bucket: str, images: Path, tmp_path: Path) -> None:
    embed(bucket, tmp_path / "out", **QUICK)
    rows = content(tmp_path / "out").rows
    assert {*rows} == {f"x/{path.name}" for path in images.glob("1*.jpg")}
    assert all(row[5] for row in rows.values()), "a version: the store's ETag"
    with pytest.raises(UserError, match="cannot be listed"):
        list_items("s3://no-such-bucket/x")


def test_a_bucket_of_several_pages(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys at the top, of one folder, and in Unicode: as one listing has them."""
    monkeypatch.setenv("MOTO_S3_DEFAULT_MAX_KEYS", "20")
    keys = [f"top-{at:04}.jpg" for at in range(45)]
    keys += [f"ä/{at:02}.jpg" for at in range(12)] + [f"x/😀/{at:02}.jpg" for at in range(25)]
    fill(os.environ["AWS_ENDPOINT_URL"], "many", dict.fromkeys([*keys, "z/notes.txt"], b"x"))
    items = list_items("s3://many")
    assert items.ids.to_pylist() == sorted(keys, key=str.encode)
    assert items.others == ("z/notes.txt",)
    assert set(items.versions.to_pylist()) == {"9dd4e461268c8034f5c8564e155c67a6"}
    below = list_items("s3://many/x").ids.to_pylist()
    assert below == [key for key in sorted(keys, key=str.encode) if key[0] == "x"]
    assert list_items("s3://many", 3).ids.to_pylist() == [
        "top-0000.jpg",
        "top-0001.jpg",
        "top-0002.jpg",
    ]


@pytest.mark.parametrize("kind", ["folder", "list"])
def test_only_the_files_within_the_limit_are_looked_up(
    kind: str, images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    src = images
    if kind == "list":
        src = tmp_path / "list.txt"
        lines = ["https://host/a.jpg", "s3://b/c.jpg", *map(str, sorted(images.glob("0*.jpg")))]
        src.write_text("\n".join(lines))
    whole = list_items(str(src))
    asked: list[bytes] = []
    version_of = listing.version_of

    def ask(path: bytes) -> str:
        asked.append(path)
        return version_of(path)

    monkeypatch.setattr(listing, "version_of", ask)
    items = list_items(str(src), 5)
    assert len(asked) == 5
    assert (items.ids, items.versions) == (whole.ids[:5], whole.versions[:5])
    assert (whole.is_whole, items.is_whole) == (True, False)
    urls = ["https://host/a.jpg", "s3://b/c.jpg"]
    assert [at for at in items.versions.to_pylist() if "://" in at] == urls * (kind == "list")


def test_a_folder_that_cannot_be_read_has_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its name without the slash, as a file of that name would."""
    for name in ("b/1.jpg", "b-1.jpg", "b.jpg", "c/1.jpg", "a.jpg"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"x")
    scan = os.scandir

    def refuse(path: bytes) -> object:
        if path.endswith(b"/b/"):
            raise PermissionError(path)
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)
    items = list_items(str(tmp_path))
    assert items.ids.to_pylist() == ["a.jpg", "b", "b-1.jpg", "b.jpg", "c/1.jpg"]


def test_lines_are_those_of_the_whole_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["a.jpg", "b.jpg", "c.jpg\u2028d.jpg\x0b\x1ce\x85.jpg", "f.jpg\rg.jpg"]
    path = tmp_path / "list.txt"
    path.write_bytes("\ufeffa.jpg\r\n b.jpg \n{}\n\n\n{}".format(*names[2:]).encode())
    for chunk in (1, 2, 65_536):
        monkeypatch.setattr("wallclock.job.lists.CHUNK", chunk)
        assert list_items(str(path)).ids.to_pylist() == names
