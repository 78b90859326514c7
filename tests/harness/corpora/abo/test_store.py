"""The store: what proves that bytes are right, how many are requested at once, odd endpoints."""

import threading
import time
from pathlib import Path

import pytest

from harness.corpora.abo import fetch as fetching
from harness.corpora.abo.store import CorpusStore
from tests.harness.corpora.abo import bucket
from tests.harness.corpora.abo.conftest import OBJECTS, Corpus, N, intact
from tests.harness.corpora.abo.faulty_store import FaultyStore, first
from wallclock.check import Header
from wallclock.errors import UserError


@pytest.mark.parametrize("fault", ["", "short", "truncated", "html"])
def test_mirror_without_checksums(corpus: Corpus, store: FaultyStore, fault: str) -> None:
    """Plain HTTP servers send no MD5: an invalid image must arrive twice the same."""
    store.checksum = "none"
    store.decide = first((fault,), share=0.3)
    manifest = corpus()
    assert len(manifest.valid) == N
    assert intact(manifest)
    assert {item.etag for item in manifest.items} == {""}
    assert store.total == N + 1 + store.faults[fault]
    assert bool(store.faults[fault]) == bool(fault)


CHECKSUMS = [("etag", True), ("sha256", True), ("unknown", False)]


@pytest.mark.parametrize(("checksum", "noticed"), CHECKSUMS)
def test_checksum_notices_a_swapped_image(
    corpus: Corpus, store: FaultyStore, checksum: str, noticed: bool
) -> None:
    """The image itself cannot show it: the catalogue does not have the small ones' sizes."""
    store.checksum = checksum
    key, other = (f"images/small/{row[3]}" for row in bucket.rows(N, 70)[2:4])
    store.substitute = {key: OBJECTS[other]}
    manifest = corpus()
    assert len(manifest.valid) == N
    assert intact(manifest) == noticed
    assert store.total == N + 1 + noticed
    multipart = {item.etag for item in manifest.items} == {f"{7:032x}-2"}
    assert multipart == (checksum != "etag")


def test_users_aws_settings_are_ignored(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "work")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_RESPONSE_CHECKSUM_VALIDATION", "nonsense")
    assert len(corpus(n=2).valid) == 2


@pytest.mark.parametrize("endpoint", ["a_b", "[::1", "..x..", "x:y", "127.0.0.1:99999"])
def test_invalid_endpoint_is_one_line(tmp_path: Path, endpoint: str) -> None:
    with pytest.raises(UserError, match=r"corpus\.endpoint") as caught:
        Corpus(tmp_path, f"http://{endpoint}")()
    assert "\n" not in str(caught.value)


def test_host_of_aws_and_without_a_password(tmp_path: Path) -> None:
    corpus = Corpus(tmp_path, "http://me:secret@127.0.0.1:9000")
    assert CorpusStore(corpus.spec()).host == "127.0.0.1:9000"
    aws = "amazon-berkeley-objects.s3.us-east-1.amazonaws.com"
    assert CorpusStore(corpus.spec(endpoint="")).host == aws


def test_large_images_are_decoded_one_at_a_time(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any number of threads holds one: a small file may be a large image."""
    active, most = {True: 0, False: 0}, {True: 0, False: 0}
    lock = threading.Lock()

    def slowly(data: bytes, header: Header) -> None:
        by_row = header.width % 2 == 1
        with lock:
            active[by_row] += 1
            most[by_row] = max(most[by_row], active[by_row])
        time.sleep(0.02)
        with lock:
            active[by_row] -= 1

    monkeypatch.setattr(fetching, "check_body", slowly)
    monkeypatch.setattr(fetching, "decodes_by_row", lambda header: header.width % 2 == 1)
    assert len(corpus().valid) == N
    assert most[False] == 1
    assert most[True] > 1
