"""An HTTP/1.1 server with a thread for each connection: what stores on loopback have in common."""

import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


class ThreadedServer(ThreadingHTTPServer):
    """Listens on a free port of loopback. As a context manager it serves in a thread."""

    daemon_threads = True
    #: Connections that wait to be accepted: all readers begin at once.
    request_queue_size = 1024

    def __init__(self, handler: "type[FileHandler]") -> None:
        super().__init__(("127.0.0.1", 0), handler)

    @property
    def endpoint(self) -> str:
        """Its URL, without a path."""
        return f"http://127.0.0.1:{self.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()


class FileHandler(BaseHTTPRequestHandler):
    """The requests of one connection, which is kept. A subclass answers them."""

    protocol_version = "HTTP/1.1"
    # Headers and body leave together, and at once.
    wbufsize = 1 << 16
    disable_nagle_algorithm = True

    def answer(self) -> None:
        """Answer a GET of `self.path`."""
        raise NotImplementedError

    def do_GET(self) -> None:
        """Called for each GET."""
        self.answer()

    def reply(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        """Send an answer. The headers must have a Content-Length."""
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: a line a request would take longer than the request."""
