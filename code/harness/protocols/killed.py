"""Protocol `killed`: the job of `cluster` on two nodes, killed at random moments.

Each node has one CPU of this machine. Where the command ends, it is run again.
"""

import time
import zlib
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness import provenance
from harness.protocols import protocol
from harness.protocols.cluster import command_of, last_line, list_images, rows, task_of
from harness.protocols.protocol import Measurement, Progress
from harness.spec import Cell
from harness.systems import SYSTEMS
from harness.testbed import killing, ray_nodes
from wallclock.machine import usable_cores

#: For a worker to appear that can be killed.
_APPEARS_S = 30.0
#: Moments that are drawn for a kill, at most: a job may end earlier than the undisturbed one.
_TRIES = 3


def killed(cell: Cell, work: Path, progress: Progress) -> Measurement:
    """The job on two nodes of one CPU each, killed at random moments (`testbed.killing`).

    Values: `kills`, for each victim `rounds` with a kill of `attempts`, `missing`, `doubled`,
    `different` images, `aborted` reasons, `lost_s` of each of those rounds; `job_s` without a kill.
    """
    params, system = cell.params, SYSTEMS[cell.params["system"]]
    system.check()
    manifest = protocol.open_corpus(cell, "jpeg")
    values: dict[str, Any] = {"cores": usable_cores(), "n_images": params["n"]}
    listed = list_images(manifest, params["n"], work / "images")
    task = replace(task_of(cell, work, listed, params["n"]), service_ms=params["service_ms"])
    env = {"PYTHONPATH": str(provenance.CODE), **ray_nodes.HEALTH}
    with ExitStack() as stack:
        nodes = None
        if "node" in system.victims:
            nodes = stack.enter_context(ray_nodes.start(env))
            task = replace(task, address=nodes.address, cpus=1)
        job = killing.Job(
            lambda out: command_of(system, replace(task, out=str(out))),
            rows,
            env=env,
            limit_s=params["limit_s"],
        )
        undisturbed = killing.run_undisturbed(job, work / "undisturbed")
        values |= {"job_s": undisturbed.seconds, "kills": {}}
        for done, victim in enumerate(system.victims, 1):
            killed_job = replace(job, victim=_killer(victim, nodes))
            values["kills"][victim] = _kills(killed_job, work / victim, params, undisturbed)
            progress(done)
    return Measurement({}, values)


def _kills(
    job: killing.Job, folder: Path, params: Mapping[str, Any], undisturbed: killing.Undisturbed
) -> dict[str, Any]:
    """Kill the job `params.rounds` times; a moment after its end is drawn again."""
    total: dict[str, Any] = {
        "missing": 0,
        "doubled": 0,
        "different": 0,
        "rounds": 0,
        "aborted": [],
        "lost_s": [],
        "attempts": 0,
    }
    rounds = params["rounds"]
    while total["rounds"] < rounds and total["attempts"] < rounds * _TRIES:
        number = total["attempts"]
        out = folder / str(number)
        out.mkdir(parents=True)
        seed = zlib.crc32(f"{params['seed']} {params['system']} {folder.name} {number}".encode())
        report = killing.kill_at_random(job, out, seed, rounds=1, kills=1, undisturbed=undisturbed)
        for name in ("missing", "doubled", "different"):
            total[name] += len(getattr(report, name))
        total["aborted"] += map(last_line, report.aborted)
        total["lost_s"] += report.lost_s
        total["rounds"] += report.kills.total()
        total["attempts"] += 1
    return total


def _killer(victim: str, nodes: ray_nodes.Nodes | None) -> Any:
    """What kills that part of a job; None: the driver, with all of its process group."""
    if victim == "driver" or nodes is None:
        return None

    def kill(driver: int) -> None:
        if victim == "node":
            nodes.kill_node()
            nodes.add()
            return
        deadline = time.monotonic() + _APPEARS_S
        workers = nodes.processes("ray::MapWorker")
        while not workers and time.monotonic() < deadline:
            time.sleep(0.1)
            workers = nodes.processes("ray::MapWorker")
        if workers:
            workers[0].kill()

    return kill
