"""A Ray session of a job, and how much went through its object store."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from experiments.cluster.systems._task import Task
from wallclock.job.runner.cluster import NICENESS

#: Nothing is sent to the vendor, and a job's output is its report alone. All have the same nodes.
_SETTINGS = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DEDUP_LOGS": "0", **NICENESS}


@contextmanager
def session(task: Task) -> Iterator[Any]:
    """Ray on this machine, with the CPUs of the task.

    Small objects travel in messages and are not in the store (Ray: below 100 KB).
    """
    os.environ.update(_SETTINGS)
    import ray
    from ray.data import DataContext

    ray.init(
        address="local",
        num_cpus=task.cpus,
        object_store_memory=task.object_store_mib * 2**20,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
    )
    context = DataContext.get_current()
    context.enable_progress_bars = False
    context.max_errored_blocks = task.max_errored_blocks
    try:
        yield ray
    finally:
        ray.shutdown()


def write_vectors(images: Any, model: type, task: Task) -> None:
    """Images → batches through one actor of the model, `model(task)` → Parquet files.

    The actor has no CPU of its own, as one of a GPU has none. `mode=overwrite`: the same command
    again leaves no row twice.
    """
    from ray.data import ActorPoolStrategy

    vectors = images.map_batches(
        model,
        fn_constructor_args=(task,),
        batch_size=task.batch,
        compute=ActorPoolStrategy(size=1),
        num_cpus=0,
    )
    vectors.write_parquet(task.out, mode="overwrite")


def report(ray: Any, settings: str) -> dict[str, Any]:
    """What a job on Ray reports. `stored_bytes`: of all objects ever put into the object store."""
    api: Any = import_module("ray._private.internal_api")  # untyped; what `ray memory` prints
    state = api.get_state_from_address(ray.get_runtime_context().gcs_address)
    stats = api.get_memory_info_reply(state).store_stats
    return {
        "library": f"ray {ray.__version__}",
        "settings": settings,
        "stored_bytes": int(stats.cumulative_created_bytes),
    }
