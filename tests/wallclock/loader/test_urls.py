"""Items, folders and tars behind URLs: S3 by moto's server, everything else by fsspec."""

import io
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from moto.server import ThreadedMotoServer

import wallclock
from tests import making
from tests.harness.corpora.abo.conftest import fill
from wallclock import Workers, open_images
from wallclock.errors import UserError
from wallclock.fetch.filesystems import is_url
from wallclock.recipe import Limits

fsspec = pytest.importorskip("fsspec")
FILES = [making.jpeg(48, 40, seed) for seed in range(5)]
PLAIN = [wallclock.decode(data, 16) for data in FILES]


def tar_of(files: list[bytes], first: int) -> bytes:
    memory = io.BytesIO()
    with tarfile.open(fileobj=memory, mode="w") as tar:
        for number, data in enumerate(files, first):
            for extension, content in (("cls", str(number).encode()), ("jpg", data)):
                member = tarfile.TarInfo(f"{number:04}.{extension}")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
    return memory.getvalue()


@pytest.fixture
def memory() -> Iterator[Any]:
    """fsspec's filesystem in memory, with a folder."""
    filesystem = fsspec.filesystem("memory")
    for number, data in enumerate(FILES):
        filesystem.pipe(f"/photos/{number % 2}/{number}.jpg", data)
    filesystem.pipe("/photos/notes.txt", b"notes")
    yield filesystem
    filesystem.rm("/photos", recursive=True)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    endpoint = f"http://127.0.0.1:{server.get_host_and_port()[1]}"
    objects = {f"photos/{number}.jpg": data for number, data in enumerate(FILES)}
    for shard in range(3):
        objects[f"train-{shard}.tar"] = tar_of(FILES, 5 * shard)
    objects["cut.tar"] = tar_of(FILES, 0)[:3000]
    fill(endpoint, "bucket", objects)
    yield endpoint
    server.stop()


