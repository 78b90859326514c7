"""What runs on the nodes of a cluster: a check of each, and actors that embed shards."""

import random
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import uuid4

from wallclock.clock import collect_rarely
from wallclock.errors import ImageError, NotReachedError, UserError, first_line, image_errors
from wallclock.fetch.sources import SourceReader
from wallclock.infer.network import Embedder, open_embedder
from wallclock.job.identity import versions
from wallclock.job.plan import Job
from wallclock.job.run import Run, Tally
from wallclock.preprocess import preprocess_of
from wallclock.stages.forward.networks import digest_of, load_network

#: A file of the driver in OUT while it has nodes.
MARKER = ".cluster"
#: Images that each node reads, and that the driver tries for that.
_READ, _TRIED = 4, 256


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
