"""Columns of texts: what a digest covers, and repeated texts."""

from hashlib import sha256
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wallclock.job import texts
from wallclock.job.texts import add_to_digest, repeated

_TEXTS = st.lists(st.text("ab\x00😀", max_size=3) | st.none(), max_size=8)


def digest_of(column: Any) -> str:
    digest = sha256()
    add_to_digest(digest, column)
    return digest.hexdigest()


@settings(max_examples=200)
@given(_TEXTS, _TEXTS, st.integers(1, 5))
def test_a_digest_is_of_the_values(first: list[str], second: list[str], chunk: int) -> None:
    """Not of how they lie in memory; other values, or others' borders, give another one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(texts, "CHUNK", chunk)
        whole = pa.chunked_array([first], pa.string())
        cut = pa.chunked_array([["x", *first[:2]], first[2:], ["y"]], pa.string())[1:-1]
        assert digest_of(whole) == digest_of(cut)
        other = pa.chunked_array([second], pa.string())
        assert (digest_of(whole) == digest_of(other)) == (first == second)


@settings(max_examples=200)
@given(st.lists(st.text("ab😀", min_size=1, max_size=4), min_size=1, max_size=30))
def test_a_text_that_is_there_twice(strings: list[str]) -> None:
    twice = repeated(pa.chunked_array([strings[:4], strings[4:]], pa.string()))
    expected = {text: n for text in strings if (n := strings.count(text)) > 1}
    assert {row["values"]: row["counts"] for row in twice.to_pylist()} == expected
