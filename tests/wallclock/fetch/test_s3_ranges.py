"""A bucket listed in ranges: the same keys in the same order as in one go, whatever the folders."""

import threading
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wallclock.fetch import s3_ranges
from wallclock.fetch.s3_ranges import map_ranges

#: Few characters, so that keys share beginnings; or any, the last ones of Unicode often.
_FEW = st.text("ab-./Aé😀~", min_size=1, max_size=6)
_ANY = st.text(
    st.characters(exclude_categories=["Cs"]) | st.sampled_from("a\0\U0010fffd\U0010fffe\U0010ffff"),
    min_size=1,
    max_size=5,
)
_NAMES = _FEW | _ANY


class Pages:
    """ListObjectsV2 over sorted keys, `size` entries to a page, as S3's reference has it."""

    def __init__(self, keys: Iterable[str], size: int, order: Any = str.encode) -> None:
        self.keys = sorted(keys, key=order)
        self.size = size
        self.calls: list[Mapping[str, Any]] = []
        self._lock = threading.Lock()

    def __call__(self, action: str, Bucket: str, Prefix: str, **parameters: Any) -> dict[str, Any]:  # noqa: N803
        with self._lock:
            self.calls.append(parameters)
        after = parameters.get("ContinuationToken") or parameters.get("StartAfter", "")
        if self.keys == sorted(self.keys, key=str.encode):
            keys = self.keys[bisect_right(self.keys, after.encode(), key=str.encode) :]
        else:
            keys = [key for key in self.keys if key > after]
        matching = [key for key in keys if key.startswith(Prefix)]
        size = min(self.size, parameters.get("MaxKeys", self.size))
        page = matching[:size]
        answer: dict[str, Any] = {
            "Contents": [{"Key": name, "ETag": '"1"'} for name in page],
            "IsTruncated": len(matching) > size,
        }
        return answer | ({"NextContinuationToken": page[-1]} if answer["IsTruncated"] else {})


def listed(pages: Any, prefix: str = "", bucket: str = "b") -> list[str]:
    ranges = map_ranges(pages, lambda items: [item["Key"] for item in items], bucket, prefix)
    return [key for keys in ranges for key in keys]


@settings(max_examples=150)
@given(
    st.sets(_NAMES, max_size=40),
    st.integers(1, 5) | st.integers(1, 1000),
    _NAMES | st.just(""),
    st.integers(1, 8),
)
def test_all_keys_in_the_order_of_their_bytes(
    keys: set[str], size: int, prefix: str, ranges: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(s3_ranges, "_RANGES", ranges)
        patch.setattr(s3_ranges, "_ENOUGH", ranges)
        expected = sorted((key for key in keys if key.startswith(prefix)), key=str.encode)
        assert listed(Pages(keys, size), prefix) == expected


@pytest.mark.parametrize(
    "keys",
    [
        [f"{a}/{b:03}.jpg" for a in "xyz" for b in range(50)],
        [f"a folder of all images/{a}/{b:03}.jpg" for a in "xyz" for b in range(50)],
        [f"{a:04}/x.jpg" for a in range(300)],
        [f"image-{a:06}.jpg" for a in range(300)],
    ],
    ids=["folders", "one prefix", "a folder for each image", "no folder"],
)
def test_ranges_are_listed_at_once_and_cost_few_requests(keys: list[str]) -> None:
    pages = Pages(keys, 10)
    ends: list[list[str]] = map_ranges(pages, lambda items: [i["Key"] for i in items], "b", "")
    assert len([part for part in ends if part]) >= 3
    longest = max(map(len, ends))
    assert longest <= len(keys) / 2
    whole = [call for call in pages.calls if "MaxKeys" not in call]
    assert len(whole) <= len(keys) / 10 + s3_ranges._RANGES + 1


@pytest.mark.parametrize("last", ["\ud7ff", "\U0010fffd", "\U0010ffff", "/", "0"])
def test_characters_without_a_next_one(last: str) -> None:
    """A range that ends with them; and the key that is the beginning of the next range."""
    keys = [f"a{last}{name}" for name in "wxyz"] + ["a", "a0", "a0/1", f"b{last}", "c", "\ue000"]
    assert listed(Pages(keys, 2)) == sorted(keys, key=str.encode)


def test_a_small_bucket_is_one_request() -> None:
    pages = Pages([f"{a}/1.jpg" for a in "abcdef"], 10)
    assert len(listed(pages)) == 6
    assert len(pages.calls) == 1


@pytest.mark.parametrize("bucket", ["b", "b--use1-az4--x-s3"])
def test_a_store_without_order_is_listed_in_one_go(bucket: str) -> None:
    """A store that sorts without regard to capitals; and one that has no order, by its name."""
    keys = [f"{a}/{b}.jpg" for a in "aBcD" for b in range(20)]
    pages = Pages(keys, 7, order=str.lower)
    assert listed(Unbounded(pages), bucket=bucket) == pages.keys


class Unbounded:
    """A store that ignores StartAfter."""

    def __init__(self, pages: Pages) -> None:
        self._keys, self._size = pages.keys, pages.size

    def __call__(self, action: str, ContinuationToken: str = "0", **parameters: Any) -> Any:  # noqa: N803
        first = int(ContinuationToken)
        some = self._keys[first : first + self._size]
        return {
            "Contents": [{"Key": key} for key in some],
            "IsTruncated": first + self._size < len(self._keys),
            "NextContinuationToken": str(first + self._size),
        }
