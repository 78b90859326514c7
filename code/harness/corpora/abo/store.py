"""The paper's bucket, which anybody may read: GETs without credentials, one line a failure."""

import re
import time
from email.utils import parsedate_to_datetime
from typing import NamedTuple
from urllib.parse import quote, urlsplit

from harness.spec import CorpusSpec
from wallclock.errors import UserError, first_line
from wallclock.fetch.objects import is_verified
from wallclock.fetch.retries import TransientError, retry
from wallclock.fetch.s3 import NoBucketError, refusal
from wallclock.fetch.transfers import Answer, Request, Transfers

#: Seconds without any answer until the store counts as unreachable.
CONNECT_DEADLINE_S = 8.0
_CODE = re.compile(rb"<Code>(\w+)</Code>")


class Object(NamedTuple):
    """An object that arrived complete. `verified`: it agreed with a checksum of the store.

    `modified_ns` is the store's date of the object, 0 if it states none.
    """

    data: bytes
    etag: str
    modified_ns: int
    verified: bool


class NoAnswerError(TransientError):
    """The store could not be reached, or broke off."""


class CorpusStore:
    """GETs, each tried once, by any number of threads. The user's AWS settings change nothing.

    Raises:
        UserError: the endpoint is no URL.
    """

    def __init__(self, spec: CorpusSpec) -> None:
        self.spec = spec
        #: The store's name in messages: without a password.
        self.host = f"{spec.bucket}.s3.{spec.region}.amazonaws.com"
        self._url = f"https://{self.host}/"
        if spec.endpoint:
            self.host = _host_of(spec.endpoint)
            self._url = f"{spec.endpoint.rstrip('/')}/{spec.bucket}/"
        self._transfers = Transfers(spec.threads, spec.limits.user_agent)

    def close(self) -> None:
        """Close the connections."""
        self._transfers.close()

    def get(self, key: str, limit_bytes: int) -> Object:
        """GET one object, check length and checksum.

        Raises:
            TransientError: unreachable, throttled, cut off or corrupted.
            PermanentError: there is no such object, it is forbidden, or longer than `limit_bytes`.
            UserError: there is no such bucket.
        """
        url, silent_s = self._url + quote(key, "/~"), self.spec.read_timeout_s
        try:
            answer = self._transfers.ask(Request(url, limit_bytes, silent_s=silent_s))
        except TransientError as error:
            raise NoAnswerError(str(error)) from error
        if answer.status != 200:
            raise self._failure(answer)
        etag = answer.headers.get("etag", "").strip('"')
        return Object(answer.body, etag, _modified_ns(answer), is_verified(answer))

    def _failure(self, answer: Answer) -> Exception:
        """What an answer means that is no object."""
        code = _CODE.search(answer.body)
        text = code[1].decode() if code else str(answer.status)
        failure = refusal(answer.status, text)
        if not isinstance(failure, NoBucketError):
            return failure
        return UserError(
            f"{self.host} has no bucket {self.spec.bucket} ({failure}); check "
            "corpus.bucket, corpus.region and corpus.endpoint"
        )

    def download(self, key: str, limit_bytes: int) -> bytes:
        """The bytes of an object, with retries.

        Raises:
            PermanentError: there is no such object.
            UserError: the store is unreachable, or keeps failing.
        """
        deadline = time.monotonic() + CONNECT_DEADLINE_S

        def attempt() -> bytes:
            try:
                return self.get(key, limit_bytes).data
            except NoAnswerError as error:
                if time.monotonic() > deadline:
                    raise self._unreachable(error) from error
                raise

        try:
            return retry(attempt, self.spec.attempts)
        except NoAnswerError as error:
            raise self._unreachable(error) from error
        except TransientError as error:
            failure = f"{self.host} fails to send {key}: {error}; run the same command again"
            raise UserError(failure) from error

    def _unreachable(self, error: NoAnswerError) -> UserError:
        return UserError(
            f"cannot reach {self.host}: {error}; check the network (and HTTPS_PROXY), or "
            "set corpus.endpoint to a mirror; without a network: corpus=synthetic, or "
            "corpus=folder corpus.path=DIR"
        )


def _modified_ns(answer: Answer) -> int:
    if not (text := answer.headers.get("last-modified", "")):
        return 0
    try:
        return int(parsedate_to_datetime(text).timestamp()) * 10**9
    except (ValueError, OverflowError) as error:
        raise TransientError(f"malformed response: {first_line(error)}") from error


def _host_of(endpoint: str) -> str:
    """The host of a URL, without a password. Raises UserError: it is none."""
    try:
        parts = urlsplit(endpoint)
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:
            return parts.netloc.rpartition("@")[2]
        why = "no URL of a host"
    except ValueError as error:
        why = str(error)
    raise UserError(f"corpus.endpoint={endpoint}: {why}; give http://host:port")
