"""One shard at a time, in any order, by any process."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wallclock.job.conftest import APART, QUICK, TWINS, Content, N, content
from wallclock.infer.network import open_embedder
from wallclock.job.dataset import Dataset
from wallclock.job.listing import list_items
from wallclock.job.part import Part
from wallclock.job.plan import Job, parts_of
from wallclock.job.run import Run as ShardRun
from wallclock.job.run import Tally
from wallclock.job.runner import cluster
from wallclock.job.settings import JobSettings
from wallclock.job.stores.folder import Folder


@pytest.fixture
def job(images: Path, tmp_path: Path) -> Job:
    settings, out = JobSettings(**QUICK), tmp_path / "out"
    out.mkdir()
    recipe = replace(settings.resolved_recipe("cpu"), workers=1)
    parts = list_items(str(images)), Dataset(Folder(out)), settings.resolved_model(), recipe
    return Job(*parts, parts_of(0, N, settings.shard))


def embed_shards(job: Job, *shards: int) -> Tally:
    """As an actor does it in one call."""
    run = ShardRun(job, job.plan(shards))
    with run.loader() as loader:
        return run.run(loader, open_embedder(job.recipe, job.model), lambda *_: None)


IDENTITY: dict[str, Any] = {"shard": 1}
ABOUT: dict[str, Any] = {"complete": False, "settings": {}, "source": "images"}


@pytest.mark.parametrize("calls", [[[2], [0], [1]], [[1], [0, 2]]])
def test_shards_in_any_order_make_the_same_rows(
    calls: list[list[int]], job: Job, reference: Content
) -> None:
    """Copies too: neither call nor order decides which image has a vector of its own."""
    job.dataset.describe({**ABOUT, "identity": {**IDENTITY}})
    copied = [embed_shards(job, *shards).copied for shards in calls]
    assert content(job.dataset.out) == reference
    assert sum(copied) == TWINS - APART
    assert not job.plan([1]).missing


@given(n=st.integers(1, 200), actors=st.integers(1, 9), most=st.integers(1, 50))
def test_calls_have_each_shard_once(n: int, actors: int, most: int) -> None:
    left, calls = [*range(7, 7 + n)], list[Sequence[int]]()
    while left:
        calls.append(cluster.next_call(left, actors, most))
        del left[: len(calls[-1])]
    assert [shard for call in calls for shard in call] == [*range(7, 7 + n)]
    sizes = [len(call) for call in calls]
    assert sizes == sorted(sizes, reverse=True)
    assert max(sizes) <= most
    if actors == 1:
        assert set(sizes[:-1]) <= {most}
    else:
        assert sizes[-min(actors, n) :] == [1] * min(actors, n), "all end within a shard"
        assert max(sizes) <= -(-n // (2 * actors))


def part(n: int, failures: list[dict[str, str]]) -> Part:
    columns: dict[str, Any] = {name: [name] * n for name in ("id", "sha256", "version")}
    return Part(columns | {"width": [1] * n, "height": [1] * n}, np.ones((n, 4), "f4"), failures)


def test_the_first_commit_of_a_part_counts(tmp_path: Path) -> None:
    """A lost actor that comes late neither replaces a part nor its failures."""
    dataset = Dataset(Folder(tmp_path))
    failure = {"id": "a", "stage": "read", "reason": "timed out"}
    dataset.commit(0, part(2, []))
    dataset.commit(0, part(1, [failure]))
    assert (dataset.counts()["vectors"], dataset.failures(0)) == (2, [])
    assert not list(tmp_path.glob(".*.tmp"))


def test_a_commit_that_was_cleaned_up_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The actor of a killed driver writes on while the next driver removes what it left."""
    dataset = Dataset(Folder(tmp_path))
    failure = {"id": "a", "stage": "read", "reason": "timed out"}
    publishing = Folder._publishing

    def late(self: Folder) -> Any:
        monkeypatch.setattr(Folder, "_publishing", publishing)
        dataset.store.remove_leftovers()
        return publishing(self)

    monkeypatch.setattr(Folder, "_publishing", late)
    with pytest.raises(FileNotFoundError):
        dataset.commit(0, part(1, [failure]))
    assert (dataset.committed(), list(tmp_path.rglob("part-*"))) == ([], [])
