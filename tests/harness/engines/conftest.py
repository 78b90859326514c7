"""A corpus of tiny JPEGs, without preparing one."""

from pathlib import Path
from typing import Any

import pytest

from harness.corpora.manifest import Item, Manifest
from harness.engines import pipeline
from harness.processes import set_threads
from harness.spec import Recipe
from tests import making
from wallclock.recipe import ModelSpec

MODEL = ModelSpec("null", "none", input_px=8, dim=16)


def manifest_in(folder: Path, n: int) -> Manifest:
    """`n` JPEGs in a folder, all different."""
    items = []
    for index in range(n):
        data = making.jpeg(16, 12, seed=index)
        (folder / f"{index}.jpg").write_bytes(data)
        name, path = f"image {index}", f"{index}.jpg"
        items.append(Item(name, path, len(data), 16, 12, "", "jpeg", "baseline", 3, 0))
    return Manifest("folder", "original", folder, tuple(items))


def loaded_one_by_one(manifest: Manifest, recipe: Recipe) -> dict[str, Any]:
    """Each image through the loading stages on its own, by id."""
    stages = pipeline.load_stages(recipe, MODEL, manifest)
    return {
        item.id: stages.normalize(stages.resize(item, stages.decode(item, stages.read(item))))
        for item in manifest.items
    }


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    """Thirty tiny JPEGs."""
    return manifest_in(tmp_path_factory.mktemp("tiny"), 30)


@pytest.fixture(autouse=True)
def _single_threaded_libraries() -> None:
    """As every protocol does before a loader forks: OpenCV's threads do not survive a fork."""
    set_threads(Recipe("x"), uses_torch=False)
