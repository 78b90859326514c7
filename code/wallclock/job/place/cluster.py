"""`cluster=`: the same job on Ray Data.

An actor has the loader's threads and the model. A call of it embeds several shards as a job of one
process does, commits each part itself, and returns what it did: neither pixels nor vectors pass
through the object store. Several, because the loader starts empty in every call. SRC and OUT must
be the same places on all nodes. The list of images goes to each node once.

An actor that is lost loses the shard that it had open, and leaves the rest of its call. Ray
restarts actors, but a call is not retried: it would wait for the lost node's replacement. A pass
ends when the other calls are done; what is missing in OUT then is the next pass, as it is for the
same command after a kill.
"""

import logging
import os
import signal
import socket
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from importlib.util import find_spec
from time import perf_counter
from typing import Any

from rich.console import Console

from wallclock.clock import collect_rarely
from wallclock.errors import UserError, first_line, install_hint
from wallclock.infer.network import Embedder, open_embedder
from wallclock.job.dataset import FAILURES, open_existing
from wallclock.job.estimate import estimate
from wallclock.job.place.process import export_metrics, print_line, show_progress
from wallclock.job.plan import Job, Plan
from wallclock.job.run import Run, Tally
from wallclock.job.settings import JobSettings
from wallclock.machine import usable_cores
from wallclock.predict.model import Pipeline
from wallclock.predict.pool import Node, Pool, actor_cpus, size

LOCAL, _CLIENT = "local", "ray://"
#: Ray's default is 15, with which Linux leaves cores idle for longer.
NICENESS = {"RAY_worker_niceness": "0"}
#: Seconds until an address that does not answer is given up.
_TIMEOUT_S = 5.0
#: Passes in which every actor was lost, until the job is given up.
_FRUITLESS = 3
#: Seconds of work in a call of more than one shard: progress is seen, and a lost actor leaves less.
_CALL_S = 30.0


@contextmanager
def connected(settings: JobSettings, console: Console) -> Iterator["Cluster"]:
    """The cluster of the settings; where this process is in one already, that one.

    Raises UserError: Ray is not installed, no cluster answers, or it has no such device.
    """
    with _ray(settings.cluster) as ray:
        nodes = [
            Node(int(node["Resources"].get("CPU", 0)), int(node["Resources"].get("GPU", 0)))
            for node in ray.nodes()
            if node["Alive"]
        ]
        yield Cluster(ray, nodes, settings, console)


def on_head(
    address: str, embed: Callable[..., Any], src: str, out: str, values: Mapping[str, Any]
) -> Any:
    """The result of `embed` in a process of the cluster's head: Ray Data has no remote driver."""
    with _ray(address) as ray:
        head = {"num_cpus": 0, "resources": {"node:__internal_head__": 0.001}, "max_retries": 0}
        task = ray.remote(**head)(_on_head)
        return _result(ray, task.remote(embed, src, out, {**values, "cluster": "auto"}))


def _on_head(embed: Callable[..., Any], src: str, out: str, values: Mapping[str, Any]) -> Any:
    return embed(src, out, console=Console(stderr=True), **values)


