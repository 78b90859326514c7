"""The store: one boto3 client without credentials, and a GET that ends in checked bytes or in a reason.

What goes wrong is sorted once, here: asking again helps (`TransientError`), it does not
(`GoneError`), or nothing at all can be had from this store (`UserError`).
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from email.utils import mktime_tz, parsedate_tz
from functools import cache
from typing import Any
from urllib.parse import urlsplit

import boto3
import botocore.session
from botocore import UNSIGNED
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from urllib3.exceptions import HTTPError

from wallclock.errors import UserError
from wallclock.spec import CorpusSpec

#: Bodies up to this length are read in one go, longer ones in pieces of it.
PIECE_BYTES = 1 << 20

#: An ETag that is the body's MD5: one part, not encrypted with a key of the store's.
_MD5 = re.compile(r'"?([0-9a-f]{32})"?')
_RETRIED_4XX = frozenset({408, 425, 429})
_RETRIED_CODES = frozenset(
    {"RequestTimeout", "SlowDown", "Throttling", "ThrottlingException", "InternalError"}
)
_BUSY = frozenset({429, 503})
_NO_BUCKET = frozenset(
    {"NoSuchBucket", "InvalidBucketName", "PermanentRedirect", "AllAccessDisabled"}
)


class TransientError(Exception):
    """A GET that failed in a way that asking again may mend; `busy`: the store asks for fewer at once."""

    def __init__(self, reason: str, *, busy: bool = False) -> None:
        super().__init__(reason)
        self.busy = busy


class GoneError(Exception):
    """A GET that the store refuses for good: no such key, forbidden."""


@dataclass(frozen=True)
class Address:
    """Where a store is and how it is asked: `threads` at once, `attempts` times; timeouts in seconds."""

    endpoint: str
    bucket: str
    region: str
    threads: int
    attempts: int
    connect_timeout_s: float
    read_timeout_s: float

    @staticmethod
    def of(spec: CorpusSpec) -> Address:
        """The address that a corpus is configured with."""
        return Address(
            spec.endpoint,
            spec.bucket,
            spec.region,
            spec.threads,
            spec.attempts,
            spec.connect_timeout_s,
            spec.read_timeout_s,
        )

    @property
    def host(self) -> str:
        """What a message calls the store."""
        if not self.endpoint:
            return f"{self.bucket}.s3.{self.region}.amazonaws.com"
        return urlsplit(self.endpoint).netloc.rpartition("@")[2]


@dataclass(frozen=True)
class Receipt:
    """A body that arrived whole. `verified`: a checksum of the store's own agreed with it.

    `modified_ns` is the store's date of the object, 0 where it says none.
    """

    bytes: int
    sha256: str
    etag: str
    modified_ns: int
    verified: bool


class Store:
    """GETs from one bucket, from as many threads as the address names. Close it when done.

    Raises:
        UserError: the endpoint is none.
    """

    def __init__(self, address: Address) -> None:
        self.address = address
        #: Set once the store has answered anything at all.
        self.answered = threading.Event()
        #: Why it last could not be asked, in a few words.
        self.trouble = ""
        try:
            self._client = _client(address)
        except ValueError as error:
            raise UserError(
                f"corpus.endpoint={address.endpoint}: {error}; give http://host:port"
            ) from error

    def close(self) -> None:
        """Close every pooled connection."""
        self._client.close()

    def get(self, key: str, limit_bytes: int, write: Callable[[bytes], object]) -> Receipt:
        """GET one object, hand its pieces to `write`, check length and checksum.

        Raises:
            TransientError: unreachable, busy, cut off or damaged on the way.
            GoneError: there is no such object, it is forbidden, or longer than `limit_bytes`.
            UserError: there is no such bucket.
        """
        with self._sorted():
            answer = self._asked(key)
            self.answered.set()
            with _closing(answer["Body"]) as body:
                return _receive(answer, body, limit_bytes, write)

    def get_bytes(self, key: str, limit_bytes: int) -> tuple[bytes, Receipt]:
        """GET one object into memory. Raises as `get` does."""
        pieces: list[bytes] = []
        receipt = self.get(key, limit_bytes, pieces.append)
        return b"".join(pieces), receipt

    def _asked(self, key: str) -> dict[str, Any]:
        try:
            answer: dict[str, Any] = self._client.get_object(Bucket=self.address.bucket, Key=key)
        except (ValueError, TypeError, ArithmeticError, LookupError) as error:
            # botocore's parsers stumble over headers that make no sense.
            self.answered.set()
            raise TransientError(
                f"an answer that cannot be read: {' '.join(str(error).split())}"
            ) from error
        return answer

    @contextmanager
    def _sorted(self) -> Iterator[None]:
        try:
            yield
        except ClientError as error:
            self.answered.set()
            raise self._judged(error) from error
        except (BotoCoreError, HTTPError, ConnectionError, TimeoutError) as error:
            self.trouble = " ".join(str(error).split()) or type(error).__name__
            raise TransientError(self.trouble) from error

    def _judged(self, error: ClientError) -> Exception:
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        code = str(error.response.get("Error", {}).get("Code", ""))
        what = f"{status} {code}" if code != str(status) else f"HTTP {status}"
        if code in _NO_BUCKET:
            return UserError(
                f"{self.address.host} has no bucket {self.address.bucket} ({what}); check corpus.bucket, "
                "corpus.region and corpus.endpoint"
            )
        if status >= 500 or status in _RETRIED_4XX or code in _RETRIED_CODES:
            return TransientError(what, busy=status in _BUSY)
        return GoneError(what)


def _receive(
    answer: dict[str, Any], body: Any, limit_bytes: int, write: Callable[[bytes], object]
) -> Receipt:
    length = answer.get("ContentLength")
    if length is not None and length > limit_bytes:
        raise GoneError(f"{length:,} bytes, over the limit of {limit_bytes:,}")
    md5, sha256 = hashlib.md5(usedforsecurity=False), hashlib.sha256()
    # botocore compares x-amz-checksum-… where it knows the algorithm, in the read that finds the end.
    compares = hasattr(body, "checksum")
    received = 0
    while piece := body.read(PIECE_BYTES):
        received += len(piece)
        if received > limit_bytes:
            raise GoneError(f"more bytes than the limit of {limit_bytes:,}")
        md5.update(piece)
        sha256.update(piece)
        write(piece)
        if received == length and not compares:
            # One more read would only learn that there is no more.
            break
    if length is not None and received != length:
        raise TransientError(f"cut off: {received:,} of {length:,} bytes")
    etag = answer.get("ETag", "")
    encrypted = (
        str(answer.get("ServerSideEncryption", "")).startswith("aws:kms")
        or "SSECustomerAlgorithm" in answer
    )
    expected = None if encrypted else _MD5.fullmatch(etag)
    if expected and expected[1] != md5.hexdigest():
        raise TransientError("damaged on the way: its MD5 is not its ETag")
    verified = bool(expected) or compares
    return Receipt(
        received, sha256.hexdigest(), etag.strip('"'), answer.get("LastModified", 0), verified
    )


@contextmanager
def _closing(body: Any) -> Iterator[Any]:
    """Drop the connection if the body is not read to its end: what is left on it would answer the next request."""
    try:
        yield body
    except BaseException:
        body.close()
        raise


@cache
def _session() -> boto3.session.Session:
    """One for all clients: it reads S3's model of 1 MB once."""
    # Nobody's own AWS files or profile: what is fetched must not depend on whose machine it is.
    files = dict.fromkeys(("config_file", "credentials_file"), (None, None, os.devnull, None))
    core = botocore.session.Session({"profile": (None, None, None, None), **files})
    # botocore's default parser of dates takes a tenth of a GET.
    core.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=_nanoseconds)
    return boto3.session.Session(botocore_session=core)


