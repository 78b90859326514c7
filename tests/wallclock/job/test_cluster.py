"""The job on a cluster: what is committed once, what is made again, which nodes are left out."""

import io
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from tests.conftest import ROOT
from tests.fake_ray import LostError
from tests.wallclock.job.conftest import DAMAGED, QUICK, Content, N, Ray, World, content
from wallclock.errors import ImageError, SourceError, UserError
from wallclock.fetch.sources import SourceReader
from wallclock.infer.network import open_embedder
from wallclock.job import Outcome, embed
from wallclock.job.identity import versions
from wallclock.job.run import Tally
from wallclock.job.runner import cluster, node
from wallclock.job.stores.folder import Folder


def test_without_ray_it_is_one_line(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "find_spec", lambda name: None)
    for address, why in (
        ("local", "cluster=local needs Ray: make setup-cluster, or"),
        ("ray://head:10001", "cluster=ray://head:10001: run it on a node, with cluster=auto"),
    ):
        with pytest.raises(UserError, match=f"^{why}"):
            embed(images, tmp_path / "out", **QUICK, cluster=address)
    assert not (tmp_path / "out").exists()


class Run:
    """`embed` on a cluster that is there already; what it prints."""

    def __init__(self, out: Path) -> None:
        self.out, self._file = out, io.StringIO()

    def __call__(self, src: Path, **settings: Any) -> Outcome:
        console = Console(file=self._file, width=500)
        return embed(src, self.out, console=console, **{**QUICK, "cluster": "auto", **settings})

    @property
    def lines(self) -> list[str]:
        return [line.removeprefix("wallclock: ") for line in self._file.getvalue().splitlines()]


@pytest.fixture
def on_cluster(tmp_path: Path) -> Run:
    return Run(tmp_path / "out")


def losing(lost: Callable[[str, str, Sequence[int]], bool]) -> Callable[..., Any]:
    """A node loses the actors of these calls before they do anything."""

    @contextmanager
    def around(host: str, method: str, given: tuple[Any, ...]) -> Iterator[None]:
        if lost(host, method, given[0]):
            raise LostError("The actor died.\nWorker exit type: SYSTEM_ERROR.")
        yield

    return around


def test_what_is_lost_is_made_again(
    ray: Ray, on_cluster: Run, images: Path, reference: Content
) -> None:
    fake, tries = ray(a=1, b=1), Counter[int]()

    def lost(host: str, method: str, shards: Sequence[int]) -> bool:
        tries.update(shards if method == "embed" else [])
        return method == "embed" and tries[shards[0]] < 3

    fake.around = losing(lost)
    outcome = on_cluster(images)
    assert content(on_cluster.out) == reference
    assert (outcome.tally.images, outcome.tally.n_failed) == (N - DAMAGED, DAMAGED)
    assert sum(outcome.tally.wait_s.values()) <= outcome.tally.wall_s
    assert tries == {0: 3, 1: 3, 2: 3}
    first, *lines, last = on_cluster.lines
    assert first == "2 actors on 2 CPUs; 3 parts to make"
    assert len(lines) == 6
    assert all(re.match(r"an actor on . \(.\) was lost; parts to make again: 1", x) for x in lines)
    assert last.startswith("an actor did ")
    assert not list(on_cluster.out.glob(".cluster"))


def test_a_part_over_which_actors_crash_is_named(ray: Ray, on_cluster: Run, images: Path) -> None:
    fake = ray(a=1, b=1)
    fake.around = losing(lambda host, method, shards: method == "embed" and 1 in shards)
    why = (
        r"^3 actors were lost while they made part-00001.parquet, the last on . \(.\): Worker exit"
    )
    with pytest.raises(UserError, match=why):
        on_cluster(images)
    assert sorted(fake.shards("a") + fake.shards("b")) == [0, 1, 1, 1, 2]


def test_a_node_on_which_no_actor_starts(
    ray: Ray, on_cluster: Run, images: Path, reference: Content
) -> None:
    fake = ray(a=1, b=1)
    fake.around = losing(lambda host, method, _: (host, method) == ("a", "start"))
    on_cluster(images)
    assert content(on_cluster.out) == reference
    why = "its actors crash when they start: Worker exit type: SYSTEM_ERROR."
    assert on_cluster.lines[:3] == ["an actor on a (a) was lost when it started"] * 3
    assert on_cluster.lines[3] == f"node a (a) is left out: {why}"


def test_a_node_that_joins_is_used(
    ray: Ray, on_cluster: Run, images: Path, reference: Content
) -> None:
    fake = ray(a=1)

    def join(host: str, method: str, given: Any) -> Any:
        fake.cpus["b"] = 1
        return nullcontext()

    fake.around = join
    on_cluster(images, shard=4)
    assert content(on_cluster.out) == replace(reference, failures=content(on_cluster.out).failures)
    assert fake.shards("b")
    assert not any("left out" in line for line in on_cluster.lines), "its last file is empty"


