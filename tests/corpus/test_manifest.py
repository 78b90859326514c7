"""The list of a corpus: it reads back whatever the names are, and an edited one is refused."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wallclock.corpus import manifest as manifests
from wallclock.corpus.manifest import Item, Manifest
from wallclock.errors import UserError

ITEM = Item("a.jpg", "a.jpg", 10, 4, 3, "0" * 64, "jpeg", "baseline", 3, 123)
FAILED = Item("b.jpg", "b.jpg", 7, 0, 0, "1" * 64, "", "", 0, 5, "decode", 'damaged, "badly"')
MANIFEST = Manifest("folder", "original", Path("/images"), (ITEM, FAILED))

#: File names as Linux allows them: any bytes but NUL and the slash, stray ones as surrogates.
NAMES = st.binary(min_size=1, max_size=40).map(
    lambda raw: raw.replace(b"\0", b"0").replace(b"/", b"_").decode("utf-8", "surrogateescape")
)


@given(st.lists(NAMES, min_size=1, max_size=6), NAMES)
def test_any_name_reads_back(names: list[str], folder: str) -> None:
    made = replace(
        MANIFEST, root=Path("/") / folder, items=tuple(replace(ITEM, path=name) for name in names)
    )
    with tempfile.TemporaryDirectory() as where:
        path = Path(where) / "manifest.csv"
        manifests.save(made, path)
        assert manifests.load(path) == made


@given(st.text(max_size=30), st.text(max_size=30))
def test_any_reason_reads_back(identity: str, reason: str) -> None:
    made = replace(MANIFEST, items=(replace(FAILED, id=identity, failed_reason=reason), ITEM))
    with tempfile.TemporaryDirectory() as where:
        path = Path(where) / "manifest.csv"
        manifests.save(made, path)
        assert manifests.load(path) == made


@pytest.mark.parametrize(
    ("before", "after"),
    [(b"jpeg", b"jqeg"), (b",4,3,", b",4,2,"), (b"b.jpg", b"c.jpg"), (b"123", b"")],
)
def test_an_edited_list_is_refused_and_made_again(
    tmp_path: Path, before: bytes, after: bytes
) -> None:
    path = tmp_path / "manifest.csv"
    manifests.save(MANIFEST, path)
    data = path.read_bytes()
    assert before in data
    path.write_bytes(data.replace(before, after, 1))
    with pytest.raises(UserError, match="changed since it was made"):
        manifests.load(path)
    assert manifests.load_or_none(path) is None


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"version": 0}', "\ud800"])
def test_a_broken_companion_is_as_good_as_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "manifest.csv"
    manifests.save(MANIFEST, path)
    path.with_suffix(".json").write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(UserError, match="manifest"):
        manifests.load(path)
    assert manifests.load_or_none(path) is None


def test_where_there_is_none(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no readable manifest"):
        manifests.load(tmp_path / "manifest.csv")


def test_the_digest_knows_ids_contents_and_failures_and_no_places() -> None:
    digest = MANIFEST.digest()
    assert replace(MANIFEST, root=Path("/elsewhere")).digest() == digest
    assert replace(MANIFEST, items=(replace(ITEM, mtime_ns=9, path="x"), FAILED)).digest() == digest
    assert replace(MANIFEST, items=(FAILED, ITEM)).digest() != digest
    for change in ({"id": "x"}, {"sha256": "2" * 64}, {"failed_stage": "read"}):
        assert replace(MANIFEST, items=(replace(ITEM, **change), FAILED)).digest() != digest  # type: ignore[arg-type]


def test_sound_and_failed_keep_their_order_and_the_first_rows_are_the_first() -> None:
    items = tuple(
        replace(item, id=f"{index}")
        for index, item in enumerate([FAILED, ITEM, ITEM, FAILED, ITEM])
    )
    made = replace(MANIFEST, items=items)
    assert [item.id for item in made.valid] == ["1", "2", "4"]
    assert [item.id for item in made.failed] == ["0", "3"]
    assert [item.id for item in made.first(2).items] == ["0", "1"]
    assert manifests.failure_rows(items)[1] == {
        "id": "3",
        "stage": "decode",
        "reason": 'damaged, "badly"',
    }


def test_the_shape_is_of_the_sound_images() -> None:
    items = (
        replace(ITEM, bytes=1_000, width=1_000, height=1_000),
        replace(ITEM, format="png"),
        FAILED,
    )
    shape = replace(MANIFEST, items=items).size_stats()
    assert (shape["n_sound"], shape["n_failed"]) == (2, 1)
    assert shape["median_kb"] == pytest.approx((1 + 0.01) / 2)
    assert shape["max_megapixels"] == pytest.approx(1)
    assert shape["non_jpeg_share"] == 0.5
