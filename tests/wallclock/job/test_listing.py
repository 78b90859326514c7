"""What a job can be given, folders, lists, buckets, URLs, and the columns that go along."""

import csv
import gzip
import json
import os
import re
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.harness.corpora.abo.conftest import fill
from tests.harness.corpora.abo.faulty_store import FaultyStore
from tests.wallclock.job.conftest import QUICK, N, Ray, content
from wallclock.__main__ import main
from wallclock.errors import UserError
from wallclock.fetch import folder
from wallclock.job import embed, texts
from wallclock.job.listing import list_items
from wallclock.job.texts import digest_of
from wallclock.outside import path_of


def test_folder(images: Path) -> None:
    items = list_items(str(images))
    assert len(items) == N
    assert items.ids.to_pylist() == sorted(items.ids.to_pylist(), key=os.fsencode)
    for source, version in zip(items, items.versions.to_pylist(), strict=True):
        assert source.where == str(images / source.id)
        assert version == f"{os.stat(source.where).st_size}-{os.stat(source.where).st_mtime_ns}"


#: Bytes of which escapes are made.
_BYTES = st.lists(st.sampled_from([b"\\", b"x", b"5c", b"ff", b"\xff", b"a"]), max_size=8)


@given(_BYTES.map(b"".join))
def test_a_path_and_its_text(name: bytes) -> None:
    assert os.fsencode(path_of(folder.id_of(os.fsdecode(name)))) == name


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("none.csv", None, "none.csv does not exist; give a folder, a list"),
        ("list.csv", "id,place\na,1\n", "it has ['id', 'place']; call the one of the places path"),
        ("list.csv", "id,path\n", "no image in"),
        ("list.txt", "", "no image in"),
        ("list.csv", "id,path\na,1\na,3\n", "'a' 2 times; give each image an id of its own"),
        ("list.csv", "id,path,vector\na,1,2\n", "has the name of a column of the dataset; rename"),
        ("list.csv", "id, ID ,path\n,x,y\n", "the columns 'id' and ' ID ' have one name"),
        ("list.csv", "id,path\ra,1\r", "the record in line 1: new-line character"),
        ("list.csv", b"id,path\n1,caf\xe9.jpg", "0xe9 is not UTF-8, perhaps Windows-1252; save it"),
        ("list.csv", "id,path\n1,a".encode("utf-16-le"), "zero bytes, as UTF-16 without a byte-"),
        ("list.parquet", "PAR1 and nothing else", "cannot be read as a list"),
        ("list.xlsx", "PK", ".xlsx is none of its formats, which are .csv, .tsv, .jsonl"),
        ("list.json", '{"path": {"0": "a.jpg"}}', "the column path has the type struct<0"),
        ("", None, "names no bucket; give s3://bucket/prefix"),
    ],
)
def test_a_mistake_with_a_list_is_one_line_and_status_2(
    name: str,
    text: str | bytes | None,
    line: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    source = str(tmp_path / name) if name else "s3:///key"
    if text is not None:
        Path(source).write_bytes(text if isinstance(text, bytes) else text.encode())
    assert main(["embed", source, str(tmp_path / "out"), "model=null", "device=cpu"]) == 2
    printed = capsys.readouterr()
    assert line in printed.err
    assert (printed.out, printed.err.count("\n")) == ("", 1)
    assert not list(tmp_path.glob("out/[!.]*")), "no more than a lock"


#: Columns that are no text; their names in Arrow.
TYPES = {
    "list<element: string>": pa.array([["a.jpg"]]),
    "struct<x: string>": pa.array([{"x": "a.jpg"}]),
}
#: Columns that are no places, but may be ids.
NOT_PLACES = {
    "timestamp[us]": pa.array([datetime(2026, 1, 2)]),
    "int64": pa.array([7]),
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
    with pytest.raises(UserError, match=r"list.parquet cannot be read as a list: "):
        list_items(str(path))


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


def test_bucket(s3: str, images: Path, tmp_path: Path) -> None:
    fill(s3, "photos", {f"x/{path.name}": path.read_bytes() for path in images.glob("1*.jpg")})
    embed("s3://photos/x", tmp_path / "out", **QUICK)
    rows = content(tmp_path / "out").rows
    assert {*rows} == {f"x/{path.name}" for path in images.glob("1*.jpg")}
    assert all(row[5] for row in rows.values()), "a version: the store's ETag"
    with pytest.raises(UserError, match="cannot be listed"):
        list_items("s3://no-such-bucket/x")


def test_a_bucket_of_several_pages(s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys at the top, of one folder, and in Unicode: as one listing has them."""
    monkeypatch.setenv("MOTO_S3_DEFAULT_MAX_KEYS", "20")
    keys = [f"top-{at:04}.jpg" for at in range(45)]
    keys += [f"ä/{at:02}.jpg" for at in range(12)] + [f"x/😀/{at:02}.jpg" for at in range(25)]
    fill(s3, "many", dict.fromkeys([*keys, "z/notes.txt"], b"x"))
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


Make = Callable[..., Path]
CARRIED = {"label": pa.int64(), "split": pa.string(), "tags": pa.list_(pa.string())}


@pytest.fixture
def make(images: Path, tmp_path: Path) -> Make:
    """A Parquet list of the first images of the folder, with these columns beside."""

    def write(name: str = "list.parquet", **more: Any) -> Path:
        paths = sorted(str(path) for path in images.glob("*.jpg"))[:20]
        own: dict[str, Any] = {
            "split": ["train" if at % 3 else "test" for at in range(len(paths))],
            "id": [Path(path).stem for path in paths],
            "label": range(len(paths)),
            "path": paths,
            "tags": [["a", str(at)][: at % 3] or None for at in range(len(paths))],
        }
        kinds = {**CARRIED, "id": pa.string(), "path": pa.string()}
        values = {**own, **more}
        table = {
            key: value if isinstance(value, pa.Array) else pa.array(value, kinds.get(key))
            for key, value in values.items()
        }
        pq.write_table(pa.table(table), tmp_path / name)
        return tmp_path / name

    return write


def check(src: Path, out: Path) -> None:
    """Every row has its own values, in the types of the list."""
    listed = {row["id"]: row for row in pq.read_table(src).to_pylist()}
    read = pa.concat_tables(pq.read_table(path) for path in sorted(out.glob("part-*.parquet")))
    for name, kind in CARRIED.items():
        assert read.schema.field(name).type == kind
    assert len(read) == len(content(out).rows) == len(listed) - 1
    assert "07-cut" not in read["id"].to_pylist()
    for row in read.to_pylist():
        assert {name: row[name] for name in CARRIED} == {
            name: listed[row["id"]][name] for name in CARRIED
        }


def test_they_are_in_each_part(make: Make, tmp_path: Path) -> None:
    src, out = make(), tmp_path / "out"
    embed(src, out, **QUICK)
    check(src, out)
    about = json.loads((out / "_dataset.json").read_text(encoding="utf-8"))
    assert about["identity"]["carries"] == ["split", "label", "tags"]
    assert about["schema"]["label"] == "int64"
    assert pd.read_parquet(out)["label"].dtype == "int64"
    (out / "part-00001.parquet").unlink()
    embed(src, out, **QUICK)
    check(src, out)


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1 << 62] * 20, pa.timestamp("us")),
        pa.array([10**9] * 20, pa.int32()).cast(pa.date32()),
        pa.array([0] * 20, pa.timestamp("us", "Mars/Phobos")),
        pa.array([["a"]] * 20, pa.list_(pa.string_view())),
    ],
)
def test_what_cannot_be_carried_is_one_line(column: Any, make: Make, tmp_path: Path) -> None:
    src = make(odd=column)
    with pytest.raises(UserError, match=r"column odd \(.*\) cannot be carried along: "):
        embed(src, tmp_path / "out", **QUICK)


def test_views_are_carried_as_text(make: Make, tmp_path: Path) -> None:
    values = [f"a text that is longer than a view holds, {at}" for at in range(20)]
    embed(make(odd=pa.array(values, pa.string_view())), tmp_path / "out", **QUICK)
    table = pq.read_table(tmp_path / "out" / "part-00000.parquet")
    assert table["odd"].to_pylist() == [values[at] for at in table["label"].to_pylist()]


def test_of_a_csv(make: Make, tmp_path: Path) -> None:
    rows = pq.read_table(make()).to_pylist()
    with (tmp_path / "list.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["path", "id", "price", "shop"])
        writer.writerows([row["path"], row["id"], f"00{row['label'] / 4}", "ä"] for row in rows)
    embed(tmp_path / "list.csv", tmp_path / "out", **QUICK, limit=10)
    frame = pd.read_parquet(tmp_path / "out")
    labels = {row["id"]: row["label"] for row in rows}
    assert [*frame["price"]] == [f"00{labels[name] / 4}" for name in frame["id"]]
    assert {*frame["shop"]} == {"ä"}


@pytest.mark.parametrize("name", ["vector", "sha256", "width", "Height", "version"])
def test_a_name_of_the_datasets_own_is_refused(name: str, make: Make, tmp_path: Path) -> None:
    src = make(**{name: range(20)})
    with pytest.raises(UserError, match=f"column {name} .*rename it in the list"):
        embed(src, tmp_path / "out", **QUICK)
    assert not list((tmp_path / "out").glob("*part*"))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"label": pa.array(range(20), pa.int32())}, "column label was int64, is int32"),
        ({"more": range(20)}, "carries was"),
    ],
)
def test_other_columns_are_another_job(
    change: dict[str, Any], why: str, make: Make, tmp_path: Path
) -> None:
    embed(make(), tmp_path / "out", **QUICK)
    with pytest.raises(UserError, match=why):
        embed(make(**change), tmp_path / "out", **QUICK)


def test_other_values_are_taken_over(make: Make, tmp_path: Path) -> None:
    out = tmp_path / "out"
    embed(make(), out, **QUICK)
    before = {name: row[0] for name, row in content(out).rows.items()}
    src = make(label=[*range(18), 118, 119])
    tally = embed(src, out, **QUICK).tally
    assert tally.images == 2
    check(src, out)
    assert {name: row[0] for name, row in content(out).rows.items()} == before
    assert str(embed(src, out, **QUICK)).startswith("complete already")


def test_on_a_cluster(make: Make, tmp_path: Path, ray: Ray) -> None:
    """The list goes to each node pickled; a call embeds one shard."""
    ray(a=1)
    src, out = make(), tmp_path / "out"
    embed(src, out, **QUICK, cluster="auto")
    check(src, out)


_TEXTS = st.lists(st.text("ab\x00😀", max_size=3), max_size=8)


@settings(max_examples=200)
@given(_TEXTS, _TEXTS, st.integers(1, 5))
def test_a_digest_is_of_the_values(first: list[str], second: list[str], chunk: int) -> None:
    """Not of how they lie in memory; other values, or others' borders, give another one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(texts, "CHUNK", chunk)
        whole = pa.chunked_array([first], pa.string())
        cut = pa.chunked_array([["x", *first[:2]], first[2:], ["y"]], pa.string())[1:-1]
        assert digest_of(whole) == digest_of(cut)
        other = pa.chunked_array([second], pa.string())
        assert (digest_of(whole) == digest_of(other)) == (first == second)
