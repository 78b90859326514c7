"""GETs from a bucket: asked for as boto3 asks, signed as botocore signs, and what answers mean."""

import base64
import hashlib
import json
import zlib
from collections.abc import Iterator
from contextlib import closing
from typing import Any
from urllib.parse import unquote_to_bytes

import boto3
import pytest
from botocore import exceptions
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import example, given
from hypothesis import strategies as st
from moto import settings
from moto.server import ThreadedMotoServer

from tests.threaded_server import FileHandler, ThreadedServer
from tests.wallclock.fetch.servers import KEY, REGION, SECRET, client_of, variables_of
from wallclock.errors import ImageError, UserError
from wallclock.fetch.objects import Objects, is_verified
from wallclock.fetch.request import Answer, Request
from wallclock.fetch.retries import ForbiddenError, PermanentError, RefusedError, TransientError
from wallclock.fetch.s3 import Client, NoBucketError
from wallclock.fetch.sources import Source, SourceReader
from wallclock.fetch.transfers import Transfers
from wallclock.recipe import Limits

LIMIT = 1 << 20


class Store(ThreadedServer):
    """Answers with the path that it was asked for, and keeps the request."""

    def __init__(self) -> None:
        super().__init__(_Handler)
        self.path, self.headers = "", dict[str, str]()


class _Handler(FileHandler):
    server: Store

    def answer(self) -> None:
        # `self.path` has one slash where there were two.
        self.server.path = self.requestline.split(" ")[1]
        self.server.headers = {name.lower(): value for name, value in self.headers.items()}
        body = unquote_to_bytes(self.server.path)
        self.reply(200, {"Content-Length": str(len(body))}, body)


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    with Store() as store:
        yield store


@pytest.fixture(scope="module")
def transfers() -> Iterator[Transfers]:
    transfers = Transfers(4, "tests/1")
    yield transfers
    transfers.close()


class Botos:
    """The requests that boto3 makes; none is sent."""

    def __init__(self, client: Client, bucket: str) -> None:
        self._boto, self._bucket = client.boto, bucket
        self._boto.meta.events.register("before-send.s3.GetObject", self._keep)
        self.made: list[Any] = []

    def url_of(self, key: str) -> str:
        with pytest.raises(InterruptedError):
            self._boto.get_object(Bucket=self._bucket, Key=key)
        return str(self.made[-1].url)

    def _keep(self, request: Any, **_: Any) -> None:
        self.made.append(request)
        raise InterruptedError


def authorization(url: str, headers: dict[str, str], token: str = "", region: str = REGION) -> str:
    """As botocore makes it for a request with these headers."""
    signed = {name: value for name, value in headers.items() if name.startswith("x-amz-")}
    request = AWSRequest("GET", url, headers=signed)
    request.context["timestamp"] = headers["x-amz-date"]
    auth = S3SigV4Auth(Credentials(KEY, SECRET, token or None), "s3", region)
    text = auth.string_to_sign(request, auth.canonical_request(request))
    return (
        f"AWS4-HMAC-SHA256 Credential={auth.scope(request)}, "
        f"SignedHeaders={';'.join(sorted(['host', *signed]))}, "
        f"Signature={auth.signature(text, request)}"
    )


def headers_of(request: Request) -> dict[str, str]:
    return dict(line.split(": ", 1) for line in request.headers)


KEYS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40) | st.text(
    "./ab+:@=&()%~ ?#;é\0\n", min_size=1, max_size=12
)


