"""GETs of a bucket's objects through `Transfers`: the requests, and what their answers mean.

boto3 takes a millisecond for a request. So it is asked for one, which is not sent, and the others
are made after it; their signatures are those that botocore would make.
"""

import base64
import hashlib
import hmac
import re
import threading
import time
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, lru_cache
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote, urlsplit

from wallclock.errors import first_line
from wallclock.fetch.request import Answer, Request
from wallclock.fetch.retries import PermanentError, RequestError, TransientError
from wallclock.fetch.s3 import Client, classify, refusal, refused

_PROBE = "k"
_AUTHORIZATION = "AWS4-HMAC-SHA256 Credential={}/{}, SignedHeaders={}, Signature={}"
_SIGNED = re.compile(
    _AUTHORIZATION.format(r"[^/]+", r"\d+/([^/]+/[^/]+)/aws4_request", r"([\w;-]+)", r".*")
)
#: Headers in which boto3 names itself, and those that differ from request to request.
_BOTOS = re.compile("user-agent|amz-sdk-.*", re.IGNORECASE)
_TOKEN = "x-amz-security-token"
_SIGNERS = frozenset({"x-amz-date", _TOKEN, "authorization"})
_EVENT = "before-send.s3.GetObject"

#: An ETag that is the body's MD5: of a single part, not encrypted with a key of the store, and not
#: in a bucket of S3 Express.
_MD5 = re.compile(r'"?([0-9a-f]{32})"?')
_EXPRESS = ".s3express-"
_ENCRYPTION = "x-amz-server-side-encryption"


@dataclass(frozen=True, eq=False)
class _Form:
    """What the requests for all objects of a bucket have in common, as boto3 makes them.

    `url`, `path`: as far as the key. `headers`: by their names in lower case. `signed`: the names
    of those that the signature covers, none of an anonymous request; `scope`: its region, service.
    """

    url: str
    path: str
    headers: dict[str, str]
    signed: list[str]
    scope: str


@lru_cache(16)
def _signer(form: _Form, date: str, key: Any) -> Callable[[str], tuple[str, ...]]:
    """What makes the lines of headers for a path (AWS Signature Version 4). `key`: frozen."""
    headers, signed = form.headers | {"x-amz-date": date}, form.signed
    if key.token:
        headers[_TOKEN] = key.token
        signed = sorted([*signed, _TOKEN])
    canonical = "".join([f"{name}:{headers[name]}\n" for name in signed])
    names, scope = ";".join(signed), f"{date[:8]}/{form.scope}/aws4_request"
    rest = f"\n\n{canonical}\n{names}\n{headers['x-amz-content-sha256']}"
    secret, fixed = _signing_key(key.secret_key, scope), _lines(headers)
    authorization = _AUTHORIZATION.format(key.access_key, scope, names, "")

    def sign(path: str) -> tuple[str, ...]:
        digest = hashlib.sha256(f"GET\n{path}{rest}".encode()).hexdigest()
        text = f"AWS4-HMAC-SHA256\n{date}\n{scope}\n{digest}".encode()
        signature = hmac.digest(secret, text, "sha256").hex()
        return (*fixed, f"authorization: {authorization}{signature}")

    return sign


def _signing_key(secret: str, scope: str) -> bytes:
    key = f"AWS4{secret}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    return key


class _NotSent(Exception):  # noqa: N818 - boto3's request is what was wanted
    """A request that boto3 made, signed if it signs."""

    def __init__(self, request: Any) -> None:
        super().__init__()
        self.url: str = request.url
        self.headers = {
            name.lower(): value.decode() if isinstance(value, bytes) else str(value)
            for name, value in request.headers.items()
            if not _BOTOS.fullmatch(name)
        }


