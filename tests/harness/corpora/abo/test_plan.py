"""The plan of a download, and the store that it is from."""

import gzip
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.corpora.abo import fetch as fetching
from harness.corpora.abo import plan
from harness.corpora.abo.plan import Catalogue
from harness.corpora.manifest import Item
from tests.harness.corpora.abo import bucket
from tests.harness.corpora.abo.conftest import OBJECTS, Corpus, N, intact
from tests.harness.corpora.abo.faulty_store import FaultyStore, first
from wallclock.check import Header
from wallclock.errors import UserError

# --- plan -----------------------------------------------------------------------------------------


ROWS = bucket.rows(3000)
any_function = settings(
    max_examples=120, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "images.csv.gz"
    path.write_bytes(bucket.catalogue(ROWS))
    return path


def load(path: Path, prefixes: int = 256, seed: int = 0) -> Catalogue:
    plan.load.cache_clear()
    return plan.load(path, prefixes, seed)


def sample(path: Path, prefixes: int = 70, seed: int = 0, n: int = 500) -> tuple[Item, ...]:
    return load(path, prefixes, seed).sample("small_256", n)


@pytest.mark.parametrize(
    ("prefixes", "seed", "n", "digest"),
    [
        (70, 0, 500, "2c0a48b3d57921aa29255342407bc66c7028353097cc661b829d834fcaff8308"),
        (70, 1, 500, "a694f0eb5e72086b693d6c6480c14c857d68e5860bd3c44ef73cf52130a6bd9f"),
        (50, 0, 300, "62d9cd961d3e1cb29276ca5018d66ac9a6e2f42d03e0d289c14853ce5453dc5f"),
    ],
)
def test_seed_determines_the_list(
    file: Path, prefixes: int, seed: int, n: int, digest: str
) -> None:
    assert plan.list_digest(sample(file, prefixes, seed, n)) == digest
    file.write_bytes(bucket.catalogue(reversed(ROWS)))
    assert plan.list_digest(sample(file, prefixes, seed, n)) == digest, "rows have no order"


def test_sample_of_the_first_prefixes(file: Path) -> None:
    expected = {row[3] for row in ROWS if int(row[3][:2], 16) < 70}
    assert {entry.path for entry in load(file, 70).entries} == expected
    ids = {entry.id for entry in load(file).entries}
    assert ids == {row[0] for row in ROWS}
    assert {"+", "-", "a", "A"} <= set("".join(ids))
    for n in (1, 2, 100, 499):
        assert sample(file, n=n) == sample(file)[:n]
    line = f"first 70 of its 256 prefixes hold {len(expected)}; set --n {len(expected)} or less"
    with pytest.raises(UserError, match=line):
        sample(file, n=len(expected) + 1)


PATHS = [
    "",
    "aa/",
    "aa/x",
    "aa/x.jpg\0",
    "aa/%2e%2e.jpg",
    "aa/../../x.jpg",
    "aa/x.jpg/../../y.jpg",
    "../../etc/passwd",
    "/etc/passwd",
    "gg/x.jpg",
    "aa/" + "x" * 65 + ".jpg",
]
REFUSED: list[tuple[Any, ...]] = [
    ("", 5, 5, "aa/x.jpg"),
    ("../x", 5, 5, "aa/x.jpg"),
    ("a/b", 5, 5, "aa/x.jpg"),
    ("a" * 65, 5, 5, "aa/x.jpg"),
    ("id", 0, 5, "aa/x.jpg"),
    ("id", -1, 5, "aa/x.jpg"),
    ("id", "1e9", 5, "aa/x.jpg"),
    ("id", "", 5, "aa/x.jpg"),
    ("id", 5, 99999999, "aa/x.jpg"),
    ("id", 5, 5),
    ("id", 5, 5, "aa/x.jpg", "more"),
    (ROWS[0][0], 5, 5, "aa/x.jpg"),
    ("id", 5, 5, ROWS[0][3]),
]
REFUSED += [("good+id-L", 5, 5, f'"{path}"') for path in PATHS]


@pytest.mark.parametrize("row", REFUSED)
def test_invalid_row_is_refused(file: Path, row: tuple[Any, ...]) -> None:
    file.write_bytes(bucket.catalogue([*ROWS[:500], row]))
    catalogue = load(file)
    assert (catalogue.n_refused, len(catalogue.entries)) == (1, 500)
    assert "row 502" in catalogue.first_refused


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


@any_function
@given(st.lists(st.tuples(TEXTS, TEXTS, TEXTS, TEXTS), max_size=8))
def test_no_row_leads_outside(tmp_path: Path, rows: list[tuple[str, ...]]) -> None:
    file = tmp_path / "images.csv.gz"
    file.write_bytes(bucket.catalogue([*ROWS[:2], *rows]))
    try:
        entries = load(file).entries
    except UserError as error:
        assert "\n" not in str(error)  # noqa: PT017 - either outcome is right
        return
    for entry in entries:
        assert (tmp_path / entry.path).resolve().parent.parent == tmp_path.resolve()


@any_function
@given(st.binary(max_size=200), st.booleans())
def test_any_bytes_are_one_line(tmp_path: Path, data: bytes, packed: bool) -> None:
    file = tmp_path / "images.csv.gz"
    file.write_bytes(gzip.compress(data) if packed else data)
    with pytest.raises(UserError, match=r"images\.csv\.gz") as caught:
        load(file)
    assert "\n" not in str(caught.value)


OTHER_COLUMNS = bucket.catalogue(ROWS, "image_id,path,height,width")
BOMBS = (b"image_id,height,width,path\n" + b"a,1,1,b\n" * 500_000, b"x" * 5_000_000)


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (OTHER_COLUMNS, "its columns are 'image_id,path,height,width', not 'image_id,height"),
        (
            bucket.catalogue([(1, 2, 3, 4)] * 50),
            "not ABO's catalogue: 50 of 50 rows .* the first, row 2: '1,2,3,4'",
        ),
        (bucket.catalogue(ROWS)[:-900], "cannot be read"),
        (gzip.compress(BOMBS[0]), "unpacks to more than 1,000,000 bytes"),
        (gzip.compress(BOMBS[1]), "unpacks to more than 1,000,000 bytes"),
    ],
    ids=["columns", "rows", "truncated", "bomb of rows", "bomb of one line"],
)
def test_another_file_is_no_catalogue(
    file: Path, data: bytes, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "MAX_UNPACKED_BYTES", 1_000_000)
    file.write_bytes(data)
    with pytest.raises(UserError, match=line):
        load(file)


def test_real_layout(shared_images: Path) -> None:
    """The photos next to the checkout, laid out as the bucket is."""
    root = shared_images / "abo-like"
    catalogue = load(root / plan.KEY)
    assert catalogue.n_refused == 0
    for entry in catalogue.sample("original", 277):
        for folder in plan.FOLDERS.values():
            assert (root / folder / entry.path).is_file()


# --- store ----------------------------------------------------------------------------------------


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
