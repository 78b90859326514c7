"""`corpus.source=remote`: `read` is a GET, ahead of its turn where it can be."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.corpus.abo.conftest import Corpus, N
from tests.corpus.abo.fault_proxy import FaultProxy, always, first, never
from wallclock.corpus import readers
from wallclock.corpus.manifest import Manifest
from wallclock.corpus.readers.remote import RemoteReader
from wallclock.errors import ImageError
from wallclock.files import sha256_bytes


@pytest.fixture
def remote(corpus: Corpus) -> Manifest:
    return corpus(source="remote")


@pytest.fixture
def reader(remote: Manifest, proxy: FaultProxy) -> Iterator[RemoteReader]:
    made = readers.make(remote.root)
    assert isinstance(made, RemoteReader)
    proxy.counts.clear()
    yield made
    made.close()


def test_the_list_is_the_local_one_and_the_cell_knows(corpus: Corpus) -> None:
    local, remote = corpus.slice(), corpus.slice(source="remote")
    assert remote.digest == local.digest
    assert remote.label == "abo (remote)"
    assert remote.storage.startswith("remote:")
    assert corpus.slice(source="remote", threads=3).storage != remote.storage
    assert readers.stored(corpus(source="remote").root, corpus().items) == []


def test_every_image_is_a_get(remote: Manifest, reader: RemoteReader, proxy: FaultProxy) -> None:
    for item in remote.items[:5]:
        assert sha256_bytes(reader(item)) == item.sha256
    assert proxy.total == 5


def test_what_is_announced_is_fetched_ahead_and_once(
    remote: Manifest, reader: RemoteReader, proxy: FaultProxy
) -> None:
    proxy.delay_s = 0.05
    began = time.monotonic()
    reader.expect(remote.items)
    for item in remote.items:
        assert sha256_bytes(reader(item)) == item.sha256
    # One after the other, forty would take two seconds; sixteen at a time take an eighth.
    assert time.monotonic() - began < 1.0
    assert proxy.total == N


def test_the_window_is_bounded(remote: Manifest, reader: RemoteReader, proxy: FaultProxy) -> None:
    reader.expect(remote.items)
    time.sleep(0.5)
    assert proxy.total == 32, "twice the threads"
    reader(remote.items[0])
    time.sleep(0.2)
    assert proxy.total == 33


def test_an_image_may_be_read_twice_and_out_of_turn(remote: Manifest, reader: RemoteReader) -> None:
    twice = [remote.items[0], remote.items[1], remote.items[0]]
    reader.expect(twice)
    assert [sha256_bytes(reader(item)) for item in reversed(twice)] == [
        item.sha256 for item in reversed(twice)
    ]
    reader.expect(remote.items[5:7])
    assert sha256_bytes(reader(remote.items[30])) == remote.items[30].sha256


def test_faults_on_the_way_are_mended_or_listed(
    remote: Manifest, reader: RemoteReader, proxy: FaultProxy
) -> None:
    proxy.counts.clear()
    proxy.decide = first(("reset", "wrong-bytes", "500", "truncated"))
    reader.expect(remote.items[:8])
    assert [sha256_bytes(reader(item)) for item in remote.items[:8]] == [
        item.sha256 for item in remote.items[:8]
    ]
    for fault, reason in (("404", "404 NoSuchKey"), ("500", "500 InternalError")):
        proxy.decide = always(fault)
        with pytest.raises(ImageError) as caught:
            reader(remote.items[9])
        assert (caught.value.stage, caught.value.reason) == ("read", reason)
    proxy.decide = never
    with pytest.raises(ImageError, match="that are not those of the manifest"):
        reader(replace(remote.items[9], sha256="0" * 64))
    with pytest.raises(ImageError, match="over the limit of 10"):
        reader(replace(remote.items[9], bytes=10))
