"""Daft as its guide to images has it: url.download, image.decode, image.resize, a batch UDF.

https://docs.daft.ai/en/stable/modalities/images/

A damaged file becomes a null (`on_error="null"`), which is left out before the model. The mode
`overwrite` leaves no row twice where the same command runs again. `into_batches` bounds how many
whole pictures are in memory, and lets the steps overlap.
"""

import os
from collections.abc import Callable, Mapping
from typing import Any

import wallclock
from experiments.cluster.systems._task import Task, embed, is_scaled, run
from wallclock.errors import ImageError

#: Nothing is sent to the vendor.
_QUIET = {"DO_NOT_TRACK": "true", "SCARF_NO_ANALYTICS": "true", "DAFT_PROGRESS_BAR": "0"}


def job(task: Task) -> Mapping[str, Any]:
    """Embed the list."""
    os.environ.update(_QUIET)
    import daft
    from daft import DataType, Series, col

    daft.set_runner_native()
    dim = 3 * task.px**2 if task.pixels else task.dim

    def forward(images: Series) -> Any:
        flat = images.to_arrow().storage.flatten().to_numpy()
        return embed(flat.reshape(len(images), -1), task)

    vector = DataType.fixed_size_list(DataType.float32(), dim)
    model = daft.func.batch(return_dtype=vector, batch_size=task.batch)(forward)
    fixed = DataType.image("RGB", task.px, task.px)
    data = col("path").download(on_error="null")
    if is_scaled():
        shrink = daft.func.batch(return_dtype=fixed, batch_size=task.batch)(_decode(task.px))
        picture = shrink(data)
    else:
        decoded = data.decode_image(on_error="null", mode="RGB")
        picture = decoded.resize(task.px, task.px).cast(fixed)
    images = (
        daft.read_parquet(task.source)
        .into_batches(task.batch)
        .with_column("image", picture)
        .where(col("image").not_null())
    )
    vectors = images.select("id", model(col("image")).alias("vector"))
    vectors.write_parquet(task.out, write_mode="overwrite")
    how = "wallclock.decode" if is_scaled() else "decode_image, resize"
    return {"library": f"daft {daft.__version__}", "settings": f"native runner, {how}"}


def _decode(px: int) -> Callable[[Any], list[Any]]:
    """From a series of files to their pictures; None for one that is damaged."""

    def decode(files: Any) -> list[Any]:
        pictures: list[Any] = []
        for data in files.to_pylist():
            try:
                pictures.append(wallclock.decode(data, px))
            except ImageError:
                pictures.append(None)
        return pictures

    return decode


if __name__ == "__main__":
    run(job)
