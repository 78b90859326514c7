"""Which images each batch has: every image once an epoch, and no batch before it is asked for."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wallclock.loader.order import LazyBatches, Order, largest_batch

BATCHES = [[0, 1, 2], [3], [4, 5], [6, 7, 8], [9]]


class Recorded(LazyBatches):
    """`BATCHES`, and the numbers of those that were computed."""

    def __init__(self) -> None:
        self.computed: list[int] = []
        super().__init__(self._compute, range(len(BATCHES)), 3)

    def _compute(self, number: int) -> list[int]:
        self.computed.append(number)
        return BATCHES[number]


# --- batches that are computed when they are indexed ---------------------------------------------


def test_a_batch_is_computed_when_it_is_indexed() -> None:
    batches = Recorded()
    assert len(batches) == 5
    assert not batches.computed
    assert batches[3] == [6, 7, 8]
    assert list(batches[1:3]) == [[3], [4, 5]]
    assert batches.computed == [3, 1, 2]


@given(st.slices(len(BATCHES)))
def test_slices_are_those_of_a_list(part: slice) -> None:
    some = Recorded()[part]
    assert (list(some), some.batch_size) == (BATCHES[part], 3)


def test_largest_batch() -> None:
    batches = Recorded()
    assert largest_batch(batches) == 3
    assert not batches.computed, "no batch is computed for it"
    assert largest_batch(BATCHES[3:]) == 3
    assert largest_batch(BATCHES[4:]) == 1
    assert largest_batch([]) == 1


# --- orders ---------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(
    n=st.integers(0, 40),
    batch=st.integers(1, 9),
    world=st.integers(1, 5),
    seed=st.integers(0, 2**40),
    shuffle=st.booleans(),
    drop_last=st.booleans(),
)
def test_every_image_once_an_epoch(
    n: int, batch: int, world: int, seed: int, shuffle: bool, drop_last: bool
) -> None:
    orders = [Order(n, batch, shuffle, seed, rank, world, drop_last) for rank in range(world)]
    for epoch in range(3):
        shares = []
        for order in orders:
            numbers = range(epoch * order.batches_per_epoch, (epoch + 1) * order.batches_per_epoch)
            taken = [order.positions(number) for number in numbers]
            full = taken if drop_last else taken[:-1]
            assert all(len(positions) == batch for positions in full)
            shares.append([at - epoch * n for positions in taken for at in positions])
        seen = sorted(at for share in shares for at in share)
        assert seen == sorted(set(seen))
        if drop_last:
            assert len({len(share) for share in shares}) == 1
            assert n - len(seen) < batch * world
        else:
            assert seen == list(range(n))
            assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_ranks_share_all_but_their_rank() -> None:
    first, second = (Order(9, 2, True, 5, rank, 2, False) for rank in range(2))
    assert first.shared() == second.shared()
    assert first.shared() != Order(9, 2, True, 6, 0, 2, False).shared()


def test_batches_of_an_order_from_first_to_last() -> None:
    order = Order(10, 4, True, 7, 0, 1, False)
    batches = order.batches(2, 5)
    assert list(batches) == [order.positions(number) for number in (2, 3, 4)]
    assert [len(batch) for batch in batches] == [2, 4, 4], "the end of an epoch, then the next"
    with pytest.raises(IndexError):
        batches[3]
    assert batches.batch_size == 4
    assert Order(3, 4, False, 0, 0, 1, False).batches(0, 1).batch_size == 3


def test_every_epoch_has_an_order_of_its_own() -> None:
    """And every seed; the same ones give the same order."""

    def images(seed: int, epoch: int) -> tuple[int, ...]:
        (positions,) = Order(9, 9, True, seed, 0, 1, False).batches(epoch, epoch + 1)
        return tuple(at - 9 * epoch for at in positions)

    orders = [images(seed, epoch) for seed in range(3) for epoch in range(3)]
    assert len(set(orders)) == 9
    assert images(1, 1) == orders[4]
