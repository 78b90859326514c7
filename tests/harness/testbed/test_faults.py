"""Image server and callback receiver: every fault as a client sees it, and the counts."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from harness.testbed.callbacks import CallbackReceiver
from harness.testbed.faults import Faults
from harness.testbed.images import ImageServer
from harness.testbed.serving import serving

IMAGE = bytes(range(250)) * 4


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ImageServer, str]]:
    folder = tmp_path_factory.mktemp("images")
    (folder / "a").mkdir()
    (folder / "a" / "b.jpg").write_bytes(IMAGE)
    server = ImageServer(folder)
    with serving(server.handle) as url:
        yield server, f"{url}/a/b.jpg"


def get(url: str, follow: bool = True) -> requests.Response:
    with requests.Session() as session:
        return session.get(url, timeout=10, allow_redirects=follow)


@pytest.mark.parametrize(
    ("query", "status", "body"),
    [
        ("", 200, IMAGE),
        ("?error_rate=1&status=429", 429, b""),
        ("?latency_s=0.001&body_s=0.001", 200, IMAGE),
        ("?extra_bytes=-300", 200, IMAGE[:700]),
        ("?redirects=3", 200, IMAGE),
        ("?colour=1", 400, b"no fault is called 'colour'; valid: "),
    ],
)
def test_answers(images: tuple[ImageServer, str], query: str, status: int, body: bytes) -> None:
    server, url = images
    server.counts.clear()
    answer = get(url + query)
    assert (answer.status_code, answer.content[: len(body) or None]) == (status, body)
    assert server.counts["redirects"] == len(answer.history) == 3 * ("redirects" in query)
    assert server.counts["bytes"] == len(answer.content) * (status == 200)


@pytest.mark.parametrize("query", ["?reset_rate=1", "?cut_rate=1", "?extra_bytes=1"])
def test_broken_answers(images: tuple[ImageServer, str], query: str) -> None:
    broken = (requests.ConnectionError, requests.exceptions.ChunkedEncodingError)
    with pytest.raises(broken, match=r"reset|broken|aborted"):
        get(images[1] + query)


def test_redirect_elsewhere_and_missing_image(images: tuple[ImageServer, str]) -> None:
    metadata = "http://169.254.169.254/latest"
    answer = get(f"{images[1]}?redirects=1&redirect_to={metadata}", follow=False)
    assert (answer.status_code, answer.headers["Location"]) == (302, metadata)
    assert get(images[1] + "x").status_code == 404


def test_rates_are_seeded(images: tuple[ImageServer, str], tmp_path: Path) -> None:
    draws = [ImageServer(tmp_path, seed=7) for _ in range(2)]
    first, second = ([server.happens("errors", 0.3) for _ in range(100)] for server in draws)
    assert first == second
    assert 0 < sum(first) == draws[0].counts["errors"] < 100


def test_callbacks_are_accepted_once() -> None:
    server = CallbackReceiver(clock=iter((10.0, 20.0)).__next__, faults=Faults(error_rate=1))
    with serving(server.handle) as url, requests.Session() as session:

        def post(key: str | None, body: bytes, query: str = "") -> int:
            headers = {"Idempotency-Key": key} if key else {}
            return session.post(url + query, body, headers=headers, timeout=10).status_code

        assert post("a", b"1") == 503
        assert session.put(f"{url}/testbed", json={"error_rate": 0}, timeout=10).ok
        with pytest.raises(requests.ConnectionError):  # accepted, but the sender cannot know
            post("a", b"1", "?cut_rate=1")
        for key, body in (("a", b"1"), ("a", b"2"), ("a", b"1"), ("b", b"3")):
            assert post(key, body) == 200
        assert post(None, b"4") == 400
        counts = session.get(f"{url}/testbed", timeout=10).json()
        alone = session.get(f"{url}/testbed?counts", timeout=10).json()
    assert alone | {"accepted_at_s": counts["accepted_at_s"]} == counts
    assert "accepted_at_s" not in alone
    assert counts == {
        "requests": 7,
        "errors": 1,
        "resets": 0,
        "cuts": 1,
        "accepted": 2,
        "duplicates": 3,
        "conflicts": 1,
        "accepted_at_s": {"a": 10.0, "b": 20.0},
    }
    assert server.accepted["a"].body == b"1"
