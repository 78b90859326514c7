"""The index of hashes: which row of which part has the same bytes."""

from hypothesis import given, settings
from hypothesis import strategies as st

from wallclock.files import sha256_bytes
from wallclock.job.index import HashIndex


@settings(deadline=None, max_examples=50)
@given(st.lists(st.lists(st.integers(0, 30), max_size=8), max_size=6))
def test_hash_index_keeps_the_first(parts: list[list[int]]) -> None:
    index, first = HashIndex(), dict[int, int]()
    for number, values in enumerate(parts):
        index.add(number, [sha256_bytes(b"%d" % value) for value in values])
        for row, value in enumerate(values):
            first.setdefault(value, (number << 32) + row)
    for value in range(31):
        assert index.find(bytes.fromhex(sha256_bytes(b"%d" % value))) == first.get(value)