@pytest.mark.parametrize("token", ["", "FwoGZXIvYXdzEBYaD/+=="])
def test_any_key_as_it_arrives(store: Store, transfers: Transfers, token: str) -> None:
    objects = Objects(client_of(store.endpoint, token=token), "bucket")
    botos = Botos(client_of(store.endpoint, token=token), "bucket")

    @given(KEYS)
    @example("x/../z.jpg")
    @example("/a//b/./..")
    @example("..")
    @example("a" * 1024)
    @example("a+b:c@d=e&f(g)%2F~ h.jpg")
    def check(key: str) -> None:
        answer = transfers.ask(objects.request(key, LIMIT))
        assert objects.object_of(answer, key) == f"/bucket/{key}".encode()
        url = store.endpoint + store.path
        assert url == botos.url_of(key)
        assert store.headers["authorization"] == authorization(url, store.headers, token)
        assert store.headers.get("x-amz-security-token", "") == token
        assert store.headers["x-amz-checksum-mode"] == "ENABLED"

    check()


@pytest.mark.parametrize(
    ("bucket", "variables"),
    [
        ("bucket", {}),
        ("bucket", {"AWS_USE_DUALSTACK_ENDPOINT": "true"}),
        ("my.bucket", {}),
        ("arn:aws:s3:us-west-2:123456789012:accesspoint/mine", {}),
    ],
)
@pytest.mark.parametrize("key", [KEY, ""])
def test_it_asks_where_boto3_asks(
    monkeypatch: pytest.MonkeyPatch, bucket: str, variables: dict[str, str], key: str
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    objects = Objects(client_of("", key), bucket)
    url = Botos(client_of("", key), bucket).url_of("a b/c")
    request = objects.request("a b/c", LIMIT)
    assert (request.url, request.max_bytes) == (url, LIMIT)
    headers = headers_of(request)
    if key:
        region = "us-west-2" if "us-west-2" in bucket else REGION
        assert headers["authorization"] == authorization(url, headers, region=region)
    else:
        assert "authorization" not in headers


@pytest.mark.parametrize(("signer", "made"), [("s3v4", 1), ("s3", 4)])
def test_boto3_makes_one_request_or_signs_them_all(
    store: Store, transfers: Transfers, signer: str, made: int
) -> None:
    """All where it signs in another way than ours."""
    client, created = client_of(store.endpoint), list[str]()
    events = client.boto.meta.events
    events.register("choose-signer.s3.GetObject", lambda **_: signer)
    events.register(
        "request-created.s3.GetObject", lambda event_name, **_: created.append(event_name)
    )
    objects = Objects(client, "bucket")
    for name in "a/../b", "ä", "c":
        answer = transfers.ask(objects.request(name, LIMIT))
        assert answer.body == f"/bucket/{name}".encode()
    assert ("AWS4" in store.headers["authorization"]) == (signer == "s3v4")
    assert len(created) == made


@pytest.mark.parametrize("endpoint", ["http://store.test:80", "https://store.test:443"])
def test_the_default_port_is_in_no_signature(endpoint: str) -> None:
    client, created = client_of(endpoint), list[str]()
    client.boto.meta.events.register(
        "request-created.s3.GetObject", lambda event_name, **_: created.append(event_name)
    )
    objects = Objects(client, "bucket")
    for _ in range(3):
        request = objects.request("key", LIMIT)
        headers = headers_of(request)
        assert headers["authorization"] == authorization(request.url, headers)
    assert len(created) == 1


@pytest.mark.parametrize("key", ["", "\udcff"])
def test_what_can_be_no_key(key: str) -> None:
    with pytest.raises(PermanentError) as caught:
        Objects(client_of(""), "bucket").request(key, LIMIT)
    assert "\n" not in str(caught.value)


def answer(status: int, code: str = "", region: str = "", **headers: str) -> Answer:
    error = f"<Error><Code>{code}</Code><Region>{region}</Region></Error>"
    body = error if code else "<html>"
    return Answer(status, {k.replace("_", "-"): v for k, v in headers.items()}, body.encode(), "")


@pytest.mark.parametrize(
    ("got", "kind", "reason"),
    [
        (answer(404, "NoSuchKey"), PermanentError, "404 NoSuchKey"),
        (answer(206), PermanentError, "HTTP 206"),
        (answer(403, "AccessDenied"), ForbiddenError, "403 AccessDenied"),
        (answer(404, "NoSuchBucket"), NoBucketError, "404 NoSuchBucket"),
        (answer(400, "ExpiredToken"), RefusedError, "400 ExpiredToken; get new credentials"),
        (answer(503, "SlowDown", retry_after="7"), TransientError, "503 SlowDown"),
        (answer(429), TransientError, "HTTP 429"),
        # Cut off: it may have been ExpiredToken.
        (Answer(400, {}, b"", ""), TransientError, "HTTP 400"),
        (Answer(400, {}, b"<Error><Code>Exp", ""), TransientError, "HTTP 400"),
    ],
)
def test_answers_without_an_object(got: Answer, kind: type[Exception], reason: str) -> None:
    with pytest.raises(kind) as caught:
        Objects(client_of(""), "bucket").object_of(got, "key")
    assert str(caught.value).startswith(reason)
    assert "\n" not in str(caught.value)
    if "retry-after" in got.headers:
        assert isinstance(caught.value, TransientError)
        assert caught.value.retry_after_s == 7


BODY = b"body" * 1000
MD5 = hashlib.md5(BODY).hexdigest()


def base64_of(digest: bytes) -> str:
    return base64.b64encode(digest).decode()


@pytest.mark.parametrize(
    ("headers", "is_checked"),
    [
        ({"etag": f'"{MD5}"'}, True),
        ({"etag": f'"{MD5}-2"'}, False),
        ({"etag": f'"{MD5}"', "x-amz-server-side-encryption": "AES256"}, True),
        ({"etag": f'"{MD5}"', "x-amz-server-side-encryption": "aws:kms"}, False),
        ({"etag": f'"{MD5}"', "x-amz-server-side-encryption-customer-algorithm": "AES256"}, False),
        ({"x-amz-checksum-crc32": base64_of(zlib.crc32(BODY).to_bytes(4, "big"))}, True),
        ({"x-amz-checksum-sha1": base64_of(hashlib.sha1(BODY).digest())}, True),
        ({"x-amz-checksum-sha256": base64_of(hashlib.sha256(BODY).digest())}, True),
        ({"x-amz-checksum-sha256": base64_of(hashlib.sha256(BODY).digest()) + "-2"}, False),
        ({"x-amz-checksum-xxhash128": "?"}, False),
        ({}, False),
    ],
)
def test_checksums(headers: dict[str, str], is_checked: bool) -> None:
    assert is_verified(Answer(200, headers, BODY, "")) == is_checked
    other = Answer(200, headers, BODY[:-1] + b"?", "")
    if is_checked:
        with pytest.raises(TransientError, match="corrupted in transit"):
            is_verified(other)
    else:
        assert not is_verified(other)


def test_an_etag_of_s3_express_is_no_md5() -> None:
    url = "https://b--use1-az4--x-s3.s3express-use1-az4.us-east-1.amazonaws.com/key"
    assert not is_verified(Answer(200, {"etag": f'"{MD5}"'}, b"other", url))


@pytest.mark.parametrize(
    "got",
    [
        answer(301, "PermanentRedirect", x_amz_bucket_region="ap-south-1"),
        answer(400, "AuthorizationHeaderMalformed", "ap-south-1"),
    ],
)
@pytest.mark.parametrize("endpoint", ["", "http://127.0.0.1:1"])
def test_a_bucket_of_another_region_is_asked_there(got: Answer, endpoint: str) -> None:
    objects = Objects(client_of(endpoint), "bucket")
    before = objects.request("key", LIMIT)
    for _ in range(2):  # several were on their way
        with pytest.raises(TransientError, match="another region"):
            objects.object_of(got, "key")
    after = objects.request("key", LIMIT)
    assert REGION in headers_of(before)["authorization"]
    assert "/ap-south-1/s3/" in headers_of(after)["authorization"]
    assert ("s3.ap-south-1.amazonaws.com" in after.url) == (not endpoint)


class Renewed:
    """Credentials whose renewal is given."""

    def __init__(self, client: Client) -> None:
        self._static = client.credentials
        self.failure: Exception | None = None
        self.token = ""

    def get_frozen_credentials(self) -> Any:
        if self.failure:
            raise self.failure
        return self._static.get_frozen_credentials()._replace(token=self.token)


def test_credentials_are_renewed() -> None:
    client = client_of("")
    objects = Objects(client, "bucket")
    objects.request("key", LIMIT)
    client.credentials = renewed = Renewed(client)
    renewed.token = "next"
    request = objects.request("key", LIMIT)
    headers = headers_of(request)
    assert headers["x-amz-security-token"] == "next"
    assert headers["authorization"] == authorization(request.url, headers, "next")


REFUSED = exceptions.ClientError({"Error": {"Code": "AccessDenied"}}, "AssumeRole")


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (exceptions.CredentialRetrievalError(provider="process", error_msg="gone"), RefusedError),
        (exceptions.UnauthorizedSSOTokenError(), RefusedError),
        (RuntimeError("still expired"), RefusedError),
        (REFUSED, RefusedError),
        (exceptions.EndpointConnectionError(endpoint_url="https://sts"), TransientError),
    ],
)
def test_credentials_that_cannot_be_renewed(failure: Exception, kind: type[Exception]) -> None:
    client = client_of("")
    objects = Objects(client, "bucket")
    objects.request("key", LIMIT)
    client.credentials = renewed = Renewed(client)
    renewed.failure = failure
    with pytest.raises(kind) as caught:
        objects.request("key", LIMIT)
    assert "\n" not in str(caught.value)


