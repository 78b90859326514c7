"""The job on a cluster: what is committed once, what is made again, what survives a kill.

Ray runs in processes of its own: a cluster of two small nodes, and the command.
"""

import io
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from tests import making, ray_nodes
from tests.conftest import ROOT
from tests.ray_nodes import Nodes
from tests.wallclock.job.conftest import DAMAGED, QUICK, TWINS, Content, N, World, content
from wallclock.errors import UserError
from wallclock.infer.network import open_embedder
from wallclock.job import embed
from wallclock.job.dataset import Dataset, Part
from wallclock.job.listing import list_items
from wallclock.job.place import cluster
from wallclock.job.plan import Job
from wallclock.job.run import Run, Tally
from wallclock.job.settings import JobSettings
from wallclock.job.stores.folder import Folder
from wallclock.predict import pool
from wallclock.predict.pool import Node

# --- one shard at a time, in any order, by any process ------------------------------------------


def test_without_ray_it_is_one_line(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "find_spec", lambda name: None)
    for address in ("local", "ray://head:10001"):
        with pytest.raises(
            UserError, match=f"^cluster={address} needs Ray: make setup-cluster, or"
        ):
            embed(images, tmp_path / "out", **QUICK, cluster=address)
    assert not (tmp_path / "out").exists()


@pytest.fixture
def job(images: Path, tmp_path: Path) -> Job:
    settings, out = JobSettings(**QUICK), tmp_path / "out"
    out.mkdir()
    recipe = replace(settings.resolved_recipe("cpu"), workers=1)
    parts = list_items(str(images)), Dataset(Folder(out)), settings.resolved_model(), recipe
    return Job(*parts, settings.shard, across=False)


def embed_shards(job: Job, *shards: int) -> Tally:
    """As an actor does it in one call."""
    run = Run(job, job.plan(shards))
    with run.loader() as loader:
        return run.run(loader, open_embedder(job.recipe, job.model), lambda *_: None)


IDENTITY: dict[str, Any] = {"images": "", "n": 1, "shard": 1}
ABOUT: dict[str, Any] = {"complete": False, "settings": {}, "source": "images"}


def test_a_node_has_the_same_folder_and_weights(job: Job) -> None:
    with pytest.raises(UserError, match="is not OUT: put it on a shared folder"):
        cluster._opened(job)
    job.dataset.describe({**ABOUT, "identity": {**IDENTITY, "weights": "another"}})
    with pytest.raises(UserError, match=r"the weights of null on .* are others"):
        cluster._opened(job)
    job.dataset.describe({**ABOUT, "identity": {**IDENTITY, "weights": "none"}})
    assert cluster._opened(job).weights_digest == "none"


class Lossy(cluster.Cluster):
    """A cluster that runs the first shards of each pass, in this process, and loses the others."""

    def __init__(self, job: Job, runs: int) -> None:
        console = Console(file=io.StringIO(), width=200)
        super().__init__(None, [Node(2)], JobSettings(), console)
        self._pool = pool.Pool(2, 1, 0, 50.0, "two CPUs")
        self._local_job = job
        self._runs = runs
        self.passes: list[list[int]] = []

    def _pass(self, shards: Sequence[int]) -> Iterator[tuple[Sequence[int], Tally]]:
        self.passes.append([*shards])
        for shard in shards[: self._runs]:
            yield [shard], embed_shards(self._local_job, shard)

    def text(self) -> str:
        return self._console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def test_what_is_lost_is_made_in_another_pass(job: Job, reference: Content) -> None:
    job.dataset.describe({**ABOUT, "identity": {**IDENTITY}})
    lossy = Lossy(job, 1)
    tally, _ = lossy.run(job, job.plan())
    assert lossy.passes == [[0, 1, 2], [1, 2], [2]]
    assert content(job.dataset.out) == reference
    assert (tally.images, tally.n_failed) == (N - DAMAGED, DAMAGED)
    assert sum(tally.wait_s.values()) <= tally.wall_s
    assert "2 actors of 1 CPUs: two CPUs, about 100 images/s; 3 parts to make" in lossy.text()
    assert "actors were lost: 2 parts are made again" in lossy.text()
    assert "of the estimate; actors worked" in lossy.text()


