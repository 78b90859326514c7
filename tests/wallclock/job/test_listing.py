"""What a job can be given: folders, lists, buckets, URLs."""

import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from moto.server import ThreadedMotoServer

from tests.harness.corpora.abo.conftest import fill
from tests.harness.corpora.abo.faulty_store import FaultyStore
from tests.wallclock.job.conftest import QUICK, N, content
from wallclock.errors import UserError
from wallclock.job import embed
from wallclock.job.listing import list_items


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


def test_names_that_are_not_utf8(tmp_path: Path) -> None:
    name = os.fsencode(tmp_path) + b"/\xff.jpg"
    with open(name, "wb") as file:
        file.write(b"x")
    (source,) = list_items(str(tmp_path))
    assert (source.id, os.fsencode(str(source.where))) == ("\\xff.jpg", name)


@pytest.mark.parametrize("kind", ["list.csv", "list.parquet", "list.txt", "urls.CSV"])
def test_lists(kind: str, tmp_path: Path) -> None:
    places = ["a.jpg", "/abs/b.jpg", "https://host/c.jpg", "007.jpg"]
    path = tmp_path / kind
    if kind.endswith("parquet"):
        pq.write_table(pa.table({"id": [1, 2, 3, 4], "path": places}), path)
    elif kind.endswith("txt"):
        path.write_text("\n".join([*places, ""]))
    else:
        column = "url" if "urls" in kind else "path"
        rows = [f"{column},id", *(f"{place},{n}" for n, place in enumerate(places, 1))]
        path.write_text("\n".join(rows))
    items = list_items(str(path))
    where = [str(tmp_path / "a.jpg"), *places[1:3], str(tmp_path / "007.jpg")]
    assert [source.where for source in items] == where
    assert [source.id for source in items] == (places if "txt" in kind else ["1", "2", "3", "4"])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("id,path\na,1\nb,2\na,3\n", "has the id 'a' 2 times"),
        ("id,place\na,1\n", "no column of path, url"),
        ("id,path\n", "no image in"),
        ("id,path\n,x\n", "a row without id"),
        ("id,path\na,1,2\n", "cannot be read as a list"),
    ],
)
def test_bad_lists_are_one_line(text: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "list.csv").write_text(text)
    with pytest.raises(UserError, match=reason) as caught:
        list_items(str(tmp_path / "list.csv"))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("src", ["/nowhere", "http://127.0.0.1:9/list.csv"])
def test_no_source(src: str) -> None:
    with pytest.raises(UserError, match=r"does not exist|cannot be fetched"):
        list_items(src)


def test_a_list_behind_a_url(images: Path, tmp_path: Path) -> None:
    """Its relative places are relative to it, and it names no file of this machine."""
    objects = {f"images/{path.name}": path.read_bytes() for path in images.glob("0*.jpg")}
    lines = [key.removeprefix("images/") for key in objects]
    lines.append("/etc/passwd")
    objects["images/list.txt"] = "\n".join(lines).encode()
    with FaultyStore(objects) as store:
        src = f"{store.endpoint}/bucket/images/list.txt"
        embed(src, tmp_path / "out", **QUICK)
    dataset = content(tmp_path / "out")
    assert {*dataset.rows} == {*lines} - {"07-cut.jpg", "/etc/passwd"}
    assert dict(dataset.failures)["/etc/passwd"].startswith("HTTP 404")


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
