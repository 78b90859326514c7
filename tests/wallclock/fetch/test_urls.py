"""URLs as they are sent, which requests are sent again, and after which pause."""

import time
from email.utils import formatdate

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from wallclock.fetch.retries import is_transient, seconds_of
from wallclock.fetch.urls import sendable

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


def test_transient_statuses() -> None:
    assert [status for status in range(400, 500) if is_transient(status)] == [408, 425, 429]
    assert all(map(is_transient, (500, 502, 503, 504)))
    assert not any(map(is_transient, (200, 301, 304)))


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("7", 7.0),
        ("-3", 0.0),
        ("nan", 0.0),
        ("soon", 0.0),
        ("Mon, 01 Jan 0001 00:00:00 GMT", 0.0),
        ("Mon, 01 Jan 99999999999999999999 00:00:00 GMT", 0.0),
        ("Mon, 01 Jan 2027 00:00:00 +99999999999999999999", 0.0),
    ],
)
def test_what_a_server_asks_to_wait(header: str, seconds: float) -> None:
    assert seconds_of(header) == seconds


@given(st.text(max_size=40))
def test_any_text_is_a_pause(header: str) -> None:
    assert seconds_of(header) >= 0


def test_a_date_to_wait_for() -> None:
    assert 3500 < seconds_of(formatdate(time.time() + 3600, usegmt=True)) < 3700
