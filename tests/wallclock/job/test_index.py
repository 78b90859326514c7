"""What there is already, by the hash of the bytes."""

import threading
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.digests import sha256_bytes
from wallclock.job import index as module
from wallclock.job.index import HashIndex, hash_words, places_of

#: Few words, so that hashes agree in the first 64 bits, in the first 128, or in all.
_HASHES = st.tuples(st.integers(0, 4), st.integers(0, 2), st.integers(0, 1)).map(
    lambda words: "".join(word.to_bytes(8, "big").hex() for word in (*words, 0))
)
_PARTS = st.lists(st.lists(_HASHES, max_size=12), max_size=40)


def hash_of(value: int) -> str:
    return sha256_bytes(b"%d" % value)


def words_of(hashes: Sequence[str]) -> Any:
    return hash_words(pa.array(hashes, pa.string()))


@settings(max_examples=200)
@given(_PARTS, st.lists(st.integers(1, 9)), st.integers(1, 60))
def test_it_finds_the_first_of_equal_hashes(
    parts: list[list[str]], sizes: list[int], least: int
) -> None:
    """However many parts are added at once, and however many rows wait to be sorted."""
    index, numbered = HashIndex(), list(enumerate(parts))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_LEAST_SORTED", least)
        for size in [*sizes, len(parts)]:
            index.add([(number, words_of(part)) for number, part in numbered[:size]])
            del numbered[:size]
    first: dict[str, int] = {}
    for number, hashes in enumerate(parts):
        for row, text in enumerate(hashes):
            first.setdefault(text[:32], (number << 32) + row)
    for high in range(6):
        for low in range(4):
            digest = b"".join(word.to_bytes(8, "big") for word in (high, low, 7, 7))
            assert index.find(digest) == first.get(digest.hex()[:32])


def test_a_column_may_be_sliced_and_in_chunks() -> None:
    hashes = [hash_of(value) for value in range(20)]
    column = pa.chunked_array([pa.array(hashes)[3:7], pa.array(hashes)[:0], pa.array(hashes)[12:]])
    index = HashIndex()
    index.add([(2, hash_words(column))])
    answers = [index.find(bytes.fromhex(text)) for text in column.to_pylist()]
    assert answers == places_of(2, 12).tolist()
    assert index.find(bytes.fromhex(hashes[0])) is None


@pytest.mark.parametrize("wrong", ["ab", "", "g" * 64, None])
def test_what_is_no_hash_is_refused(wrong: str | None) -> None:
    with pytest.raises(ValueError, match=r"widths must match|Non-hex|without sha256"):
        hash_words(pa.chunked_array([[hash_of(1), wrong]], pa.string()))


def test_others_ask_while_one_thread_adds(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was added before is found by every later question, at its first place."""
    monkeypatch.setattr(module, "_LEAST_SORTED", 120)
    index, added, wrong = HashIndex(), 0, []
    hashes = [[hash_of(part * 50 + row) for row in range(50)] for part in range(24)]
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
            index.add([(number, words_of(part))])
            index.add([(number + 1000, words_of(part[:5]))])  # repeats, which keep their places
            added = number + 1
    finally:
        added = len(hashes)
        for thread in threads:
            thread.join()
    assert not wrong
