"""An HTTP proxy in front of a store that breaks some of its answers, each in a known way.

It speaks plain HTTP/1.1 with GETs, asks the store anew on a connection of its own for each client
connection, and counts what passes. Which answer is broken is decided by a function of the path and
of how often it was asked for, so that a test knows what must come out.

As a program it stands in front of a store until its standard input closes:
`python -m tests.corpus.abo.fault_proxy PORT SHARE` breaks the first answer for that share of all images,
and says what it did as JSON.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import socket
import struct
import sys
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType

#: How an answer can be broken.
#: reset: half of the body, then RST. truncated: half of the body, then FIN, under the right length.
#: short: half of the body under its own length. wrong-bytes: the right length, some bytes changed.
#: too-long: a Content-Length beyond the body's. too-short: one below it, and all of the body.
#: stall: half of the body, then silence. silent: no answer. html: another page, status 200.
#: nonsense: headers that cannot be what they say.
MENDABLE = (
    *("reset", "truncated", "short", "wrong-bytes", "too-long", "too-short", "stall", "silent"),
    *("500", "503", "slowdown", "html", "nonsense"),
)
REFUSALS = ("403", "404")
_ERRORS = {
    "500": (500, "InternalError", "We encountered an internal error. Please try again."),
    "503": (503, "ServiceUnavailable", "Please reduce your request rate."),
    "slowdown": (503, "SlowDown", "Please reduce your request rate."),
    "403": (403, "AccessDenied", "Access Denied"),
    "404": (404, "NoSuchKey", "The specified key does not exist."),
}

#: (path, how many times it has been asked for, this one included) → a fault, or "" for none.
Decide = Callable[[str, int], str]


def never(path: str, count: int) -> str:
    """Break nothing."""
    return ""


def first(faults: tuple[str, ...], times: int = 1, share: float = 1.0) -> Decide:
    """Break the first `times` answers of a share of all images, each in the way its path's digest picks."""

    def decide(path: str, count: int) -> str:
        digest = hashlib.sha256(path.encode()).digest()
        if count > times or not path.endswith((".jpg", ".png")) or digest[0] >= 256 * share:
            return ""
        return faults[(digest[1] + count) % len(faults)]

    return decide


def always(fault: str, *fragments: str) -> Decide:
    """Break every answer for a path that holds one of the fragments, or for any path if there are none."""

    def decide(path: str, count: int) -> str:
        return fault if not fragments or any(fragment in path for fragment in fragments) else ""

    return decide


@dataclass
class _Answer:
    status: bytes
    headers: dict[bytes, bytes]
    body: bytes

    def head(self, length: int | None = None) -> bytes:
        """The bytes before the body, with another length if one is given."""
        headers = dict(self.headers)
        headers[b"Content-Length"] = str(len(self.body) if length is None else length).encode()
        lines = [self.status, *(name + b": " + value for name, value in headers.items())]
        return b"\r\n".join(lines) + b"\r\n\r\n"


