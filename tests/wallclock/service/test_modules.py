"""The service's own module: the pixels of the loader, the vectors of the job, failures alone."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wallclock
from tests import making
from tests.devices import Device
from tests.families import FAMILIES
from wallclock.errors import ImageError, UserError
from wallclock.job import embed
from wallclock.job.dataset import open_existing
from wallclock.service.interface import Request
from wallclock.service.modules import Embedding, Pixels
from wallclock.summary import cosine

REQUEST = Request("1", "http://example.org/a.jpg", "http://example.org/done")


@pytest.fixture(scope="module")
def null() -> Embedding:
    return Embedding(model="null")


def test_pixels_are_those_of_the_loader(null: Embedding) -> None:
    images = [making.jpeg(700 + 90 * seed, 500, seed) for seed in range(8)]
    images += [making.jpeg(900, 700, progressive=True), making.encode(making.picture(), "PNG")]
    with ThreadPoolExecutor(4) as pool:
        ours = [*pool.map(lambda image: null.preprocess(image, REQUEST), images * 2)]
    with wallclock.open_images(images, batch=len(images)) as batches:
        (batch,) = batches
        np.testing.assert_array_equal(ours[:10], batch.images)
        np.testing.assert_array_equal(ours[10:], batch.images)
    assert null.process(np.stack(ours)) == [[]] * 20


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (b"", "read: empty file"),
        (b"<html>", "decode: not a JPEG"),
        (making.jpeg()[:-40], "decode: "),
        (making.claiming(making.jpeg(), 60_000, 60_000), "60000x60000 pixels, over the limit"),
        (making.claiming(making.jpeg(), 8_000, 8_000), "decode: "),
    ],
)
def test_images_that_are_refused(null: Embedding, image: bytes, message: str) -> None:
    with pytest.raises(ImageError, match=message):
        null.preprocess(image, REQUEST)


def test_the_limit_on_pixels_is_a_setting() -> None:
    module = Embedding(model="null", max_pixels=10_000)
    with pytest.raises(ImageError, match=r"101x100 pixels, over the limit of 10,000"):
        module.preprocess(making.jpeg(101, 100), REQUEST)
    assert module.preprocess(making.jpeg(100, 100), REQUEST).shape == (224, 224, 3)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model": "no-such"}, "model=no-such: give a hub id"),
        ({"device": "tpu"}, "no device is called 'tpu'"),
        ({"model": "null", "max_pixels": 0}, "max_pixels=0: give a whole number"),
    ],
)
def test_settings_that_cannot_be_met(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Embedding(**settings)


def test_vectors_on_a_device_are_the_hosts(device: Device, tmp_path: Path) -> None:
    FAMILIES["dinov2"](tmp_path)
    settings: dict[str, Any] = {"model": str(tmp_path), "dtype": "fp32"}
    there, here = (Embedding(**settings, device=name) for name in ("cuda", "cpu"))
    images = [making.jpeg(300 + 40 * seed, 260, seed) for seed in range(5)]
    batch = np.stack([there.preprocess(image, REQUEST) for image in images])
    for n in (5, 1, 3):
        ours, right = (np.stack(module.process(batch[:n])) for module in (there, here))
        np.testing.assert_allclose(ours, right, rtol=1e-3, atol=1e-4)
    assert np.abs(right[0] - right[1]).max() > 0.01


def test_openvinos_vectors_are_torchs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("openvino")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    FAMILIES["dinov2"](tmp_path)
    settings: dict[str, Any] = {"model": str(tmp_path), "device": "cpu"}
    module = Embedding(**settings, runtime="openvino")
    assert module._embedder is not None
    assert module._embedder.labels["runtime"] == "openvino"
    images = [making.jpeg(300 + 40 * seed, 260, seed) for seed in range(5)]
    batch = np.stack([module.preprocess(image, REQUEST) for image in images])
    by_torch = Embedding(**settings, runtime="pytorch").process(batch)
    assert cosine(np.stack(module.process(batch)), np.stack(by_torch)).min() >= 0.99999


class Sizes(Pixels):
    def process(self, batch: np.ndarray) -> list[int]:
        return [image.shape[0] for image in batch]


def test_pixels_of_another_size() -> None:
    module = Sizes(size=64)
    assert module.process(np.stack([module.preprocess(making.jpeg(), REQUEST)] * 2)) == [64, 64]
    with pytest.raises(UserError, match="size=0: give a whole number from 1 to 4096"):
        Sizes(size=0)


@pytest.mark.slow
def test_vectors_are_those_of_the_job(tmp_path: Path) -> None:
    import transformers

    small: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = transformers.Dinov2Config(**small, image_size=28, patch_size=14)
    saved, folder = tmp_path / "model", tmp_path / "images"
    transformers.Dinov2Model(config).save_pretrained(saved)
    processor = transformers.ViTImageProcessor(size={"height": 28, "width": 28})
    processor.save_pretrained(saved)
    folder.mkdir()
    for seed in range(5):
        (folder / f"{seed}.jpg").write_bytes(making.jpeg(300, 200, seed))
    module = Embedding(model=str(saved))
    rows = [module.preprocess(path.read_bytes(), REQUEST) for path in sorted(folder.iterdir())]
    vectors = module.process(np.stack(rows))
    embed(folder, tmp_path / "out", model=str(saved))
    dataset = open_existing(tmp_path / "out")
    assert dataset is not None
    np.testing.assert_allclose(np.stack(vectors), [*dataset.vectors(0)], rtol=1e-4, atol=1e-5)
    assert vectors[0].dtype == np.float32