@pytest.fixture(scope="module")
def checking_server() -> Iterator[tuple[str, str, str]]:
    """moto's server, which checks signatures once it is set up; and a user's keys."""
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    endpoint = f"http://127.0.0.1:{server.get_host_and_port()[1]}"
    session = boto3.session.Session("test", "test", region_name="us-east-1")
    iam, s3 = (session.client(name, endpoint_url=endpoint) for name in ("iam", "s3"))
    iam.create_user(UserName="reader")
    statement = {"Effect": "Allow", "Action": "s3:*", "Resource": "*"}
    policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    iam.put_user_policy(UserName="reader", PolicyName="read", PolicyDocument=policy)
    keys = iam.create_access_key(UserName="reader")["AccessKey"]
    s3.create_bucket(Bucket="signed")
    for key in SIGNED:
        s3.put_object(Bucket="signed", Key=key, Body=key.encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(settings, "INITIAL_NO_AUTH_ACTION_COUNT", 0)
        yield endpoint, keys["AccessKeyId"], keys["SecretAccessKey"]
    server.stop()


SIGNED = ["a+b c/ä:@=&()~%2F.jpg"]


@pytest.mark.parametrize("is_right", [True, False])
def test_images_of_a_bucket(
    monkeypatch: pytest.MonkeyPatch, checking_server: tuple[str, str, str], is_right: bool
) -> None:
    """Through the loader's reader: bytes, failures of images, or an end with the cure."""
    endpoint, key, secret = checking_server
    for name, value in variables_of(endpoint, key, secret if is_right else "wrong").items():
        monkeypatch.setenv(name, value)
    sources = [Source(name, f"s3://signed/{name}") for name in (*SIGNED, "none.jpg")]
    with closing(SourceReader(Limits())) as reader:
        reader.prefetch(sources)
        if is_right:
            assert reader(sources[0]) == SIGNED[0].encode()
            with pytest.raises(ImageError, match="404 NoSuchKey"):
                reader(sources[1])
        else:
            for source in sources:
                with pytest.raises(UserError, match=r"signed: 403 SignatureDoesNotMatch; set AWS_"):
                    reader(source)
