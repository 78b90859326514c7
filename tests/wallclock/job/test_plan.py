"""What of a job is still to be made, by position: the batches of every shard that is missing."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from wallclock.job.plan import Plan


@settings(max_examples=50)
@given(n=st.integers(1, 60), shard=st.integers(1, 20), batch=st.integers(1, 9), data=st.data())
def test_a_plan_covers_what_is_missing(n: int, shard: int, batch: int, data: st.DataObject) -> None:
    shards = -(-n // shard)
    done = data.draw(st.sets(st.integers(0, shards - 1)))
    unread = np.array(data.draw(st.lists(st.integers(-1, 0), min_size=n, max_size=n)))
    plan = Plan(n, shard, batch, sorted(done), unread)
    batches = iter([list(positions) for positions in plan])
    for number, count in plan.shards():
        taken = [next(batches) for _ in range(count)]
        expected = [at for at in range(*plan.bounds(number)) if unread[at] < 0]
        assert [at for positions in taken for at in positions] == expected
        assert all(len(positions) == batch for positions in taken[:-1])
    assert not list(batches)
