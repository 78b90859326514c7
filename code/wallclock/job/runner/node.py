"""What runs on the nodes of a cluster: a check of each, and the actors that embed shards."""

import random
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

from wallclock.clock import collect_rarely
from wallclock.errors import ImageError, NotReachedError, UserError, first_line, image_errors
from wallclock.fetch.sources import SourceReader
from wallclock.infer.network import Embedder, open_embedder
from wallclock.job.identity import versions
from wallclock.job.plan import Job
from wallclock.job.run import Run, Tally
from wallclock.outside import printable
from wallclock.preprocess import preprocess_of
from wallclock.stages.forward.networks import digest_of, load_network

#: A file of the driver in OUT while it has nodes.
MARKER = ".cluster"
#: Images that each node reads, and that the driver tries for that.
_READ, _TRIED = 4, 256
#: Seconds after which nodes that have joined are looked for.
_LOOK_S = 1.0
_MISSING = re.compile(r"No module named '([\w.]+)'")


@dataclass(frozen=True)
class View:
    """What a process sees of a job. Two that see the same make the same vectors.

    `code`: sha256 of the package's sources. `images`: by position, sha256 of the bytes. `weights`:
    the digest of the model's. `fault`: what the process cannot do. `labels`: what runs.
    """

    versions: Mapping[str, str]
    code: str
    images: Mapping[int, str]
    fault: str = ""
    weights: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)

    def difference(self, node: "View") -> str:
        """Why a node cannot work with this process, and the cure; empty: it can."""
        for name, here in self.versions.items():
            there = node.versions.get(name, "none")
            if there.partition("+")[0] != here.partition("+")[0]:  # +cpu or +cu130 is torch's build
                return f"it has {name} {there}, the driver {here}; install the same lock"
        if node.code != self.code:
            return "its code of wallclock is not the driver's; install the same commit"
        if node.fault:
            return node.fault
        if node.images != self.images:
            return "its images have other bytes than the driver's; share one SRC"
        if node.weights != self.weights:
            return "its weights are not the driver's; set a revision, or share the model's folder"
        return ""


class Actor:
    """The loader's threads and the model of one node, or of one of its GPUs.

    `job`: in a list its reference, which Ray leaves alone. `cpus`: that it may use.
    """

    def __init__(self, job: Sequence[Any], cpus: int) -> None:
        self._reference, self._cpus = job[0], cpus

    def start(self, positions: Sequence[int], token: str) -> View:
        """Look at SRC and OUT, and open the model."""
        import ray

        collect_rarely()
        job: Job = ray.get(self._reference)
        self._job = job = replace(job, recipe=replace(job.recipe, workers=self._cpus))
        images, fault = _read(job, positions, len(positions))
        fault = f"it cannot read {fault}; give each node SRC" if fault else _why_not_out(job, token)
        view = View(versions(), _code_digest(), images, fault)
        if fault:
            return view
        try:
            self._embedder: Embedder = open_embedder(job.recipe, job.model)
        except Exception as error:  # noqa: BLE001 - of a library that this node has not, say
            return replace(view, fault=f"it cannot open the model: {first_line(error)}")
        weights, labels = self._embedder.weights_digest, self._embedder.labels
        return replace(view, weights=weights, labels=labels)

    def embed(self, shards: Sequence[int], sure: Collection[int]) -> Tally:
        """Make shards. `sure`: those that are committed even if no image of them can be read."""
        plan = self._job.plan(shards)
        if not plan.missing:
            return Tally()
        run = Run(self._job, plan, sure=sure)
        with run.loader() as loader:
            return run.run(loader, self._embedder, lambda done, total, limited_by: None)


def view_of_driver(job: Job) -> View:
    """What a node must see, too. Raises UserError: no image can be read here, or no weights."""
    tried = random.sample(range(len(job.items)), min(len(job.items), _TRIED))
    images, why = _read(job, tried, _READ)
    if not images:
        raise UserError(f"this machine can read no image of SRC, {why}; a cluster's driver must")
    weights = "none"
    if job.model.weights != "none":
        canvas = preprocess_of(job.recipe, job.model.input_px).canvas
        weights = digest_of(load_network(job.model, canvas))
    return View(versions(), _code_digest(), images, weights=weights)


def can_read_any(job: Job, shard: int) -> bool:
    """Whether this process can read one of a shard's images; it tries some of them."""
    positions = job.parts[shard]
    return bool(_read(job, positions[:: -(-len(positions) // _TRIED)], 1)[0])


def _read(job: Job, positions: Sequence[int], most: int) -> tuple[dict[int, str], str]:
    """By position sha256 of the first images that can be read; which one cannot, and why."""
    images, fault = dict[int, str](), ""
    with closing(SourceReader(job.limits, fetches_ahead=False)) as reader:
        read = image_errors("read", "SRC", reader)
        for position in positions:
            try:
                if not (data := read(job.items[position])):
                    raise ImageError("read", "empty file")
                images[position] = sha256(data).hexdigest()
            except (ImageError, UserError) as error:
                fault = fault or f"{job.items[position].id}: {first_line(error)}"
                if isinstance(error, NotReachedError) and error.unreached == "all":
                    break
            if len(images) == most:
                break
    return images, fault


def _why_not_out(job: Job, token: str) -> str:
    """Why OUT is not the driver's here, or cannot be written; empty: neither."""
    store, mine = job.dataset.store, f".{uuid4().hex}.tmp"
    try:
        if store.read(MARKER).decode() != token:
            raise FileNotFoundError
        store.write(mine, b"")
        store.remove(mine)
    except FileNotFoundError:
        return f"its {store.out} is not the driver's; share the folder"
    except (OSError, UserError) as error:
        return f"it cannot write to OUT: {first_line(error)}"
    return ""


def _code_digest() -> str:
    """sha256 of the package's sources."""
    digest, root = sha256(), Path(__file__).parents[2]
    for path in sorted(root.rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


# --- all actors, as the driver has them -----------------------------------------------------------


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
