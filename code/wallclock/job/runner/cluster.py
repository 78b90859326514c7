"""`cluster=`: the same job on Ray.

An actor has the loader's threads and the model. A call of it embeds several shards, commits each
part itself, and returns what it did: neither pixels nor vectors pass through the object store. A
node on which SRC, OUT, code or model differ from the driver's is left out, and so is one that
cannot read a single image of a shard that the driver can read. Nodes that join are used. What a
lost actor has not committed is left to others.
"""

import logging
import os
import secrets
import signal
import socket
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from time import perf_counter
from typing import Any, NoReturn

from rich.console import Console

from wallclock.errors import UsageError, UserError, first_line, install_hint
from wallclock.job.dataset import FAILURES
from wallclock.job.plan import Job, Plan
from wallclock.job.run import Tally
from wallclock.job.runner.node import MARKER, Done, Team, View, can_read_any, view_of_driver
from wallclock.job.runner.process import print_line, show_progress
from wallclock.job.settings import JobSettings
from wallclock.machine import usable_cores

LOCAL = "local"
#: Ray's default is 15, with which Linux leaves cores idle for longer.
NICENESS = {"RAY_worker_niceness": "0"}
#: Seconds until an address that does not answer is given up.
_TIMEOUT_S = 5.0
#: Actors that a node loses while they start, or that are lost over one part, until it is given up.
_MOST_LOST = 3
#: Seconds of work in a call of more than one shard: progress is seen, and a lost actor leaves less.
_CALL_S = 30.0


def check(address: str) -> None:
    """Raise UserError where Ray is not installed, or the address is of its client."""
    if address.startswith("ray://"):
        raise UsageError(f"cluster={address}: run it on a node, with cluster=auto (ray job submit)")
    if find_spec("ray") is None:
        fix = f"make setup-cluster, or {install_hint('ray')}"
        raise UserError(f"cluster={address} needs Ray: {fix}")


@contextmanager
def connected(settings: JobSettings, console: Console) -> Iterator["Cluster"]:
    """The cluster of the settings while the block runs. Raises UserError: none answers."""
    with _ray(settings.cluster) as ray, ExitStack() as closing:
        yield Cluster(ray, settings, console, closing)


@contextmanager
def _ray(address: str) -> Iterator[Any]:
    import ray

    if ray.is_initialized():
        yield ray
        return
    where: dict[str, Any] = {"address": address}
    if address == LOCAL:
        where |= {"num_cpus": usable_cores(), "include_dashboard": False}
        # Without a token, Ray would write one into the user's home.
        own = {**NICENESS, "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        os.environ.update({**own, **os.environ})
    kept = signal.getsignal(signal.SIGTERM)
    try:
        if ":" in address:
            host, _, port = address.rpartition(":")
            socket.create_connection((host, int(port)), _TIMEOUT_S).close()
        ray.init(**where, log_to_driver=False, logging_level=logging.ERROR)
    except (OSError, ValueError) as error:
        why = f"{first_line(error)}; where Ray asks for a token, set RAY_AUTH_MODE=token"
        raise UserError(f"cluster={address}: no Ray cluster answers: {why}") from error
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, kept)  # Ray sets its own
    try:
        yield ray
    finally:
        ray.shutdown()