def test_nothing_is_left_to_make(ray: Ray, on_cluster: Run, images: Path) -> None:
    """The driver was killed, its actors went on to the last part."""
    fake = ray(a=1)
    on_cluster(images)
    about = on_cluster.out / "_dataset.json"
    about.write_text(about.read_text().replace('"complete": true', '"complete": false'))
    assert on_cluster(images).tally == Tally()
    assert fake.shards("a") == [0, 1, 2]


def test_too_many_failures_over_all_shards(ray: Ray, on_cluster: Run, images: Path) -> None:
    ray(a=1)
    with pytest.raises(UserError, match=r"more than max_failures=1 images failed"):
        on_cluster(images, max_failures=1)


def test_an_outage_ends_the_run_and_actors_take_up_the_rest(
    world: World, ray: Ray, on_cluster: Run, images: Path, reference: Content
) -> None:
    """A call makes new parts, and then those that were not whole anew."""
    fake = ray(a=1)
    world.change("03.jpg")

    @contextmanager
    def ends(host: str, method: str, given: Any) -> Iterator[None]:
        if method == "embed" and world.gives_up_after is None:
            world.gives_up_after = len(world.read) + 20
        yield

    fake.around = ends
    assert on_cluster(images).unreached
    assert fake.shards("a") == [0, 1, 2]
    assert "is left out: it reached nothing, as" in on_cluster.lines[1]
    fake = ray(a=1)
    world.change()
    assert not on_cluster(images).unreached
    assert fake.shards("a") == [2, 0, 1]
    assert content(on_cluster.out).rows == reference.rows


