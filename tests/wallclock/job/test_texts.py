"""Columns of texts: the bytes that a list's digest is over, and texts that are there twice."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wallclock.job import texts
from wallclock.job.texts import repeated, repr_of

_TEXTS = st.text("ab'\"\\ é\x00😀~", max_size=5)


@settings(max_examples=200)
@given(st.lists(_TEXTS | st.none(), max_size=8), st.lists(st.binary(max_size=5), max_size=8))
def test_it_is_the_repr_of_a_list(strings: list[str | None], values: list[bytes]) -> None:
    columns: list[Any] = [pa.chunked_array([strings, strings[:3]], pa.string())]
    columns += [pa.chunked_array([values, []], pa.binary()), pa.chunked_array([[1, 2]], pa.int64())]
    for column in columns:
        for part in (column, column[1:], column[2:5]):
            assert repr_of(part) == repr(part.to_pylist()).encode()


@settings(max_examples=100)
@given(st.lists(st.text("abc/.", max_size=6), min_size=1, max_size=8))
def test_plain_texts_are_joined(strings: list[str]) -> None:
    """Slices of a larger array, too, whose buffers begin elsewhere."""
    column = pa.chunked_array([pa.array(["before", *strings])[1:]])
    assert repr_of(column) == repr(strings).encode()
    assert repr_of(column.cast(pa.binary())) == repr([text.encode() for text in strings]).encode()


@settings(max_examples=200)
@given(
    st.lists(st.text("ab😀", min_size=1, max_size=4), min_size=1, max_size=30), st.integers(1, 9)
)
def test_a_text_that_is_there_twice(strings: list[str], chunk: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(texts, "CHUNK", chunk)
        twice = repeated(pa.chunked_array([strings[:4], strings[4:]], pa.string()))
    if len({*strings}) == len(strings):
        assert twice is None
    else:
        assert twice is not None
        assert strings.count(twice[0]) == twice[1] > 1


def test_equal_hashes_of_other_texts_are_no_repeat(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "_hashes", lambda flat, _: np.zeros(len(flat.starts), np.uint64))
    assert repeated(pa.chunked_array([["b", "a", "c"]])) is None
    assert repeated(pa.chunked_array([["b", "a", "b"]])) == ("b", 2)


def test_a_long_text_differs_behind_the_weights() -> None:
    column = pa.chunked_array([["z" * 300 + end for end in "edcba"]])
    assert repeated(column) is None
