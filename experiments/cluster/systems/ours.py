"""`wallclock embed` in one process, or on Ray (`job/runner/cluster.py`)."""

import sys
from collections.abc import Mapping
from functools import partial
from typing import Any

from rich.console import Console

from experiments.cluster.systems._task import Task, run
from wallclock.job import embed

#: The word after the task that makes it a job on Ray.
ON_RAY = "ray"


def job(task: Task, on_ray: bool) -> Mapping[str, Any]:
    """Embed the list."""
    settings: dict[str, Any] = {
        "model": "null",
        "device": "cpu",
        "deduplicate": False,
        "batch": task.batch,
        "shard": task.shard,
    }
    start = partial(embed, task.source, task.out, console=Console(stderr=True), **settings)
    parts = f"{task.shard} images to a part"
    if not on_ray:
        start(workers=task.cpus)
        return {"library": "", "settings": f"{task.cpus} threads, {parts}"}
    from experiments.cluster.systems import _ray

    with _ray.session(task) as ray:
        start(cluster="auto")
        return _ray.report(ray, parts)


if __name__ == "__main__":
    run(partial(job, on_ray=ON_RAY in sys.argv[2:]))
