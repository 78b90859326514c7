"""The one client of S3: what it raises, sends again and lists, and whose settings it uses."""

import io
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit
from xml.sax.saxutils import escape

import pytest
from botocore import exceptions
from hypothesis import example, given, settings
from hypothesis import strategies as st
from urllib3.exceptions import ProtocolError

from tests.threaded_server import FileHandler, ThreadedServer
from tests.wallclock.fetch.servers import client_of, variables_of
from wallclock.errors import UserError
from wallclock.fetch.retries import (
    ForbiddenError,
    PermanentError,
    RefusedError,
    RequestError,
    TransientError,
)
from wallclock.fetch.s3 import Client, NoBucketError, _read_page, classify, connect, list_objects


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wallclock.fetch.retries.backoff_s", lambda attempt: 0.0)


def refusal(status: int, code: str) -> exceptions.ClientError:
    answer: Any = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return exceptions.ClientError(answer, "GetObject")


CUT_OFF = exceptions.IncompleteReadError(actual_bytes=1, expected_bytes=2)
UNREACHABLE = exceptions.EndpointConnectionError(endpoint_url="http://host")


@pytest.mark.parametrize(
    ("error", "kind", "reason"),
    [
        (refusal(404, "NoSuchKey"), PermanentError, "404 NoSuchKey"),
        (refusal(404, "404"), PermanentError, "HTTP 404"),
        (refusal(403, "AccessDenied"), ForbiddenError, "403 AccessDenied"),
        (refusal(400, "ExpiredToken"), RefusedError, "400 ExpiredToken; get new credentials"),
        (refusal(403, "SignatureDoesNotMatch"), RefusedError, "403 SignatureDoesNotMatch; set"),
        (refusal(403, "RequestTimeTooSkewed"), RefusedError, "403 RequestTimeTooSkewed; set this"),
        (refusal(403, "InvalidAccessKeyId"), RefusedError, "403 InvalidAccessKeyId; set AWS_"),
        (refusal(412, "PreconditionFailed"), PermanentError, "412 PreconditionFailed"),
        (refusal(501, "NotImplemented"), PermanentError, "501 NotImplemented"),
        (refusal(404, "NoSuchBucket"), NoBucketError, "404 NoSuchBucket"),
        (refusal(301, "PermanentRedirect"), NoBucketError, "301 PermanentRedirect"),
        (refusal(500, "InternalError"), TransientError, "500 InternalError"),
        (refusal(429, "429"), TransientError, "HTTP 429"),
        (refusal(400, "RequestTimeout"), TransientError, "400 RequestTimeout"),
        (refusal(409, "ConditionalRequestConflict"), TransientError, "409 Conditional"),
        (exceptions.NoCredentialsError(), RefusedError, "Unable to locate credentials; set AWS_"),
        (exceptions.ParamValidationError(report="no name"), PermanentError, "Parameter valid"),
        (
            exceptions.ParamValidationError(report='Invalid bucket name "u:p@b"'),
            PermanentError,
            'Parameter validation failed: Invalid bucket name "b"',
        ),
        (exceptions.TokenRetrievalError(provider="sso", error_msg="gone"), RefusedError, "Error"),
        (exceptions.MissingDependencyException(msg="crt"), RefusedError, "Missing"),
        (UNREACHABLE, TransientError, 'Could not connect to the endpoint URL: "http://host"'),
        (CUT_OFF, TransientError, "1 read, but total bytes expected is 2"),
        (ProtocolError("broken"), TransientError, "broken"),
        (ConnectionResetError("reset"), TransientError, "reset"),
        (ValueError("99 Foo"), TransientError, "malformed response: 99 Foo"),
    ],
)
def test_classification(error: Exception, kind: type[RequestError], reason: str) -> None:
    failure = classify(error)
    assert type(failure) is kind
    assert str(failure).startswith(reason)
    assert issubclass(kind, TransientError) != issubclass(kind, PermanentError)
    assert bool(failure.status) == isinstance(error, exceptions.ClientError)


