"""All loaders behind one interface, and their finish line on a device."""

import io
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from harness.corpora import folder
from harness.corpora import manifest as manifests
from harness.corpora.manifest import Manifest
from harness.engines import pipeline, third_party
from harness.engines.dataloader import torch_loader
from harness.engines.dataset import ImageDataset
from harness.engines.loaders import OnDevice, buffers_of, open_loader, to_pixels
from harness.engines.positions import CyclicPositions
from harness.engines.third_party import thread_pool_crop
from harness.measures import psnr_db
from harness.protocols.fidelity import resize_whole
from harness.spec import CorpusSpec, Recipe
from tests import fake_cuda, making
from tests.devices import Device
from tests.fake_cuda import MS
from wallclock.errors import Unavailable, UserError
from wallclock.preprocess import Preprocess
from wallclock.recipe import IMAGENET, ModelSpec
from wallclock.stages import normalize
from wallclock.stages.transfer import Transfer

pytestmark = pytest.mark.filterwarnings(
    "ignore:This process .* is multi-threaded:DeprecationWarning"
)

PX = 32
MODEL = ModelSpec("null", "none", input_px=PX)
SERIAL = Recipe("serial", "simplejpeg", "opencv", "area", batch_size=3)
THREADS = Recipe("t", "simplejpeg", "torch", engine="threads", workers=2, batch_size=3)
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


def truth(images: Manifest, name: str) -> list[Any]:
    """Pillow's images, of the loader's geometry."""
    geometry = Preprocess("squash", (PX, PX))
    if name.endswith("-crop"):
        geometry = thread_pool_crop.geometry(PX)
    files = [(images.root / item.path).read_bytes() for item in images.items]
    opened = [np.asarray(Image.open(io.BytesIO(data)).convert("RGB")) for data in files]
    return [resize_whole(image, geometry, "pil", geometry.interpolation) for image in opened]


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
    expected, seen = truth(images, name), set()
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
                    labels = {**batch.extras.labels}
                    labels.pop("webp", "")  # of the process, where an earlier test decoded one
                    assert (loader.workers, labels) == (recipe.workers, ran)
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
    buffer = buffers_of(recipe, MODEL).make(3)
    assert (buffer.shape, buffer.dtype.name) == ((3, 3, PX, PX), "float32")


@pytest.mark.parametrize("place", ["device", "host"])
@pytest.mark.parametrize("engine", ["threads", "serial"])
def test_batches_arrive_normalized(device: Device, tiny: Manifest, place: str, engine: str) -> None:
    """The host or the device normalizes: the same numbers, ids as they were."""
    recipe = Recipe("x", engine=engine, batch_size=4, normalize_on=place, device="cuda")
    on_host = normalize.make(*MODEL.statistics)
    positions = [[0, 1, 2, 3], [4, 5], [6, 7, 8, 9]]
    with open_loader(tiny, recipe, MODEL, positions) as loader:
        expected = [(batch.ids, np.asarray(batch.images).copy()) for batch in loader]
    with open_loader(tiny, recipe, MODEL, positions) as loader:
        for batch, (ids, images) in zip(
            OnDevice(loader, MODEL.statistics, "cuda"), expected, strict=True
        ):
            floats = images if place == "host" else np.stack([on_host(image) for image in images])
            assert batch.ids == ids
            assert batch.images.is_cuda or device.fake
            np.testing.assert_allclose(batch.images.cpu().numpy(), floats, atol=1e-5)


@pytest.mark.slow
@pytest.mark.cuda
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("name", third_party.LOADERS)
def test_a_peer_ends_on_the_gpu(name: str, tiny: Manifest) -> None:
    """With the same pictures as on the host; DALI's decoder on the GPU is another one."""
    if not torch.cuda.is_available():
        pytest.skip("torch sees no CUDA GPU here")
    recipe = Recipe(name, engine=name, workers=2, batch_size=4, device="cuda")
    try:
        with open_loader(tiny, recipe, MODEL, []) as loader:
            batches = [*islice(OnDevice(loader, MODEL.statistics, "cuda"), 9)]
            images = {
                position: image
                for batch in batches
                for position, image in zip(batch.positions, batch.images.clone(), strict=True)
            }
    except Unavailable as reason:
        pytest.skip(str(reason))
    assert {image.device.type for image in images.values()} == {"cuda"}
    assert images.keys() == set(range(len(tiny.valid)))
    load = pipeline.load_stages(Recipe("x"), MODEL, tiny)
    right = [load.normalize(load.load_pixels(item)) for item in tiny.valid]
    for position, image in images.items():
        errors = [float(np.abs(image.cpu().numpy() - other).mean()) for other in right]
        assert errors[position] == min(errors), "another picture"
        assert errors[position] < 0.5


def test_a_batch_is_waited_for_and_no_other_work_is(
    tiny: Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy and the normalization take 30 ms behind the host; a decoder's stream, a second."""
    cuda = fake_cuda.install(monkeypatch)

    def h2d(images: Any) -> torch.Tensor:
        cuda.work(30 * MS)
        return torch.as_tensor(images)

    move = Transfer(h2d, np.asarray, lambda: cuda.work(1000 * MS))
    monkeypatch.setattr("wallclock.stages.transfer.make", lambda device: move)
    to_floats = "wallclock.stages.normalize.on_device"
    monkeypatch.setattr(to_floats, lambda *_: lambda pixels: pixels.float())
    with open_loader(tiny, Recipe("x", engine="threads"), MODEL, [[0]] * 3) as loader:
        arrived = [cuda.clock.now for _ in OnDevice(loader, MODEL.statistics, "cuda")]
    assert np.diff(arrived).tolist() == [30 * MS] * 2
    assert cuda.device_ns == cuda.clock.now
    assert cuda.blocking, "a core for the loaders"
