"""Ray Data as its guide to images and batch inference has it: read_images, map_batches, Parquet.

https://docs.ray.io/en/latest/data/working-with-images.html

`size=` makes the reading tasks resize, so that 150 KB an image go to the model instead of whole
pictures. What the model does with uint8 is the mock's.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from experiments.cluster.systems import _ray
from experiments.cluster.systems._task import Task, embed, run


class _Model:
    """The mock, in an actor."""

    def __init__(self, task: Task) -> None:
        self._task = task

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Paths and uint8 (n, px, px, 3) → ids and vectors."""
        ids = [Path(path).stem for path in batch["path"]]
        return {"id": ids, "vector": embed(batch["image"], self._task)}


def job(task: Task) -> Mapping[str, Any]:
    """Embed the list."""
    with _ray.session(task) as ray:
        import pyarrow.parquet as pq

        paths = pq.read_table(task.source)["path"].to_pylist()
        size = (task.px, task.px)
        images = ray.data.read_images(paths, mode="RGB", size=size, include_paths=True)
        _ray.write_vectors(images, _Model, task)
        return _ray.report(ray, f"read_images(size={task.px}), one actor")


if __name__ == "__main__":
    run(job)
