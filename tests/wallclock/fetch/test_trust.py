"""Whom a transfer may trust: certificates, addresses, proxies."""

import ipaddress
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.wallclock.fetch.servers import Authority, ok, redirect, resolving, result_of, serving
from wallclock.fetch.retries import CertificateError, PermanentError
from wallclock.fetch.transfers import Transfers


@pytest.mark.parametrize(
    ("name", "days", "is_trusted", "reason"),
    [
        ("images.test", 10, True, ""),
        ("images.test", -1, True, "certificate has expired"),
        ("others.test", 10, True, "no alternative certificate subject name"),
        ("images.test", 10, False, "unable to get local issuer certificate"),
    ],
)
def test_certificates(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    name: str,
    days: int,
    is_trusted: bool,
    reason: str,
) -> None:
    authority = Authority(tmp_path)
    trusted = authority if is_trusted else Authority(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(trusted.file))
    with (
        resolving(lambda _: ["127.0.0.1"]),
        serving({"/": ok(b"body")}, authority.context(name, days)) as server,
        closing(Transfers(1, "tests/1")) as transfers,
    ):
        result = result_of(transfers, f"https://images.test:{server.port}/")
        assert len(server.heads) == (not reason)
    if reason:
        assert isinstance(result, CertificateError)
        assert str(result).startswith(f"certificate: {reason}")
    else:
        assert result.body == b"body"


def other_than_local(address: str) -> str:
    """Of the tests' refusals: only 127.0.0.1 may be reached."""
    allowed = ipaddress.ip_address(address) == ipaddress.ip_address("127.0.0.1")
    return "" if allowed else f"{address} is refused"


@contextmanager
def guarded(addresses_of: Callable[[str], list[str]] = lambda host: [host]) -> Iterator[Transfers]:
    with resolving(addresses_of), closing(Transfers(1, "tests/1", other_than_local)) as transfers:
        yield transfers


@pytest.mark.parametrize(
    ("addresses", "refused"),
    [
        (["127.0.0.1"], ""),
        (["127.0.0.2"], "127.0.0.2"),
        (["127.0.0.2", "127.0.0.1"], ""),
        (["10.0.0.1", "127.0.0.2"], "127.0.0.2"),
        (["::1"], "::1"),
        (["::ffff:127.0.0.2"], "::ffff:127.0.0.2"),
    ],
)
def test_addresses_of_a_name(addresses: list[str], refused: str) -> None:
    with serving({"/": ok(b"body")}) as server, guarded(lambda _: addresses) as transfers:
        result = result_of(transfers, f"http://images.test:{server.port}/")
        assert len(server.heads) == (not refused)
    if refused:
        assert isinstance(result, PermanentError)
        assert str(result) == f"{refused} is refused"
    else:
        assert (result.body, result.address) == (b"body", "127.0.0.1")


def test_a_name_that_changes() -> None:
    """What counts is the address that is connected to, each time."""
    answers = iter([["127.0.0.1"], ["127.0.0.2"], ["127.0.0.1"]])
    with serving({"/": ok(b"body")}) as server, guarded(lambda _: next(answers)) as transfers:
        url = f"http://images.test:{server.port}/"
        results = [result_of(transfers, url) for _ in range(3)]
    assert [getattr(result, "body", str(result)) for result in results] == [
        b"body",
        "127.0.0.2 is refused",
        b"body",
    ]


def test_a_redirect_to_a_refused_address() -> None:
    with serving({}) as server, guarded() as transfers:
        server.replies["/"] = redirect(b"http://127.0.0.2:%d/secret" % server.port)
        result = result_of(transfers, f"{server.url}/", redirects=5)
        assert len(server.heads) == 1
    assert str(result) == "127.0.0.2 is refused"


def test_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the environment, for what is trusted; one would connect to any address."""
    with serving({"http://images.test/": ok(b"proxied")}) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        for name in "no_proxy", "NO_PROXY":
            monkeypatch.delenv(name, raising=False)
        with closing(Transfers(1, "tests/1")) as trusted:
            answer = result_of(trusted, "http://images.test/")
        assert (answer.body, answer.address) == (b"proxied", "")
        with guarded(lambda _: ["127.0.0.2"]) as untrusted:
            assert str(result_of(untrusted, "http://images.test/")) == "127.0.0.2 is refused"
        assert len(proxy.heads) == 1
