"""The object store: GETs that end in verified bytes or in a classified error.

Errors are classified here: transient (`TransientError`, a retry may help), permanent
(`PermanentError`), or fatal for the run (`UserError`).
"""

import hashlib
import math
import os
import re
import threading
from collections.abc import Callable
from concurrent import futures
from dataclasses import dataclass
from functools import cache, partial
from typing import Any
from urllib.parse import urlsplit

import boto3
import botocore.session
from botocore import UNSIGNED
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from urllib3.exceptions import HTTPError

from wallclock.errors import UserError, first_line
from wallclock.fetch.retries import PermanentError, TransientError, is_transient, retry

#: Bytes of a body that are read, and kept in memory, at once.
CHUNK_BYTES = 1 << 20
#: Seconds without any answer until the store counts as unreachable.
CONNECT_DEADLINE_S = 8.0
#: Seconds until a small object (the catalogue, a licence) is given up, retries included.
_DOWNLOAD_TIMEOUT_S = 600.0

#: An ETag that is the body's MD5: a single part, not encrypted with a key of the store.
_MD5 = re.compile(r'"?([0-9a-f]{32})"?')
_TRANSIENT_CODES = {"RequestTimeout", "SlowDown", "Throttling", "ThrottlingException"}
_NO_BUCKET = {"NoSuchBucket", "InvalidBucketName", "PermanentRedirect", "AllAccessDisabled"}


@dataclass(frozen=True)
class ObjectInfo:
    """A body that arrived complete. `verified`: it agreed with a checksum of the store.

    `modified_ns` is the store's date of the object, 0 if it states none.
    """

    bytes: int
    sha256: str
    etag: str
    modified_ns: int
    verified: bool


@dataclass(frozen=True)
class BucketSpec:
    """A bucket, and how to ask for its objects.

    An empty `endpoint` is AWS; any other an S3-compatible store or a plain HTTP mirror. `threads`:
    concurrent GETs; `attempts`: tries per object.
    """

    bucket: str
    region: str = ""
    endpoint: str = ""
    threads: int = 32
    attempts: int = 6
    connect_timeout_s: float = 5.0
    read_timeout_s: float = 20.0


class Store:
    """GETs from one bucket, from as many threads as configured. Close it when done.

    Args:
        client: boto3's for S3; by default an anonymous one, whatever the user's AWS files say.

    Raises:
        UserError: the endpoint is no URL.
    """

    def __init__(self, spec: BucketSpec, client: Any = None) -> None:
        self.spec = spec
        #: Set once the store has answered anything at all.
        self.reachable = threading.Event()
        self.last_error = ""
        try:
            self._client = client or _client(spec)
        except ValueError as error:
            raise UserError(
                f"corpus.endpoint={spec.endpoint}: {error}; give http://host:port"
            ) from error

    @property
    def host(self) -> str:
        """The store's name in messages: without a password."""
        if not self.spec.endpoint:
            return f"{self.spec.bucket}.s3.{self.spec.region}.amazonaws.com"
        return urlsplit(self.spec.endpoint).netloc.rpartition("@")[2]

    def close(self) -> None:
        """Close every pooled connection."""
        self._client.close()

    def get(self, key: str, limit_bytes: int, write: Callable[[bytes], object]) -> ObjectInfo:
        """GET one object, pass its chunks to `write`, check length and checksum.

        Raises:
            TransientError: unreachable, throttled, cut off or corrupted.
            PermanentError: there is no such object, it is forbidden, or longer than `limit_bytes`.
            UserError: there is no such bucket.
        """
        try:
            response = self._get_object(key)
            self.reachable.set()
            try:
                return _receive(response, limit_bytes, write)
            except BaseException:
                # Drop the connection: unread bytes would answer the next request.
                response["Body"].close()
                raise
        except (BotoCoreError, HTTPError, ConnectionError, TimeoutError) as error:
            self.last_error = first_line(error)
            raise TransientError(self.last_error) from error

    def get_bytes(self, key: str, limit_bytes: int) -> tuple[bytes, ObjectInfo]:
        """GET one object into memory. Raises as `get` does."""
        chunks: list[bytes] = []
        info = self.get(key, limit_bytes, chunks.append)
        return b"".join(chunks), info

    def download(self, key: str, limit_bytes: int) -> tuple[bytes, ObjectInfo]:
        """`get_bytes` with retries and an overall time limit.

        Raises:
            PermanentError: there is no such object.
            UserError: the store is unreachable, keeps failing, or is too slow.
        """
        result: futures.Future[tuple[bytes, ObjectInfo]] = futures.Future()

        def run() -> None:
            try:
                get = partial(self.get_bytes, key, limit_bytes)
                result.set_result(retry(get, self.spec.attempts))
            except BaseException as error:  # noqa: BLE001 - raised by result()
                result.set_exception(error)

        # A daemon thread: the system's resolver may hang for longer than the time limit.
        threading.Thread(target=run, daemon=True).start()
        try:
            if not futures.wait([result], CONNECT_DEADLINE_S).done:
                self.check_reachable()
            return result.result(_DOWNLOAD_TIMEOUT_S)
        except (TransientError, TimeoutError) as error:
            self.check_reachable()
            reason = str(error) or f"not complete in {_DOWNLOAD_TIMEOUT_S:.0f} s"
            failure = f"{self.host} fails to send {key}: {reason}; run the same command again"
            raise UserError(failure) from error

    def check_reachable(self, waited_s: float = math.inf) -> None:
        """Raise `UserError` if the store has not answered for so long."""
        if self.reachable.is_set() or waited_s <= CONNECT_DEADLINE_S:
            return
        reason = self.last_error or f"no answer in {CONNECT_DEADLINE_S:g} s"
        raise UserError(
            f"cannot reach {self.host}: {reason}; check the network (and HTTPS_PROXY), or "
            "set corpus.endpoint to a mirror; without a network: corpus=synthetic, or "
            "corpus=folder corpus.path=DIR"
        )

    def _get_object(self, key: str) -> Any:
        try:
            return self._client.get_object(Bucket=self.spec.bucket, Key=key)
        except ClientError as error:
            self.reachable.set()
            status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
            code = str(error.response.get("Error", {}).get("Code", ""))
            reason = f"{status} {code}" if code != str(status) else f"HTTP {status}"
            if code in _NO_BUCKET:
                raise UserError(
                    f"{self.host} has no bucket {self.spec.bucket} ({reason}); check "
                    "corpus.bucket, corpus.region and corpus.endpoint"
                ) from error
            if is_transient(status) or code in _TRANSIENT_CODES:
                raise TransientError(reason) from error
            raise PermanentError(reason) from error
        except (ValueError, TypeError, ArithmeticError, LookupError) as error:
            # botocore's parsers fail on malformed headers.
            self.reachable.set()
            raise TransientError(f"malformed response: {first_line(error)}") from error