def test_nothing_is_left_to_make(job: Job) -> None:
    """The driver was killed, its actors went on to the last part."""
    for shard in range(3):
        embed_shards(job, shard)
    idle = Lossy(job, 1)
    idle._pool = pool.size([Node(2)], 0, None, gpu=False)
    assert idle.run(job, job.plan()) == (Tally(), None)
    assert not idle.passes


def test_a_cluster_that_loses_everything_is_given_up(job: Job) -> None:
    lossy = Lossy(job, 0)
    with pytest.raises(UserError, match="crashed in three passes"):
        lossy.run(job, job.plan())
    assert len(lossy.passes) == 3


def test_too_many_failures_over_all_shards(job: Job) -> None:
    limited = replace(job, max_failures=1)
    with pytest.raises(UserError, match=r"more than max_failures=1 images failed"):
        Lossy(limited, 3).run(limited, limited.plan())


def test_an_outage_ends_the_run_and_actors_take_up_the_rest(
    world: World, job: Job, reference: Content
) -> None:
    """It is no loss of actors; a call makes parts of the list and parts that go on from them."""
    job.dataset.describe({**ABOUT, "identity": {**IDENTITY}})
    world.change("03.jpg", gives_up_after=20)
    lossy = Lossy(job, 3)
    assert lossy.run(job, job.plan())[0].gave_up
    assert lossy.passes == [[0, 1, 2]]
    assert world.asked == 32 - 20, "no further shard was begun"
    assert "lost" not in lossy.text()
    world.change()
    assert job.plan([2, 4, 9]).missing == [2, 4]
    lossy = Lossy(job, 3)
    assert not lossy.run(job, job.plan())[0].gave_up
    assert lossy.passes == [[2, 3, 4]]
    assert content(job.dataset.out).rows == reference.rows
    assert not job.plan().missing


def test_shards_in_any_order_make_the_same_rows(job: Job, reference: Content) -> None:
    job.dataset.describe({**ABOUT, "identity": {**IDENTITY}})
    copied = [embed_shards(job, shard).copied for shard in (2, 0, 1)]
    assert content(job.dataset.out) == reference
    assert 0 < sum(copied) < TWINS  # of two images in one shard, and not across shards
    assert not job.plan([1]).missing


def test_shards_of_one_call_make_the_same_rows(job: Job, reference: Content) -> None:
    """Copies too: neither call nor order decides which image has a vector of its own."""
    job.dataset.describe({**ABOUT, "identity": {**IDENTITY}})
    copied = [embed_shards(job, 1).copied, embed_shards(job, 0, 2).copied]
    assert content(job.dataset.out) == reference
    assert 0 < sum(copied) < TWINS


@given(n=st.integers(1, 200), actors=st.integers(1, 9), most=st.integers(1, 50))
def test_calls_have_each_shard_once(n: int, actors: int, most: int) -> None:
    shards = range(7, 7 + n)
    calls = cluster.split(shards, actors, most)
    assert [shard for call in calls for shard in call] == [*shards]
    sizes = [len(call) for call in calls]
    assert sizes == sorted(sizes, reverse=True)
    assert max(sizes) <= most
    if actors == 1:
        assert set(sizes[:-1]) <= {most}
    else:
        assert sizes[-min(actors, n) :] == [1] * min(actors, n), "all end within a shard"
        assert max(sizes) <= -(-n // (2 * actors))


def test_a_call_takes_half_a_minute() -> None:
    assert cluster._shards_in(30, 50.0, 100) == 15
    assert cluster._shards_in(30, 50.0, 2000) == 1
    assert cluster._shards_in(30, None, 100) == 1


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
        dataset.remove_leftovers()
        return publishing(self)

    monkeypatch.setattr(Folder, "_publishing", late)
    with pytest.raises(FileNotFoundError):
        dataset.commit(0, part(1, [failure]))
    assert (dataset.committed(), list(tmp_path.rglob("part-*"))) == ([], [])


def test_rays_schema_accepts_the_file() -> None:
    ray = find_spec("ray")
    if ray is None or ray.origin is None:
        pytest.skip("make setup-cluster")
    jsonschema = pytest.importorskip("jsonschema")  # Ray brings it
    schema = Path(ray.origin).parent / "autoscaler" / "ray-schema.json"
    cluster = yaml.safe_load((ROOT / "deploy" / "g4dn.yaml").read_text(encoding="utf-8"))
    jsonschema.validate(cluster, json.loads(schema.read_text(encoding="utf-8")))
    assert cluster["available_node_types"]["g4dn"]["node_config"]["InstanceType"] == "g4dn.xlarge"


# --- Ray ----------------------------------------------------------------------------------------

ROUNDS = int(os.environ.get("WALLCLOCK_KILLS", "2"))
needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="make setup-cluster")
ENV = {"PYTHONPATH": f"{ROOT / 'code'}:{ROOT}", "RAY_DEDUP_LOGS": "0", **ray_nodes.HEALTH}


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    with ray_nodes.start(ENV) as cluster:
        yield cluster