@contextmanager
def _ray(address: str) -> Iterator[Any]:
    if find_spec("ray") is None:
        fix = f"make setup-cluster, or {install_hint('ray')}"
        raise UserError(f"cluster={address} needs Ray: {fix}")
    import ray

    if ray.is_initialized():
        yield ray
        return
    local = address == LOCAL
    where: dict[str, Any] = {"address": address}
    where |= {"num_cpus": usable_cores(), "include_dashboard": False} if local else {}
    if local:
        os.environ.update({**NICENESS, **os.environ})
    kept = signal.getsignal(signal.SIGTERM)
    try:
        if ":" in address:
            host, _, port = address.removeprefix(_CLIENT).rpartition(":")
            socket.create_connection((host, int(port)), _TIMEOUT_S).close()
        ray.init(**where, log_to_driver=not local, logging_level=logging.ERROR)
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
    """A Ray cluster that is connected; see `Place`."""

    across = False

    def __init__(
        self, ray: Any, nodes: Sequence[Node], settings: JobSettings, console: Console
    ) -> None:
        self._ray, self._nodes = ray, nodes
        self._settings, self._console = settings, console
        gpus = settings.device != "cpu" and any(node.gpus for node in nodes)
        if settings.device == "cuda" and not gpus:
            raise UserError(
                "device=cuda, but the cluster has no GPU; set device=auto or device=cpu"
            )
        self.device = "cuda" if gpus else "cpu"

    def prepare(self, job: Job, plan: Plan) -> tuple[str, Mapping[str, str]]:
        """See `Place`. A node opens the model and measures, as large as an actor can be."""
        gpu, workers = self.device == "cuda", self._settings.workers
        try:
            cpus = actor_cpus(self._nodes, gpu, workers)
        except ValueError as error:
            raise UserError(f"cluster={self._settings.cluster}: {error}") from error
        self._job, self._shard = self._ray.put(job), job.shard
        probe = self._ray.remote(num_cpus=cpus, num_gpus=int(gpu))(_probe)
        digest, labels, costs = _result(self._ray, probe.remote(self._job, cpus))
        self._pool = size(self._nodes, len(plan.missing), costs, gpu=gpu, cpus=workers)
        return digest, labels

    def run(self, job: Job, plan: Plan) -> tuple[Tally, float | None]:
        """See `Place`."""
        if not plan.missing:  # actors of a killed driver made the last ones
            return Tally(), None
        print_line(self._console, f"{self._pool}; {len(plan.missing):,} parts to make")
        missing, fruitless = set(plan.missing), 0
        work, began = Tally(), perf_counter()
        with export_metrics(self._settings.export, work, {}), show_progress(self._console) as show:
            while missing:
                left = set(missing)
                for shards, part in self._pass(sorted(missing)):
                    left -= set(shards)
                    _add(work, part)
                    if job.max_failures is not None and work.n_failed > job.max_failures:
                        why = f"more than max_failures={job.max_failures} images failed"
                        raise UserError(f"{why}: {job.dataset.out}/{FAILURES}")
                    show(len(job.items) - plan.size(*left), len(job.items), work.limited_by)
                    if work.gave_up:
                        left = set()
                        break
                left -= set(job.dataset.committed())
                fruitless = fruitless + 1 if left == missing else 0
                if fruitless == _FRUITLESS:
                    raise UserError("Ray actors crashed in three passes in a row; see Ray's logs")
                if left:
                    print_line(
                        self._console, f"actors were lost: {len(left):,} parts are made again"
                    )
                    job.dataset.remove_leftovers()  # an attempt may not have reached the same
                missing = left
        wall_s = perf_counter() - began
        print_line(self._console, _checked(self._pool, work, wall_s))
        share = wall_s / work.wall_s if work.wall_s else 0.0
        waits = {name: seconds * share for name, seconds in work.wait_s.items()}
        return replace(work, wait_s=waits, wall_s=wall_s), None

    def _pass(self, shards: Sequence[int]) -> Iterator[tuple[Sequence[int], Tally]]:
        """Run each shard once, in any order; those of lost actors do not come back."""
        from ray.data import ActorPoolStrategy, from_items

        logging.getLogger("ray.data").setLevel(logging.CRITICAL)
        most = _shards_in(_CALL_S, self._pool.img_per_s, self._shard)
        calls = split(shards, self._pool.actors, most)
        rows = from_items([{"shards": call} for call in calls], override_num_blocks=len(calls))
        rows.context.enable_progress_bars = False
        rows.context.max_errored_blocks = -1  # of lost actors: an error of ours is in the row
        with warnings.catch_warnings():
            # Deprecated in 2.60, which has no other way to set what is not a resource.
            warnings.simplefilter("ignore", DeprecationWarning)
            done = rows.map_batches(
                _Actor,
                batch_size=1,
                fn_constructor_args=(self._job, self._pool.cpus),
                compute=ActorPoolStrategy(size=self._pool.actors, max_tasks_in_flight_per_actor=1),
                num_cpus=self._pool.cpus,
                num_gpus=self._pool.gpus,
                ray_remote_args_fn=lambda: {"max_task_retries": 0},
            )
        try:
            for row in done.iter_rows():
                if row["refused"]:
                    raise UserError(row["refused"])
                if row["error"]:
                    raise RuntimeError(f"an actor failed:\n{row['error']}")
                yield [*row["shards"]], Tally(**row["tally"])
        except self._ray.exceptions.RayError as error:  # a result that was on a lost node, say
            print_line(self._console, f"Ray ended a pass: {first_line(error)}")