class Script:
    """boto3's client, whose answers are given, and which keeps the bodies that it was sent."""

    def __init__(self, answers: Sequence[Any]) -> None:
        self._answers = iter(answers)
        self.bodies = list[bytes]()

    def put_object(self, Body: Any, **parameters: Any) -> Any:  # noqa: N803 - boto3's name
        self.bodies.append(Body.read())
        return self._next()

    def get_object(self, **parameters: Any) -> Any:
        return self._next()

    def _next(self) -> Any:
        answer = next(self._answers)
        if isinstance(answer, Exception):
            raise answer
        return answer


class CutBody:
    """A body that ends too early."""

    def read(self) -> bytes:
        raise CUT_OFF


def test_a_file_is_sent_from_its_start_each_time() -> None:
    boto = Script([refusal(503, "SlowDown"), refusal(409, "OperationAborted"), {"ETag": "x"}])
    assert Client(boto).call("put_object", Body=io.BytesIO(b"data")) == {"ETag": "x"}
    assert boto.bodies == [b"data"] * 3


def test_a_body_that_is_cut_off_is_read_again() -> None:
    boto = Script([{"Body": CutBody()}, {"Body": io.BytesIO(b"data")}])
    assert Client(boto).call("get_object") == {"Body": b"data"}


def test_it_gives_up() -> None:
    boto = Script([UNREACHABLE] * 50)
    with pytest.raises(TransientError):
        Client(boto).call("get_object")
    assert len(list(boto._answers)) == 50 - 7


@pytest.fixture
def users_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys, a region and an endpoint in the environment."""
    for name, value in variables_of("http://127.0.0.1:1", "key", "secret").items():
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("users_settings")
@pytest.mark.parametrize(
    ("breaks", "line"),
    [
        (lambda patch: patch.setitem(sys.modules, "boto3", None), r"\[s3\]'"),
        (lambda patch: patch.setenv("AWS_PROFILE", "none"), r"a job: .*profile.*; check AWS_"),
        (lambda patch: patch.setenv("AWS_ENDPOINT_URL", "http://[::1"), "; check AWS_"),
    ],
)
def test_no_client_is_one_line(
    monkeypatch: pytest.MonkeyPatch, breaks: Callable[[Any], None], line: str
) -> None:
    breaks(monkeypatch)
    with pytest.raises(UserError, match=line):
        connect("a job")


_XML = {"Content-Type": "application/xml"}
_OBJECT = (
    "<Contents><Key>{}</Key><LastModified>2026-01-02T03:04:05.000Z</LastModified>"
    "<ETag>&quot;{:032x}&quot;</ETag><Size>12345</Size><StorageClass>STANDARD</StorageClass>"
    "</Contents>"
)


class ListingServer(ThreadedServer):
    """Answers ListObjectsV2; every bucket has the same keys, sorted by their bytes of UTF-8."""

    def __init__(self) -> None:
        super().__init__(_Handler)
        self.keys, self.page = list[str](), 1000


class _Handler(FileHandler):
    server: ListingServer

    def answer(self) -> None:
        """A page, or 404 for anything else."""
        query = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
        if query.get("list-type") != "2":
            self.reply(404, {"Content-Length": "0"}, b"")
            return
        body = _page(self.server.keys, query, self.server.page).encode()
        self.reply(200, {**_XML, "Content-Length": str(len(body))}, body)


def _page(keys: Sequence[str], query: dict[str, str], most: int) -> str:
    """The answer to a request, as S3's reference of ListObjectsV2 has it."""
    keys = [key for key in keys if key.startswith(query.get("prefix", ""))]
    first = int(query.get("continuation-token", 0))
    end = first + most
    is_url = query.get("encoding-type") == "url"
    parts = ["<EncodingType>url</EncodingType>"] if is_url else []
    encode = quote if is_url else escape
    listed = enumerate(keys[first:end], first)
    parts += [_OBJECT.format(encode(key), at) for at, key in listed]
    if end < len(keys):
        parts.append(f"<NextContinuationToken>{end}</NextContinuationToken>")
    return (
        '<?xml version="1.0" encoding="UTF-8"?>'
        '<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
        f"<IsTruncated>{str(end < len(keys)).lower()}</IsTruncated>{''.join(parts)}"
        "</ListBucketResult>"
    )


#: As S3 takes them: any characters, also those that XML cannot hold.
_KEYS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6)


@pytest.fixture(scope="module")
def server() -> Iterator[ListingServer]:
    with ListingServer() as server:
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
