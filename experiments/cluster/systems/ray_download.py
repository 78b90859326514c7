"""Ray Data as its own release benchmark has it: download(), decode and transform in map, an actor.

https://github.com/ray-project/ray/tree/master/release/nightly_tests/multimodal_inference_benchmarks

float32 goes to the model, normalized in the tasks, as there. The list is cut into blocks for all
CPUs: its Parquet file would be one.
"""

import io
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

import wallclock
from experiments.cluster.systems import _ray
from experiments.cluster.systems._task import Task, embed, is_scaled, run
from wallclock.recipe import IMAGENET_MEAN, IMAGENET_STD

_BLOCKS_PER_CPU = 4


def decode(row: dict[str, Any]) -> dict[str, Any]:
    """Bytes → the whole picture."""
    from PIL import Image

    with Image.open(io.BytesIO(row.pop("bytes"))) as image:
        row["image"] = np.asarray(image.convert("RGB"))
    return row


def decode_scaled(row: dict[str, Any], px: int) -> dict[str, Any]:
    """Bytes → the picture at its final size, which `transform` leaves as it is."""
    row["image"] = wallclock.decode(row.pop("bytes"), px)
    return row


def transform(row: dict[str, Any], px: int) -> dict[str, Any]:
    """The whole picture → float32 (3, px, px), normalized."""
    from PIL import Image

    picture = Image.fromarray(row.pop("image")).resize((px, px), Image.Resampling.BILINEAR)
    mean, std = (np.array(values, np.float32) for values in (IMAGENET_MEAN, IMAGENET_STD))
    pixels = (np.asarray(picture, np.float32) / np.float32(255) - mean) / std
    row["norm_image"] = np.ascontiguousarray(pixels.transpose(2, 0, 1))
    return row


class _Model:
    """The mock, in an actor."""

    def __init__(self, task: Task) -> None:
        self._task = task

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Ids and float32 (n, 3, px, px) → ids and vectors."""
        images = batch["norm_image"]
        if self._task.pixels:
            mean, std = (np.array(values, np.float32) for values in (IMAGENET_MEAN, IMAGENET_STD))
            pixels = (images.transpose(0, 2, 3, 1) * std + mean) * 255
            images = pixels.round().clip(0, 255).astype(np.uint8)
        return {"id": batch["id"], "vector": embed(images, self._task)}


def job(task: Task) -> Mapping[str, Any]:
    """Embed the list."""
    with _ray.session(task) as ray:
        import pyarrow.parquet as pq
        from ray.data.expressions import download

        rows = pq.read_table(task.source).to_pylist()
        blocks = _BLOCKS_PER_CPU * task.cpus
        listed = ray.data.from_items(rows, override_num_blocks=blocks)
        function = partial(decode_scaled, px=task.px) if is_scaled() else decode
        decoded = listed.with_column("bytes", download("path")).map(function)
        transformed = decoded.map(partial(transform, px=task.px))
        _ray.write_vectors(transformed, _Model, task)
        how = "wallclock.decode" if is_scaled() else "Pillow"
        return _ray.report(ray, f"download(), map, {how}, one actor, {blocks} blocks")


if __name__ == "__main__":
    run(job)
