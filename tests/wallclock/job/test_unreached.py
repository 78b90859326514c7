"""Images that the world keeps away: no failures, no vectors, and what the next run takes up."""

import json
import re
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import making
from tests.threaded_server import FileHandler, ThreadedServer
from tests.wallclock.job.conftest import DAMAGED, QUICK, Content, N, World, content
from tests.wallclock.job.test_growth import SMALL, limited
from wallclock.__main__ import main
from wallclock.errors import UserError
from wallclock.fetch import reach
from wallclock.fetch.retries import JITTER
from wallclock.job import Outcome, embed
from wallclock.job.dataset import Dataset
from wallclock.job.runner import process
from wallclock.job.verify import verify

Run = Callable[..., Any]
#: Images are read in the list's order.
ORDERED: dict[str, Any] = {**QUICK, "workers": 1}


@pytest.fixture
def run(images: Path, tmp_path: Path) -> Run:
    def start(**values: Any) -> Outcome:
        return embed(images, tmp_path / "out", **{**ORDERED, **values})

    return start


@pytest.fixture
def command(images: Path, tmp_path: Path) -> list[str]:
    settings = (f"{name}={value}" for name, value in ORDERED.items())
    return ["embed", str(images), str(tmp_path / "out"), *settings]


def unreached(out: Path) -> dict[str, int]:
    """By id, how many runs have not reached an image: as the last part says that has it."""
    lines = "".join(path.read_text() for path in sorted(out.glob("_unreached/*"))).splitlines()
    return {row["id"]: row["runs"] for row in map(json.loads, lines)}


def test_an_outage_at_the_start(
    world: World, command: list[str], reference: Content, tmp_path: Path, capsys: Any
) -> None:
    """Nothing is marked, nothing is called a failure; the next run is as if there had been none."""
    world.change(gives_up_after=0)
    assert main([*command, "shard=2"]) == 1
    said = capsys.readouterr().err
    assert re.search(r"nothing was reached, as .*: no route; 41 not reached: run again$", said)
    assert "failed" not in said
    assert not list(tmp_path.rglob("part-*"))
    assert world.asked < N, "it went on with shard after shard"
    world.change()
    assert main([*command, "shard=2"]) == 0
    assert content(tmp_path / "out").rows == reference.rows


def test_an_outage_before_the_estimate_is_not_waited_for_twice(
    world: World, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "LEAST", 1)
    monkeypatch.setattr("wallclock.job.run.Run.run", None)
    world.change(gives_up_after=0)
    with pytest.raises(UserError, match=r"^nothing was reached, as .*; 41 not reached: run again$"):
        run()


def test_an_outage_in_the_middle(
    world: World, run: Run, command: list[str], reference: Content, tmp_path: Path, capsys: Any
) -> None:
    """What was reached of the shard in flight is kept, and the next run reads all else."""
    out, left = tmp_path / "out", N - 19
    world.change("17.jpg", gives_up_after=20)
    assert main(command) == 1
    said = capsys.readouterr().out
    assert re.search(rf" in 2 parts of .*; {left} not reached: run again \(the last: .*\)$", said)
    assert "complete" not in said
    assert set(unreached(out).values()) == {0}, "a run in which the reader gave up counts none"
    assert main(["verify", str(out)]) == 1
    line = f"wallclock: {left} images were not reached; run `wallclock embed` again\n"
    assert capsys.readouterr().err.endswith(line)
    reached = {*world.read} - world.away
    world.change()
    assert run().unreached == 0
    assert sorted(world.read) == sorted({*reference.rows, "07-cut.jpg", "zero.jpg"} - reached)
    assert content(out).rows == reference.rows
    assert verify(out, n=4).faults == ()
    assert str(run()).startswith("complete already: 39 vectors, 2 failed, 0 skipped in 3 parts")


def test_what_three_runs_did_not_reach_is_a_failure(
    world: World, run: Run, reference: Content, tmp_path: Path
) -> None:
    """Hosts that are gone, of a list whose other hosts answer; before, they are no failures."""
    out, gone = tmp_path / "out", ("03.jpg", "20.jpg", "30-twin.jpg")
    for runs in (1, 2):
        world.change(*gone)
        assert run(max_failures=DAMAGED).unreached == 3
        assert unreached(out) == dict.fromkeys(gone, runs)
    world.change(*gone, gives_up_after=0)
    with pytest.raises(UserError, match=r"^nothing was reached, as .*no route; 3 not reached"):
        run()
    assert unreached(out) == dict.fromkeys(gone, 2)
    world.change(*gone)
    assert run().counts["failures"] == DAMAGED + 3
    assert world.read == [*gone], "and nothing else"
    left = {name: row for name, row in reference.rows.items() if name not in gone}
    reasons = {(name, "HTTP 503, in 3 runs") for name in gone}
    assert content(out).rows == left
    assert {*content(out).failures} - {*reference.failures} == reasons
    world.change()
    assert str(run()).startswith("complete already")
    assert world.read == []


def test_what_was_not_tried_counts_no_run(
    world: World, run: Run, reference: Content, tmp_path: Path
) -> None:
    """Its host was given up, which had answered: it never fails for that, and is taken up."""
    out, name = tmp_path / "out", "20.jpg"
    for is_tried, runs in ((False, 0), (True, 1), (False, 1), (True, 2), (False, 2), (False, 2)):
        world.change(*[name] * is_tried)
        world.untried = {name} - world.away
        assert run(max_failures=DAMAGED).unreached == 1
        assert unreached(out) == {name: runs}
    world.change()
    assert run(max_failures=DAMAGED).unreached == 0
    assert world.read == [name]
    assert content(out) == reference


