"""A server that sends bytes as they are given, and what a transfer makes of them."""

import socketserver
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from wallclock.fetch.request import Request
from wallclock.fetch.retries import PermanentError, TransientError
from wallclock.fetch.transfers import Transfers

#: What is sent for a path: bytes, or a function that sends them. The connection then ends.
Replies = dict[str, bytes | Callable[[Any], None]]


class RawServer(socketserver.ThreadingTCPServer):
    """Sends bytes as they are given, over TLS where it has a `context`; keeps the requests."""

    allow_reuse_address = daemon_threads = True

    def __init__(self, replies: Replies, context: ssl.SSLContext | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _RawHandler)
        self.replies, self.context = replies, context
        self.heads: list[bytes] = []
        self.port: int = self.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"

    def get_request(self) -> Any:
        connection, address = super().get_request()
        if self.context:  # shaken hands with in the connection's own thread
            connection = self.context.wrap_socket(
                connection, server_side=True, do_handshake_on_connect=False
            )
        return connection, address

    def handle_error(self, request: Any, client_address: Any) -> None:
        """The client went away."""


class _RawHandler(socketserver.StreamRequestHandler):
    server: RawServer

    def handle(self) -> None:
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            if not (line := self.rfile.readline()):
                return
            head += line
        self.server.heads.append(head)
        reply = self.server.replies[head.split()[1].decode()]
        if callable(reply):
            reply(self.wfile)
        else:
            self.wfile.write(reply)


@contextmanager
def serving(replies: Replies, context: ssl.SSLContext | None = None) -> Iterator[RawServer]:
    with RawServer(replies, context) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield server
        finally:
            server.shutdown()


def result_of(transfers: Transfers, url: str, max_bytes: int = 1000, **options: Any) -> Any:
    """The answer, or the error, which is one line."""
    try:
        result: Any = transfers.ask(Request(url, max_bytes, **options))
    except (PermanentError, TransientError) as error:
        result = error
    assert "\n" not in (str(result) if isinstance(result, Exception) else "")
    return result


def ok(body: bytes, *headers: str) -> bytes:
    lines = "".join(f"{line}\r\n" for line in (*headers, f"Content-Length: {len(body)}"))
    return f"HTTP/1.1 200 OK\r\n{lines}\r\n".encode("latin-1") + body


def redirect(location: bytes) -> bytes:
    return b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: " + location + b"\r\n\r\n"
