"""One job at a time in a bucket: an object that its holder renews; when it ends, another takes it.

All writes are conditional, so that of two only one succeeds. A lease ends when the object has not
been written for `LASTS_S`, both times as the server says them: those of this machine do not count.
A job that finds a lease waits until it is renewed, which only a living holder does, or ends.

Commits do not depend on it. It spares two jobs the same work.
"""

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from email.utils import parsedate_to_datetime
from typing import Any
from uuid import uuid4

from wallclock.errors import UserError

LASTS_S, RENEWED_EACH_S = 30.0, 8.0
#: An ETag that no object has.
_NO_ETAG = f'"{"0" * 32}"'


class BucketLease:
    """The lease of one job.

    Args:
        call: a request for the lease's object; None where it is absent or a condition fails.
        out: what the lease is for, in messages.
        say: gets a line where another job's lease has to end first.
    """

    def __init__(
        self, call: Callable[..., Any], out: str, say: Callable[[str], None] | None = None
    ) -> None:
        self._call, self._say = call, say
        self._out = out
        self._owner = {"owner": uuid4().hex, "host": socket.gethostname(), "pid": os.getpid()}
        self._etag, self._taken_by = "", ""
        self._writes = 0
        self._over = threading.Event()

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Hold it while the block runs.

        Raises UserError: another job has it, or the server does not honour conditions.
        """
        self._acquire()
        self._probe()
        thread = threading.Thread(target=self._renew, name="lease", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()
            with suppress(UserError):  # it ends by itself
                if not self._taken_by:
                    self._write(0.0, IfMatch=self._etag)

    def check(self) -> None:
        """Raise UserError where another job has taken it."""
        if self._taken_by:
            why = f"{self._taken_by} writes to {self._out}: this job's lease had ended"
            raise UserError(f"{why}; wait for it, or stop it")

    def _acquire(self) -> None:
        seen = ""
        while not self._etag:
            holder, etag, left_s = self._read()
            if not etag:
                self._write(LASTS_S, IfNoneMatch="*")
            elif left_s <= 0 or holder["owner"] == self._owner["owner"]:
                self._write(LASTS_S, IfMatch=etag)
            elif seen in ("", etag):
                if self._say and not seen:
                    waits = f"waiting up to {left_s:.0f} s to see whether it still runs"
                    self._say(f"{self._out} is leased to {_name(holder)}; {waits}")
                seen = etag
                time.sleep(min(left_s, RENEWED_EACH_S / 8))
            else:
                why = f"another job is writing to {self._out}: {_name(holder)}"
                raise UserError(f"{why}; wait for it, or stop it")

    def _probe(self) -> None:
        """Conditions that do not hold: only a server that ignores them takes the object."""
        for condition in ({"IfNoneMatch": "*"}, {"IfMatch": _NO_ETAG}):
            if self._call("put_object", Body=b"", **condition):
                name, value = next(iter(condition.items()))
                why = f"{self._out}: the server ignores {name}={value} of a PUT"
                raise UserError(f"{why}, by which a part is committed; write to a folder")

    def _renew(self) -> None:
        while not self._over.wait(RENEWED_EACH_S):
            with suppress(UserError):  # unreachable: the next one may get through
                if self._write(LASTS_S, IfMatch=self._etag):
                    continue
                holder, self._etag, _ = self._read()
                if holder.get("owner") != self._owner["owner"]:
                    self._taken_by = _name(holder)
                    return

    def _write(self, lasts_s: float, **condition: str) -> bool:
        self._writes += 1  # no two of them have the same ETag
        body = json.dumps({**self._owner, "lasts_s": lasts_s, "writes": self._writes})
        answer = self._call("put_object", Body=body.encode(), **condition)
        self._etag = answer["ETag"] if answer else self._etag
        return answer is not None

    def _read(self) -> tuple[dict[str, Any], str, float]:
        """Holder, ETag and the seconds that are left; no ETag where there is no lease."""
        answer = self._call("get_object")
        if answer is None:
            return {}, "", 0.0
        now = parsedate_to_datetime(answer["ResponseMetadata"]["HTTPHeaders"]["date"])
        holder = json.loads(answer["Body"] or "{}")
        passed = (now - answer["LastModified"]).total_seconds()
        return holder, answer["ETag"], holder.get("lasts_s", 0.0) - passed


def _name(holder: dict[str, Any]) -> str:
    return f"process {holder.get('pid')} on {holder.get('host')}" if holder else "another job"