@pytest.fixture
def only_on(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """A change of this process while a node's calls run, or those of one method."""

    def around(
        host: str, change: Callable[[pytest.MonkeyPatch], object], method: str = ""
    ) -> Callable[..., Any]:
        @contextmanager
        def changed(at: str, called: str, _: Any) -> Iterator[None]:
            with monkeypatch.context() as patch:
                if at == host and method in ("", called):
                    change(patch)
                yield

        return changed

    return around


def blind(patch: pytest.MonkeyPatch) -> None:
    def read(reader: SourceReader, item: Any) -> bytes:
        raise ImageError("read", "No such file or directory")

    patch.setattr(SourceReader, "__call__", read)


def stale(patch: pytest.MonkeyPatch) -> None:
    read = SourceReader.__call__
    patch.setattr(SourceReader, "__call__", lambda reader, item: read(reader, item) + b"\0")


def unshared(patch: pytest.MonkeyPatch) -> None:
    def read(folder: Folder, name: str) -> bytes:
        raise FileNotFoundError(name)

    patch.setattr(Folder, "read", read)


def read_only(patch: pytest.MonkeyPatch) -> None:
    def write(folder: Folder, name: str, data: bytes) -> None:
        raise OSError(30, "Read-only file system")

    patch.setattr(Folder, "write", write)


def other_version(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(node, "versions", lambda: {**versions(), "numpy": "1.0"})


def other_code(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(node, "_code_digest", lambda: "another")


def other_weights(patch: pytest.MonkeyPatch) -> None:
    def opened(*given: Any) -> Any:
        return replace(open_embedder(*given), weights_digest="another")

    patch.setattr(node, "open_embedder", opened)


def no_torch(patch: pytest.MonkeyPatch) -> None:
    def missing(*given: Any) -> Any:
        raise ModuleNotFoundError("No module named 'torch'")

    patch.setattr(node, "open_embedder", missing)


def no_package(patch: pytest.MonkeyPatch) -> None:
    raise LostError("The actor died in its creation task\nNo module named 'wallclock'\n")


TROUBLES: dict[Callable[[pytest.MonkeyPatch], None], str] = {
    blind: r"it cannot read .*: read: No such file or directory; give each node SRC",
    stale: r"its images have other bytes than the driver's; share one SRC",
    unshared: r"its .*/out is not the driver's; share the folder",
    read_only: r"it cannot write to OUT: .*Read-only file system",
    other_version: r"it has numpy 1.0, the driver .*; install the same lock",
    other_code: r"its code of wallclock is not the driver's; install the same commit",
    other_weights: r"its weights are not the driver's; set a revision",
    no_torch: r"it cannot open the model: No module named 'torch'",
    no_package: r"it has no module wallclock; install the same lock there",
}


@pytest.mark.parametrize(("trouble", "host"), [*zip(TROUBLES, "ababababa", strict=True)])
def test_a_node_that_cannot_do_the_job_is_left_out(
    trouble: Callable[[pytest.MonkeyPatch], None],
    host: str,
    ray: Ray,
    only_on: Callable[..., Any],
    on_cluster: Run,
    images: Path,
    reference: Content,
) -> None:
    """In one line that names it; the other one makes all."""
    fake = ray(a=1, b=1)
    fake.around = only_on(host, trouble)
    on_cluster(images)
    assert content(on_cluster.out) == reference
    assert fake.shards(host) == []
    said = [line for line in on_cluster.lines if "left out" in line]
    assert len(said) == 1
    assert re.match(rf"node {host} \({host}\) is left out: {TROUBLES[trouble]}", said[0])


def test_no_node_can_do_the_job(
    ray: Ray, only_on: Callable[..., Any], on_cluster: Run, images: Path
) -> None:
    ray(a=1).around = only_on("a", other_code)
    why = r"^cluster=auto: no node can work; node a \(a\) is left out: its code of wallclock"
    with pytest.raises(UserError, match=why):
        on_cluster(images)
    assert not list(on_cluster.out.glob("part-*"))


def test_a_node_is_left_out_with_all_its_actors(
    ray: Ray, only_on: Callable[..., Any], on_cluster: Run, images: Path, reference: Content
) -> None:
    """What the others had in work is made elsewhere."""
    fake = ray(a=2, b=1)

    def second_has_other_code(patch: pytest.MonkeyPatch) -> None:
        if [(at, what) for at, what, _ in fake.calls].count(("a", "start")) > 1:
            other_code(patch)

    fake.around = only_on("a", second_has_other_code)
    on_cluster(images, workers=1)
    assert content(on_cluster.out) == reference
    assert len([line for line in on_cluster.lines if "left out" in line]) == 1
    assert sorted(fake.shards("b")) == [0, 1, 2]


def test_a_node_that_goes_blind(
    ray: Ray, only_on: Callable[..., Any], on_cluster: Run, images: Path, reference: Content
) -> None:
    """Of what it could not read nothing is committed."""
    fake = ray(a=1, b=1)
    fake.around = only_on("a", blind, "embed")
    outcome = on_cluster(images)
    assert content(on_cluster.out) == reference
    assert outcome.tally.n_failed == DAMAGED
    assert fake.shards("a")
    assert [line for line in on_cluster.lines if "left out" in line] == [
        "node a (a) is left out: it read no image of a part that the driver can read"
    ]


def test_images_that_are_nowhere_have_failed(ray: Ray, on_cluster: Run, images: Path) -> None:
    """A part of which neither a node nor the driver can read an image."""
    fake = ray(a=1, b=1)
    src = on_cluster.out.parent / "list.txt"
    src.write_text("".join(f"{images}/{n:02}.jpg\n" for n in (*range(16), *range(60, 76))))
    outcome = on_cluster(src)
    assert (outcome.counts["vectors"], outcome.counts["failures"]) == (16, 16)
    assert sorted(fake.shards("a") + fake.shards("b")) == [0, 1, 1]
    assert not any("left out" in line for line in on_cluster.lines)


def test_the_driver_must_read_src(
    ray: Ray, on_cluster: Run, images: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = ray(a=1)
    blind(monkeypatch)
    with pytest.raises(UserError, match=r"^this machine can read no image of SRC, "):
        on_cluster(images)
    assert not fake.calls


def test_src_and_out_come_before_ray(
    on_cluster: Run, images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None of these starts Ray, of which there is none here."""
    monkeypatch.setattr(cluster, "find_spec", lambda name: name)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(SourceError, match="does not exist"):
        on_cluster(tmp_path / "nothing", cluster="local")
    embed(images, on_cluster.out, **QUICK, deduplicate=False)
    with pytest.raises(UserError, match="only grows"):
        on_cluster(images, cluster="local", deduplicate=False, limit=9)
    with pytest.raises(UserError, match="cannot be written"):
        embed(images, images / "00.jpg" / "out", **QUICK, cluster="local")
    with pytest.raises(ModuleNotFoundError):
        on_cluster(images, cluster="local", deduplicate=False)


@given(n=st.integers(1, 200), actors=st.integers(1, 9), most=st.integers(1, 50))
def test_calls_have_each_shard_once(n: int, actors: int, most: int) -> None:
    """Long ones first; of several actors, all end within a shard."""
    left, calls = [*range(7, 7 + n)], list[Sequence[int]]()
    while left:
        calls.append(cluster.next_call(left, actors, most))
        del left[: len(calls[-1])]
    assert [shard for call in calls for shard in call] == [*range(7, 7 + n)]
    sizes = [len(call) for call in calls]
    assert sizes == sorted(sizes, reverse=True)
    assert max(sizes) <= most
    if actors > 1:
        assert sizes[-min(actors, n) :] == [1] * min(actors, n)


def test_rays_schema_accepts_the_file() -> None:
    ray = find_spec("ray")
    if ray is None or ray.origin is None:
        pytest.skip("make setup-cluster")
    jsonschema = pytest.importorskip("jsonschema")  # Ray brings it
    schema = Path(ray.origin).parent / "autoscaler" / "ray-schema.json"
    cluster = yaml.safe_load((ROOT / "deploy" / "g4dn.yaml").read_text(encoding="utf-8"))
    jsonschema.validate(cluster, json.loads(schema.read_text(encoding="utf-8")))
    nodes = [kind["node_config"] for kind in cluster["available_node_types"].values()]
    assert [node["InstanceType"] for node in nodes] == ["m7i.large", "g4dn.xlarge"]
    assert {node["ImageId"] for node in nodes} == {"AMI_ID"}, "Ray's default is too old"
