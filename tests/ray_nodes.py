"""A Ray cluster of several nodes on this machine, whose processes can be killed.

`python -m tests.ray_nodes N` is the cluster: a head without a CPU and N nodes of one
each; it adds a node for every line on standard input and ends with it.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import psutil

#: A node that is gone is noticed within seconds; of the cluster and of its jobs.
HEALTH = {
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "500",
    "RAY_health_check_failure_threshold": "3",
}
_STORE_BYTES = 80_000_000


class Nodes:
    """A cluster in a process of its own."""

    def __init__(self, process: Any) -> None:
        self._process = process
        self.address = process.stdout.readline().strip()
        assert self.address, "no cluster"

    def add(self) -> None:
        """Start another node."""
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "added\n"

    @contextmanager
    def joined(self, env: Mapping[str, str], hidden: str = "") -> Iterator[None]:
        """Another node with its own environment, which does not see a folder."""
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--num-cpus=1"]
        command += [f"--address={self.address}", f"--object-store-memory={_STORE_BYTES}"]
        if hidden:
            hide = 'mount -t tmpfs none "$0" && exec "$@"'
            command = ["unshare", "--mount", "sh", "-c", hide, hidden, *command]
        environment = {**os.environ, **HEALTH, **env}
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env=environment, start_new_session=True
        ) as process:
            try:
                assert process.stdout is not None
                assert any("Ray runtime started" in line for line in process.stdout), "no node"
                yield
            finally:
                for child in psutil.Process(process.pid).children(recursive=True):
                    with suppress(psutil.Error):
                        child.kill()
                process.kill()

    def processes(self, title: str) -> list[psutil.Process]:
        """Of the cluster, those whose command line has the words."""
        matches = []
        for process in psutil.Process(self._process.pid).children(recursive=True):
            with suppress(psutil.Error):
                if title in " ".join(process.cmdline()):
                    matches.append(process)
        return matches

    def kill_node(self) -> None:
        """End a raylet, whose workers end when it is gone."""
        for raylet in self.processes("raylet/raylet"):
            if "--head" not in raylet.cmdline():
                raylet.kill()
                return
        raise RuntimeError("the cluster has no node beside its head")


@contextmanager
def start(env: Mapping[str, str], nodes: int = 2) -> Iterator[Nodes]:
    """The cluster while the block runs."""
    command = [sys.executable, "-m", __name__, str(nodes)]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=dict(os.environ) | HEALTH | dict(env),
        start_new_session=True,
    ) as process:
        try:
            yield Nodes(process)
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def main(count: int) -> None:
    """Be the cluster."""
    from ray.cluster_utils import Cluster

    nodes: Any = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 0, "object_store_memory": _STORE_BYTES}
    )
    for _ in range(count):
        nodes.add_node(num_cpus=1, object_store_memory=_STORE_BYTES)
    print(nodes.address, flush=True)
    for _ in sys.stdin:
        nodes.add_node(num_cpus=1, object_store_memory=_STORE_BYTES)
        print("added", flush=True)
    nodes.shutdown()


if __name__ == "__main__":
    main(int(sys.argv[1]))