class FaultProxy:
    """Runs in a thread of its own; use as a context manager.

    Attributes:
        decide: what to break; may be replaced at any time.
        checksum: what answers carry. etag: as they come. none: no ETag and no x-amz-*, as a plain mirror. sha256: an
            ETag of several parts, and x-amz-checksum-sha256. unknown: the same, by an algorithm nobody here knows.
        substitute: bodies to give instead of a path's own, one a request until they are used up.
        delay_s: what each answer waits first.
        counts: requests by path. faults: broken answers by kind.
    """

    def __init__(self, upstream_port: int, decide: Decide = never) -> None:
        self.decide = decide
        self.checksum = "etag"
        self.substitute: dict[str, list[bytes]] = {}
        self.delay_s = 0.0
        self.counts: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self._upstream_port = upstream_port
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._ready = threading.Event()
        self.port = 0

    @property
    def endpoint(self) -> str:
        """Where clients find it."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def total(self) -> int:
        """Requests so far."""
        return sum(self.counts.values())

    def __enter__(self) -> FaultProxy:
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(
            asyncio.start_server(self._client, "127.0.0.1", 0, backlog=1024)
        )
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()
        server.close()
        # A connection that was just accepted gets its task a moment later.
        self._loop.run_until_complete(asyncio.sleep(0.01))
        while tasks := asyncio.all_tasks(self._loop):
            for task in tasks:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
            self._loop.run_until_complete(asyncio.sleep(0.01))
        self._loop.close()

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        try:
            while head := await _head(reader):
                path = head.split(b" ", 2)[1].decode()
                self.counts[path] += 1
                fault = self.decide(path, self.counts[path])
                if fault:
                    self.faults[fault] += 1
                if self.delay_s:
                    await asyncio.sleep(self.delay_s)
                if fault == "silent":
                    await reader.read()
                    return
                answer = (
                    _error(*_ERRORS[fault]) if fault in _ERRORS else await self._ask(head, upstream)
                )
                if self.substitute.get(path):
                    answer.body = self.substitute[path].pop()
                if not await self._send(writer, reader, answer, fault):
                    return
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client, or the store, went away; or the test is over
        finally:
            for _, other in upstream:
                other.close()
            writer.close()

    async def _ask(
        self, head: bytes, upstream: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]
    ) -> _Answer:
        if not upstream:
            upstream.append(await asyncio.open_connection("127.0.0.1", self._upstream_port))
        reader, writer = upstream[0]
        writer.write(head)
        status, *lines = (await _head(reader)).rstrip().split(b"\r\n")
        headers = {}
        for line in lines:
            name, _, value = line.partition(b":")
            headers[name.strip().title()] = value.strip()
        body = await reader.readexactly(int(headers.get(b"Content-Length", b"0")))
        if headers.pop(b"Connection", b"").lower() == b"close":
            writer.close()
            upstream.clear()
        if self.checksum != "etag":
            headers = {
                name: value
                for name, value in headers.items()
                if not name.startswith((b"Etag", b"X-Amz"))
            }
        if self.checksum in ("sha256", "unknown") and b" 200 " in status:
            name = {"sha256": b"Sha256", "unknown": b"Xxhash128"}[self.checksum]
            headers[b"Etag"] = b'"%032x-2"' % 7
            headers[b"X-Amz-Checksum-" + name] = base64.b64encode(hashlib.sha256(body).digest())
        return _Answer(status, headers, body)

    async def _send(
        self,
        writer: asyncio.StreamWriter,
        reader: asyncio.StreamReader,
        answer: _Answer,
        fault: str,
    ) -> bool:
        """Send the answer, broken as asked; return whether the connection goes on."""
        body, half = answer.body, answer.body[: len(answer.body) // 2]
        if fault in ("reset", "truncated", "stall"):
            writer.write(answer.head() + half)
            await writer.drain()
            if fault == "stall":
                await reader.read()  # until the client gives up
            elif fault == "reset":
                _reset_on_close(writer)
            return False
        if fault == "short":
            writer.write(answer.head(len(half)) + half)
        elif fault == "wrong-bytes":
            at = len(body) // 3
            changed = bytes(byte ^ 0x5A for byte in body[at : at + 64])
            writer.write(answer.head() + body[:at] + changed + body[at + 64 :])
        elif fault == "too-long":
            writer.write(answer.head(len(body) + 100) + body)
            await writer.drain()
            return False
        elif fault == "too-short":
            writer.write(answer.head(max(len(body) - 100, 0)) + body)
        elif fault == "nonsense":
            answer.headers |= {
                b"Last-Modified": b"Fri, 99 Foo 99999 99:99:99 GMT",
                b"X-Amz-Missing-Meta": b"many",
            }
            writer.write(answer.head() + body)
        elif fault == "html":
            page = b"<html><body>Sign in to this network</body></html>"
            writer.write(
                _Answer(b"HTTP/1.1 200 OK", {b"Content-Type": b"text/html"}, page).head() + page
            )
        else:
            writer.write(answer.head() + body)
        await writer.drain()
        return True


async def _head(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return b""


def _error(status: int, code: str, message: str) -> _Answer:
    xml = f'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{code}</Code><Message>{message}</Message></Error>'
    return _Answer(
        f"HTTP/1.1 {status} {code}".encode(), {b"Content-Type": b"application/xml"}, xml.encode()
    )


def _reset_on_close(writer: asyncio.StreamWriter) -> None:
    # Lingering for no time turns the close into a reset.
    writer.get_extra_info("socket").setsockopt(
        socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
    )


def main() -> None:
    """Stand in front of the store on port `argv[1]`; break the first answer for `argv[2]` of all images."""
    with FaultProxy(int(sys.argv[1]), first(MENDABLE, share=float(sys.argv[2]))) as proxy:
        print(proxy.port, flush=True)
        for _ in sys.stdin:  # each line asks for the counts
            print(json.dumps({"requests": proxy.total, "faults": proxy.faults}), flush=True)


if __name__ == "__main__":
    main()
