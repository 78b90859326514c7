"""Servers of tests, names, certificates, and boto3's client of a store."""

import datetime
import os
import socketserver
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pycurl
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from wallclock.fetch.request import Request
from wallclock.fetch.retries import PermanentError, TransientError
from wallclock.fetch.s3 import Client, connect
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


class Authority:
    """Makes certificates for servers of the tests."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._key = folder, ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"CA {id(self)}")])
        constraints = x509.BasicConstraints(ca=True, path_length=None)
        builder = self._builder(self._name, self._key).add_extension(constraints, critical=True)
        self.file = folder / f"{id(self)}.pem"
        self.file.write_bytes(_pem(builder.sign(self._key, hashes.SHA256())))

    def context(self, name: str, days: int) -> ssl.SSLContext:
        """Of a server with this name, whose certificate ends in so many days."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        names = x509.SubjectAlternativeName([x509.DNSName(name)])
        builder = self._builder(subject, key, days).add_extension(names, critical=False)
        secret = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        path = self._folder / f"{name}{days}.pem"
        path.write_bytes(_pem(builder.sign(self._key, hashes.SHA256())) + secret)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(path)
        return context

    def _builder(self, subject: x509.Name, key: Any, days: int = 10) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return x509.CertificateBuilder(
            issuer_name=self._name,
            subject_name=subject,
            public_key=key.public_key(),
            serial_number=x509.random_serial_number(),
            not_valid_before=now - datetime.timedelta(days=100),
            not_valid_after=now + datetime.timedelta(days=days),
        )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


@contextmanager
def resolving(addresses_of: Callable[[str], list[str]]) -> Iterator[None]:
    """In all transfers, a name has these addresses; it is looked up for each request."""
    prepare = Transfers._prepare

    def prepared(self: Transfers, curl: Any, transfer: Any) -> None:
        prepare(self, curl, transfer)
        parts = urlsplit(transfer.request.url)
        host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
        curl.setopt(pycurl.RESOLVE, [f"{host}:{port}:{','.join(addresses_of(host))}"])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Transfers, "_prepare", prepared)
        yield


KEY, SECRET, REGION = "AKIA", "secret/+", "eu-west-1"


def client_of(endpoint: str, key: str = KEY, secret: str = SECRET, token: str = "") -> Client:
    """Of a store; with an empty key, anonymous."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("AWS_PROFILE", raising=False)
        for name, value in variables_of(endpoint, key, secret, token).items():
            patch.setenv(name, value)
        return connect("tests")


def variables_of(endpoint: str, key: str, secret: str, token: str = "") -> dict[str, str]:
    """The environment with these settings, and no others of the machine's."""
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": key,
        "AWS_SECRET_ACCESS_KEY": secret if key else "",
        "AWS_SESSION_TOKEN": token,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    }
