"""Every loader behind one interface: its images are the files', in their places."""

import io
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from harness.corpora import folder
from harness.corpora import manifest as manifests
from harness.corpora.manifest import Manifest
from harness.engines import third_party
from harness.engines.dataloader import torch_loader
from harness.engines.dataset import ImageDataset
from harness.engines.loaders import open_loader, to_pixels
from harness.engines.positions import CyclicPositions
from harness.measures import psnr_db
from harness.spec import CorpusSpec
from tests import making
from wallclock.errors import Unavailable, UserError
from wallclock.loader import threads
from wallclock.recipe import IMAGENET, ModelSpec, Recipe
from wallclock.stages import normalize

pytestmark = pytest.mark.filterwarnings(
    "ignore:This process .* is multi-threaded:DeprecationWarning"
)

PX = 32
MODEL = ModelSpec("null", "none", input_px=PX)
SERIAL = Recipe("serial", "simplejpeg", "opencv", "area", batch_size=3)
THREADS = Recipe("t", "simplejpeg", "torch", "bilinear", "threads", 2, batch_size=3)
OWN = {
    "serial": SERIAL,
    "dataloader": replace(SERIAL, engine="dataloader", workers=2),
    "threads": replace(THREADS, dct_scale="auto"),
    "threads-uint8": replace(THREADS, decoder="opencv", normalize_on="device"),
}
RECIPES = OWN | {name: Recipe(name, engine=name, batch_size=3) for name in third_party.LOADERS}
#: Their first import takes as long as all other loaders together.
SLOW = ("dali", "dali-gpu", "spdl", "torchvision", "torchcodec", "nvimagecodec", "tf-data")


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    """Five JPEGs of five shapes and contents."""
    base = tmp_path_factory.mktemp("loaders")
    root = base / "images"
    root.mkdir()
    for seed in range(5):
        data = making.jpeg(120 + 20 * seed, 100, seed, quality=95, subsampling=0)
        (root / f"{seed}.jpg").write_bytes(data)
    spec = CorpusSpec("folder", path=str(root))
    prepared = folder.prepare(spec, None, base, lambda done, total, what: None)
    return manifests.load(Path(prepared.manifest))


def truth(images: Manifest) -> list[Any]:
    """Pillow's images."""
    files = [(images.root / item.path).read_bytes() for item in images.items]
    opened = [Image.open(io.BytesIO(data)).convert("RGB") for data in files]
    return [np.asarray(image.resize((PX, PX), Image.Resampling.BILINEAR)) for image in opened]


@pytest.mark.parametrize(
    ("name", "variant"),
    [
        *((name, "") for name in OWN),
        *(
            pytest.param(name, variant, marks=[pytest.mark.slow] if name in SLOW else [])
            for name, loader in third_party.LOADERS.items()
            for variant in loader.variants
        ),
    ],
)
def test_images_match_their_positions(images: Manifest, name: str, variant: str) -> None:
    expected, seen = truth(images), set()
    positions, recipe = CyclicPositions(5, 3, 1000), RECIPES[name]
    try:
        with open_loader(images, recipe, MODEL, positions, variant) as loader:
            assert loader.engine == recipe.engine
            for batch in islice(loader, 4):
                pixels = to_pixels(batch.images, MODEL.statistics)
                assert pixels.shape == (3, PX, PX, 3)
                if name in OWN:
                    chosen = ("decoder", "resizer", "interpolation", "preprocess")
                    ran = {choice: getattr(recipe, choice) for choice in chosen}
                    ran["layout"] = "files"
                    assert (loader.workers, batch.extras.labels) == (recipe.workers, ran)
                assert batch.ids == [images.items[position].id for position in batch.positions]
                for position, image in zip(batch.positions, pixels, strict=True):
                    others = [other for i, other in enumerate(expected) if i != position]
                    limit = max(20.0, *(psnr_db(image, other) for other in others))
                    assert psnr_db(image, expected[position]) > limit
                    seen.add(position)
            assert loader.version
            assert loader.settings
    except Unavailable as reason:
        pytest.skip(str(reason))
    assert seen == set(range(5)), "the list repeats"


@pytest.mark.parametrize("name", [name for name in OWN if name != "threads-uint8"])
def test_the_models_own_statistics_reach_every_loader(images: Manifest, name: str) -> None:
    other = replace(MODEL, mean=(0.1, 0.2, 0.3), std=(0.5, 0.6, 0.7))
    batches = []
    for model in (MODEL, other):
        with open_loader(images, OWN[name], model, [[0, 1]]) as loader:
            batch = next(loader)
            batches.append(to_pixels(batch.images, model.statistics).copy())
    np.testing.assert_allclose(batches[0].astype(int), batches[1].astype(int), atol=1)
    with open_loader(images, OWN[name], other, [[0]]) as loader:
        low = np.asarray(next(loader).images).min()
    assert low >= (0 - 0.3) / 0.5 - 1e-6, "not ImageNet's mean, which would go down to -2.1"


@pytest.mark.parametrize("name", OWN)
def test_a_stream_ends_after_n_images(images: Manifest, name: str) -> None:
    with open_loader(images, OWN[name], MODEL, CyclicPositions(5, 3, 7)) as loader:
        assert [list(batch.positions) for batch in loader] == [[0, 1, 2], [3, 4, 0], [1]]


def test_absent_library_names_the_fix(images: Manifest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(Unavailable, match="imagecodecs is not installed: make setup-peers"):
        open_loader(images, RECIPES["imagecodecs"], MODEL, [[0]]).__enter__()


def test_unknown_engine_names_the_nearest(images: Manifest) -> None:
    with pytest.raises(UserError, match="did you mean dali"):
        open_loader(images, Recipe("x", engine="dalli"), MODEL, [[0]]).__enter__()


def test_denormalization_is_exact() -> None:
    pixels = making.picture(PX, PX, seed=3)
    floats = normalize.make(*IMAGENET)(pixels)[None]
    np.testing.assert_array_equal(to_pixels(floats, IMAGENET)[0], pixels)


@pytest.mark.parametrize("pinned", [True, False])
def test_prefetch_and_pinning_are_the_recipes(images: Manifest, pinned: bool) -> None:
    recipe = replace(OWN["dataloader"], device="cuda", prefetch=5, pin_memory=pinned)
    assert recipe.pins == pinned
    loader = torch_loader(ImageDataset(images, recipe, MODEL), recipe, [[0]])
    assert (loader.prefetch_factor, loader.pin_memory) == (5, pinned)
    assert not replace(recipe, device="cpu").pins
    assert not replace(recipe, engine="serial").pins


def test_a_ring_that_is_not_pinned_needs_no_gpu() -> None:
    recipe = replace(THREADS, device="cuda", pin_memory=False)
    buffer = threads.buffers_of(recipe, MODEL).make(3)
    assert (buffer.shape, buffer.dtype.name) == ((3, 3, PX, PX), "float32")
