"""A model hub for the tests: the hub's resolve protocol over a folder, on a local port."""

import hashlib
import os
import socketserver
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.running import run_python


@contextmanager
def hang_up() -> Iterator[tuple[str, list[str]]]:
    """A port that never answers; yield its address and the first lines of the requests so far."""
    requests: list[str] = []

    class HangUp(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            requests.append(self.request.recv(4096).decode().partition("\r\n")[0])

    silent = socketserver.ThreadingTCPServer(("127.0.0.1", 0), HangUp)
    with silent as server, _running(server) as address:
        yield address, requests


@contextmanager
def serve(files: Mapping[str, Path], commit: str = "") -> Iterator[tuple[str, list[str]]]:
    """Serve `/<repo>/resolve/<revision>/<file>`; yield the address and the requests so far.

    Args:
        files: `<repo>/resolve/<revision>/<file>` → the file. Everything else is a 404.
        commit: which all revisions are; empty: each is its own.
    """
    requests: list[str] = []
    revisions = {name.rpartition("/")[0] for name in files}

    class Hub(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self._answer(body=False)

        def do_GET(self) -> None:
            self._answer(body=True)

        def _answer(self, body: bool) -> None:
            name = unquote(urlsplit(self.path).path).lstrip("/")
            requests.append(f"{self.command} {name}")
            path = files.get(name)
            data = path.read_bytes() if path else b""
            self.send_response(200 if path else 404)
            self.send_header("Content-Length", str(len(data)))
            if path:
                self.send_header("ETag", f'"{hashlib.sha256(data).hexdigest()}"')
            else:
                self.send_header("X-Error-Code", "EntryNotFound")
            if name.rpartition("/")[0] in revisions:
                # Also of a file that it lacks: the client notes that it does.
                revision = name.split("/resolve/")[1].split("/")[0]
                self.send_header("X-Repo-Commit", commit or revision)
            self.end_headers()
            if body:
                self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            """Nothing on the terminal."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Hub) as server, _running(server) as address:
        yield address, requests


@contextmanager
def _running(server: socketserver.TCPServer) -> Iterator[str]:
    """Serve in a thread while the block runs; yield the address."""
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()


def run(program: str, address: str, home: Path, *words: object, **more: str) -> list[str]:
    """The lines that a program prints which has this hub, and a cache of its own."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("HF_")]:
            patch.delenv(name)
        env = {"HF_ENDPOINT": address, "HF_HOME": str(home), **more}
        done = run_python("-c", program, *words, env=env, check=True)
    return str(done.stdout).strip().splitlines()
