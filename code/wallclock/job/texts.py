"""Columns of millions of texts, without an object for each."""

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from hashlib import sha256
from itertools import islice
from os import fsencode
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wallclock.fetch.urls import place_of
from wallclock.outside import values_without_secrets

#: Rows that are looked at together: a bound on the memory.
CHUNK = 65_536
T = TypeVar("T")


def chunks(rows: Iterable[T], most: int = CHUNK) -> Iterator[list[T]]:
    """Rows in lists of `most`, the last of what is left."""
    waiting = iter(rows)
    while some := list(islice(waiting, most)):
        yield some


def digest_of(column: Any) -> str:
    """sha256 over the lengths and bytes of texts without a null, however they lie in chunks."""
    digest = sha256()
    for start in range(0, len(column), CHUNK):
        array = column[start : start + CHUNK].combine_chunks()
        _, offsets, data = array.buffers()
        ends = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1]
        digest.update(np.diff(ends).tobytes())
        digest.update(memoryview(data or b"")[ends[0] : ends[-1]])
    return digest.hexdigest()


def repeated(column: Any) -> Any:
    """The texts that occur more than once (`values`) and how often (`counts`), without None."""
    # Only a column that is not sorted is counted, in a hash table of Arrow's.
    is_sorted = pc.all(pc.less(column[:-1], column[1:])).as_py() is not False
    counts = pc.value_counts(column[:0] if is_sorted else column)
    return counts.filter(pc.greater(counts.field("counts"), 1))


# --- secrets ------------------------------------------------------------------------------------

#: What every URL with a secret has, and few names of files have.
_SUSPECT = r"(?is)[?&#\\].*=|[/\\]/.*@|%.*(?:3d|40)"
_DIGITS = 12


def public(column: Any) -> Any:
    """A column of a list, whose texts lose the secrets of their URLs."""
    kind = column.type
    if kind in (pa.string(), pa.large_string()):
        suspects = pc.match_substring_regex(column, _SUSPECT).fill_null(False).combine_chunks()
        if not pc.any(suspects).as_py():
            return column
        changed = values_without_secrets(column.filter(suspects).to_pylist())
        return pc.replace_with_mask(column, suspects, pa.array(changed, kind))
    if not re.search("string|binary", str(kind)):
        return column
    with suppress(pa.ArrowException, ValueError, OverflowError):  # it cannot be carried either
        values = column.to_pylist()
        if (changed := values_without_secrets(values)) != values:
            return pa.chunked_array([pa.array(changed, kind)])
    return column


def public_ids(ids: Any, where: Any) -> Any:
    """As `public`; ids that would become equal get a digest; one that is its path is no URL."""
    shown = public(ids)
    changed = pc.not_equal(shown, ids)
    if not pc.any(changed).as_py():
        return ids
    pairs = zip(ids.filter(changed).to_pylist(), where.filter(changed).to_pylist(), strict=True)
    is_url = [not (at[:1] == b"/" and at.endswith(fsencode(place_of(text)))) for text, at in pairs]
    changed = changed.combine_chunks()
    changed = pc.replace_with_mask(changed, changed, pa.array(is_url))
    shown = pc.if_else(changed, shown, ids)
    several = repeated(shown).field("values")
    alike = pc.and_(pc.is_in(shown, value_set=several), changed).combine_chunks()
    pairs = zip(shown.filter(alike).to_pylist(), ids.filter(alike).to_pylist(), strict=True)
    marked = [f"{text}#{sha256(whole.encode()).hexdigest()[:_DIGITS]}" for text, whole in pairs]
    return pc.replace_with_mask(shown, alike, pa.array(marked, pa.string()))
