"""What a job is given, what it reports, and the mock model that all of them have."""

import json
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

#: The word after the task that makes another system decode by `wallclock.decode`.
SCALED = "scaled"


@dataclass(frozen=True)
class Task:
    """One job. `source`: a Parquet file with `id` and `path`; `out`: a folder for Parquet files.

    `pixels`: a vector is the whole picture, to compare it. `max_errored_blocks`: of Ray Data, -1
    for any number.
    """

    source: str
    out: str
    px: int
    dim: int
    batch: int
    cpus: int
    shard: int
    object_store_mib: int
    pixels: bool = False
    max_errored_blocks: int = 0

    @property
    def stamps(self) -> Path:
        """The file to which the model adds the time and the size of every batch."""
        return Path(f"{self.out}.stamps")


def embed(images: Any, task: Task) -> npt.NDArray[np.float32]:
    """The mock model: pictures (n, …) → (n, dim) float32, components of the middle, or all."""
    with task.stamps.open("a", encoding="ascii") as file:
        file.write(f"{time.time()} {len(images)}\n")
    flat = np.asarray(images).reshape(len(images), -1)
    dim = flat.shape[1] if task.pixels else task.dim
    start = (flat.shape[1] - dim) // 2
    return flat[:, start : start + dim].astype(np.float32)


def is_scaled() -> bool:
    """Whether this process's command line says so."""
    return SCALED in sys.argv[2:]


def run(job: Callable[[Task], Mapping[str, Any]]) -> None:
    """Run the job of the command line; print what it reports as a line of JSON."""
    report = job(Task(**json.loads(sys.argv[1])))
    print(json.dumps(dict(report)), flush=True)
