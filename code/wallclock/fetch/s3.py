"""S3: the one client, what its errors mean, and GETs that end in verified bytes.

A failed request is an `S3Error`: a `TransientError`, which a retry may mend, or a `PermanentError`.
boto3 is imported when a client is made.
"""

import hashlib
import io
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from wallclock.errors import UserError, first_line, install_hint
from wallclock.fetch import s3_pages
from wallclock.fetch.retries import (
    ForbiddenError,
    PermanentError,
    RefusedError,
    TransientError,
    is_transient,
    retry,
)

#: Bytes of a body that are read, and kept in memory, at once.
CHUNK_BYTES = 1 << 20
#: Tries of a request of `Client.call`.
_ATTEMPTS = 7

#: An ETag that is the body's MD5: a single part, not encrypted with a key of the store.
_MD5 = re.compile(r'"?([0-9a-f]{32})"?')
_TRANSIENT_CODES = {"RequestTimeout", "SlowDown", "Throttling", "ThrottlingException"}
_NO_BUCKET = {"NoSuchBucket", "InvalidBucketName", "PermanentRedirect", "AllAccessDisabled"}
NO_CREDENTIALS = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
_RENEW = "get new credentials"
_CURES = {
    "ExpiredToken": _RENEW,
    "TokenRefreshRequired": _RENEW,
    "InvalidToken": _RENEW,
    "RequestTimeTooSkewed": "set this machine's clock",
}
#: Codes of credentials that are refused, whatever is asked for.
_REFUSED = {*_CURES, "InvalidAccessKeyId", "SignatureDoesNotMatch", "AuthFailure"}
#: Another writer won a concurrent PUT.
_CONFLICT = 409
#: What the store does not implement, it will not implement for the next try either.
_NOT_IMPLEMENTED = 501


class S3Error(Exception):
    """A request that failed. `str` of it is the reason: '404 NoSuchKey', or the client's line.

    Args:
        reason: in one line.
        detail: what the client says of it, in one line.
        status: of the HTTP answer; 0 without one that could be read.
        answered: whether the store has answered at all.
    """

    def __init__(self, reason: str, detail: str, status: int = 0, answered: bool = False) -> None:
        super().__init__(reason)
        self.detail = detail
        self.status = status
        self.answered = answered


class S3TransientError(S3Error, TransientError):
    """Unreachable, throttled, cut off, or two writes at once."""


class S3PermanentError(S3Error, PermanentError):
    """Refused: there is no such object, or it is forbidden."""


class NoBucketError(S3PermanentError):
    """There is no such bucket, or not in this region."""


class S3ForbiddenError(S3PermanentError, ForbiddenError):
    """A 403 that says nothing against the credentials."""


class S3RefusedError(S3PermanentError, RefusedError):
    """The user's credentials cannot be found or renewed, or the store refuses them."""

    def __init__(self, reason: str, detail: str, status: int = 0, answered: bool = False) -> None:
        self.cure = _CURES.get(reason.rpartition(" ")[2], NO_CREDENTIALS)
        super().__init__(f"{reason}; {self.cure}", detail, status, answered)


def classify(error: Exception) -> S3Error:
    """What an exception of boto3's client means."""
    from botocore import exceptions
    from urllib3.exceptions import HTTPError

    detail = first_line(error)
    if isinstance(error, exceptions.ClientError):
        return _refusal(error.response, detail)
    no_credentials = (
        exceptions.NoCredentialsError,
        exceptions.PartialCredentialsError,
        exceptions.SSOError,
        exceptions.CredentialRetrievalError,
        exceptions.RefreshWithMFAUnsupportedError,
        RuntimeError,  # renewed, and not valid
    )
    if isinstance(error, no_credentials):
        return S3RefusedError(detail, detail)
    if isinstance(error, exceptions.ParamValidationError):
        # Its first line says only that there are further ones.
        detail = " ".join(str(error).split())
        return S3PermanentError(detail, detail)
    if isinstance(error, (exceptions.BotoCoreError, HTTPError, OSError)):
        return S3TransientError(detail, detail)
    # botocore's parsers fail on malformed headers.
    return S3TransientError(f"malformed response: {detail}", detail, answered=True)


