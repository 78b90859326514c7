"""A store that serves objects as S3 does and breaks some of its responses, each in a known way.

It answers unsigned GETs over plain HTTP/1.1 from a dictionary, and counts requests. Which response
is broken is a function of the path and of how often it was requested.
"""

import base64
import hashlib
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from urllib.parse import unquote

from tests.threaded_server import FileHandler, ThreadedServer

#: Faults that a retry mends: those of `broken`, and
#: silent: no response. nonsense: malformed headers.
MENDABLE = (
    "reset",
    "truncated",
    "short",
    "wrong-bytes",
    "too-long",
    "too-short",
    "stall",
    "silent",
    "500",
    "503",
    "slowdown",
    "html",
    "nonsense",
)
_ERRORS = {
    "500": (500, "InternalError"),
    "503": (503, "ServiceUnavailable"),
    "slowdown": (503, "SlowDown"),
    "403": (403, "AccessDenied"),
    "404": (404, "NoSuchKey"),
    "bucket": (404, "NoSuchBucket"),
}
_HTML = b"<html><body>Sign in to this network</body></html>"

#: (path, how often it was requested, this time included) → a fault, or "" for none.
Decide = Callable[[str, int], str]


def broken(fault: str, body: bytes) -> tuple[bytes, int, str]:
    """What is sent for `body`, the Content-Length, and how the connection ends: "" keeps it."""
    n = len(body)
    half = body[: n // 2]
    at = n // 3
    changed = body[:at] + bytes(byte ^ 0x5A for byte in body[at : at + 64]) + body[at + 64 :]
    responses = {
        "reset": (half, n, "reset"),
        "truncated": (half, n, "close"),
        "stall": (half, n, "stall"),
        "short": (half, len(half), ""),
        "wrong-bytes": (changed, n, ""),
        "too-long": (body, n + 100, "close"),
        "too-short": (body, max(n - 100, 0), ""),
        "html": (_HTML, len(_HTML), ""),
    }
    return responses.get(fault, (body, n, ""))


def first(faults: tuple[str, ...], times: int = 1, share: float = 1.0) -> Decide:
    """Break the first `times` responses for a share of all images, by the digest of the path."""

    def decide(path: str, count: int) -> str:
        digest = hashlib.sha256(path.encode()).digest()
        if count > times or not path.endswith((".jpg", ".png")) or digest[0] >= 256 * share:
            return ""
        return faults[(digest[1] + count) % len(faults)]

    return decide


def always(fault: str, *fragments: str) -> Decide:
    """Break every response for a path that contains one of the fragments; for any if none."""
    return lambda path, count: fault if any(text in path for text in fragments or ("/",)) else ""


class FaultyStore(ThreadedServer):
    """Serves in threads of this process; use as a context manager.

    Attributes:
        objects: bodies by key, all in one bucket.
        decide: what to break; may be replaced at any time.
        checksum: etag: the MD5. none: no ETag, as of a plain mirror. sha256: an ETag of several
            parts and x-amz-checksum-sha256. unknown: the same, by an algorithm unknown to boto.
        substitute: bodies to send once instead of a key's own, under its own's checksums.
        delay_s: the latency of each response.
        counts: requests by path. faults: broken responses by fault.
    """

    def __init__(self, objects: Mapping[str, bytes]) -> None:
        super().__init__(_FaultyHandler)
        self.objects = objects
        self.decide = always("")
        self.checksum = "etag"
        self.substitute: dict[str, bytes] = {}
        self.delay_s = 0.0
        self.counts: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.lock = threading.Lock()

    @property
    def total(self) -> int:
        """Requests so far."""
        return sum(self.counts.values())

    def handle_error(self, request: object, client_address: object) -> None:
        """The client closed the connection."""


class _FaultyHandler(FileHandler):
    server: FaultyStore

    def answer(self) -> None:
        store, path = self.server, unquote(self.path)
        _, _, key = path.split("/", 2)
        with store.lock:
            store.counts[path] += 1
            fault = store.decide(path, store.counts[path])
            if fault:
                store.faults[fault] += 1
            body, substitute = store.objects.get(key), store.substitute.pop(key, None)
        time.sleep(store.delay_s)
        if fault == "silent":
            self._end("stall")
        elif fault in _ERRORS or body is None:
            status, code = _ERRORS.get(fault, _ERRORS["404"])
            xml = f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode()
            headers = {"Content-Length": str(len(xml)), "Content-Type": "application/xml"}
            self.reply(status, headers, xml)
        else:
            sent, length, end = broken(fault, substitute or body)
            headers = {"Content-Length": str(length)}
            if fault == "nonsense":
                headers["Last-Modified"] = "Fri, 99 Foo 99999 99:99:99 GMT"
                headers["X-Amz-Missing-Meta"] = "many"
            else:
                headers["Last-Modified"] = "Wed, 01 Jan 2020 00:00:00 GMT"
            if fault != "html":
                headers |= self._checksums(body)
            self.reply(200, headers, sent)
            self._end(end)

    def _checksums(self, body: bytes) -> dict[str, str]:
        checksum = self.server.checksum
        if checksum == "none":
            return {}
        if checksum == "etag":
            return {"ETag": f'"{hashlib.md5(body).hexdigest()}"'}
        name = {"sha256": "Sha256", "unknown": "Xxhash128"}[checksum]
        digest = base64.b64encode(hashlib.sha256(body).digest()).decode()
        return {"ETag": f'"{7:032x}-2"', f"X-Amz-Checksum-{name}": digest}

    def _end(self, end: str) -> None:
        """End the connection in this way; "" keeps it."""
        self.wfile.flush()
        if end == "stall":
            # Until the client closes.
            self.rfile.read(1)
        elif end == "reset":
            # Without lingering, closing resets the connection.
            linger = struct.pack("ii", 1, 0)
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.connection.close()
        if end:
            self.close_connection = True