def _receive(response: Any, limit_bytes: int, write: Callable[[bytes], object]) -> ObjectInfo:
    body, length = response["Body"], response.get("ContentLength")
    if length is not None and length > limit_bytes:
        raise PermanentError(f"{length:,} bytes, over the limit of {limit_bytes:,}")
    md5, sha256 = hashlib.md5(usedforsecurity=False), hashlib.sha256()
    # botocore checks x-amz-checksum-… of known algorithms, in the read that reaches the end.
    checked = hasattr(body, "checksum")
    received = 0
    while chunk := body.read(CHUNK_BYTES):
        received += len(chunk)
        if received > limit_bytes:
            raise PermanentError(f"more bytes than the limit of {limit_bytes:,}")
        md5.update(chunk)
        sha256.update(chunk)
        write(chunk)
        if received == length and not checked:
            # Saves the read that would only return the end.
            break
    if length is not None and received != length:
        raise TransientError(f"cut off: {received:,} of {length:,} bytes")
    etag, encryption = response.get("ETag", ""), str(response.get("ServerSideEncryption", ""))
    encrypted = encryption.startswith("aws:kms") or "SSECustomerAlgorithm" in response
    expected = None if encrypted else _MD5.fullmatch(etag)
    if expected and expected[1] != md5.hexdigest():
        raise TransientError("corrupted in transit: its MD5 is not its ETag")
    modified, verified = response.get("LastModified"), bool(expected) or checked
    modified_ns = int(modified.timestamp()) * 10**9 if modified else 0
    return ObjectInfo(received, sha256.hexdigest(), etag.strip('"'), modified_ns, verified)


@cache
def _session() -> boto3.session.Session:
    """One session for all clients: it parses S3's service model of 1 MB once."""
    # The user's own AWS files and profile must not change what is fetched.
    files = dict.fromkeys(("config_file", "credentials_file"), (None, None, os.devnull, None))
    core = botocore.session.Session({"profile": (None, None, None, None), **files})
    return boto3.session.Session(botocore_session=core)


def _client(spec: BucketSpec) -> Any:
    return _session().client(
        "s3",
        endpoint_url=spec.endpoint or None,
        region_name=spec.region,
        config=Config(
            signature_version=UNSIGNED,
            max_pool_connections=spec.threads,
            # Retries are done by the caller, which alone detects a corrupt body. botocore's
            # adaptive mode would drop to one request in two seconds after an early SlowDown.
            retries={"mode": "standard", "total_max_attempts": 1},
            connect_timeout=spec.connect_timeout_s,
            read_timeout=spec.read_timeout_s,
            response_checksum_validation="when_supported",
            s3={
                "addressing_style": "path" if spec.endpoint else "virtual",
                "us_east_1_regional_endpoint": "regional",  # the host in `Store.host`
            },
            ignore_configured_endpoint_urls=True,
            tcp_keepalive=True,
            # botocore builds its own for each request, which takes another tenth.
            user_agent=f"wallclock boto3/{boto3.__version__}",
            parameter_validation=False,  # of two constant names and a key
        ),
    )
