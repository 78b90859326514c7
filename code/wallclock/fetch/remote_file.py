"""A file behind a URL, perhaps too large for memory: read once, in order, ahead of its reader."""

import io
import time
from collections import deque
from collections.abc import Mapping
from threading import Condition

from wallclock.errors import UserError
from wallclock.fetch.reach import Reach, Tries
from wallclock.fetch.remote import Servers, host_of
from wallclock.fetch.request import Answer
from wallclock.fetch.retries import PermanentError, RefusedError, TransientError
from wallclock.fetch.transfers import Transfers
from wallclock.recipe import Limits

#: Bytes that are read ahead; of an answer that is none of the file.
_AHEAD, _OTHER = 1 << 23, 1 << 16


class RemoteFile(io.RawIOBase):
    """The file. A connection that is lost is made anew, and continues where it was lost.

    Reading raises OSError: there is no such file, it was not reached for `limits.give_up_s`, or it
    has changed meanwhile; UserError: credentials are refused. At its end `address` says from where
    it came; `etag` is its strong ETag, if it has one. `ahead`: bytes that are read ahead.
    """

    address: str = ""
    etag: str = ""

    def __init__(self, url: str, limits: Limits, most_tries: int = 0, ahead: int = _AHEAD) -> None:
        super().__init__()
        self._ahead = ahead
        self._url, self._tries = url, Tries(host_of(url))
        self._servers, self._reach = Servers(_OTHER), Reach(limits.give_up_s, most_tries)
        self._transfers = Transfers(1, limits.user_agent)
        self._chunks = deque[bytes]()
        self._n_received = self._n_waiting = self._from = 0
        self._is_closing = False
        self._result: Answer | Exception | None = None
        self._changed = Condition()
        self._ask()

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: "memoryview[int]") -> int:  # type: ignore[override]
        """The next bytes; waits for them."""
        with self._changed:
            while not self._chunks:
                if self._result is None:
                    self._changed.wait()
                elif isinstance(self._result, Answer) and self._is_of_file(*self._result[:2]):
                    self.address = self._result.address
                    return 0
                else:
                    self._go_on(self._result)
            chunk = self._chunks.popleft()
            n = min(len(chunk), len(buffer))
            buffer[:n] = chunk[:n]
            if n < len(chunk):
                self._chunks.appendleft(chunk[n:])
            self._n_waiting -= n
            if self._n_waiting < self._ahead // 2:
                self._changed.notify_all()
        return n

    def close(self) -> None:
        """Close the connection."""
        if not self.closed:
            with self._changed:
                self._is_closing = True
                self._changed.notify_all()
            self._transfers.close()
            self._servers.close()
        super().close()

    def _ask(self) -> None:
        """Ask for what is missing."""
        self._result, self._from = None, self._n_received
        request = self._servers.request(self._url)
        rest = (f"Range: bytes={self._from}-", f"If-Match: {self.etag}") if self._from else ()
        whole = request._replace(headers=(*request.headers, *rest), take=self._take, total_s=0)
        self._transfers.submit(whole, self._end)

    def _is_of_file(self, status: int, headers: Mapping[str, str]) -> bool:
        """Whether an answer is the file, or the rest of it."""
        if not self._from:
            return status == 200
        starts = headers.get("content-range", "").startswith(f"bytes {self._from}-")
        return status == 206 and starts and headers.get("etag") == self.etag

    def _go_on(self, result: Answer | Exception) -> None:
        """Ask again after a failure that may pass. Raises as reading does."""
        try:
            time.sleep(self._pause_s(result))
        except RefusedError as error:
            raise UserError(str(error)) from error
        except Exception as error:  # it was given up, closed, or is none
            raise OSError(getattr(error, "reason", str(error))) from error
        self._ask()

    def _pause_s(self, result: Answer | Exception) -> float:
        """Seconds after which it is asked for again. Raises why it is not."""
        try:
            if isinstance(result, Exception):
                raise result
            if self._from and result.status in (200, 206, 412, 416):
                raise PermanentError("it was cut off, and what the server sends is not its rest")
            self._servers.body_of(self._url, result)
            raise PermanentError(f"HTTP {result.status}")
        except TransientError as error:
            if self._n_received and not self.etag:
                raise PermanentError(str(error)) from error
            return self._reach.failed(self._tries, error)

    # --- in the thread of the transfers ----------------------------------------------------------

    def _take(self, status: int, headers: Mapping[str, str], data: bytes) -> bool:
        if not self._is_of_file(status, headers):
            return False
        with self._changed:
            while self._n_waiting >= self._ahead and not self._is_closing:
                self._changed.wait()
            if not self._n_received and not headers.get("etag", "W/").startswith("W/"):
                self.etag = headers["etag"]
            self._chunks.append(data)
            self._n_received += len(data)
            self._n_waiting += len(data)
            self._changed.notify_all()
        if self._tries.n:
            self._reach.answered(self._tries.host)
            self._tries = Tries(self._tries.host)
        return True

    def _end(self, result: Answer | Exception) -> None:
        with self._changed:
            self._result = result
            self._changed.notify_all()