def test_a_host_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The list begins with more of its images than are asked for at once, and later it is alone.

    An image of another host says whose fault it is: one that was read before, or any if none was.
    """
    monkeypatch.setattr(reach, "_DOUBTED_AFTER_S", 0.05)
    monkeypatch.setattr(JITTER, "uniform", lambda low, high: high / 50)
    image = making.jpeg(16, 16, 0)

    class Handler(FileHandler):
        def answer(self) -> None:
            self.reply(200, {"Content-Length": str(len(image))}, image)

    with ThreadedServer(Handler) as server, socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        gone = [f"http://127.0.0.1:{nobody.getsockname()[1]}/{at}.jpg" for at in range(80)]
        urls = [*gone, *(f"{server.endpoint}/{at}.jpg" for at in range(40))]
        (tmp_path / "list.txt").write_text("\n".join(urls))
        start = partial(embed, tmp_path / "list.txt", tmp_path / "out", model="null", give_up_s=1)
        assert [start().unreached for _ in range(3)] == [80, 80, 0]
    reason = "no connection: refused, or no route, in 3 runs"
    failures = content(tmp_path / "out").failures
    assert {name for name, _ in failures} == {*gone}
    assert all(why.endswith(reason) for _, why in failures)


def test_refused_credentials_end_the_run(world: World, run: Run) -> None:
    """What was made stays, and what was not reached is no failure."""
    world.change("00.jpg")
    run()
    world.refuses = True
    with pytest.raises(UserError, match=r"^the credentials have expired; renew them$"):
        run()
    world.refuses = False
    world.change()
    assert run().counts["failures"] == DAMAGED
    assert world.read == ["00.jpg"]


def test_a_copy_whose_original_was_not_reached(
    world: World, run: Run, reference: Content, tmp_path: Path
) -> None:
    """The copy is embedded; so is its original, once it is reached."""
    world.change("05.jpg", "02.jpg")
    run()
    world.change()
    outcome = run()
    assert world.read == ["02.jpg", "05.jpg"]
    assert (outcome.tally.copied, outcome.unreached) == (0, 0)
    assert content(tmp_path / "out") == reference


NAMES = [f"{at:02}.jpg" for at in range(14)]


@pytest.fixture(scope="module")
def listed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A list with a column of its own, beside what it comes to; each third image is the first."""
    folder = tmp_path_factory.mktemp("listed")
    for at, name in enumerate(NAMES):
        (folder / name).write_bytes(making.jpeg(seed=at % 3 and at))
    rows = "".join(f"{name},{name},{at}\n" for at, name in enumerate(NAMES))
    (folder / "list.csv").write_text(f"path,id,number\n{rows}")
    embed(folder / "list.csv", folder / "out", **SMALL)
    return folder / "list.csv"


def numbered(out: Path) -> Content:
    """Its content, with the list's own column."""
    found = content(out)
    for path in out.glob("part-*.parquet"):
        for row in pq.read_table(path, columns=["id", "number"]).to_pylist():
            found.rows[row["id"]] += (row["number"],)
    return found


def harm(out: Path, at: int, *, remove: bool) -> None:
    """Cut or remove one of the files that parts need."""
    if files := sorted(path for path in out.rglob("part-*") if path.suffix != ".tar"):
        path = files[at % len(files)]
        path.write_bytes(path.read_bytes()[:-5])
        if remove:
            path.unlink()


weather = st.fixed_dictionaries(
    {
        "away": st.sets(st.sampled_from(NAMES[1:])),  # a job without any vector is an error
        "gives_up_after": st.none() | st.integers(0, 12),
        "commits": st.none() | st.integers(0, 3),
        "harm": st.none() | st.tuples(st.integers(0, 40), st.booleans()),
        "workers": st.integers(1, 3),
    }
)


@settings(max_examples=10)
@given(runs=st.lists(weather, min_size=1, max_size=5))
def test_every_image_once_whatever_happens(
    runs: list[dict[str, Any]], listed: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Outages, kills and damaged files in any run, then fine weather.

    What three runs did not reach is a failure; all else is as in an undisturbed dataset.
    """
    world, out = World(), tmp_path_factory.mktemp("any") / "out"
    right = numbered(listed.parent / "out").rows
    with pytest.MonkeyPatch.context() as patch:
        world.surround(patch)
        for one in runs:
            world.change(*one["away"], gives_up_after=one["gives_up_after"])
            with pytest.MonkeyPatch.context() as killer, suppress(UserError, IndexError):
                if one["commits"] is not None:
                    left = [*range(one["commits"])]
                    for name in ("commit", "replace"):
                        killer.setattr(Dataset, name, limited(getattr(Dataset, name), left))
                embed(listed, out, workers=one["workers"], **SMALL)
            if one["harm"]:
                harm(out, one["harm"][0], remove=one["harm"][1])
        world.change()
        outcome = embed(listed, out, **SMALL)
        found = numbered(out)
        failed = {name for name, reason in found.failures if reason == "HTTP 503, in 3 runs"}
        assert len(failed) == len(found.failures) == outcome.counts["failures"]
        assert all(sum(name in one["away"] for one in runs) >= 3 for name in failed)
        assert found.rows == {n: row for n, row in right.items() if n not in failed}
        assert str(embed(listed, out, **SMALL)).startswith("complete already")
    assert verify(out, n=2).faults == ()
