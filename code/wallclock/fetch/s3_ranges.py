"""A bucket's objects listed by several requests at once, in the order of their keys.

A store answers a thousand keys at a time, each page after the one before. So the keys are cut into
ranges by their first characters, and each range is listed on its own. Where they are cut has no
influence on the result.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain, pairwise, takewhile
from typing import Any, TypeVar

from wallclock.fetch.s3 import list_objects

T = TypeVar("T")
#: A page of an object list, as `Client.call`.
_Call = Callable[..., Any]

THREADS = 16
#: Ranges at most, about, and so many that they are cut no further. Characters that are looked at.
_RANGES, _ENOUGH, _CHARACTERS = 64, 16, 24
#: The last character, and those between which UTF-8 has none.
_LAST, _BEFORE_GAP, _BEHIND_GAP = 0x10FFFF, 0xD7FF, 0xE000
#: How the names of S3's directory buckets end, which list their keys in no order.
_UNSORTED = "--x-s3"


class _UnsortedError(Exception):
    """A store that does not list keys in the order of their bytes."""


def map_ranges(
    call: _Call, convert: Callable[[Iterable[Mapping[str, Any]]], T], bucket: str, prefix: str
) -> list[T]:
    """`convert` of each range of a bucket's objects below a prefix, in the order of the keys.

    Args:
        call: `Client.call`, with `THREADS` connections.
        convert: takes the objects of a range, as `list_objects` has them; is called in threads.

    Raises S3Error: a page was refused, or has failed each time.
    """
    below = {"Bucket": bucket, "Prefix": prefix}
    page = call("list_objects_v2", **below)
    if not page["IsTruncated"]:
        return [convert(page.get("Contents", ()))]
    if bucket.endswith(_UNSORTED):
        return [convert(list_objects(call, **below))]
    pool = ThreadPoolExecutor(THREADS)
    try:
        common = _common(call, below, [item["Key"] for item in page["Contents"]])
        bounds = _bounds(pool, partial(_longer, call, bucket), common)
        ranges = pairwise(["", *bounds, None])
        return list(pool.map(lambda ends: convert(_between(call, below, *ends)), ranges))
    except _UnsortedError:
        return [convert(list_objects(call, **below))]
    finally:
        pool.shutdown(cancel_futures=True)


def _common(call: _Call, below: Mapping[str, str], keys: Sequence[str]) -> str:
    """What all keys below a prefix begin with: the folder of the first ones, or the prefix."""
    equal = takewhile(lambda pair: pair[0] == pair[1], zip(keys[0], keys[-1], strict=False))
    parent, slash, _ = "".join(first for first, _ in equal).rpartition("/")
    folder = parent + slash
    if len(folder) <= len(below["Prefix"]):
        return below["Prefix"]
    page = call("list_objects_v2", **below, StartAfter=_behind(folder), MaxKeys=1)
    return below["Prefix"] if page.get("Contents") else folder


def _bounds(pool: ThreadPoolExecutor, longer: Callable[[str], list[str]], prefix: str) -> list[str]:
    """What keys begin with, in the order of the bytes. Raises _UnsortedError."""
    beginnings = [prefix]
    for _ in range(_CHARACTERS):
        if len(beginnings) >= _ENOUGH:
            break
        beginnings = list(chain.from_iterable(pool.map(longer, beginnings)))
    beginnings.sort(key=str.encode)
    return beginnings[:: max(1, len(beginnings) // _RANGES)]


def _longer(call: _Call, bucket: str, beginning: str) -> list[str]:
    """What keys with this beginning begin with, a character more; a request for each.

    Raises _UnsortedError.
    """
    longer: list[str] = []
    after = beginning
    while True:
        page = call("list_objects_v2", Bucket=bucket, Prefix=beginning, StartAfter=after, MaxKeys=1)
        if not page.get("Contents"):
            return longer
        key = page["Contents"][0]["Key"]
        if key.encode() <= after.encode():
            raise _UnsortedError
        longer.append(key[: len(beginning) + 1])
        if ord(longer[-1][-1]) == _LAST:
            return longer
        after = _behind(longer[-1])


def _behind(beginning: str) -> str:
    """The first text behind all that have this beginning, whose last character is not the last one.

    A listing after it lacks the key that is this text; only what is cut depends on it.
    """
    last = ord(beginning[-1])
    return beginning[:-1] + chr(_BEHIND_GAP if last == _BEFORE_GAP else last + 1)


def _between(
    call: _Call, below: Mapping[str, str], after: str, last: str | None
) -> Iterator[Mapping[str, Any]]:
    """The objects with keys behind `after`, up to `last`. Raises _UnsortedError."""
    start = {"StartAfter": after} if after else {}
    before = after.encode()
    for item in list_objects(call, **below, **start):
        key = item["Key"].encode()
        if key <= before:
            raise _UnsortedError
        if last is not None and key > last.encode():
            return
        before = key
        yield item
