"""The actors of a job on a Ray cluster: on each node as many as have room."""

import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from wallclock.errors import UserError
from wallclock.job.runner.node import Actor
from wallclock.outside import printable

#: Seconds after which nodes that have joined are looked for.
_LOOK_S = 1.0
_MISSING = re.compile(r"No module named '([\w.]+)'")


@dataclass(eq=False)
class Member:
    """An actor, and the id of its node."""

    actor: Any
    node: str


class Done(NamedTuple):
    """A call that has ended. `refused`: why it has no value. `lost`: why its actor is."""

    member: Member
    shards: Sequence[int]
    value: Any = None
    refused: str = ""
    lost: str = ""


class Room(NamedTuple):
    """What a node has for actors: how many, and the CPUs of each."""

    actors: int
    cpus: int


class Team:
    """Actors that are idle, and by its reference each call of those that are busy.

    A node has an actor, or one for each of its GPUs where `gpu`; they have its CPUs, or `workers`
    each. `job`: the reference of the `Job`. `start`: the arguments of `Actor.start`.
    """

    def __init__(self, ray: Any, job: Any, gpu: bool, workers: int, *start: Any) -> None:
        self._ray, self._job, self._start = ray, job, start
        self._gpu, self._workers = gpu, workers
        #: By id, what a user calls a node: its host, and the beginning of its id.
        self.names: dict[str, str] = {}
        self._left_out = set[str]()
        self.idle: list[Member] = []
        self.busy: dict[Any, tuple[Member, Sequence[int]]] = {}

    def nodes(self) -> dict[str, Room]:
        """By id the nodes with room that are alive and not left out, those with the most first."""
        nodes = dict[str, Room]()
        for node in self._ray.nodes():
            has, name = node["Resources"], node["NodeID"]
            self.names[name] = f"{node['NodeManagerHostname']} ({name[:8]})"
            if node["Alive"] and name not in self._left_out:
                nodes[name] = self._room(int(has.get("CPU", 0)), int(has.get("GPU", 0)))
        with_room = [item for item in nodes.items() if item[1].actors]
        return dict(sorted(with_room, key=lambda item: -item[1].cpus))

    def _room(self, cpus: int, gpus: int) -> Room:
        most = gpus if self._gpu else cpus if self._workers else 1
        each = self._workers or cpus // max(1, most)
        return Room(min(most, cpus // each) if each else 0, each)

    def _hire(self, node: str, cpus: int) -> None:
        affinity = self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
        there = {"scheduling_strategy": affinity(node, soft=False), "max_restarts": 0}
        kind = self._ray.remote(Actor).options(num_cpus=cpus, num_gpus=int(self._gpu), **there)
        actor = kind.remote([self._job], cpus)
        self.busy[actor.start.remote(*self._start)] = Member(actor, node), ()

    def fill(self, wanted: int) -> None:
        """Start actors where nodes have room, but no more than `wanted` that have no call."""
        there = [*self.idle, *(member for member, _ in self.busy.values())]
        wanted -= len(self.idle) + sum(not shards for _, shards in self.busy.values())
        for name, room in self.nodes().items():
            left = room.actors - sum(member.node == name for member in there)
            for _ in range(min(left, wanted)):
                self._hire(name, room.cpus)
                wanted -= 1

    @property
    def in_work(self) -> list[int]:
        """The shards of all calls."""
        return [shard for _, shards in self.busy.values() for shard in shards]

    def give(self, shards: Sequence[int], sure: Collection[int]) -> None:
        """Let an actor that is ready make shards; see `Actor.embed`."""
        member = self.idle.pop(0)
        of_these = [shard for shard in shards if shard in sure]
        self.busy[member.actor.embed.remote(shards, of_these)] = member, shards

    def wait(self) -> Iterator[Done]:
        """The calls that have ended, after a second at most. Raises RuntimeError: one has a bug."""
        references, _ = self._ray.wait([*self.busy], num_returns=1, timeout=_LOOK_S)
        for reference in references:
            member, shards = self.busy.pop(reference)
            try:
                yield Done(member, shards, self._ray.get(reference))
            except self._ray.exceptions.RayError as error:
                yield self._failed(Done(member, shards), error)

    def _failed(self, done: Done, error: Any) -> Done:
        last = printable(str(error).strip().rpartition("\n")[2].strip())
        if missing := _MISSING.search(str(error)):
            why = f"it has no module {missing[1]}; install the same lock there"
            return done._replace(refused=why)
        if not isinstance(error, self._ray.exceptions.RayTaskError):
            return done._replace(lost=last)
        if isinstance(error.cause, UserError):
            return done._replace(refused=str(error.cause))
        if done.shards:
            raise RuntimeError(f"an actor failed:\n{error}") from error
        return done._replace(refused=last)

    def leave_out(self, node: str) -> list[int]:
        """Have no actor on a node any more; the shards that they had."""
        self._left_out.add(node)
        gone = {ref: call for ref, call in self.busy.items() if call[0].node == node}
        for reference in gone:
            del self.busy[reference]
        self._kill([m for m in self.idle if m.node == node] + [m for m, _ in gone.values()])
        self.idle = [member for member in self.idle if member.node != node]
        return [shard for _, shards in gone.values() for shard in shards]

    def dismiss(self) -> None:
        """End all actors."""
        self._kill([*self.idle, *(member for member, _ in self.busy.values())])
        self.idle, self.busy = [], {}

    def _kill(self, members: Sequence[Member]) -> None:
        for member in members:
            with suppress(Exception):  # it or the cluster is gone
                self._ray.kill(member.actor)
