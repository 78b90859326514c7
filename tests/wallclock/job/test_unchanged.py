"""What an earlier dataset has of a list, unchanged, whatever the order of both."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wallclock.job import unchanged
from wallclock.job.index import places_of
from wallclock.job.unchanged import Unchanged

#: (id, version) of images; ids are unique.
_IMAGES = st.dictionaries(
    st.integers(0, 40).map(str), st.sampled_from(["", "1-1", "1-2"]), max_size=30
).map(lambda images: [*images.items()])


def columns(images: list[tuple[str, str]]) -> tuple[Any, Any]:
    """Ids and versions, in chunks of seven."""
    parts = [images[at : at + 7] for at in range(0, len(images), 7)]
    ids = [[name for name, _ in part] for part in parts]
    versions = [[version for _, version in part] for part in parts]
    return pa.chunked_array(ids, pa.string()), pa.chunked_array(versions, pa.string())


def expected(images: list[tuple[str, str]], parts: list[list[tuple[str, str]]]) -> list[int]:
    there = {
        image: (number << 32) + row
        for number, part in enumerate(parts)
        for row, image in enumerate(part)
    }
    return [there.get(image, -1) if image[1] else -1 for image in images]


def matched(images: list[tuple[str, str]], parts: list[list[tuple[str, str]]]) -> list[int]:
    matcher = Unchanged(*columns(images))
    for number, part in enumerate(parts):
        matcher.add(*columns(part), places_of(number, len(part)))
    places: list[int] = matcher.places().tolist()
    return places


@settings(max_examples=200)
@given(images=_IMAGES, earlier=_IMAGES, size=st.integers(1, 8), near=st.integers(0, 3))
def test_any_list_and_any_dataset(
    images: list[tuple[str, str]], earlier: list[tuple[str, str]], size: int, near: int
) -> None:
    parts = [earlier[at : at + size] for at in range(0, len(earlier), size)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(unchanged, "_NEAR", near)
        assert matched(images, parts) == expected(images, parts)


@settings(max_examples=100)
@given(kept=st.lists(st.booleans(), min_size=40, max_size=40), size=st.integers(1, 12))
def test_a_list_with_gaps_and_new_images(kept: list[bool], size: int) -> None:
    images = [(f"{at:03}", "1-1") for at in range(40)]
    earlier = [image for image, is_kept in zip(images, kept, strict=True) if is_kept]
    parts = [earlier[at : at + size] for at in range(0, len(earlier), size)]
    assert matched(images, parts) == expected(images, parts)


def test_a_list_in_the_same_order_is_not_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    images = [(f"{at:03}", "1-1") for at in range(40)]
    monkeypatch.setattr(unchanged, "_matches", None)
    assert matched(images, [images[:25], images[25:]]) == [
        *places_of(0, 25).tolist(),
        *places_of(1, 15).tolist(),
    ]


def test_only_what_is_not_near_is_searched_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part that moved from the front to the end, and its gap: no part else is in the search."""
    monkeypatch.setattr(unchanged, "_NEAR", 0)
    images = [(f"{at:03}", "1-1") for at in range(400)]
    parts = [images[at : at + 20] for at in range(0, 400, 20)]
    sizes = []
    matches = unchanged._matches

    def count(keys: Any, old: Any) -> Any:
        sizes.append(len(old))
        return matches(keys, old)

    monkeypatch.setattr(unchanged, "_matches", count)
    moved = [*parts[1:], parts[0]]
    order = [image for part in moved for image in part]
    assert matched(order, parts) == expected(order, parts)
    assert sizes[-1] == 20
    assert np.max(sizes) == 20
