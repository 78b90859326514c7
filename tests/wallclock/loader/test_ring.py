"""The ring's bookkeeping: every batch once, in order, complete, from bounded memory."""

import pickle
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wallclock.errors import ImageError, NotReachedError
from wallclock.loader.ring import Chunk, Ring, buffers_for, chunk_size, compact


@given(
    sizes=st.lists(st.integers(0, 40), max_size=12),
    buffers=st.integers(1, 5),
    failed=st.sets(st.integers(0, 400)),
    seed=st.integers(0, 2**32 - 1),
    workers=st.integers(1, 4),
)
def test_ordered_and_complete(
    sizes: list[int], buffers: int, failed: set[int], seed: int, workers: int
) -> None:
    rng = random.Random(seed)
    positions: list[list[int]] = []
    start = 0
    for size in sizes:
        positions.append(list(range(start, start + size)))
        start += size
    made, chunk_of = [np.full((40, 1), -1) for _ in range(buffers)], chunk_size(workers, 40)
    ring = Ring(made, positions, chunk=chunk_of)
    open_chunks: list[Chunk] = ring.open()
    taken = 0
    for batch in positions:
        while (chunks := ring.take()) is None:
            assert open_chunks, "a batch is missing, and no worker has it"
            chunk = open_chunks.pop(rng.randrange(len(open_chunks)))
            work(ring, chunk, failed)
            ring.finish(chunk)
        taken = chunks[0].buffer
        count = compact(ring.buffers[taken], chunks)
        assert ring.buffers[taken][:count, 0].tolist() == [
            position for position in batch if position not in failed
        ]
        ids = [chunk.positions[offset] for chunk in chunks for offset in chunk.kept]
        assert ids == ring.buffers[taken][:count, 0].tolist()
        assert len({chunk.buffer for chunk in open_chunks} | {taken}) <= buffers
        ring.release(taken)
        open_chunks += ring.open()
    assert ring.exhausted
    assert not open_chunks


def work(ring: Ring, chunk: Chunk, failed: set[int]) -> None:
    for offset, position in enumerate(chunk.positions):
        if position not in failed:
            ring.buffers[chunk.buffer][chunk.first + offset] = position
            chunk.kept.append(offset)


def test_a_failure_says_whether_the_image_was_reached() -> None:
    chunk = Chunk(0, 0, 0, [0, 1])
    unreached = NotReachedError("read", "HTTP 503", "all")
    chunk.fail("a", ImageError("read", "HTTP 404"))
    chunk.fail("b", pickle.loads(pickle.dumps(unreached)))
    assert chunk.failures == [
        {"id": "a", "stage": "read", "reason": "HTTP 404"},
        {"id": "b", "stage": "read", "reason": "HTTP 503", "unreached": "all"},
    ]


def test_a_batch_longer_than_a_buffer_is_refused() -> None:
    with pytest.raises(ValueError, match="do not fit"):
        Ring([np.zeros((4, 1))], [list(range(5))]).open()


@pytest.mark.parametrize("batch_size", [1, 8, 64])
@pytest.mark.parametrize("workers", [1, 2, 16])
def test_rows_for_every_worker_and_three_batches(workers: int, batch_size: int) -> None:
    chunk = chunk_size(workers, batch_size)
    assert (buffers_for(workers, batch_size) - 3) * batch_size >= workers * chunk
    assert 8 <= chunk <= 16