def _client(address: Address) -> Any:
    return _session().client(
        "s3",
        endpoint_url=address.endpoint or None,
        region_name=address.region,
        config=Config(
            signature_version=UNSIGNED,
            max_pool_connections=address.threads,
            # Whoever GETs tries again, since only he sees a damaged body. botocore's adaptive mode would
            # moreover fall to one request in two seconds for a SlowDown within the first half second.
            retries={"mode": "standard", "total_max_attempts": 1},
            connect_timeout=address.connect_timeout_s,
            read_timeout=address.read_timeout_s,
            response_checksum_validation="when_supported",
            s3={
                "addressing_style": "path" if address.endpoint else "virtual",
                "us_east_1_regional_endpoint": "regional",  # the host that `Address.host` names
            },
            ignore_configured_endpoint_urls=True,
            tcp_keepalive=True,
            # Its own is put together anew for each request, which takes another tenth.
            parameter_validation=False,  # of two constant names and a key
            user_agent=f"wallclock boto3/{boto3.__version__}",
        ),
    )


def _nanoseconds(http_date: Any) -> int:
    """An HTTP date as nanoseconds since 1970; 0 for what is no date."""
    parsed = parsedate_tz(str(http_date))
    return max(mktime_tz(parsed), 0) * 10**9 if parsed else 0