class Objects:
    """GETs of one bucket's objects. `client` is for them alone, and is not closed."""

    def __init__(self, client: Client, bucket: str) -> None:
        self._client, self._bucket = client, bucket
        self._lock = threading.Lock()
        #: What boto3 gets instead of a connection.
        self._replies: list[Any] = []
        self._form: _Form | None = None
        self._is_known = False
        client.boto.meta.events.register(_EVENT, self._intercept)

    def request(self, key: str, max_bytes: int) -> Request:
        """What gets an object. Raises RequestError: no credentials, or what can be no key."""
        if not self._is_known:
            self._form, self._is_known = self._learn(), True
        form = self._form
        if form is None or not key:
            sent = self._made_by_boto3(key)
            return Request(sent.url, max_bytes, _lines(sent.headers))
        try:
            quoted = quote(key, "/~")
        except UnicodeError as error:
            raise PermanentError("a key that is no Unicode text") from error
        url = form.url + quoted
        if not form.signed:
            return Request(url, max_bytes, _lines(form.headers))
        date = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        sign = _signer(form, date, self._credentials())
        return Request(url, max_bytes, sign(form.path + quoted))

    def object_of(self, answer: Answer, key: str) -> bytes:
        """The body of an answer with an object. Raises RequestError: what another answer means."""
        if answer.status != 200:
            raise self._failure(answer, key)
        is_verified(answer)
        return answer.body

    def _learn(self) -> _Form | None:
        """How boto3 asks for an object; None: in a way that has to be left to it."""
        probe = self._made_by_boto3(_PROBE)
        parts = urlsplit(probe.url)
        headers = {k: v for k, v in probe.headers.items() if k not in _SIGNERS}
        url, path = probe.url.removesuffix(_PROBE), parts.path.removesuffix(_PROBE)
        if parts.query or not path.endswith("/"):
            return None
        authorization = probe.headers.get("authorization")
        if not authorization:
            return _Form(url, path, headers, [], "")
        if not (match := _SIGNED.fullmatch(authorization)):
            return None
        port = {"http": ":80", "https": ":443"}[parts.scheme]
        headers["host"] = parts.netloc.rpartition("@")[2].removesuffix(port)
        names = [name for name in match[2].split(";") if name != _TOKEN]
        form = _Form(url, path, headers, names, match[1])
        try:
            sign = _signer(form, probe.headers["x-amz-date"], self._credentials())
        except KeyError:  # a header that is not among those
            return None
        return form if sign(parts.path)[-1] == f"authorization: {authorization}" else None

    def _credentials(self) -> Any:
        """Those of now: boto3 renews them before they end."""
        try:
            return self._client.credentials.get_frozen_credentials()
        except Exception as error:
            failure = classify(error)
            is_passing = isinstance(failure, TransientError)
            raise (failure if is_passing else refused(first_line(error))) from error

    def _failure(self, answer: Answer, key: str) -> RequestError:
        """What boto3 makes of an answer that is no object."""
        from botocore.awsrequest import AWSResponse

        if answer.status == 400 and b"</Error>" not in answer.body:  # cut off before its code
            return TransientError("HTTP 400", 400)
        raw = SimpleNamespace(stream=lambda: [answer.body])
        reply = AWSResponse(answer.url, answer.status, answer.headers, raw)
        try:
            self._made_by_boto3(key, reply)
        except RequestError as error:
            error.retry_after_s = answer.retry_after_s
            return error
        # It would ask again, elsewhere, and remembers where.
        self._is_known = False
        reason = f"HTTP {answer.status}: the bucket is in another region, and is asked there"
        return TransientError(reason, answer.status)

    def _made_by_boto3(self, key: str, *replies: Any) -> _NotSent:
        """The request that boto3 sends, after it got these replies to the first ones."""
        with self._lock:
            self._replies = list(replies)
            try:
                self._client.boto.get_object(Bucket=self._bucket, Key=key)
            except _NotSent as request:
                return request
            except Exception as error:
                raise classify(error) from error
        status = replies[0].status_code
        raise refusal(status, str(status))

    def _intercept(self, request: Any, **_: Any) -> Any:
        if self._replies:
            return self._replies.pop(0)
        raise _NotSent(request)


def _lines(headers: Mapping[str, str]) -> tuple[str, ...]:
    return tuple([f"{name}: {value}" for name, value in headers.items()])


def is_verified(answer: Answer) -> bool:
    """Whether the body is what its headers say; else TransientError. False: they say nothing."""
    headers, body = answer.headers, answer.body
    for name, check in _checks():
        # That of an object of several parts is made of their checksums, and has a hyphen.
        if (expected := headers.get(name)) and "-" not in expected:
            if base64.b64encode(check(body)).decode() != expected:
                raise TransientError(f"corrupted in transit: it is not as {name} says")
            return True
    encryption = headers.get(_ENCRYPTION, "")
    encrypted = encryption.startswith("aws:kms") or f"{_ENCRYPTION}-customer-algorithm" in headers
    md5 = _MD5.fullmatch(headers.get("etag", ""))
    if not md5 or encrypted or _EXPRESS in answer.url:
        return False
    if hashlib.md5(body, usedforsecurity=False).hexdigest() != md5[1]:
        raise TransientError("corrupted in transit: its MD5 is not its ETag")
    return True


@cache
def _checks() -> tuple[tuple[str, Callable[[bytes], bytes]], ...]:
    """The header of each checksum that can be computed here, and how."""
    checks = {
        "crc32": lambda body: zlib.crc32(body).to_bytes(4, "big"),
        "sha1": lambda body: hashlib.sha1(body, usedforsecurity=False).digest(),
        "sha256": lambda body: hashlib.sha256(body).digest(),
    }
    with suppress(ImportError):
        from awscrt import checksums

        checks["crc32c"] = lambda body: checksums.crc32c(body).to_bytes(4, "big")
        checks["crc64nvme"] = lambda body: checksums.crc64nvme(body).to_bytes(8, "big")
    return tuple((f"x-amz-checksum-{name}", check) for name, check in checks.items())
