"""Certificates of servers, made here."""

import datetime
import ssl
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


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
