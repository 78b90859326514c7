"""Images straight from the store: `read` is a GET, prefetched where possible."""

import os
import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from harness.corpora.abo import plan
from harness.corpora.abo.store import CorpusStore
from harness.corpora.manifest import Manifest
from harness.corpora.remote import RemoteReader
from tests.harness.corpora.abo import bucket
from tests.harness.corpora.abo.conftest import OBJECTS, Corpus, N
from tests.harness.corpora.abo.faulty_store import FaultyStore, always, first
from wallclock.errors import ImageError
from wallclock.files import sha256_bytes
from wallclock.loader.images import open_images


@pytest.fixture
def remote(corpus: Corpus) -> Manifest:
    return corpus()


@pytest.fixture
def reader(corpus: Corpus, remote: Manifest, store: FaultyStore) -> Iterator[RemoteReader]:
    bucket_store = CorpusStore(corpus.spec())
    reader = RemoteReader(bucket_store, plan.FOLDERS[remote.image_set])
    store.counts.clear()
    yield reader
    reader.close()


def test_prefetched_concurrently_and_once(
    remote: Manifest, reader: RemoteReader, store: FaultyStore
) -> None:
    assert sha256_bytes(reader(remote.items[0])) == remote.items[0].sha256
    assert store.total == 1, "a read that was not announced is a GET"
    store.delay_s = 0.05
    began = time.monotonic()
    reader.prefetch(remote.items)
    for item in remote.items:
        assert sha256_bytes(reader(item)) == item.sha256
    # Sequentially, forty take two seconds; sixteen at a time take an eighth.
    assert time.monotonic() - began < 1.5
    assert store.total == 1 + N


def test_window_is_bounded(remote: Manifest, reader: RemoteReader, store: FaultyStore) -> None:
    def total_becomes(n: int) -> bool:
        end = time.monotonic() + 10
        while store.total < n and time.monotonic() < end:
            time.sleep(0.01)
        time.sleep(0.1)
        return store.total == n

    reader.prefetch(remote.items)
    assert total_becomes(32), "twice the threads"
    reader(remote.items[0])
    assert total_becomes(33)


def test_reads_twice_and_out_of_order(remote: Manifest, reader: RemoteReader) -> None:
    twice = [remote.items[0], remote.items[1], remote.items[0]]
    reader.prefetch(twice[:2])
    reader.prefetch_more(twice[2:])
    for item in reversed(twice):
        assert sha256_bytes(reader(item)) == item.sha256
    reader.prefetch(remote.items[5:7])
    assert sha256_bytes(reader(remote.items[30])) == remote.items[30].sha256


def test_faults_are_mended_or_listed(
    remote: Manifest, reader: RemoteReader, store: FaultyStore
) -> None:
    store.decide = first(("reset", "wrong-bytes", "500", "truncated"))
    reader.prefetch(remote.items[:8])
    for item in remote.items[:8]:
        assert sha256_bytes(reader(item)) == item.sha256
    item = remote.items[9]
    for fault, reason in (("404", "404 NoSuchKey"), ("500", "500 InternalError")):
        store.decide = always(fault)
        with pytest.raises(ImageError) as caught:
            reader(item)
        assert (caught.value.stage, caught.value.reason) == ("read", reason)
    store.decide = always("")
    with pytest.raises(ImageError, match="that are not those of the manifest"):
        reader(replace(item, sha256="0" * 64))
    with pytest.raises(ImageError, match="over the limit of 10"):
        reader(replace(item, bytes=10))


def test_s3_urls_in_ones_own_loop(store: FaultyStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Anonymously where there are no credentials, from the endpoint that the environment names."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", store.endpoint)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, os.devnull)
    keys = [key for key in OBJECTS if key.endswith(".jpg")][:5]
    store.decide = first(("reset", "500", "truncated"))
    urls = [f"s3://{bucket.NAME}/{key}" for key in (*keys, "images/none.jpg")]
    with open_images(urls, 8) as batches, open_images([OBJECTS[key] for key in keys], 8) as local:
        (batch,), (expected,) = batches, local
    assert batch.ids == urls[:5]
    assert np.array_equal(batch.images, expected.images)
    failure = {"id": urls[5], "stage": "read", "reason": "404 NoSuchKey"}
    assert batch.failures == [failure]
