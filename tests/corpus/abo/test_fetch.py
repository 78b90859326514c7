"""Fetching through faults: in the end every image is here, or one line says why not and what to do."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from tests import making
from tests.corpus.abo import bucket
from tests.corpus.abo.conftest import Corpus, N, fill, intact
from tests.corpus.abo.fault_proxy import MENDABLE, FaultProxy, always, first, never
from wallclock.corpus.abo import store as stores
from wallclock.errors import UserError
from wallclock.files import sha256_bytes
from wallclock.spec import Limits

#: Faults that only a timeout ends.
SILENCES = ("stall", "silent")


def test_every_image_arrives_with_its_row(
    corpus: Corpus, proxy: FaultProxy, objects: dict[str, bytes]
) -> None:
    found = corpus()
    assert len(found.valid) == N
    assert intact(found, objects)
    for item in found.items:
        data = objects[f"images/small/{item.path}"]
        assert (item.bytes, item.sha256) == (len(data), sha256_bytes(data))
        assert item.etag == hashlib.md5(data).hexdigest()
        assert {item.width, item.height} <= set(range(20, 36))
        assert (found.root / item.path).stat().st_mtime_ns == item.mtime_ns > 0
    assert corpus.shown[-1][:2] == (N, N)
    # One GET an image, the catalogue, the licence (and the one that is not there), the README.
    assert proxy.total == N + 4
    assert not list(found.root.rglob("*.part"))


def test_the_second_time_nothing_is_asked_for(corpus: Corpus, proxy: FaultProxy) -> None:
    made = corpus()
    before = proxy.total
    assert corpus() == made
    assert corpus(n=5) == made.first(5)
    assert proxy.total == before


def test_a_longer_list_asks_for_what_is_new(corpus: Corpus, proxy: FaultProxy) -> None:
    short = corpus(n=10)
    before = proxy.total
    assert corpus(n=25).first(10) == short
    assert proxy.total == before + 15
    corpus(n=3)
    assert len(corpus(n=25).items) == 25
    assert proxy.total == before + 15


def test_a_png_is_kept_and_told_by_its_first_bytes(
    corpus: Corpus, objects: dict[str, bytes]
) -> None:
    corpus.settings["prefixes"] = {"small_256": 70, "original": 70}
    found = corpus("original")
    assert intact(found, objects)
    assert [item.format for item in found.items].count("png") == 1
    assert [item.process for item in found.items].count("baseline") == N - 1


@pytest.mark.parametrize("fault", MENDABLE)
def test_a_mendable_fault_ends_in_a_complete_corpus(
    corpus: Corpus, proxy: FaultProxy, objects: dict[str, bytes], fault: str
) -> None:
    proxy.decide = first((fault,), share=0.5)
    found = corpus(read_timeout_s=0.4 if fault in SILENCES else 10.0)
    assert proxy.faults[fault] > N / 4
    assert len(found.valid) == N
    assert intact(found, objects)


def test_all_faults_together(corpus: Corpus, proxy: FaultProxy, objects: dict[str, bytes]) -> None:
    proxy.decide = first(MENDABLE, times=2)
    found = corpus(read_timeout_s=0.4)
    assert len(proxy.faults) >= 8
    assert intact(found, objects)
    assert len(found.valid) == N


@pytest.mark.parametrize("fault", ["reset", "wrong-bytes", "too-short", "silent", "500", "html"])
def test_the_catalogue_and_the_licence_survive_faults_too(
    corpus: Corpus, proxy: FaultProxy, fault: str
) -> None:
    proxy.decide = lambda path, count: fault if count == 1 and "small" not in path else ""
    if fault == "html":
        # The page is whole, and nothing says that it is not the catalogue but its content.
        proxy.decide = lambda path, count: fault if count == 1 and "LICENSE" in path else ""
    assert len(corpus(n=4, read_timeout_s=0.2 if fault in SILENCES else 10.0).valid) == 4
    assert (corpus.folder / "licence" / "LICENSE-CC-BY-4.0.txt").read_bytes() != b""


@pytest.mark.parametrize(
    ("fault", "reason"), [("403", "403 AccessDenied"), ("404", "404 NoSuchKey")]
)
def test_what_the_store_refuses_has_a_row_with_the_reason(
    corpus: Corpus, proxy: FaultProxy, objects: dict[str, bytes], fault: str, reason: str
) -> None:
    paths = [row[3] for row in bucket.rows(N, 70)[:3]]
    proxy.decide = always(fault, *paths)
    found = corpus()
    reasons = {item.path: (item.failed_stage, item.failed_reason) for item in found.failed}
    assert reasons == dict.fromkeys(paths, ("read", reason))
    assert intact(found, objects)
    assert len(found.items) == N
    before = proxy.total
    assert corpus() == found
    assert proxy.total == before, "a refusal is final"
    proxy.decide = never
    assert len(corpus(verify=True).valid) == N
    assert proxy.total == before + 3


def test_what_keeps_failing_is_one_line_and_the_next_run_asks_for_it_alone(
    corpus: Corpus, proxy: FaultProxy
) -> None:
    path = bucket.rows(N, 70)[7][3]
    proxy.decide = always("500", path)
    with pytest.raises(
        UserError, match=rf"1 of {N} objects could not be had .*{path}: 500 InternalError; what has"
    ):
        corpus()
    before = proxy.total
    proxy.decide = never
    assert len(corpus().valid) == N
    assert proxy.total == before + 1


@pytest.mark.parametrize(
    ("fault", "line"),
    [
        (
            "500",
            r"keeps failing: 500 InternalError; what has arrived is kept, the same command goes on",
        ),
        ("reset", r"keeps failing: .*; what has arrived is kept, the same command goes on"),
    ],
)
def test_a_store_that_only_fails_is_one_line(
    corpus: Corpus, proxy: FaultProxy, fault: str, line: str
) -> None:
    proxy.decide = always(fault, "/small/")
    with pytest.raises(UserError, match=line) as caught:
        corpus()
    assert "\n" not in str(caught.value)


def test_a_store_that_refuses_everything_is_one_line(
    corpus: Corpus, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wallclock.corpus.abo.pacing._REFUSED_IN_A_ROW", 10)
    proxy.decide = always("404", "/small/")
    with pytest.raises(
        UserError, match=r"refused the first \d\d objects: 404 NoSuchKey; check corpus\.bucket"
    ):
        corpus()
    proxy.decide = never
    assert len(corpus().valid) == N, (
        "what a store refused that refuses everything is asked for again"
    )


def test_where_nothing_is_there(corpus: Corpus, proxy: FaultProxy) -> None:
    with pytest.raises(UserError, match=r"has no bucket no-such-bucket .* check corpus\.bucket"):
        corpus(bucket="no-such-bucket")
    proxy.decide = always("404", "/metadata/")
    with pytest.raises(
        UserError, match=r"has no images/metadata/images\.csv\.gz .* check corpus\.endpoint"
    ):
        corpus()
    proxy.decide = always("403")
    with pytest.raises(UserError, match=r"403 AccessDenied.*check corpus\.endpoint"):
        corpus()


def test_what_is_not_for_everybody_is_one_line(moto_port: int, tmp_path: Path) -> None:
    fill(moto_port, "private", bucket.objects(2), acl="private")
    with pytest.raises(
        UserError, match=r"has no images/metadata/images\.csv\.gz in private \(.*403"
    ):
        Corpus(tmp_path, f"http://127.0.0.1:{moto_port}")(bucket="private")


def test_a_page_instead_of_the_catalogue_is_one_line_and_not_kept(
    corpus: Corpus, proxy: FaultProxy
) -> None:
    proxy.decide = always("html", "/metadata/")
    with pytest.raises(UserError, match=r"images\.csv\.gz cannot be read: Not a gzipped file"):
        corpus()
    proxy.decide = never
    assert len(corpus().valid) == N


@pytest.mark.parametrize(
    "endpoint", ["http://no-such-host.invalid:9000", "http://127.0.0.1:1", "http://192.0.2.1:9000"]
)
def test_a_store_that_is_not_there_is_one_line_soon(
    tmp_path: Path, endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wallclock.corpus.abo.prepare.CONTACT_S", 2.0)
    host = endpoint.removeprefix("http://")
    with pytest.raises(
        UserError, match=rf"cannot reach {host}: .*corpus\.endpoint.*corpus=synthetic"
    ) as caught:
        Corpus(tmp_path, endpoint)(connect_timeout_s=5.0)
    assert "\n" not in str(caught.value)


def test_a_store_that_goes_away_is_one_line_soon(
    corpus: Corpus, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The catalogue is here already; the images are asked for first."""
    corpus(n=1)
    monkeypatch.setattr("wallclock.corpus.abo.pacing.CONTACT_S", 1.0)
    proxy.decide = always("silent")
    with pytest.raises(UserError, match=r"cannot reach 127\.0\.0\.1:\d+: "):
        corpus(n=9, read_timeout_s=30.0)