@pytest.fixture
def bucket(server: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("AWS_ENDPOINT_URL", server)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    return "s3://bucket"


def test_what_is_a_url() -> None:
    for url in (
        "gs://b/a.jpg",
        "file:///a.jpg",
        "simplecache::gs://b/a.jpg",
        "s3://b/k",
        "HTTP://a",
    ):
        assert is_url(url), url
    for path in ("a.jpg", "/a/b.jpg", "C:/a.jpg", "a b://c", "://a", "/a://b", "./s3://b"):
        assert not is_url(path), path


@pytest.mark.usefixtures("memory")
def test_items_by_fsspec(tmp_path: Path) -> None:
    """One at a time, in a list, in processes and in a stream; in the list's order."""
    (tmp_path / "4.jpg").write_bytes(FILES[4])
    urls = [f"memory://photos/{number % 2}/{number}.jpg" for number in range(4)]
    urls.append(f"file://{tmp_path}/4.jpg")
    np.testing.assert_array_equal(wallclock.decode(urls[0], 16), PLAIN[0])
    options: dict[str, Any] = {"workers": Workers(2)}
    for items in (urls, iter(urls), [{"image": url, "label": 1} for url in urls]):
        with open_images(items, 16, **options) as batches:
            (batch,) = batches
        assert batch.ids == urls
        np.testing.assert_array_equal(batch.images, PLAIN)
    with open_images(urls, 16, 2, workers=Workers(2, processes=2)) as batches:
        forked = [image for batch in batches for image in batch.images.copy()]
    np.testing.assert_array_equal(forked, PLAIN)


@pytest.mark.usefixtures("memory")
def test_what_fsspec_cannot_read(tmp_path: Path) -> None:
    """It is a failure of its image, an unknown scheme, too."""
    url = "memory://photos/0/0.jpg"
    with open_images([url, "memory://photos/none.jpg", f"file://{tmp_path}"], 16) as batches:
        (batch,) = batches
    assert batch.ids == [url]
    failures = [(failure["stage"], failure["reason"]) for failure in batch.failures]
    assert failures == [("read", "No such file or directory"), ("read", "not a regular file")]
    workers = Workers(limits=Limits(max_bytes=100))
    none = rf"none of 1 images could be read; the first, {url}, in read: .* limit of 100"
    with pytest.raises(UserError, match=none), open_images([url], 16, workers=workers) as batches:
        next(batches)
    with (
        pytest.raises(UserError, match=r"nosuch://a\.jpg: Protocol not known: nosuch") as caught,
        open_images(["nosuch://a.jpg"], 16) as batches,
    ):
        next(batches)
    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("memory")
def test_a_folder_by_fsspec() -> None:
    with open_images("memory://photos", 16, 2) as batches:
        assert len(batches) == 3
        pairs = [
            pair for batch in batches for pair in zip(batch.ids, batch.images.copy(), strict=True)
        ]
    rows = dict(pairs)
    assert [Path(name).name for name in rows] == ["0.jpg", "2.jpg", "4.jpg", "1.jpg", "3.jpg"]
    for name, row in rows.items():
        np.testing.assert_array_equal(row, PLAIN[int(Path(name).stem)])
    with pytest.raises(UserError, match="no image under memory://photos/none"):
        open_images("memory://photos/none")
    with pytest.raises(UserError, match="http cannot be listed; give a list of URLs"):
        open_images("http://127.0.0.1:1/photos")


def test_a_table_by_fsspec(memory: Any) -> None:
    file = io.BytesIO()
    pq.write_table(pa.table({"image": FILES, "label": range(5)}), file)
    memory.pipe("/photos/a.parquet", file.getvalue())
    with open_images("memory://photos/a.parquet", 16) as batches:
        (batch,) = batches
    assert batch.labels == [*range(5)]
    np.testing.assert_array_equal(batch.images, PLAIN)
    names = ["/etc/hosts", "FILE:///etc/hosts", "etc/hosts", "memory://x::file:///etc/hosts"]
    file = io.BytesIO()
    pq.write_table(pa.table({"url": [*names, "memory://photos/0/0.jpg"]}), file)
    memory.pipe("/photos/b.parquet", file.getvalue())
    with open_images("memory://photos/b.parquet", 16) as batches:
        (batch,) = batches
    assert (batch.ids, [row["id"] for row in batch.failures]) == (
        ["memory://photos/0/0.jpg"],
        names,
    )
    assert all("a table from elsewhere names URLs" in row["reason"] for row in batch.failures)
    with (
        pytest.raises(UserError, match=r"memory://none\.parquet: ") as caught,
        open_images("memory://none.parquet") as batches,
    ):
        next(batches)
    assert "\n" not in str(caught.value)


def test_tars_of_a_bucket(bucket: str) -> None:
    name = f"{bucket}/train-{{0..2}}.tar"
    seen = []
    for rank in range(3):
        with open_images(name, 16, 3, shard=(rank, 3)) as batches:
            seen.append([label for batch in batches for label in batch.labels])
    assert seen == [list(range(5 * rank, 5 * rank + 5)) for rank in range(3)]
    with open_images(f"{bucket}/train-1.tar", 16) as batches:
        np.testing.assert_array_equal(next(batches).images, PLAIN)
    for damaged, words in (("cut", "is it a whole tar"), ("none", "NoSuchKey|404")):
        with pytest.raises(UserError, match=rf"{damaged}\.tar: .*({words})") as caught:
            list(open_images(f"{bucket}/{damaged}.tar", 16))
        assert "\n" not in str(caught.value)


def test_a_bucket_and_its_items(bucket: str) -> None:
    with open_images(f"{bucket}/photos", 16) as batches:
        (batch,) = batches
    assert batch.ids == [f"{bucket}/photos/{number}.jpg" for number in range(5)]
    np.testing.assert_array_equal(batch.images, PLAIN)
    with open_images([(batch.ids[3], 7), f"{bucket}/photos/none.jpg"], 16) as batches:
        (batch,) = batches
    assert batch.labels == [7]
    np.testing.assert_array_equal(batch.images, PLAIN[3:4])
    assert re.search("404|NoSuchKey", batch.failures[0]["reason"])