def _refusal(response: Mapping[str, Any], detail: str) -> S3Error:
    """What an answer with an error means."""
    status = int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    code = str(response.get("Error", {}).get("Code", ""))
    reason = f"{status} {code}" if code != str(status) else f"HTTP {status}"
    if code in _NO_BUCKET:
        kind: type[S3Error] = NoBucketError
    elif code in _REFUSED:
        kind = S3RefusedError
    elif status == _NOT_IMPLEMENTED:
        kind = S3PermanentError
    elif is_transient(status) or status == _CONFLICT or code in _TRANSIENT_CODES:
        kind = S3TransientError
    else:
        kind = S3ForbiddenError if status == 403 else S3PermanentError
    return kind(reason, detail, status, answered=True)


class Client:
    """boto3's client, which tries once, and requests that are tried again.

    Attributes:
        boto: boto3's client.
        credentials: that its requests are signed with; None: they are not.
        errors: what it raises for a request that failed; `classify` says what that means.
    """

    def __init__(self, boto: Any, credentials: Any = None) -> None:
        from botocore.exceptions import BotoCoreError, ClientError
        from urllib3.exceptions import HTTPError

        self.boto = boto
        self.credentials = credentials
        self.errors = (ClientError, BotoCoreError, HTTPError, ConnectionError, TimeoutError)

    def call(self, action: str, **parameters: Any) -> Any:
        """The answer to a request, its body read; after a transient failure it is sent again.

        Raises S3Error: it was refused, or has failed each time.
        """
        return retry(partial(self._call_once, action, parameters), _ATTEMPTS)

    def _call_once(self, action: str, parameters: Mapping[str, Any]) -> Any:
        body = parameters.get("Body")
        if isinstance(body, io.IOBase):
            body.seek(0)
        try:
            answer = getattr(self.boto, action)(**parameters)
            if "Body" in answer:
                answer |= {"Body": answer["Body"].read()}
        except self.errors as error:
            raise classify(error) from error
        return answer

    def close(self) -> None:
        """Close every pooled connection."""
        self.boto.close()


def connect(
    purpose: str,
    *,
    isolated: bool = False,
    endpoint: str = "",
    region: str = "",
    connections: int = 10,
    connect_timeout_s: float = 60.0,
    read_timeout_s: float = 60.0,
) -> Client:
    """A client with the user's credentials and settings, anonymous where there are none.

    Args:
        purpose: what the client is for, at the beginning of an error line.
        isolated: anonymous, whatever the user's AWS files and variables say.
        endpoint: an S3-compatible store or a plain HTTP mirror; by default AWS, or what the user's
            settings name.
        region: by default the one of the user's settings, or us-east-1.
        connections: concurrent requests.
        connect_timeout_s: seconds until a connection is given up.
        read_timeout_s: seconds without a byte until an answer is given up.

    Raises:
        UserError: boto3 is not installed, the endpoint is no URL, or the user's settings are wrong.
    """
    try:
        import boto3
        from botocore import UNSIGNED
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError
    except ImportError as error:
        raise UserError(f"{purpose} needs boto3: {install_hint('s3')}") from error
    try:
        if isolated:
            session, credentials = _isolated_session(), None
        else:
            session = boto3.session.Session(botocore_session=_session())
            credentials = session.get_credentials()
            region = region or session.region_name
        config = Config(
            signature_version=None if credentials else UNSIGNED,
            max_pool_connections=connections,
            # Retries are done by the caller, which alone detects a corrupt body. botocore's
            # adaptive mode would drop to one request in two seconds after an early SlowDown.
            retries={"mode": "standard", "total_max_attempts": 1},
            connect_timeout=connect_timeout_s,
            read_timeout=read_timeout_s,
        )
        if isolated:
            config = config.merge(_isolated_config(endpoint))
        boto = session.client(
            "s3", endpoint_url=endpoint or None, region_name=region or "us-east-1", config=config
        )
    except (BotoCoreError, ValueError) as error:
        fix = "give http://host:port" if endpoint else "check AWS_…"
        raise UserError(f"{purpose}: {first_line(error)}; {fix}") from error
    boto.meta.events.register_first(s3_pages.EVENT, s3_pages.read_page)
    return Client(boto, credentials)


