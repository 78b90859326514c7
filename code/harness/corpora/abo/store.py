"""The paper's bucket: an anonymous store that says in one line when it is unreachable."""

import math
import threading
from collections.abc import Callable
from concurrent import futures
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from wallclock.errors import UserError
from wallclock.fetch import TransientError, retry
from wallclock.fetch.s3 import Bucket, NoBucketError, ObjectInfo, S3Error, connect

#: Seconds without any answer until the store counts as unreachable.
CONNECT_DEADLINE_S = 8.0
#: Seconds until a small object (the catalogue, a licence) is given up, retries included.
_DOWNLOAD_TIMEOUT_S = 600.0


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


class CorpusStore(Bucket):
    """GETs without credentials, whatever the user's AWS files say.

    Raises:
        UserError: the endpoint is no URL.
    """

    def __init__(self, spec: BucketSpec) -> None:
        client = connect(
            f"corpus.endpoint={spec.endpoint}" if spec.endpoint else "corpus=abo",
            isolated=True,
            endpoint=spec.endpoint,
            region=spec.region,
            connections=spec.threads,
            connect_timeout_s=spec.connect_timeout_s,
            read_timeout_s=spec.read_timeout_s,
        )
        super().__init__(client, spec.bucket)
        self.spec = spec
        #: Set once the store has answered anything at all.
        self.reachable = threading.Event()
        self._last_error = ""

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
        reason = self._last_error or f"no answer in {CONNECT_DEADLINE_S:g} s"
        raise UserError(
            f"cannot reach {self.host}: {reason}; check the network (and HTTPS_PROXY), or "
            "set corpus.endpoint to a mirror; without a network: corpus=synthetic, or "
            "corpus=folder corpus.path=DIR"
        )

    def _get_object(self, key: str) -> Any:
        """The answer, whose head alone shows that the store is reachable. Raises S3Error."""
        try:
            response = super()._get_object(key)
        except S3Error as error:
            if error.answered:
                self.reachable.set()
            else:
                self._last_error = str(error)
            raise
        self.reachable.set()
        return response
