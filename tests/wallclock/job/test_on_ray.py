"""The job on Ray: what survives a kill, and bad nodes beside good ones.

Ray runs in processes of its own: a cluster of small logical nodes, and the command.
"""

import os
import random
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests import making, ray_nodes
from tests.conftest import ROOT
from tests.families import FAMILIES
from tests.ray_nodes import Nodes
from tests.running import start_python
from tests.wallclock.job.conftest import QUICK, Content, N, content

ROUNDS = int(os.environ.get("WALLCLOCK_KILLS", "2"))
needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="make setup-cluster")
ENV = {"PYTHONPATH": f"{ROOT / 'code'}:{ROOT}", "RAY_DEDUP_LOGS": "0", **ray_nodes.HEALTH}


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    with ray_nodes.start(ENV) as cluster:
        yield cluster


def start(src: Path | str, out: Path | str, settings: dict[str, Any]) -> "subprocess.Popen[str]":
    words = [f"{name}={value}" for name, value in settings.items()]
    command = ("-m", "wallclock", "embed", src, out, *words)
    return start_python(*command, env=ENV, stderr=subprocess.STDOUT)


def finish(process: "subprocess.Popen[str]") -> str:
    with process:
        output = process.communicate(timeout=600)[0]
    assert process.returncode == 0, output
    return output


SLOW: dict[str, Any] = {**QUICK, "shard": 2, "service_ms": 300}
PARTS = -(-N // SLOW["shard"])


def kill_actor(nodes: Nodes, driver: int) -> bool:
    actors = nodes.processes("ray::Actor")
    for actor in actors[:1]:
        actor.kill()
    return bool(actors)


def kill_node(nodes: Nodes, driver: int) -> bool:
    """Another node comes at the next round."""
    nodes.kill_node()
    return True


def end_driver(how: signal.Signals, nodes: Nodes, driver: int) -> bool:
    os.killpg(driver, how)
    return True


kill_driver = partial(end_driver, signal.SIGKILL)
interrupt_driver = partial(end_driver, signal.SIGINT)
terminate_driver = partial(end_driver, signal.SIGTERM)


@needs_ray
@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize(
    "kill",
    [kill_actor, kill_node, kill_driver, interrupt_driver, terminate_driver],
    ids=["actor", "node", "driver", "interrupt", "terminate"],
)
def test_nothing_is_lost_or_doubled(
    kill: Callable[[Nodes, int], bool], nodes: Nodes, images: Path, tmp_path: Path
) -> None:
    """WALLCLOCK_KILLS rounds, each with a kill at a random moment between first and last part.

    The files of all parts have the bytes that one process writes.
    """
    finish(start(images, tmp_path / "alone", {**SLOW, "service_ms": 0}))
    alone = files_of(tmp_path / "alone")
    ends_driver = kill not in (kill_actor, kill_node)
    rng, killed = random.Random(ROUNDS), 0
    for number in range(ROUNDS):
        out, moment = tmp_path / f"{number}", rng.randrange(PARTS - 2)
        settings = {**SLOW, "cluster": nodes.address, "workers": 1}
        process = start(images, out, settings)
        began = time.monotonic()
        while process.poll() is None and len(list(out.glob("part-*"))) <= moment:
            time.sleep(0.02)
        time.sleep(rng.uniform(0, 0.6))
        killed += kill(nodes, process.pid)
        print(f"killed after {time.monotonic() - began:.1f} s, {moment + 1} parts", end="")
        if ends_driver:
            assert "Traceback" not in process.communicate()[0]
            process = start(images, out, settings)
        finish(process)
        print(f", complete after {time.monotonic() - began:.1f} s", flush=True)
        assert files_of(out) == alone
        left = {path.name for path in out.glob(".*")}
        assert left == {".huggingface.yaml", ".lock", ".publishing"}
        if kill is kill_node:
            nodes.add()
    assert killed == ROUNDS


#: Keeps the package from a process that finds it on the path.
NO_PACKAGE = """
import sys
class Missing:
    def find_spec(name, path=None, target=None):
        if name == "wallclock":
            raise ModuleNotFoundError("No module named 'wallclock'", name=name)
sys.meta_path.insert(0, Missing)
"""


@pytest.fixture
def bad_node(
    request: pytest.FixtureRequest, nodes: Nodes, images: Path, tmp_path: Path
) -> Iterator[str]:
    """Beside two good nodes; why it is left out."""
    env, hidden = dict(ENV), ""
    if request.param == "blind":
        hidden, why = str(images), "it cannot read .*: read: No such file or directory"
        if subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode:
            pytest.skip("no mount namespace of its own may be made here")
    else:
        (tmp_path / "sitecustomize.py").write_text(NO_PACKAGE)
        env["PYTHONPATH"] = str(tmp_path)
        why = "it has no module wallclock; install the same lock there"
    with nodes.joined(env, hidden):
        yield why


def check_left_out(output: str, why: str) -> None:
    """One line says so of one node, and nothing of Ray's is on the screen."""
    assert len(re.findall(f"node .* is left out: {why}", output)) == 1, output
    assert all(line.startswith("wallclock: ") for line in output.splitlines()[:-1]), output


@needs_ray
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("bad_node", ["blind", "no package"], indirect=True)
def test_a_bad_node_beside_good_ones(
    bad_node: str, nodes: Nodes, images: Path, reference: Content, tmp_path: Path
) -> None:
    settings = {**SLOW, "cluster": nodes.address, "workers": 1}
    output = finish(start(images, tmp_path / "out", settings))
    assert content(tmp_path / "out") == reference
    check_left_out(output, bad_node)


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
    FAMILIES["vit"](model)
    settings = {"model": model, "shard": 400, "device": "cpu", "runtime": "pytorch"}
    outputs = {}
    for out, more in (("one", {}), ("cluster", {"cluster": "local", "workers": 1})):
        outputs[out] = finish(start(src, tmp_path / out, {**settings, **more}))
    in_one_process = content(tmp_path / "one")
    on_cluster = content(tmp_path / "cluster")
    assert len(in_one_process.failures) == 50
    assert on_cluster == in_one_process
    assert "an actor did " in outputs["cluster"]


def files_of(out: Path) -> dict[str, bytes]:
    """Of all parts: vectors and failures."""
    paths = [path for path in out.rglob("part-*") if path.is_file()]
    return {str(path.relative_to(out)): path.read_bytes() for path in paths}