def test_one_object_that_never_ends_does_not_hang_the_run(
    corpus: Corpus, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wallclock.corpus.abo.pacing._STUCK_TIMEOUTS", 0.02)
    path = bucket.rows(N, 70)[5][3]
    proxy.decide = always("stall", path)
    with pytest.raises(
        UserError,
        match=r"nothing has arrived from 127\.0\.0\.1:\d+ for 1 s; what has arrived is kept",
    ):
        corpus(read_timeout_s=30.0)


def test_an_image_damaged_in_the_store_keeps_its_row(moto_port: int, tmp_path: Path) -> None:
    damaged = bucket.objects(6, 70)
    broken, empty, huge = ([key for key in damaged if "/small/" in key])[:3]
    damaged[broken] = damaged[broken][:-30]
    damaged[empty] = b""
    damaged[huge] = making.jpeg(900, 900, quality=100)
    fill(moto_port, "damaged", damaged)
    for checksum in ("etag", "none"):
        with FaultProxy(moto_port) as proxy:
            proxy.checksum = checksum
            corpus = Corpus(tmp_path / checksum, proxy.endpoint)
            found = corpus(n=6, bucket="damaged", limits=Limits(max_bytes=8000))
            # Without a checksum an odd one is asked for twice.
            assert proxy.total == 6 + 4 + (0 if checksum == "etag" else 2)
        stages = {f"images/small/{item.path}": item.failed_stage for item in found.failed}
        assert stages == {broken: "decode", empty: "read", huge: "read"}


def test_a_long_object_goes_through_the_disk_in_pieces(
    moto_port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores, "PIECE_BYTES", 3000)
    monkeypatch.setattr("wallclock.corpus.abo.fetch.PIECE_BYTES", 3000)
    large = bucket.objects(3, 70)
    for number, key in enumerate(key for key in large if "/small/" in key):
        large[key] = making.jpeg(200, 200, number, quality=99)
    fill(moto_port, "large", large)
    found = Corpus(tmp_path, f"http://127.0.0.1:{moto_port}")(n=3, bucket="large")
    assert all(item.bytes > 6000 for item in found.valid)
    assert intact(found, large)
