"""What of a job is still to be made, by position: the batches of every part that is missing."""

from hypothesis import given, settings
from hypothesis import strategies as st

from wallclock.job.plan import Plan, parts_of


@settings(max_examples=50)
@given(n=st.integers(1, 60), shard=st.integers(1, 20), batch=st.integers(1, 9), data=st.data())
def test_a_plan_covers_what_is_missing(n: int, shard: int, batch: int, data: st.DataObject) -> None:
    parts = parts_of(3, n, shard)
    assert [at for some in parts.values() for at in some] == [*range(n)]
    for number in data.draw(st.sets(st.sampled_from([*parts]))):
        del parts[number]
    plan = Plan(parts, batch)
    batches = iter([list(positions) for positions in plan])
    for number, count in plan.shards():
        taken = [next(batches) for _ in range(count)]
        assert [at for positions in taken for at in positions] == [*parts[number]]
        assert all(len(positions) == batch for positions in taken[:-1])
    assert not list(batches)
