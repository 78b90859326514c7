"""Daft as its guide to images has it: url.download, image.decode, image.resize, a batch UDF.

https://docs.daft.ai/en/stable/modalities/images/

A damaged file becomes a null (`on_error="null"`), which is left out before the model. The mode
`overwrite` leaves no row twice where the same command runs again. `into_batches` bounds how many
whole pictures are in memory, and lets the steps overlap.
"""

import os
from collections.abc import Mapping
from typing import Any

from experiments.cluster.systems._task import Task, embed, run

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
    picture = col("path").download(on_error="null").decode_image(on_error="null", mode="RGB")
    fixed = DataType.image("RGB", task.px, task.px)
    images = (
        daft.read_parquet(task.source)
        .into_batches(task.batch)
        .with_column("image", picture.resize(task.px, task.px).cast(fixed))
        .where(col("image").not_null())
    )
    vectors = images.select("id", model(col("image")).alias("vector"))
    vectors.write_parquet(task.out, write_mode="overwrite")
    return {"library": f"daft {daft.__version__}", "settings": "native runner"}


if __name__ == "__main__":
    run(job)
