"""S3: boto3's client, and what its errors mean. `objects.py` has the GETs of images.

boto3 is imported when a client is made.
"""

import io
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from functools import cache
from typing import Any
from xml.etree import ElementTree

from wallclock.errors import SourceError, UserError, first_line, install_hint
from wallclock.fetch.folder import is_image_name
from wallclock.fetch.retries import (
    ForbiddenError,
    PermanentError,
    RefusedError,
    RequestError,
    TransientError,
    is_transient,
    retry,
)

#: Tries of a request of `Client.call`.
_ATTEMPTS = 7

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


class NoBucketError(PermanentError):
    """There is no such bucket, or not in this region."""


def refused(reason: str, code: str = "", status: int = 0) -> RefusedError:
    """The user's settings are wrong, or the credentials not found, not renewed, or refused."""
    return RefusedError(f"{reason}; {_CURES.get(code, NO_CREDENTIALS)}", status)


def classify(error: Exception) -> RequestError:
    """What an exception of boto3's client means."""
    from botocore import exceptions
    from urllib3.exceptions import HTTPError

    detail = first_line(error)
    transient = (
        exceptions.HTTPClientError,
        exceptions.ConnectionError,
        exceptions.IncompleteReadError,
        exceptions.FlexibleChecksumError,
        HTTPError,
        OSError,
    )
    if isinstance(error, exceptions.ClientError):
        response = error.response
        status = int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        return refusal(status, str(response.get("Error", {}).get("Code", "")))
    if isinstance(error, transient):
        return TransientError(detail)
    if isinstance(error, exceptions.ParamValidationError):
        # Its first line says only that there are further ones. A bucket's name may have a password.
        return PermanentError(re.sub('"[^"]*@', '"', " ".join(str(error).split())))
    if isinstance(error, (exceptions.BotoCoreError, RuntimeError)):
        # RuntimeError: credentials were renewed, and have ended.
        return refused(detail)
    # botocore's parsers fail on malformed headers.
    return TransientError(f"malformed response: {detail}")


def refusal(status: int, code: str) -> RequestError:
    """What an answer with an error means."""
    reason = f"{status} {code}" if code != str(status) else f"HTTP {status}"
    if code in _REFUSED:
        return refused(reason, code, status)
    is_passing = status == _CONFLICT or (is_transient(status) and status != _NOT_IMPLEMENTED)
    kind: type[RequestError] = ForbiddenError if status == 403 else PermanentError
    if code in _NO_BUCKET:
        kind = NoBucketError
    elif is_passing or code in _TRANSIENT_CODES:
        kind = TransientError
    return kind(reason, status)


class Client:
    """boto3's client `boto`, which tries once, and requests that are tried again, signed or not."""

    def __init__(self, boto: Any, credentials: Any = None) -> None:
        self.boto: Any = boto
        self.credentials: Any = credentials

    def call(self, action: str, **parameters: Any) -> Any:
        """The answer to a request, its body read. Raises RequestError: it has failed each time."""
        body = parameters.get("Body")

        def call_once() -> Any:
            if isinstance(body, io.IOBase):
                body.seek(0)
            try:
                answer = getattr(self.boto, action)(**parameters)
                if "Body" in answer:
                    answer |= {"Body": answer["Body"].read()}
            except Exception as error:
                raise classify(error) from error
            return answer

        return retry(call_once, _ATTEMPTS)

    def close(self) -> None:
        """Close every pooled connection."""
        self.boto.close()


def connect(purpose: str, connections: int = 10) -> Client:
    """A client with the user's credentials and settings, anonymous where there are none.

    `purpose`: what it is for, in an error line. `connections`: concurrent requests.
    Raises UserError: boto3 is not installed, or the user's settings are wrong.
    """
    try:
        import boto3
        import botocore.session
        from botocore import UNSIGNED
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError
    except ImportError as error:
        raise UserError(f"{purpose} needs boto3: {install_hint('s3')}") from error
    try:
        core = botocore.session.Session()
        core.register_component("data_loader", _models())
        session = boto3.session.Session(botocore_session=core)
        credentials = session.get_credentials()
        config = Config(
            signature_version=None if credentials else UNSIGNED,
            max_pool_connections=connections,
            # The caller tries again. botocore's adaptive mode would drop to one request in two
            # seconds after an early SlowDown.
            retries={"mode": "standard", "total_max_attempts": 1},
        )
        region = session.region_name or "us-east-1"
        boto = session.client("s3", region_name=region, config=config)
    except (BotoCoreError, ValueError) as error:
        raise UserError(f"{purpose}: {first_line(error)}; check AWS_…") from error
    boto.meta.events.register_first("before-parse.s3.ListObjectsV2", _read_page)
    return Client(boto, credentials)


@cache
def _models() -> Any:
    """One loader of service models for all clients: it parses S3's, of 1 MB, once."""
    from botocore.loaders import create_loader

    return create_loader()


def list_objects(call: Callable[..., Any], **parameters: Any) -> Iterator[Mapping[str, Any]]:
    """`Key`, `ETag` and the rest of each object, in the order of the keys; by `Client.call`."""
    token: dict[str, str] = {}
    while True:
        page = call("list_objects_v2", **parameters, **token)
        yield from page.get("Contents", ())
        if not page["IsTruncated"]:
            return
        token = {"ContinuationToken": page["NextContinuationToken"]}


def list_images(url: str, others: list[str]) -> Iterator[Mapping[str, Any]]:
    """The objects below `s3://bucket/prefix` that are images by their names' extensions.

    Of the others, and of what is hidden, the keys join `others`. Raises SourceError: it names no
    bucket; UserError: the bucket cannot be listed.
    """
    bucket, _, prefix = url.removeprefix("s3://").partition("/")
    if not bucket:
        raise SourceError(f"{url} names no bucket; give s3://bucket/prefix")
    prefix = prefix.lstrip("/")
    try:
        with closing(connect(url)) as client:
            for item in list_objects(client.call, Bucket=bucket, Prefix=prefix):
                key, slash = item["Key"], "" if prefix and prefix[-1] != "/" else "/"
                if is_image_name(key) and "/." not in slash + key[len(prefix) :]:
                    yield item
                elif not key.endswith("/"):  # a folder's own
                    others.append(key)
    except RequestError as error:
        raise UserError(f"{url} cannot be listed: {error}") from error


def _read_page(
    response_dict: dict[str, Any], customized_response_dict: dict[str, Any], **_: Any
) -> None:
    """Put a page of a list into what botocore returns, all texts, and leave it nothing to parse.

    botocore takes five times as long: it makes dates, with the interpreter's lock held. What is no
    page, such as an error, stays as it is.
    """
    with suppress(ElementTree.ParseError):
        root = ElementTree.fromstring(response_dict["body"])
        if response_dict["status_code"] == 200 and _tag(root) == "ListBucketResult":
            customized_response_dict |= {
                "IsTruncated": root.findtext("{*}IsTruncated") == "true",
                "NextContinuationToken": root.findtext("{*}NextContinuationToken", ""),
                "EncodingType": root.findtext("{*}EncodingType", ""),
                "Contents": [
                    {_tag(field): field.text or "" for field in node}
                    for node in root.iterfind("{*}Contents")
                ],
            }
            response_dict["body"] = b"<ListBucketResult/>"


def _tag(node: ElementTree.Element) -> str:
    """A tag without its namespace."""
    return node.tag.rpartition("}")[2]