def start(src: Path, out: Path | str, settings: dict[str, Any]) -> "subprocess.Popen[str]":
    words = [f"{name}={value}" for name, value in settings.items()]
    command = [sys.executable, "-m", "wallclock", "embed", str(src), str(out), *words]
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen(command, **pipes, env={**os.environ, **ENV}, start_new_session=True)


def finish(process: "subprocess.Popen[str]") -> str:
    with process:
        output = process.communicate(timeout=600)[0]
    assert process.returncode == 0, output
    return output


SLOW: dict[str, Any] = {**QUICK, "shard": 2, "service_ms": 300}
PARTS = -(-N // SLOW["shard"])


def kill_actor(nodes: Nodes, driver: int) -> bool:
    actors = nodes.processes("_Actor")
    for actor in actors[:1]:
        actor.kill()
    return bool(actors)


def kill_node(nodes: Nodes, driver: int) -> bool:
    """Another node comes at the next round."""
    nodes.kill_node()
    return True


def kill_driver(nodes: Nodes, driver: int) -> bool:
    os.killpg(driver, signal.SIGKILL)
    return True


@needs_ray
@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("kill", [kill_actor, kill_node, kill_driver])
def test_nothing_is_lost_or_doubled(
    kill: Callable[[Nodes, int], bool],
    nodes: Nodes,
    images: Path,
    reference: Content,
    tmp_path: Path,
) -> None:
    """WALLCLOCK_KILLS rounds, each with a kill at a random moment between first and last part."""
    rng, killed = random.Random(f"{kill.__name__} {ROUNDS}"), 0
    for number in range(ROUNDS):
        out, moment = tmp_path / f"{number}", rng.randrange(PARTS - 2)
        settings = {**SLOW, "cluster": nodes.address, "workers": 1}
        process = start(images, out, settings)
        began = time.monotonic()
        while process.poll() is None and len(list(out.glob("part-*"))) <= moment:
            time.sleep(0.02)
        time.sleep(rng.uniform(0, 0.6))
        killed += kill(nodes, process.pid)
        print(f"{kill.__name__} after {time.monotonic() - began:.1f} s, {moment + 1} parts", end="")
        if kill is kill_driver:
            process.communicate()
            process = start(images, out, settings)
        finish(process)
        print(f", complete after {time.monotonic() - began:.1f} s", flush=True)
        assert content(out) == reference
        assert not list(out.rglob("*.tmp"))
        if kill is kill_node:
            nodes.add()
    assert killed == ROUNDS


class Rows:
    """Rows of Ray Data: of one call, then the error of a node that is lost with a result."""

    def __init__(self, error: Exception) -> None:
        self.context = SimpleNamespace()
        self._error = error

    def map_batches(self, *_: object, **__: object) -> "Rows":
        return self

    def iter_rows(self) -> Iterator[dict[str, Any]]:
        yield {"shards": np.array([1]), "tally": asdict(Tally()), "refused": "", "error": ""}
        raise self._error


@needs_ray
def test_a_result_that_is_lost_ends_a_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    import ray
    import ray.data

    error = ray.exceptions.ObjectLostError("00", None, "")
    monkeypatch.setattr(ray.data, "from_items", lambda *_, **__: Rows(error))
    console = Console(file=io.StringIO(), width=500)
    connected = cluster.Cluster(ray, [Node(2)], JobSettings(), console)
    connected._pool, connected._shard = pool.Pool(1, 2, 0, None, "two CPUs"), 100
    connected._job = None
    assert [shards for shards, _ in connected._pass([0, 1, 2])] == [[1]]
    assert "Ray ended a pass: " in console.file.getvalue()  # type: ignore[attr-defined]


def tiny_model(folder: Path) -> None:
    transformers = pytest.importorskip("transformers")
    small = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = transformers.ViTConfig(**small, intermediate_size=64, image_size=64, patch_size=16)
    transformers.ViTModel(config).save_pretrained(folder)
    size = {"height": 64, "width": 64}
    transformers.ViTImageProcessor(size=size).save_pretrained(folder)


@needs_ray
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_same_bytes_as_one_process(tmp_path: Path) -> None:
    """5,000 images of many kinds, one in a hundred damaged, some twice; a network, in FP32."""
    src, model = tmp_path / "images", tmp_path / "model"
    src.mkdir()
    kinds: list[dict[str, Any]] = [{}, {"progressive": True}, {"quality": 60}, {"mode": "L"}]
    for seed in range(5000):
        width, height = 64 + seed % 300, 48 + seed % 200
        data = making.jpeg(width, height, seed % 4900, **kinds[seed % 4])
        data = data[:-40] if seed % 100 == 7 else data
        (src / f"{seed:04}.jpg").write_bytes(data)
    tiny_model(model)
    settings = {"model": model, "shard": 400, "device": "cpu", "dtype": "fp32"}
    outputs = {}
    for out, more in (("one", {}), ("cluster", {"cluster": "local", "workers": 1})):
        outputs[out] = finish(start(src, tmp_path / out, {**settings, **more}))
    in_one_process = content(tmp_path / "one")
    on_cluster = content(tmp_path / "cluster")
    assert len(in_one_process.failures) == 50
    assert on_cluster == in_one_process
    assert "actors of 1 CPUs: a core prepares" in outputs["cluster"]
    assert "of the estimate; actors worked" in outputs["cluster"]


def turned_and_wide(src: Path, seeds: Sequence[int]) -> Path:
    """Images that a crop cuts, some of which lie on their side; thumbnails are made of all."""
    src.mkdir()
    for seed in seeds:
        sides = {"width": 640 + seed % 40, "height": 400 + seed % 100}
        data = making.oriented(1 + seed % 8, seed=seed, quality=90, **sides)
        (src / f"{seed:04}.jpg").write_bytes(data)
    return src


def files_of(out: Path) -> dict[str, bytes]:
    """Of all parts: vectors, failures and thumbnails."""
    paths = [path for path in out.rglob("part-*") if path.is_file()]
    return {str(path.relative_to(out)): path.read_bytes() for path in paths}


@needs_ray
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_model_that_crops(nodes: Nodes, tmp_path: Path) -> None:
    """Its driver killed, then with `reuse=`: the files of one process, thumbnails too."""
    families = pytest.importorskip("tests.families")
    (tmp_path / "model").mkdir()
    families.FAMILIES["dinov2"](tmp_path / "model")
    settings = {"model": tmp_path / "model", "shard": 10, "device": "cpu", "dtype": "fp32"}
    settings["keep"] = "thumbnails"
    on_cluster = {**settings, "cluster": nodes.address, "workers": 1}
    src, alone, together = tmp_path / "images", tmp_path / "alone", tmp_path / "together"
    turned_and_wide(src, range(200))
    finish(start(src, alone, settings))
    about = json.loads((alone / "_dataset.json").read_text(encoding="utf-8"))
    geometry = "shortest:256,crop:224x224,bicubic,rotate"
    assert about["identity"]["recipe"]["preprocess"] == geometry
    process = start(src, together, on_cluster)
    while process.poll() is None and not list(together.glob("part-*")):
        time.sleep(0.005)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert 0 < len(list(together.glob("part-*"))) < 20, "killed in between"
    finish(start(src, together, on_cluster))
    made = files_of(alone)
    assert len([name for name in made if name.startswith("_thumbnails/")]) == 20
    assert files_of(together) == made
    # Of the next folder five images are other ones, and every part begins elsewhere.
    newer = turned_and_wide(tmp_path / "newer", range(5, 205))
    again, fresh = tmp_path / "again", tmp_path / "fresh"
    output = finish(start(newer, again, {**on_cluster, "reuse": together}))
    finish(start(newer, fresh, settings))
    assert files_of(again) == files_of(fresh)
    assert "195 duplicates" in output
