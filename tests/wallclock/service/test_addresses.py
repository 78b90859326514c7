"""Which URLs and addresses are refused: by text, at the socket, behind redirects and names."""

import asyncio
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from harness.testbed.faults import Faults
from harness.testbed.images import ImageServer
from harness.testbed.serving import listening
from tests.wallclock.fetch.servers import resolving
from wallclock.fetch.addresses import is_public
from wallclock.service import client as client_module
from wallclock.service.client import Downloader
from wallclock.service.interface import ItemError
from wallclock.service.settings import ServiceSettings

NOT_PUBLIC = "the host's address is not public (allow_private=true allows it)"


def refusal(url: str) -> str:
    """Why a URL is refused for good, in one line."""

    async def get() -> str:
        async with Downloader(ServiceSettings()) as downloader:
            with pytest.raises(ItemError) as caught:
                await downloader.get(url)
        assert (caught.value.stage, caught.value.permanent) == ("download", True)
        return caught.value.reason

    return asyncio.run(get())


@pytest.mark.parametrize(
    "address", ["8.8.8.8", "2606:4700::1", "::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::"]
)
def test_public_addresses(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("9.255.255.255", "11.0.0.0"),
        ("100.63.255.255", "100.128.0.0"),
        ("126.255.255.255", "128.0.0.0"),
        ("169.253.255.255", "169.255.0.0"),
        ("172.15.255.255", "172.32.0.0"),
        ("191.255.255.255", "192.0.1.0"),
        ("192.0.1.255", "192.0.3.0"),
        ("192.88.98.255", "192.88.100.0"),
        ("192.167.255.255", "192.169.0.0"),
        ("198.17.255.255", "198.20.0.0"),
        ("198.51.99.255", "198.51.101.0"),
        ("203.0.112.255", "203.0.114.0"),
        ("223.255.255.255", "255.255.255.255"),
        ("168.63.129.15", "168.63.129.17"),
        ("2000:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "2001:200::"),
        ("2001:db7:ffff:ffff:ffff:ffff:ffff:ffff", "2001:db9::"),
        ("3ffe:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "3fff:1000::"),
    ],
)
def test_special_addresses_and_no_others_are_refused(before: str, after: str) -> None:
    """The last public address before a block of IANA's special-purpose registries, and the first
    one behind it.
    """
    first, last = ip_address(before) + 1, ip_address(after) - 1
    middle = first + (int(last) - int(first)) // 2
    assert is_public(before)
    assert is_public(after) or after == "255.255.255.255"
    assert [address for address in (first, middle, last) if is_public(str(address))] == []


@given(st.integers(0, 2**32 - 1) | st.sampled_from([0, 0xE000_0000, 0xA9FE_A9FE, 0x6440_0001]))
def test_an_address_that_embeds_another_is_as_public_as_that(number: int) -> None:
    inner = IPv4Address(number)
    expected = is_public(str(inner))
    embedding = [
        (0xFFFF << 32) + number,
        (0x64_FF9B << 96) + number,
        (0x2002 << 112) + (number << 80),
    ]
    for outer in map(IPv6Address, embedding):
        assert is_public(str(outer)) is expected, outer
    teredo = IPv6Address((0x2001_0000 << 96) + (number ^ 0xFFFF_FFFF))
    assert teredo.teredo is not None
    assert not is_public(str(teredo))


@given(st.ip_addresses())
def test_what_python_does_not_call_global_is_refused(address: IPv4Address | IPv6Address) -> None:
    """Fails where a later Python has an entry that the table lacks."""
    embeds = isinstance(address, IPv6Address) and address.sixtofour
    assert embeds or address.is_global or not is_public(str(address))


@pytest.mark.parametrize(
    "addresses",
    [
        "10.0.0.1 172.16.0.1 192.168.0.1 fd12::1 fec0::1",  # private
        "127.0.0.1 127.9.9.9 ::1",
        "169.254.169.254 fd00:ec2::254 100.100.100.200 192.0.0.192 168.63.129.16",  # of clouds
        "fe80::1 fe80::1%eth0 169.254.0.1",
        "0.0.0.0 0.255.255.255 :: 100.64.0.1 224.0.0.1 239.1.1.1 ff02::1 240.0.0.1 255.255.255.255",
        "192.0.2.1 198.51.100.1 198.18.0.1 2001:db8::1 192.88.99.1",
        "::ffff:127.0.0.1 ::ffff:a9fe:a9fe ::127.0.0.1 ::ffff:0:127.0.0.1",
        "2002:7f00:1:: 2002:a9fe:a9fe:: 2001:0:7f00:1:: 64:ff9b::7f00:1 64:ff9b:1::808:808",
    ],
)
def test_addresses_that_are_not_public(addresses: str) -> None:
    assert [address for address in addresses.split() if is_public(address)] == []


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("file:///etc/passwd", "not a URL"),
        ("gopher://example.org/", "the URL's scheme is neither http nor https"),
        ("//example.org/x", "the URL's scheme is neither http nor https"),
        ("http:///x", "not a URL"),
        ("http://user:secret@example.org/", "the URL has a user name or a password"),
        ("http://user@example.org/", "the URL has a user name or a password"),
        ("http://example.org:22/", "port 22 is not among the setting ports"),
        ("http://example.org:0/", "port 0 is not among the setting ports"),
        ("http://example.org:99999/", "not a URL"),
        ("http://127.0.0.1\\@example.org/", "the URL has a user name or a password"),
    ],
)
def test_refused_by_text(url: str, reason: str) -> None:
    assert refusal(url) == reason


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "localhost",
        "0.0.0.0",
        "[::]",
        "169.254.169.254",
        "[fd00:ec2::254]",
        "[fe80::1%25lo]",
        "10.0.0.1",
        "0x7f000001",
        "2130706433",
        "0177.0.0.1",
        "127.1",
        "017700000001",
        "127%2e0.0.1",
        "①②⑦.0.0.1",  # the same in other digits
    ],
)
def test_refused_at_the_socket(host: str) -> None:
    """However it is spelled; names resolve here to what they name."""
    assert refusal(f"http://{host}/latest/meta-data/") == NOT_PUBLIC


