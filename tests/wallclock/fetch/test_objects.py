"""GETs from a bucket: signed as botocore signs, and what their answers mean."""

from collections.abc import Iterator
from urllib.parse import unquote_to_bytes

import pytest
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import example, given
from hypothesis import strategies as st

from tests.threaded_server import FileHandler, ThreadedServer
from tests.wallclock.fetch.client import KEY, REGION, SECRET, client_of
from wallclock.fetch.objects import Objects
from wallclock.fetch.transfers import Transfers


class Store(ThreadedServer):
    """Answers with the path that it was asked for, or what `answers` has, and keeps the request."""

    def __init__(self) -> None:
        super().__init__(_Handler)
        self.path, self.headers = "", dict[str, str]()
        self.answers = dict[str, tuple[int, dict[str, str], bytes]]()


class _Handler(FileHandler):
    server: Store

    def answer(self) -> None:
        path = self.requestline.split(" ")[1]
        self.server.path = path
        self.server.headers = {name.lower(): value for name, value in self.headers.items()}
        found = 200, dict[str, str](), unquote_to_bytes(path)
        status, headers, body = self.server.answers.get(path, found)
        self.reply(status, {"Content-Length": str(len(body)), **headers}, body)


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    with Store() as store:
        yield store


@pytest.fixture(scope="module")
def transfers() -> Iterator[Transfers]:
    transfers = Transfers(4, "tests/1")
    yield transfers
    transfers.close()


def botocores_signature(store: Store, token: str) -> str:
    """Of the request that arrived."""
    credentials = Credentials(KEY, SECRET, token or None)
    sent = [name for name in store.headers if name.startswith("x-amz-")]
    request = AWSRequest("GET", store.endpoint + store.path)
    for name in sent:
        request.headers[name] = store.headers[name]
    request.context["timestamp"] = store.headers["x-amz-date"]
    auth = S3SigV4Auth(credentials, "s3", REGION)
    text = auth.string_to_sign(request, auth.canonical_request(request))
    names = ";".join(sorted(["host", *sent]))
    return (
        f"AWS4-HMAC-SHA256 Credential={auth.scope(request)}, SignedHeaders={names}, "
        f"Signature={auth.signature(text, request)}"
    )


KEYS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40) | st.text(
    "./ab+:@=&()%~ ?#;é\0\n", min_size=1, max_size=12
)


@pytest.mark.parametrize("token", ["", "FwoGZXIvYXdzEBYaD/+=="])
def test_any_key_is_signed_as_botocore_signs_it(
    store: Store, transfers: Transfers, token: str
) -> None:
    objects = Objects(client_of(store.endpoint, token=token), "bucket")
    # Another one, since it takes over what its client sends.
    reference = Objects(client_of(store.endpoint, token=token), "bucket")

    @given(KEYS)
    @example("x/../z.jpg")
    @example("/a//b/./..")
    @example("..")
    @example("a" * 1024)
    @example("a+b:c@d=e&f(g)%2F~ h.jpg")
    def check(key: str) -> None:
        answer = transfers.ask(objects.request(key, 1 << 20))
        assert objects.object_of(answer, key)[0] == f"/bucket/{key}".encode()
        assert store.endpoint + store.path == reference._made_by_boto3(key).url
        assert store.headers["authorization"] == botocores_signature(store, token)
        assert store.headers.get("x-amz-security-token", "") == token
        assert store.headers["x-amz-checksum-mode"] == "ENABLED"

    check()
