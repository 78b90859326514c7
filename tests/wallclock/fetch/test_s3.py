"""The one client of S3: what it raises, what it sends again, whose settings it uses."""

import io
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from botocore import exceptions
from urllib3.exceptions import ProtocolError

from wallclock.errors import UserError
from wallclock.fetch.retries import (
    ForbiddenError,
    PermanentError,
    RefusedError,
    RequestError,
    TransientError,
)
from wallclock.fetch.s3 import Client, NoBucketError, classify, connect


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


def test_what_is_refused_is_asked_once() -> None:
    boto = Script([refusal(403, "AccessDenied"), {"Body": io.BytesIO(b"data")}])
    with pytest.raises(PermanentError, match="403 AccessDenied"):
        Client(boto).call("get_object")


def test_it_gives_up() -> None:
    boto = Script([UNREACHABLE] * 50)
    with pytest.raises(TransientError):
        Client(boto).call("get_object")
    assert len(list(boto._answers)) == 50 - 7


@pytest.fixture
def users_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys, a region and an endpoint in the environment."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, os.devnull)


@pytest.mark.usefixtures("users_settings")
def test_the_users_settings() -> None:
    client = connect("a job")
    assert client.credentials.access_key == "key"
    assert client.boto.meta.endpoint_url == "http://127.0.0.1:1"
    assert client.boto.meta.region_name == "eu-west-1"


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
    with pytest.raises(UserError, match=line) as caught:
        connect("a job")
    assert "\n" not in str(caught.value)
