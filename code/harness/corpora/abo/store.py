"""The paper's bucket: an anonymous store that says in one line when it is unreachable."""

import time
from collections.abc import Callable
from functools import partial
from urllib.parse import urlsplit

from harness.spec import CorpusSpec
from wallclock.errors import UserError
from wallclock.fetch import TransientError, retry
from wallclock.fetch.s3 import Bucket, NoBucketError, ObjectInfo, S3Error, connect

#: Seconds without any answer until the store counts as unreachable, and until a connection fails.
CONNECT_DEADLINE_S = 8.0
_CONNECT_TIMEOUT_S = 5.0


class CorpusStore(Bucket):
    """GETs without credentials, whatever the user's AWS files say.

    Raises:
        UserError: the endpoint is no URL.
    """

    def __init__(self, spec: CorpusSpec) -> None:
        client = connect(
            f"corpus.endpoint={spec.endpoint}" if spec.endpoint else "corpus=abo",
            isolated=True,
            endpoint=spec.endpoint,
            region=spec.region,
            connections=spec.threads,
            connect_timeout_s=_CONNECT_TIMEOUT_S,
            read_timeout_s=spec.read_timeout_s,
        )
        super().__init__(client, spec.bucket)
        self.spec = spec

    @property
    def host(self) -> str:
        """The store's name in messages: without a password."""
        if not self.spec.endpoint:
            return f"{self.spec.bucket}.s3.{self.spec.region}.amazonaws.com"
        return urlsplit(self.spec.endpoint).netloc.rpartition("@")[2]

    def get(self, key: str, limit_bytes: int, write: Callable[[bytes], object]) -> ObjectInfo:
        """As `Bucket.get`. Raises UserError: there is no such bucket."""
        try:
            return super().get(key, limit_bytes, write)
        except NoBucketError as error:
            raise UserError(
                f"{self.host} has no bucket {self.spec.bucket} ({error}); check "
                "corpus.bucket, corpus.region and corpus.endpoint"
            ) from error

    def download(self, key: str, limit_bytes: int) -> tuple[bytes, ObjectInfo]:
        """`get_bytes` with retries.

        Raises:
            PermanentError: there is no such object.
            UserError: the store is unreachable, or keeps failing.
        """
        deadline = time.monotonic() + CONNECT_DEADLINE_S
        try:
            get = partial(self._get_by, deadline, key, limit_bytes)
            return retry(get, self.spec.attempts)
        except TransientError as error:
            if isinstance(error, S3Error) and not error.answered:
                raise self._unreachable(error) from error
            failure = f"{self.host} fails to send {key}: {error}; run the same command again"
            raise UserError(failure) from error

    def _get_by(self, deadline: float, key: str, limit_bytes: int) -> tuple[bytes, ObjectInfo]:
        """`get_bytes`; a store that has not answered by the deadline is not asked again."""
        try:
            return self.get_bytes(key, limit_bytes)
        except S3Error as error:
            if not error.answered and time.monotonic() > deadline:
                raise self._unreachable(error) from error
            raise

    def _unreachable(self, error: S3Error) -> UserError:
        return UserError(
            f"cannot reach {self.host}: {error}; check the network (and HTTPS_PROXY), or "
            "set corpus.endpoint to a mirror; without a network: corpus=synthetic, or "
            "corpus=folder corpus.path=DIR"
        )
