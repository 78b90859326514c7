"""Fetching through faults: every image arrives, or one line says why not and what to do."""

import hashlib
from pathlib import Path

import pytest

from harness.digests import sha256_bytes
from tests import making
from tests.harness.corpora.abo import bucket
from tests.harness.corpora.abo.conftest import ALL, OBJECTS, Corpus, N, intact
from tests.harness.corpora.abo.faulty_store import MENDABLE, FaultyStore, always, first
from wallclock.errors import UserError
from wallclock.recipe import Limits

#: Faults that only a timeout ends.
SILENT = {"stall", "silent"}
SMALL = [f"images/small/{row[3]}" for row in bucket.rows(N, 70)]


def test_every_image_arrives_with_its_row(corpus: Corpus, store: FaultyStore) -> None:
    manifest = corpus()
    assert len(manifest.valid) == N
    assert intact(manifest)
    for item in manifest.items:
        data = OBJECTS[f"images/small/{item.path}"]
        assert (item.bytes, item.sha256) == (len(data), sha256_bytes(data))
        assert item.etag == hashlib.md5(data).hexdigest()
        assert {item.width, item.height} <= set(range(20, 36))
        assert (manifest.root / item.path).stat().st_mtime_ns == item.mtime_ns > 0
    assert corpus.progress[-1] == (N, N, "fetching small_256")
    # One GET an image, and the catalogue.
    assert store.total == N + 1
    assert not list(manifest.root.rglob("*.tmp"))


def test_an_independent_s3_server_gives_the_same(corpus: Corpus, moto: str, tmp_path: Path) -> None:
    assert Corpus(tmp_path / "moto", moto)().digest() == corpus().digest()


def test_only_what_is_new_is_requested(corpus: Corpus, store: FaultyStore) -> None:
    short = corpus(n=10)
    before = store.total
    assert corpus(n=10) == short
    assert store.total == before
    assert corpus(n=25).head(10) == short
    assert corpus(n=3) == short.head(3)
    assert len(corpus(n=25).items) == 25
    assert store.total == before + 15


def test_png_is_detected_by_content(corpus: Corpus) -> None:
    manifest = corpus("original", prefixes=ALL)
    assert intact(manifest)
    processes = sorted(item.process or item.format for item in manifest.items)
    assert processes == ["baseline"] * (N - 1) + ["png"]


@pytest.mark.parametrize("faults", [*((fault,) for fault in MENDABLE), MENDABLE])
def test_mendable_faults(corpus: Corpus, store: FaultyStore, faults: tuple[str, ...]) -> None:
    store.decide = first(faults, share=0.5) if len(faults) == 1 else first(faults, times=2)
    manifest = corpus(attempts=6, read_timeout_s=0.2 if {*faults} & SILENT else 10.0)
    assert store.faults.total() > N / 4
    assert len(store.faults) >= min(len(faults), 8)
    assert len(manifest.valid) == N
    assert intact(manifest)


@pytest.mark.parametrize("fault", ["reset", "wrong-bytes", "too-short", "silent", "500"])
def test_the_catalogue_survives_faults(corpus: Corpus, store: FaultyStore, fault: str) -> None:
    broken = always(fault, "metadata")
    store.decide = lambda path, count: broken(path, count) if count == 1 else ""
    assert len(corpus(n=4, read_timeout_s=0.2 if fault in SILENT else 10.0).valid) == 4


@pytest.mark.parametrize(("fault", "reason"), [("403", "AccessDenied"), ("404", "NoSuchKey")])
def test_refused_object_has_a_failure_row(
    corpus: Corpus, store: FaultyStore, fault: str, reason: str
) -> None:
    store.decide = always(fault, *SMALL[:3])
    manifest = corpus()
    reasons = {item.path: (item.failed_stage, item.failed_reason) for item in manifest.failed}
    paths = [row[3] for row in bucket.rows(N, 70)[:3]]
    assert reasons == dict.fromkeys(paths, ("read", f"{fault} {reason}"))
    assert intact(manifest)
    assert len(manifest.items) == N
    before = store.total
    assert corpus() == manifest
    assert store.total == before, "a refusal is final"
    store.decide = always("")
    assert len(corpus(verify=True).valid) == N
    assert store.total == before + 3


