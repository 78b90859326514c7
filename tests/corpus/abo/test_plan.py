"""The list: seeded, the same everywhere, and nothing in it leads out of the corpus's folder."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.corpus.abo import bucket
from wallclock.corpus.abo import plan
from wallclock.errors import UserError
from wallclock.files import sha256_file

ROWS = bucket.rows(3000)


@pytest.fixture
def catalogue(tmp_path: Path) -> Path:
    path = tmp_path / "images.csv.gz"
    path.write_bytes(bucket.catalogue(ROWS))
    return path


def draw(
    path: Path, prefixes: int = 70, seed: int = 0, n: int = 500, image_set: str = "small_256"
) -> plan.Sample:
    return plan.sample(plan.load(path, prefixes), image_set, prefixes, seed, n)


@pytest.mark.parametrize(
    ("prefixes", "seed", "n", "digest"),
    [
        (70, 0, 500, "2c0a48b3d57921aa29255342407bc66c7028353097cc661b829d834fcaff8308"),
        (70, 1, 500, "a694f0eb5e72086b693d6c6480c14c857d68e5860bd3c44ef73cf52130a6bd9f"),
        (50, 0, 300, "62d9cd961d3e1cb29276ca5018d66ac9a6e2f42d03e0d289c14853ce5453dc5f"),
    ],
)
def test_the_same_seed_gives_the_same_list_on_any_machine(
    catalogue: Path, prefixes: int, seed: int, n: int, digest: str
) -> None:
    assert draw(catalogue, prefixes, seed, n).digest == digest


def test_the_list_has_no_order_but_its_rank(catalogue: Path, tmp_path: Path) -> None:
    shuffled = list(ROWS)
    random.Random(1).shuffle(shuffled)
    path = tmp_path / "shuffled.csv.gz"
    path.write_bytes(bucket.catalogue(shuffled))
    assert draw(path) == draw(catalogue)


@pytest.mark.parametrize("n", [1, 2, 100, 499])
def test_more_images_keep_the_first_ones(catalogue: Path, n: int) -> None:
    assert draw(catalogue, n=n).entries == draw(catalogue).entries[:n]


def test_only_the_first_prefixes_take_part(catalogue: Path) -> None:
    available = sum(int(row[3][:2], 16) < 70 for row in ROWS)
    sample = draw(catalogue, n=available)
    assert sample.available == available
    assert {entry.path[:2] for entry in sample.entries} == {
        row[3][:2] for row in ROWS if row[3] < "46"
    }
    assert draw(catalogue, prefixes=256).available == len(ROWS)


def test_more_than_there_are_is_an_error_that_says_how_many(catalogue: Path) -> None:
    available = draw(catalogue).available
    with pytest.raises(
        UserError,
        match=rf"first 70 of its 256 prefixes hold {available}; set --n {available} or less",
    ):
        draw(catalogue, n=available + 1)


def test_ids_keep_their_case_and_their_signs(catalogue: Path) -> None:
    chosen = {entry.id for entry in draw(catalogue, 256, n=len(ROWS)).entries}
    assert chosen == {row[0] for row in ROWS}
    assert any("+" in name for name in chosen)
    assert any("-" in name for name in chosen)


@pytest.mark.parametrize(
    "path",
    [
        *(
            "../../etc/passwd",
            "/etc/passwd",
            "aa/../../x.jpg",
            "aa/..jpg",
            "aa/.jpg",
            "aa/x.jpg/../../y.jpg",
            "aa//x.jpg",
        ),
        *(
            "AA/x.jpg",
            "a/x.jpg",
            "aaa/x.jpg",
            "gg/x.jpg",
            "aa\\x.jpg",
            "aa/x.jpg\0",
            "aa/x",
            "aa/x.exe",
            "aa/x.jpg ",
        ),
        *(
            "aa/ü.jpg",
            "aa/x.JPG",
            "",
            "aa/",
            "./aa/x.jpg",
            "aa/x y.jpg",
            "aa/" + "x" * 65 + ".jpg",
            "aa/%2e%2e.jpg",
        ),
    ],
)
def test_a_path_that_is_not_plainly_one_is_refused(tmp_path: Path, path: str) -> None:
    file = tmp_path / "images.csv.gz"
    file.write_bytes(bucket.catalogue([*ROWS[:500], ("good+id-L", 5, 5, f'"{path}"')]))
    found = plan.load(file, 256)
    assert (found.n_refused, len(found.entries)) == (1, 500)
    assert "row 502" in found.first_refused


@pytest.mark.parametrize(
    "row",
    [
        *(
            ("", 5, 5, "aa/x.jpg"),
            ("../x", 5, 5, "aa/x.jpg"),
            ("a/b", 5, 5, "aa/x.jpg"),
            ("a" * 65, 5, 5, "aa/x.jpg"),
        ),
        *(
            ("id", 0, 5, "aa/x.jpg"),
            ("id", -1, 5, "aa/x.jpg"),
            ("id", "1e9", 5, "aa/x.jpg"),
            ("id", 5, "", "aa/x.jpg"),
        ),
        *(
            ("id", 5, 5),
            ("id", 5, 5, "aa/x.jpg", "more"),
            (ROWS[0][0], 5, 5, "aa/x.jpg"),
            ("id", 5, 5, ROWS[0][3]),
        ),
        ("id", 5, 99999999, "aa/x.jpg"),
    ],
)
def test_a_row_that_is_none_is_refused(tmp_path: Path, row: tuple[object, ...]) -> None:
    file = tmp_path / "images.csv.gz"
    file.write_bytes(bucket.catalogue([*ROWS[:500], row]))
    assert (plan.load(file, 256).n_refused, len(plan.load(file, 256).entries)) == (1, 500)


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.lists(
        st.tuples(*[st.text(st.characters(exclude_categories=["Cs"]), max_size=12)] * 4), max_size=8
    )
)
def test_whatever_the_rows_say_nothing_leads_outside(
    tmp_path: Path, rows: list[tuple[str, ...]]
) -> None:
    file = tmp_path / "images.csv.gz"
    file.write_bytes(bucket.catalogue([*ROWS[:2], *rows]))
    try:
        entries = plan.load(file, 256).entries
    except UserError as error:
        assert "\n" not in str(error)  # noqa: PT017 - either outcome is right
        return
    for entry in entries:
        assert (tmp_path / entry.path).resolve().parent.parent == tmp_path.resolve()


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.binary(max_size=200), st.booleans())
def test_whatever_the_bytes_are_it_is_one_line(tmp_path: Path, data: bytes, packed: bool) -> None:
    file = tmp_path / "images.csv.gz"
    file.write_bytes(gzip.compress(data) if packed else data)
    with pytest.raises(UserError, match=r"images\.csv\.gz") as caught:
        plan.load(file, 256)
    assert "\n" not in str(caught.value)


def test_another_table_is_not_the_catalogue(tmp_path: Path) -> None:
    file = tmp_path / "images.csv.gz"
    file.write_bytes(bucket.catalogue(ROWS, "image_id,path,height,width"))
    with pytest.raises(
        UserError, match=r"its columns are 'image_id,path,height,width', not 'image_id,height"
    ):
        plan.load(file, 256)
    file.write_bytes(bucket.catalogue([(1, 2, 3, 4)] * 50))
    with pytest.raises(
        UserError, match=r"not ABO's catalogue: 50 of 50 rows .* the first, row 2: '1,2,3,4'"
    ):
        plan.load(file, 256)


def test_half_a_catalogue_is_none(tmp_path: Path) -> None:
    file = tmp_path / "images.csv.gz"
    file.write_bytes(bucket.catalogue(ROWS)[:-900])
    with pytest.raises(UserError, match="cannot be read"):
        plan.load(file, 256)


def test_a_gzip_bomb_stops_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "MAX_UNPACKED_BYTES", 1_000_000)
    file = tmp_path / "images.csv.gz"
    # Short lines, so that it is the size that ends it; and one endless line.
    for filling in (b"image_id,height,width,path\n" + b"a,1,1,b\n" * 500_000, b"x" * 5_000_000):
        file.write_bytes(gzip.compress(filling))
        with pytest.raises(
            UserError, match=r"unpacks to more than 1,000,000 bytes|field larger than field limit"
        ):
            plan.load(file, 256)


def test_the_real_layout(shared_images: Path) -> None:
    """The photos that lie beside the checkout, laid out as the bucket is."""
    root = shared_images / "abo-like"
    found = plan.load(root / plan.KEY, 256)
    assert found.n_refused == 0
    assert len(found.entries) == found.n_rows == 277
    sample = plan.sample(found, "original", 256, 0, 277)
    assert all(
        (root / plan.FOLDERS[name] / entry.path).is_file()
        for name in plan.FOLDERS
        for entry in sample.entries
    )


def test_the_pinned_lists_are_well_formed() -> None:
    """`corpus.lists` pins digests by name; a list that differs stops the run."""
    assert plan.list_digest([("a", "aa/a.jpg")]) == plan.list_digest([("a", "aa/a.jpg")])
    assert plan.list_digest([("a", "aa/a.jpg")]) != plan.list_digest([("a", "aa/b.jpg")])


def test_reading_it_takes_the_file_as_it_is_now(catalogue: Path) -> None:
    before = sha256_file(catalogue)
    assert plan.load(catalogue, 256).n_rows == len(ROWS)
    catalogue.write_bytes(bucket.catalogue(ROWS[:100]))
    assert sha256_file(catalogue) != before
    assert plan.load(catalogue, 256).n_rows == 100
    assert json.dumps(plan.COLUMNS)
