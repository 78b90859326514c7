"""A store that serves objects as S3 does and breaks some of its responses, each in a known way.

It answers unsigned GETs over plain HTTP/1.1 from a dictionary, and counts requests. Which response
is broken is a function of the path and of how often it was requested.
"""

from __future__ import annotations

import base64
import hashlib
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

from tests.corpus.abo import bucket

#: Faults that a retry mends.
#: reset: half of the body, then RST. truncated: half, then FIN, under the right length.
#: short: half under its own length. wrong-bytes: the right length, some bytes changed.
#: too-long: a Content-Length beyond the body's. too-short: one below it, and the complete body.
#: stall: half of the body, then silence. silent: no response. html: another page, status 200.
#: nonsense: malformed headers.
MENDABLE = (
    *("reset", "truncated", "short", "wrong-bytes", "too-long", "too-short", "stall", "silent"),
    *("500", "503", "slowdown", "html", "nonsense"),
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


def never(path: str, count: int) -> str:
    """Break nothing."""
    return ""


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

    def decide(path: str, count: int) -> str:
        return fault if not fragments or any(fragment in path for fragment in fragments) else ""

    return decide


class FaultyStore(ThreadingHTTPServer):
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

    daemon_threads = True
    request_queue_size = 1024

    def __init__(self, objects: Mapping[str, bytes]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects = objects
        self.decide: Decide = never
        self.checksum = "etag"
        self.substitute: dict[str, bytes] = {}
        self.delay_s = 0.0
        self.counts: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.lock = threading.Lock()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    @property
    def total(self) -> int:
        """Requests so far."""
        return sum(self.counts.values())

    def __enter__(self) -> FaultyStore:
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()

    def handle_error(self, request: object, client_address: object) -> None:
        """The client closed the connection."""


class _Handler(BaseHTTPRequestHandler):
    server: FaultyStore
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def log_message(self, *_: object) -> None: ...

    def do_GET(self) -> None:
        store, path = self.server, unquote(self.path)
        _, name, key = path.split("/", 2)
        with store.lock:
            store.counts[path] += 1
            fault = store.decide(path, store.counts[path])
            if fault:
                store.faults[fault] += 1
            body, substitute = store.objects.get(key), store.substitute.pop(key, None)
        time.sleep(store.delay_s)
        if fault == "silent":
            self._wait_for_close()
        elif fault in _ERRORS or name != bucket.NAME or body is None:
            missing = "404" if name == bucket.NAME else "bucket"
            self._error(*_ERRORS[fault if fault in _ERRORS else missing])
        elif fault == "html":
            self._respond(_HTML)
        elif substitute is not None:
            self._respond(substitute, checksums_of=body)
        else:
            self._object(fault, body)

    def _object(self, fault: str, body: bytes) -> None:
        half = body[: len(body) // 2]
        if fault in ("reset", "truncated", "stall"):
            self._respond(half, len(body), checksums_of=body)
            self.wfile.flush()
            if fault == "stall":
                self._wait_for_close()
            if fault == "reset":
                # Without lingering, closing resets the connection.
                linger = struct.pack("ii", 1, 0)
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                self.connection.close()
            self.close_connection = True
        elif fault == "short":
            self._respond(half, checksums_of=body)
        elif fault == "wrong-bytes":
            at = len(body) // 3
            changed = bytes(byte ^ 0x5A for byte in body[at : at + 64])
            self._respond(body[:at] + changed + body[at + 64 :], checksums_of=body)
        elif fault == "too-long":
            self._respond(body, len(body) + 100)
            self.close_connection = True
        elif fault == "too-short":
            self._respond(body, max(len(body) - 100, 0))
        else:
            self._respond(body, nonsense=fault == "nonsense")

    def _respond(
        self, sent: bytes, length: int = -1, checksums_of: bytes = b"", nonsense: bool = False
    ) -> None:
        modified = "Fri, 99 Foo 99999 99:99:99" if nonsense else "Wed, 01 Jan 2020 00:00:00"
        headers = self._checksums(checksums_of or sent) | {"Last-Modified": f"{modified} GMT"}
        if nonsense:
            headers["X-Amz-Missing-Meta"] = "many"
        self._send(200, sent, len(sent) if length < 0 else length, headers)

    def _checksums(self, body: bytes) -> dict[str, str]:
        checksum = self.server.checksum
        if checksum == "none" or body == _HTML:
            return {}
        if checksum == "etag":
            return {"ETag": f'"{hashlib.md5(body).hexdigest()}"'}
        name = {"sha256": "Sha256", "unknown": "Xxhash128"}[checksum]
        digest = base64.b64encode(hashlib.sha256(body).digest()).decode()
        return {"ETag": f'"{7:032x}-2"', f"X-Amz-Checksum-{name}": digest}

    def _error(self, status: int, code: str) -> None:
        xml = f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode()
        self._send(status, xml, len(xml), {"Content-Type": "application/xml"})

    def _send(self, status: int, body: bytes, length: int, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": f"{length}", **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def _wait_for_close(self) -> None:
        self.rfile.read(1)
        self.close_connection = True
