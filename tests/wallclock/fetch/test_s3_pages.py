"""Pages as they come from a server, read by our parser and by botocore's: the same objects."""

from collections.abc import Iterator

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.wallclock.fetch.client import client_of
from tests.wallclock.fetch.listing import ListingServer
from wallclock.fetch.s3 import Client, _read_page, list_objects

#: As S3 takes them: any characters, also those that XML cannot hold.
_KEYS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6)


@pytest.fixture(scope="module")
def server() -> Iterator[ListingServer]:
    with ListingServer([]) as server:
        yield server


@pytest.fixture(scope="module")
def client(server: ListingServer) -> Iterator[Client]:
    client = client_of(server.endpoint)
    yield client
    client.close()


@settings(max_examples=15)
@example({f"a\U0010ffff/{at}&<\x01+ %2F" for at in range(9)}, 2, "a\U0010ffff")
@given(st.sets(_KEYS, max_size=12), st.integers(1, 4) | st.integers(1, 1000), _KEYS | st.just(""))
def test_every_key_once_in_order(
    server: ListingServer, client: Client, keys: set[str], page: int, prefix: str
) -> None:
    server.keys, server.page = sorted(keys, key=str.encode), page
    expected = [key for key in server.keys if key.startswith(prefix)]
    items = list_objects(client.call, Bucket="b", Prefix=prefix)
    assert [item["Key"] for item in items] == expected


def test_the_fields_are_those_of_botocore(server: ListingServer) -> None:
    """But for dates and numbers, which are texts."""
    server.keys, server.page = [f"a/{at:02}.jpg" for at in range(30)], 8
    pages = []
    for is_ours in (True, False):
        client = client_of(server.endpoint)
        if not is_ours:
            client.boto.meta.events.unregister("before-parse.s3.ListObjectsV2", _read_page)
        items = list_objects(client.call, Bucket="b")
        pages.append([(item["Key"], item["ETag"], str(item["Size"])) for item in items])
        page = client.call("list_objects_v2", Bucket="b", Prefix="x")
        assert (page["IsTruncated"], list(page.get("Contents", ()))) == (False, [])
        client.close()
    assert pages[0] == pages[1]
    assert len(pages[0]) == 30


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (200, b"<Error><Code>SlowDown</Code></Error>"),
        (200, b"<ListBucketResult><Contents>"),
        (200, b""),
        (503, b"<ListBucketResult/>"),
    ],
)
def test_what_is_no_page_is_left_to_botocore(status: int, body: bytes) -> None:
    answer, customized = {"status_code": status, "body": body}, dict[str, object]()
    _read_page(answer, customized, operation_model=None)
    assert (answer["body"], customized) == (body, {})
