"""Thumbnails: which images get one, what it holds, and that none is lost."""

import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from harness.corpora import copies
from harness.corpora import manifest as manifests
from harness.measures import psnr_db
from harness.protocols.copies import copies as measure
from harness.protocols.protocol import no_progress
from harness.spec import Cell
from tests import making
from tests.experiments import made
from wallclock.errors import ImageError
from wallclock.recipe import ModelSpec, Recipe

FILES = {
    "a-large.jpg": making.jpeg(800, 600, seed=1, quality=95),
    "b-large.png": making.encode(making.picture(520, 500, seed=3), "PNG"),
    "c-small.jpg": making.jpeg(64, 48, seed=4),
}
#: How many of the first are replaced.
N_LARGE = 2


def pixels(data: bytes) -> np.ndarray:
    with Image.open(io.BytesIO(data)) as image:
        return np.asarray(image.convert("RGB"))


def test_thumbnails_are_of_the_same_images_in_the_same_order(tmp_path: Path) -> None:
    plan = made.plan(tmp_path, "experiment=[diagnose]")
    images = Path(plan.settings.corpus.path)
    for path in images.iterdir():
        path.unlink()
    for name, data in FILES.items():
        (images / name).write_bytes(data)
    corpus = plan.slice("original", len(FILES))
    copied = plan.thumbnails(corpus)
    assert (copied.n, copied.kind, copied.storage) == (3, corpus.kind, "files:thumbnails")
    manifest = manifests.load(Path(copied.manifest))
    assert len(manifest.valid) == len(FILES)
    for index, (item, data) in enumerate(zip(manifest.valid, FILES.values(), strict=True)):
        copy = (manifest.root / item.path).read_bytes()
        assert (copy != data) == (index < N_LARGE)
        if copy != data:
            assert (item.format, item.process) == ("jpeg", "baseline")
            full = Image.fromarray(pixels(data)).resize((item.width, item.height), 2)
            assert psnr_db(pixels(copy), np.asarray(full)) > 30
            assert min(item.width, item.height) == 256
    assert plan.thumbnails(corpus) == copied

    # What making them costs, by the protocol.
    mock = ModelSpec("null", "none")
    cell = Cell("diagnose", "copies", "copies-thumbnails", 0, Recipe("x"), corpus, mock)
    result = measure(replace(cell, params={"seconds": 9}), tmp_path, no_progress)
    replaced = [*FILES.values()][:N_LARGE]
    assert len(result.samples["encode"]) == N_LARGE
    assert result.values["share"] == N_LARGE / len(FILES)
    assert result.values["mean_bytes_before"] == sum(map(len, replaced)) / N_LARGE
    assert 30 < result.values["psnr_db"] <= 99
    assert not result.failures


def test_an_image_that_cannot_be_copied_stays_as_it_is(tmp_path: Path) -> None:
    """A file that changed after it was listed: the copy is a link, so that no image is missing."""
    (tmp_path / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(30))
    item = manifests.Item("a", "a.png", 38, 600, 600, format="png")
    manifest = manifests.Manifest("folder", "original", tmp_path, (item,))
    with pytest.raises(ImageError):
        copies.thumbnail((tmp_path / "a.png").read_bytes())
    copies.make(manifest, tmp_path / "copies", lambda done, total, step: None)
    assert (tmp_path / "copies" / "0000000").readlink() == tmp_path / "a.png"