class Cluster:
    """A Ray cluster that is connected, with what `ThisProcess` has."""

    def __init__(
        self, ray: Any, settings: JobSettings, console: Console, closing: ExitStack
    ) -> None:
        self._ray, self._settings, self._closing = ray, settings, closing
        self._say = partial(print_line, console)
        self._progress = partial(show_progress, console)
        #: Parts that no call makes, and those that are committed though no image of them was read.
        self._left, self._sure = list[int](), set[int]()
        self._losses = Counter[str | int]()
        #: Why the last node was left out.
        self._why = "all were lost"
        gpus = settings.device != "cpu" and any(
            node["Resources"].get("GPU") for node in ray.nodes() if node["Alive"]
        )
        if settings.device == "cuda" and not gpus:
            raise UserError(
                "device=cuda, but the cluster has no GPU; set device=auto or device=cpu"
            )
        self.device = "cuda" if gpus else "cpu"

    def prepare(self, job: Job, plan: Plan) -> tuple[Job, str, Mapping[str, str]]:
        """See `ThisProcess`. A node that can do the job says what runs."""
        self._job, token = job, secrets.token_hex(16)
        self._view = view_of_driver(job)
        positions = [*self._view.images]
        gpu, workers = self.device == "cuda", self._settings.workers
        self._team = team = Team(self._ray, self._ray.put(job), gpu, workers, positions, token)
        self._closing.callback(team.dismiss)
        job.dataset.store.write(MARKER, token.encode())
        self._closing.callback(job.dataset.store.remove, MARKER)
        if not team.nodes():
            needs = f"{workers or 'enough'} CPUs for an actor" + " with a GPU" * gpu
            raise UserError(f"cluster={self._settings.cluster}: no node has {needs}")
        started = self._first()
        return job, started.weights, started.labels

    def run(self, job: Job, plan: Plan) -> tuple[Tally, float | None]:
        """See `ThisProcess`."""
        if not plan.missing:  # actors of a killed driver made the last ones
            return Tally(), None
        rooms = self._team.nodes().values()
        cpus = sum(room.actors * room.cpus for room in rooms)
        actors = sum(room.actors for room in rooms)
        self._say(f"{actors} actors on {cpus} CPUs; {len(plan.missing):,} parts to make")
        self._left, work, began = [*plan.missing], Tally(), perf_counter()
        with self._progress() as show:
            for part in self._calls(work):
                _add(work, part)
                if job.max_failures is not None and work.n_failed > job.max_failures:
                    why = f"more than max_failures={job.max_failures} images failed"
                    raise UserError(f"{why}: {job.dataset.out}/{FAILURES}")
                to_do = plan.size(*self._left, *self._team.in_work)
                show(len(job.items) - to_do, len(job.items), work.limited_by)
        if self._left and not work.gave_up:
            self._raise_no_node(f"{len(self._left):,} parts are left to make, and ")
        wall_s = perf_counter() - began
        self._say(f"an actor did {_rate(work):,.0f} images/s")
        share = wall_s / work.wall_s if work.wall_s else 0.0
        waits = {name: seconds * share for name, seconds in work.wait_s.items()}
        return replace(work, wait_s=waits, wall_s=wall_s), None

    def _first(self) -> View:
        """What a node says that can do the job; the largest at first."""
        self._team.fill(1)
        while self._team.busy:
            for done in self._team.wait():
                if started := self._started(done):
                    return started
            self._team.fill(1)
        self._raise_no_node()

    def _calls(self, work: Tally) -> Iterator[Tally]:
        """Have all parts made, and yield what each call did. `work`: of those before."""
        team, left = self._team, self._left
        while left or team.in_work:
            team.fill(len(left))
            most = max(1, int(_CALL_S * _rate(work) / self._settings.shard))
            while left and team.idle:
                call = next_call(left, len(team.idle) + len(team.busy), most)
                del left[: len(call)]
                team.give(call, self._sure)
            if not team.busy:
                return
            for done in team.wait():
                if not done.shards:
                    self._started(done)
                elif done.lost:
                    self._lost(done)
                else:
                    yield self._made(done)

    def _started(self, done: Done) -> View | None:
        """What a node says that can do the job; None: it is left out, or has lost its actor."""
        node = done.member.node
        if done.lost:
            self._say(f"an actor on {self._team.names[node]} was lost when it started")
            self._losses[node] += 1
            if self._losses[node] == _MOST_LOST:
                self._leave_out(node, f"its actors crash when they start: {done.lost}")
            return None
        if why := done.refused or self._view.difference(done.value):
            self._leave_out(node, why)
            return None
        self._team.idle.append(done.member)
        view: View = done.value
        return view

    def _made(self, done: Done) -> Any:
        """What a call did; its parts that were not made are left."""
        if done.refused:
            raise UserError(done.refused)
        node, tally = done.member.node, done.value
        self._team.idle.append(done.member)
        if tally.gave_up:
            self._left += self._job.plan(done.shards).missing
            self._leave_out(node, f"it reached nothing, as {tally.last_unreached}")
        elif unread := tally.withheld:
            self._left += unread
            if any(can_read_any(self._job, shard) for shard in unread):
                self._leave_out(node, "it read no image of a part that the driver can read")
            self._sure.update(unread)
        return tally

    def _lost(self, done: Done) -> None:
        """A call's actor was lost: what it has not made is left."""
        again, node = self._job.plan(done.shards).missing, self._team.names[done.member.node]
        self._left += again
        self._say(f"an actor on {node} was lost; parts to make again: {len(again):,}")
        for shard in again[:1]:  # which it had open
            self._losses[shard] += 1
            if self._losses[shard] == _MOST_LOST:
                part = self._job.dataset.row_file(shard)
                why = f"{_MOST_LOST} actors were lost while they made {part}, the last on {node}"
                raise UserError(f"{why}: {done.lost}; see Ray's logs")

    def _leave_out(self, node: str, why: str) -> None:
        """Use a node no more; the parts that its other actors had are left."""
        self._why = f"node {self._team.names[node]} is left out: {why}"
        self._say(self._why)
        self._left += self._team.leave_out(node)

    def _raise_no_node(self, left: str = "") -> NoReturn:
        raise UserError(f"cluster={self._settings.cluster}: {left}no node can work; {self._why}")


def next_call(left: Sequence[int], actors: int, most: int) -> Sequence[int]:
    """The first of the shards that are left, for the next call: at least 1 and at most `most`.

    Guided self-scheduling (Polychronopoulos and Kuck, 1987) with half of its sizes, so that all
    actors end at one time.
    """
    ahead = 2 if actors > 1 else 1
    return left[: min(-(-len(left) // (ahead * actors)), most)]


def _add(total: Tally, part: Tally) -> None:
    for name in ("images", "copied", "n_failed", "fallbacks", "wall_s"):
        setattr(total, name, getattr(total, name) + getattr(part, name))
    for name, seconds in part.wait_s.items():
        total.wait_s[name] += seconds
    total.gave_up |= part.gave_up
    total.last_unreached = part.last_unreached or total.last_unreached


def _rate(work: Tally) -> float:
    """Images per second of an actor; 0 before the first call has ended."""
    return (work.images + work.n_failed) / work.wall_s if work.wall_s else 0.0