@cache
def _models() -> Any:
    """One loader of service models for all clients: it parses S3's, of 1 MB, once."""
    from botocore.loaders import create_loader

    return create_loader()


def _session(variables: Any = None) -> Any:
    import botocore.session

    session = botocore.session.Session(variables)
    session.register_component("data_loader", _models())
    return session


def _isolated_session() -> Any:
    import boto3

    # The user's own AWS files and profile must not change what is fetched.
    settings = {
        "profile": (None, None, None, None),
        "config_file": (None, None, os.devnull, None),
        "credentials_file": (None, None, os.devnull, None),
    }
    return boto3.session.Session(botocore_session=_session(settings))


def _isolated_config(endpoint: str) -> Any:
    """What the user's variables could change otherwise."""
    import boto3
    from botocore.config import Config

    return Config(
        response_checksum_validation="when_supported",
        s3={
            "addressing_style": "path" if endpoint else "virtual",
            "us_east_1_regional_endpoint": "regional",
        },
        ignore_configured_endpoint_urls=True,
        tcp_keepalive=True,
        # botocore builds its own for each request, which takes another tenth.
        user_agent=f"wallclock boto3/{boto3.__version__}",
        parameter_validation=False,  # of two constant names and a key
    )


def list_objects(call: Callable[..., Any], **parameters: Any) -> Iterator[Mapping[str, Any]]:
    """`Key`, `ETag` and the rest of each object, in the order of the keys.

    Args:
        call: `Client.call`, or one that is called in the same way.
        parameters: of ListObjectsV2, such as `Bucket` and `Prefix`.
    """
    token: dict[str, str] = {}
    while True:
        page = call("list_objects_v2", **parameters, **token)
        yield from page.get("Contents", ())
        if not page["IsTruncated"]:
            return
        token = {"ContinuationToken": page["NextContinuationToken"]}


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


class Bucket:
    """GETs from one bucket, each tried once, by any number of threads. Close it when done."""

    def __init__(self, client: Client, bucket: str) -> None:
        self._client = client
        self._bucket = bucket

    def close(self) -> None:
        """Close every pooled connection."""
        self._client.close()

    def get(self, key: str, limit_bytes: int, write: Callable[[bytes], object]) -> ObjectInfo:
        """GET one object, pass its chunks to `write`, check length and checksum.

        Raises:
            TransientError: unreachable, throttled, cut off or corrupted.
            PermanentError: there is no such object, it is forbidden, or longer than `limit_bytes`.
            NoBucketError: there is no such bucket.
        """
        response = self._get_object(key)
        try:
            try:
                return _receive(response, limit_bytes, write)
            except BaseException:
                # Drop the connection: unread bytes would answer the next request.
                response["Body"].close()
                raise
        except self._client.errors as error:
            raise classify(error) from error

    def get_bytes(self, key: str, limit_bytes: int) -> tuple[bytes, ObjectInfo]:
        """GET one object into memory. Raises as `get` does."""
        chunks: list[bytes] = []
        info = self.get(key, limit_bytes, chunks.append)
        return b"".join(chunks), info

    def _get_object(self, key: str) -> Any:
        """The answer, whose body is not read yet. Raises S3Error."""
        try:
            return self._client.boto.get_object(Bucket=self._bucket, Key=key)
        except (*self._client.errors, ValueError, TypeError, ArithmeticError, LookupError) as error:
            raise classify(error) from error


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
