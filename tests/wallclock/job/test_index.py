"""The index of hashes: which row of which part has the same bytes."""

import sys
import threading
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wallclock.files import sha256_bytes
from wallclock.job.index import HashIndex, _merged, _rows, hash_words, places_of

#: Few words, so that hashes agree in the first 64 bits, in the first 128, or in all.
_HASHES = st.tuples(st.integers(0, 4), st.integers(0, 2), st.integers(0, 1)).map(
    lambda words: "".join(word.to_bytes(8, "big").hex() for word in (*words, 0))
)
_PARTS = st.lists(st.lists(_HASHES, max_size=12), max_size=40)


def hash_of(value: int) -> str:
    return sha256_bytes(b"%d" % value)


def check(index: HashIndex, parts: Sequence[Sequence[str]]) -> None:
    """The index finds the first row of each 128 bits, and nothing else."""
    first: dict[str, int] = {}
    for number, hashes in enumerate(parts):
        for row, text in enumerate(hashes):
            first.setdefault(text[:32], (number << 32) + row)
    for high in range(6):
        for low in range(4):
            digest = b"".join(word.to_bytes(8, "big") for word in (high, low, 7, 7))
            assert index.find(digest) == first.get(digest.hex()[:32])


@settings(max_examples=200)
@given(_PARTS)
def test_it_finds_the_first_of_equal_hashes(parts: list[list[str]]) -> None:
    index = HashIndex()
    for number, hashes in enumerate(parts):
        index.add(number, hashes)
    check(index, parts)


@settings(max_examples=100)
@given(_PARTS, st.lists(st.integers(1, 9)))
def test_parts_together_are_as_one_after_another(parts: list[list[str]], sizes: list[int]) -> None:
    index, numbered = HashIndex(), list(enumerate(parts))
    for size in [*sizes, len(parts)]:
        index.add_together([(number, hash_words(part)) for number, part in numbered[:size]])
        del numbered[:size]
    check(index, parts)


def test_hashes_with_equal_first_halves_of_the_key_are_two() -> None:
    index = HashIndex()
    texts = [f"{1:016x}{second:016x}{0:032x}" for second in (5, 3, 5, 4)]
    index.add(0, texts[:2])
    index.add(1, texts[2:])
    places = [index.find(bytes.fromhex(text)) for text in texts]
    assert places == [0, 1, 0, (1 << 32) + 1]


def test_a_column_may_be_sliced_and_in_chunks() -> None:
    hashes = [hash_of(value) for value in range(20)]
    column = pa.chunked_array([pa.array(hashes)[3:7], pa.array(hashes)[:0], pa.array(hashes)[12:]])
    index = HashIndex()
    index.add(2, column)
    answers = [index.find(bytes.fromhex(text)) for text in column.to_pylist()]
    assert answers == places_of(2, 12).tolist()
    assert index.find(bytes.fromhex(hashes[0])) is None


@pytest.mark.parametrize("wrong", ["ab", "", "g" * 64, None])
def test_what_is_no_hash_is_refused(wrong: str | None) -> None:
    with pytest.raises(ValueError, match=r"widths must match|Non-hex|without sha256"):
        HashIndex().add(0, pa.chunked_array([[hash_of(1), wrong]], pa.string()))


def test_a_row_is_moved_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice as many parts move a row half a time more, until runs are long; then no more."""
    moved = 0

    def count(runs: Any) -> Any:
        nonlocal moved
        moved += _rows(runs)
        return _merged(runs)

    monkeypatch.setattr("wallclock.job.index._merged", count)
    monkeypatch.setattr("wallclock.job.index._LONGEST", 64 * 8)
    per_row, n_runs = {}, {}
    for n_parts in (16, 64, 512):
        hashes, moved = HashIndex(), 0
        for number in range(n_parts):
            hashes.add(number, [hash_of(number * 8 + row) for row in range(8)])
        per_row[n_parts], n_runs[n_parts] = moved / (8 * n_parts), len(hashes._runs)
    assert per_row[16] + 1 == per_row[64] == per_row[512] == 4
    assert n_runs == {16: 1, 64: 1, 512: 8}


def test_what_is_new_is_not_looked_for_in_the_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The filter says so of 15 in 16, at any size."""
    for n in (1, 100, 3000):
        hashes = HashIndex()
        for first in range(0, n, 700):
            hashes.add(first, [hash_of(value) for value in range(first, min(first + 700, n))])
        others = (bytes.fromhex(hash_of(value)) for value in range(10_000, 14_000))
        words = (int.from_bytes(digest[:8], sys.byteorder) for digest in others)
        assert sum(map(hashes._filter.may_have, words)) < 4000 / 12
        assert all(hashes.find(bytes.fromhex(hash_of(value))) is not None for value in range(n))


def test_others_ask_while_one_thread_adds() -> None:
    """What was added before is found by every later question, at its first place."""
    index, added, wrong = HashIndex(), 0, []
    hashes = [[hash_of(part * 50 + row) for row in range(50)] for part in range(200)]
    digests = [[bytes.fromhex(text) for text in part] for part in hashes]

    def ask() -> None:
        at = 0
        while added < len(hashes):
            at += 1
            part = at * 7 % max(added, 1)
            if added and index.find(digests[part][at % 50]) != (part << 32) + at % 50:
                wrong.append(part)

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for number, part in enumerate(hashes):
            index.add(number, part)
            index.add(number + 1000, part[:5])  # repeats, which keep their first places
            added = number + 1
    finally:
        added = len(hashes)
        for thread in threads:
            thread.join()
    assert not wrong