def test_next_run_requests_only_what_failed(corpus: Corpus, store: FaultyStore) -> None:
    store.decide = always("500", SMALL[7])
    line = rf"1 of {N} objects could not be fetched .*{SMALL[7]}: 500 InternalError; run the"
    with pytest.raises(UserError, match=line):
        corpus()
    before = store.total
    store.decide = always("")
    assert len(corpus().valid) == N
    assert store.total == before + 1


KEPT = "run the same command again to resume"
#: What is broken, for which keys, what shortens the wait, and the message.
HOPELESS: list[tuple[str, str, dict[str, float], str]] = [
    ("500", "/small/", {}, f"keeps failing: 500 InternalError; {KEPT}"),
    ("reset", "/small/", {}, f"keeps failing: .*; {KEPT}"),
    ("404", "/small/", {"fetch._REFUSED_IN_A_ROW": 10}, r"refused the first \d\d .*404 NoSuchKey"),
    ("bucket", "", {}, r"no bucket amazon-berkeley-objects .* check corpus\.bucket"),
    ("404", "/metadata/", {}, r"has no images/metadata/.*gz .* check corpus\.endpoint"),
    ("403", "", {}, r"403 AccessDenied.*check corpus\.endpoint"),
    ("html", "/metadata/", {}, r"images\.csv\.gz cannot be read: Not a gzipped file"),
]


@pytest.mark.parametrize(("fault", "key", "waits", "line"), HOPELESS)
@pytest.mark.slow
def test_hopeless_store_is_one_line(
    corpus: Corpus,
    store: FaultyStore,
    monkeypatch: pytest.MonkeyPatch,
    fault: str,
    key: str,
    waits: dict[str, float],
    line: str,
) -> None:
    store.decide = always(fault, key)
    with monkeypatch.context() as patch:
        for name, value in waits.items():
            patch.setattr(f"harness.corpora.abo.{name}", value)
        with pytest.raises(UserError, match=line) as caught:
            corpus(read_timeout_s=20.0)
    assert "\n" not in str(caught.value)
    store.decide = always("")
    assert len(corpus().valid) == N, "nothing of this is final"


@pytest.mark.parametrize("host", ["no-such-host.invalid:9000", "127.0.0.1:1", "192.0.2.1:9000"])
def test_unreachable_store_is_one_line(
    tmp_path: Path, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.corpora.abo.store.CONNECT_DEADLINE_S", 2.0)
    line = rf"cannot reach {host}: .*corpus\.endpoint.*corpus=synthetic"
    with pytest.raises(UserError, match=line) as caught:
        Corpus(tmp_path, f"http://{host}")()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("checksum", "requests"), [("etag", 7), ("none", 9)])
def test_image_damaged_in_the_store_keeps_its_row(
    tmp_path: Path, checksum: str, requests: int
) -> None:
    damaged = bucket.objects(6, 70)
    broken, empty, huge = ([key for key in damaged if "/small/" in key])[:3]
    damaged[broken] = damaged[broken][:-30]
    damaged[empty] = b""
    damaged[huge] = making.jpeg(900, 900, quality=100)
    with FaultyStore(damaged) as store:
        store.checksum = checksum
        manifest = Corpus(tmp_path, store.endpoint)(n=6, limits=Limits(max_bytes=8000))
        # Without a checksum a damaged one is requested twice.
        assert store.total == requests
    stages = {f"images/small/{item.path}": item.failed_stage for item in manifest.failed}
    assert stages == {broken: "decode", empty: "read", huge: "read"}
