"""The store: what proves that bytes are right, what its answers mean, and how fast it is asked."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.corpus.abo import bucket
from tests.corpus.abo.conftest import Corpus, N, intact
from tests.corpus.abo.fault_proxy import FaultProxy, always, first, never
from wallclock.corpus.abo import fetch as fetching
from wallclock.corpus.abo import store as stores
from wallclock.corpus.abo.pacing import Gate
from wallclock.corpus.abo.store import TransientError
from wallclock.corpus.validate import Header
from wallclock.errors import UserError

#: The image that is listed third, in both sets.
PATH = bucket.rows(N, 70)[2][3]


def test_a_busy_store_is_asked_for_fewer_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wallclock.corpus.abo.pacing._CUT_EVERY_S", 0.0)
    gate = Gate(8)

    def get(*errors: Exception) -> float:
        for error in errors:
            with suppress(TransientError), gate:
                raise error
        return gate._allowed

    assert get(TransientError("reset")) == 8
    assert get(TransientError("503 SlowDown", busy=True)) == 4
    assert get(*[TransientError("503 SlowDown", busy=True)] * 9) == 1
    rounds = 0
    while gate._allowed < 8:
        with gate:
            rounds += 1
    assert 7 * 2 < rounds < 8 * 8


class TestAMirrorWithoutChecksums:
    """Plain HTTP servers send no MD5: only the picture can tell damage, so an odd one must come twice the same."""

    @pytest.fixture(autouse=True)
    def _plain(self, proxy: FaultProxy) -> None:
        proxy.checksum = "none"

    def test_it_serves(self, corpus: Corpus, proxy: FaultProxy, objects: dict[str, bytes]) -> None:
        found = corpus()
        assert intact(found, objects)
        assert {item.etag for item in found.items} == {""}
        assert proxy.total == N + 4

    @pytest.mark.parametrize("fault", ["short", "truncated", "html"])
    def test_a_damaged_picture_is_fetched_again(
        self, corpus: Corpus, proxy: FaultProxy, objects: dict[str, bytes], fault: str
    ) -> None:
        proxy.decide = first((fault,), share=0.3)
        found = corpus()
        assert proxy.faults[fault]
        assert intact(found, objects)
        assert len(found.valid) == N

    def test_another_picture_than_the_catalogue_describes_is_asked_for_twice(
        self, corpus: Corpus, proxy: FaultProxy, objects: dict[str, bytes]
    ) -> None:
        """A server that gives one image for another: the originals' sizes are known."""
        corpus.settings["prefixes"] = {"small_256": 70, "original": 70}
        other = next(data for key, data in objects.items() if "/small/" in key)
        proxy.substitute = {f"/{bucket.NAME}/images/original/{bucket.rows(N, 70)[2][3]}": [other]}
        found = corpus("original")
        assert intact(found, objects)
        assert proxy.total == N + 4 + 1


@pytest.mark.parametrize(
    ("checksum", "noticed"), [("etag", True), ("sha256", True), ("unknown", False)]
)
def test_a_sound_image_in_place_of_another_is_noticed_by_any_checksum(
    corpus: Corpus, proxy: FaultProxy, objects: dict[str, bytes], checksum: str, noticed: bool
) -> None:
    """By the picture it cannot be: the catalogue does not have the small ones' sizes."""
    proxy.checksum = checksum
    other = objects[f"images/small/{bucket.rows(N, 70)[9][3]}"]
    proxy.substitute = {f"/{bucket.NAME}/images/small/{PATH}": [other]}
    found = corpus()
    assert len(found.valid) == N
    assert intact(found, objects) == noticed
    assert proxy.total == N + 4 + noticed


def test_an_etag_of_several_parts_is_no_md5(
    corpus: Corpus, proxy: FaultProxy, objects: dict[str, bytes]
) -> None:
    proxy.checksum = "sha256"
    proxy.decide = first(("wrong-bytes", "short"), share=0.5)
    found = corpus(n=20)
    assert intact(found, objects)
    assert {item.etag for item in found.items} == {f"{7:032x}-2"}


def test_nothing_of_a_persons_own_aws_set_up_counts(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "work")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_RESPONSE_CHECKSUM_VALIDATION", "nonsense")
    stores._session.cache_clear()
    assert len(corpus(n=2).valid) == 2


@pytest.mark.parametrize(
    "endpoint",
    ["http://a_b", "http://[::1", "http://..x..", "http://x:y", "http://127.0.0.1:99999"],
)
def test_an_endpoint_that_is_none_is_one_line(tmp_path: Path, endpoint: str) -> None:
    with pytest.raises(UserError, match=r"corpus\.endpoint") as caught:
        Corpus(tmp_path, endpoint)()
    assert "\n" not in str(caught.value)


def test_a_password_in_the_endpoint_is_not_repeated(tmp_path: Path) -> None:
    address = stores.Address.of(Corpus(tmp_path, "http://me:secret@127.0.0.1:9000").spec())
    assert address.host == "127.0.0.1:9000"


def test_a_catalogue_that_never_ends_does_not_hang_the_run(
    corpus: Corpus, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wallclock.corpus.abo.prepare._PATIENCE_S", 0.5)
    proxy.decide = always("stall", "/metadata/")
    with pytest.raises(
        UserError,
        match=r"has not given images/metadata/images\.csv\.gz in 0 s; run the same command",
    ):
        corpus()
    proxy.decide = never
    assert len(corpus(n=3).valid) == 3


def test_a_picture_that_is_decoded_whole_waits_for_its_turn(
    corpus: Corpus, objects: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any number of threads then holds one at a time: a small file may be a large picture."""
    together: dict[bool, list[int]] = {True: [], False: []}
    inside = {True: 0, False: 0}
    lock = threading.Lock()

    def slowly(data: bytes, header: Header) -> None:
        whole = int(header.width) % 2 == 0
        with lock:
            inside[whole] += 1
            together[whole].append(inside[whole])
        time.sleep(0.02)
        with lock:
            inside[whole] -= 1

    monkeypatch.setattr(fetching, "check_body", slowly)
    monkeypatch.setattr(Header, "streams", property(lambda header: header.width % 2 == 1))
    assert len(corpus().valid) == N
    assert max(together[True]) == 1
    assert max(together[False]) > 1
