"""Items, folders and tars behind URLs: S3 by moto's server."""

import io
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from moto.server import ThreadedMotoServer

import wallclock
from tests import making
from tests.harness.corpora.abo.conftest import fill
from wallclock import open_images
from wallclock.errors import UserError
from wallclock.fetch.urls import is_url

FILES = [making.jpeg(48, 40, seed) for seed in range(5)]
PLAIN = [wallclock.decode(data, 16) for data in FILES]


LOCAL = ["/etc/hosts", "FILE:///etc/hosts", "etc/hosts", "gs://b/a.jpg"]


def tar_of(files: list[bytes], first: int) -> bytes:
    memory = io.BytesIO()
    with tarfile.open(fileobj=memory, mode="w") as tar:
        for number, data in enumerate(files, first):
            for extension, content in (("cls", str(number).encode()), ("jpg", data)):
                member = tarfile.TarInfo(f"{number:04}.{extension}")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
    return memory.getvalue()


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    endpoint = f"http://127.0.0.1:{server.get_host_and_port()[1]}"
    objects = {f"photos/{number}.jpg": data for number, data in enumerate(FILES)}
    for shard in range(3):
        objects[f"train-{shard}.tar"] = tar_of(FILES, 5 * shard)
    names = io.BytesIO()
    pq.write_table(pa.table({"url": [*LOCAL, "s3://bucket/photos/0.jpg"]}), names)
    objects["names.parquet"] = names.getvalue()
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
    for url in ("gs://b/a.jpg", "file:///a.jpg", "s3://b/k", "HTTP://a"):
        assert is_url(url), url
    for path in ("a.jpg", "/a/b.jpg", "C:/a.jpg", "a b://c", "://a", "/a://b", "./s3://b"):
        assert not is_url(path), path


def test_files_by_their_urls(tmp_path: Path) -> None:
    (tmp_path / "a b.jpg").write_bytes(FILES[0])
    urls = [f"file://{tmp_path}/a%20b.jpg", f"FILE://localhost{tmp_path}/a%20b.jpg"]
    with open_images([*urls, f"file://{tmp_path}", "gs://b/a.jpg"], 16) as batches:
        (batch,) = batches
    assert batch.ids == urls
    np.testing.assert_array_equal(batch.images, [PLAIN[0]] * 2)
    reasons = [failure["reason"] for failure in batch.failures]
    assert reasons == ["not a regular file", "give a URL of http, https, s3 or file"]


@pytest.mark.parametrize(
    ("items", "reason"),
    [
        ("gs://bucket/photos", "cannot be listed; give s3://"),
        ("http://127.0.0.1:1/photos", "cannot be listed; give s3://"),
        ("gs://bucket/a.tar", "give a URL of http, https, s3 or file"),
        ("gs://bucket/a.parquet", "give a URL of http, https, s3 or file"),
    ],
)
def test_other_urls(items: str, reason: str) -> None:
    with pytest.raises(UserError, match=reason) as caught, open_images(items, 16) as batches:
        next(batches)
    assert "\n" not in str(caught.value)


def test_a_table_from_elsewhere_names_no_local_file(bucket: str) -> None:
    with open_images(f"{bucket}/names.parquet", 16) as batches:
        (batch,) = batches
    assert batch.ids == ["s3://bucket/photos/0.jpg"]
    assert [failure["id"] for failure in batch.failures] == LOCAL
    assert all("a table from elsewhere names URLs" in row["reason"] for row in batch.failures)


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
