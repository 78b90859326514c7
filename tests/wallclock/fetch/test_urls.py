"""URLs as they are sent: as they are given where they are valid, else as browsers send them."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from wallclock.fetch.urls import onward, sendable

SIGNED = "https://b.s3.amazonaws.com/a%20b/..//c+d(1)?X-Amz-Signature=1f%2f&X-Amz-Date=2026:01'*!~"


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        (SIGNED, SIGNED),
        ("http://me:secret@127.0.0.1:9/a#b", "http://me:secret@127.0.0.1:9/a#b"),
        ("http://[::1]:9", "http://[::1]:9"),
        ("HTTPS://Host/A", "HTTPS://Host/A"),
        ("http://host/a b/ü?q=<x>|y", "http://host/a%20b/%C3%BC?q=%3Cx%3E%7Cy"),
        ("http://host/100%/50%25", "http://host/100%/50%25"),
        ("http://host?a b", "http://host?a%20b"),
        ("http://bücher.example:8080/ü", "http://xn--bcher-kva.example:8080/%C3%BC"),
        ("http://straße.example/a", "http://xn--strae-oqa.example/a"),
        ("http://ho\nst/a\tb\r\n", "http://host/ab"),
        ("  http://host/a ", "http://host/a"),
    ],
)
def test_what_is_sent(given: str, sent: str) -> None:
    assert sendable(given) == sent


@pytest.mark.parametrize("url", ["", "a/b.jpg", "http://", "http:///a", "http:/a"])
def test_what_is_no_url(url: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        sendable(url)


@given(st.text(max_size=20), st.text(max_size=20))
@example("\t", "")
@example("é" * 100, "")
def test_any_text(host: str, rest: str) -> None:
    """Nothing that would end a line of a request, and the same when it is sent again."""
    try:
        sent = sendable(f"http://{host}/{rest}")
    except ValueError:
        return
    assert sent.startswith("http://")
    assert not set("\r\n\t") & {*sent}
    assert sendable(sent) == sent


@pytest.mark.parametrize(
    ("location", "target"),
    [
        ("/b", "http://host/b"),
        ("c?d", "http://host/a/c?d"),
        ("//other/x", "http://other/x"),
        ("https://other/x", "https://other/x"),
        ("/ü".encode().decode("latin-1"), "http://host/ü"),
        ("/ü", "http://host/%FC"),
    ],
)
def test_where_a_redirect_goes(location: str, target: str) -> None:
    assert onward("http://host/a/b", location) == target
