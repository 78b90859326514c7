"""A listing that is made when it is asked for: as moto lists the same keys."""

from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest
from moto.server import ThreadedMotoServer

from harness.testbed.listing import ListingServer, NumberedKeys
from tests.harness.corpora.abo.conftest import fill
from wallclock.fetch.s3 import Client, connect

KEYS = sorted(["a/1.jpg", "a/2.jpg", "a/é.jpg", "a+b", "b", "b/<1>&.jpg", "😀"], key=str.encode)
#: moto keeps the buckets of other tests of this process.
BUCKET = "listed-here"


@pytest.fixture(scope="module")
def clients() -> Iterator[tuple[Client, Client]]:
    """Of moto and of ours."""
    moto = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    moto.start()
    endpoint = f"http://127.0.0.1:{moto.get_host_and_port()[1]}"
    fill(endpoint, BUCKET, dict.fromkeys(KEYS, b"x"))
    with ListingServer(KEYS) as ours:
        theirs = connect("test", endpoint=endpoint, isolated=True)
        yield theirs, connect("test", endpoint=ours.endpoint, isolated=True)
    moto.stop()


def pages(client: Client, **parameters: Any) -> list[list[str]]:
    """The keys of each page."""
    listed, token = [], dict[str, str]()
    while True:
        page = client.call("list_objects_v2", Bucket=BUCKET, **parameters, **token)
        listed.append([item["Key"] for item in page.get("Contents", ())])
        if not page["IsTruncated"]:
            return listed
        token = {"ContinuationToken": page["NextContinuationToken"]}


def test_pages_are_those_of_moto(clients: tuple[Client, Client]) -> None:
    theirs, ours = clients
    for prefix, after, most in product(("", "a/", "zz"), ("", "a/1.jpg", "a0"), (2, 1000)):
        asked: dict[str, Any] = {"Prefix": prefix, "MaxKeys": most}
        asked |= {"StartAfter": after} if after else {}
        assert pages(ours, **asked) == pages(theirs, **asked), asked


def test_numbered_keys_are_sorted_by_their_bytes() -> None:
    keys = NumberedKeys(20_001)
    assert keys[9_998:10_001] == [
        "00000/000009998.jpg",
        "00000/000009999.jpg",
        "00001/000010000.jpg",
    ]
    every = list(keys)
    assert every == sorted(set(every), key=str.encode)
    with pytest.raises(IndexError):
        keys[20_001]