@pytest.mark.parametrize("host", ["a" * 70, "a..b", "[::1", "[a]"])
def test_what_is_no_host(host: str) -> None:
    assert refusal(f"http://{host}/") == "not a URL"


@given(
    st.text(st.characters(codec="utf-8"), max_size=30),
    st.sampled_from(["", "http://", "https://", "http://[", "http://a@", "http://127.", "http:"]),
)
@example("-", "http://")
@settings(max_examples=25)
def test_any_text_is_refused_in_one_line(text: str, start: str) -> None:
    """Names resolve to a private address; nothing but `ItemError` is raised."""
    with resolving(lambda _: ["10.0.0.1"]):
        reason = refusal(start + text)
    assert reason
    assert len(reason.splitlines()) == 1


@pytest.fixture
def only_one_public(monkeypatch: pytest.MonkeyPatch) -> None:
    """127.0.0.1 counts as public, no other address does."""
    monkeypatch.setattr(client_module, "is_public", lambda address: address == "127.0.0.1")


def test_a_connection_is_used_again_by_who_may_make_it(tmp_path: Path) -> None:
    server = ImageServer(tmp_path)

    async def get() -> None:
        trusting = Downloader(ServiceSettings(allow_private=True))
        async with listening(server.handle) as url, trusting:
            port = url.rpartition(":")[2]
            async with Downloader(ServiceSettings(ports=port)) as downloader:
                for client, reason in ((trusting, "HTTP 404"), (downloader, NOT_PUBLIC)) * 2:
                    with pytest.raises(ItemError) as caught:
                        await client.get(f"{url}/a.jpg")
                    assert caught.value.reason == reason

    asyncio.run(get())
    assert server.counts["requests"] == 2


@pytest.mark.usefixtures("only_one_public")
@pytest.mark.parametrize(
    ("location", "reason"),
    [
        ("http://127.0.0.2/latest", NOT_PUBLIC),
        ("http://127.0.0.1:22/", "port 22 is not among the setting ports"),
        ("http://a:b@127.0.0.1/", "the URL has a user name or a password"),
    ],
)
def test_every_redirect_is_checked_anew(tmp_path: Path, location: str, reason: str) -> None:
    server = ImageServer(tmp_path, faults=Faults(redirects=1, redirect_to=location))

    async def get() -> None:
        async with listening(server.handle) as url:
            ports = f"80,{url.rpartition(':')[2]}"
            async with Downloader(ServiceSettings(ports=ports)) as downloader:
                with pytest.raises(ItemError) as caught:
                    await downloader.get(f"{url}/a.jpg")
        assert (caught.value.reason, caught.value.permanent) == (reason, True)

    asyncio.run(get())
    assert server.counts["requests"] == 1