def split(shards: Sequence[int], actors: int, most: int) -> list[Sequence[int]]:
    """The shards of each call, in order: long calls first, so that all actors end at one time.

    Guided self-scheduling (Polychronopoulos and Kuck, 1987) with half of its sizes: a call has its
    share of half of what is left. One actor waits for no other: all of its calls are long.

    Args:
        most: shards of a call; at least 1.
    """
    calls: list[Sequence[int]] = []
    begin, ahead = 0, 2 if actors > 1 else 1
    while left := len(shards) - begin:
        end = begin + min(-(-left // (ahead * actors)), most)
        calls.append(shards[begin:end])
        begin = end
    return calls


def _shards_in(seconds: float, img_per_s: float | None, shard: int) -> int:
    """The shards that an actor embeds in so many seconds; 1 where its rate was not measured."""
    return max(1, int(seconds * img_per_s / shard)) if img_per_s else 1


class _Actor:
    """The loader's threads and the model of one node, or of one of its GPUs."""

    def __init__(self, job: Any, cpus: int) -> None:
        import ray

        collect_rarely()
        self._job = _with_workers(ray.get(job), cpus)
        self._embedder: Embedder | None = None

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, list[Any]]:
        shards = [int(number) for number in batch["shards"][0]]
        tally = Tally()
        refused = error = ""
        try:
            tally = self._embed(shards)
        except UserError as problem:
            refused = str(problem)
        except Exception:  # noqa: BLE001 - the driver raises it; here, Ray would take it for a loss
            error = traceback.format_exc()
        row = {"shards": shards, "tally": asdict(tally), "refused": refused, "error": error}
        return {name: [value] for name, value in row.items()}

    def _embed(self, shards: Sequence[int]) -> Tally:
        job = self._job
        self._embedder = self._embedder or _opened(job)
        plan = job.plan(shards)
        if not plan.missing:
            return Tally()
        run = Run(job, plan)
        with run.loader() as loader:
            return run.run(loader, self._embedder, lambda done, total, limited_by: None)


def _opened(job: Job) -> Embedder:
    """The model, where this node has the same one and the same OUT. Raises UserError: not so."""
    node, dataset = socket.gethostname(), open_existing(job.dataset.store)
    if dataset is None:
        fix = "put it on a shared folder; or set the same AWS_… variables on each node"
        raise UserError(f"{job.dataset.out} on {node} is not OUT: {fix}")
    embedder = open_embedder(job.recipe, job.model)
    if embedder.weights_digest != dataset.about["identity"]["weights"]:
        raise UserError(f"the weights of {job.model.name} on {node} are others: set a revision")
    return embedder


def _probe(job: Job, cpus: int) -> tuple[str, Mapping[str, str], Pipeline | None]:
    """On a node: the digest of the weights, what runs, and what an image costs."""
    job = _with_workers(job, cpus)
    embedder = open_embedder(job.recipe, job.model)
    costs = estimate(job, job.plan(), embedder, cpus)
    return embedder.weights_digest, embedder.labels, costs


def _with_workers(job: Job, cpus: int) -> Job:
    return replace(job, recipe=replace(job.recipe, workers=cpus))


def _result(ray: Any, reference: Any) -> Any:
    """A task's result. Raises what it raised, without the traceback of its process."""
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, UserError):
            raise UserError(str(error.cause)) from error
        raise


def _add(total: Tally, part: Tally) -> None:
    for name in ("images", "copied", "unread", "n_failed", "wall_s"):
        setattr(total, name, getattr(total, name) + getattr(part, name))
    for name, seconds in part.wait_s.items():
        total.wait_s[name] += seconds
    total.gave_up |= part.gave_up
    total.last_unreached = part.last_unreached or total.last_unreached


def _checked(pool: Pool, work: Tally, wall_s: float) -> str:
    """What the pool was sized by, against what it did."""
    rate = (work.images + work.n_failed) / work.wall_s if work.wall_s else 0.0
    share = work.wall_s / (pool.actors * wall_s)
    was = f", {rate / pool.img_per_s - 1:+.0%} of the estimate" if pool.img_per_s else ""
    return f"an actor did {rate:,.0f} images/s{was}; actors worked {share:.0%} of the time"
