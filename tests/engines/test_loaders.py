"""Every loader behind one face: its pictures are the files', in their places, whatever it is."""

from __future__ import annotations

import io
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests import making
from wallclock.corpus import folder
from wallclock.corpus import manifest as manifests
from wallclock.corpus.manifest import Manifest
from wallclock.engines import loaders, third_party
from wallclock.errors import Unavailable, UserError
from wallclock.spec import CorpusSpec, Recipe
from wallclock.stages.normalize import to_float_chw
from wallclock.summary import psnr_db
from wallclock.thread_counts import set_threads

pytestmark = pytest.mark.filterwarnings(
    "ignore:This process .* is multi-threaded:DeprecationWarning"
)

PX = 32


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    """Five JPEGs of five shapes and pictures."""
    base = tmp_path_factory.mktemp("systems")
    root = base / "images"
    root.mkdir()
    for seed in range(5):
        (root / f"{seed}.jpg").write_bytes(
            making.jpeg(120 + 20 * seed, 100, seed, quality=95, subsampling=0)
        )
    made = folder.prepare(
        CorpusSpec("folder", path=str(root)), None, base, lambda done, total, what: None
    )
    return manifests.load(Path(made.manifest))


@pytest.fixture(autouse=True)
def single_threaded_libraries() -> None:
    """As every protocol does before a loader forks: OpenCV's own threads, from another test, do not survive a fork."""
    set_threads(RECIPES["dataloader"], uses_torch=False)


def truth(images: Manifest) -> list[np.ndarray[tuple[int, ...], np.dtype[np.uint8]]]:
    """Pillow's pictures."""
    files = [(images.root / item.path).read_bytes() for item in images.items]
    opened = [Image.open(io.BytesIO(data)).convert("RGB") for data in files]
    return [np.asarray(image.resize((PX, PX), Image.Resampling.BILINEAR)) for image in opened]


RECIPES = {
    "dataloader": Recipe(
        "paper", "simplejpeg", "opencv", "area", "dataloader", workers=2, batch_size=3
    ),
    "threads": Recipe(
        "ours",
        "simplejpeg",
        "torch",
        "bilinear",
        "threads",
        2,
        batch_size=3,
        dct_scale="auto",
        normalize_on="device",
    ),
    **{name: Recipe(name, engine=name, batch_size=3) for name in third_party.PEERS},
}
#: A wait of two processes for their first import of torch and more: as long as the rest together.
SLOW = ("dali", "dali-gpu", "spdl", "torchvision")


@pytest.mark.parametrize(
    ("name", "variant"),
    [
        *((name, "") for name in RECIPES if name not in SLOW),
        *(pytest.param(name, "", marks=pytest.mark.slow) for name in SLOW),
        pytest.param("spdl", "batch", marks=pytest.mark.slow),
    ],
)
def test_pictures_are_the_files_in_their_places(images: Manifest, name: str, variant: str) -> None:
    expected, seen = truth(images), set()
    try:
        with loaders.opened(RECIPES[name], images.items, images.root, PX, variant) as system:
            for positions, batch in islice(system.batches, 4):
                pixels = loaders.pixels_of(batch)
                assert pixels.shape == (3, PX, PX, 3)
                assert len(positions) == 3
                for position, picture in zip(positions, pixels, strict=True):
                    right = psnr_db(picture, expected[position])
                    others = [
                        psnr_db(picture, other) for i, other in enumerate(expected) if i != position
                    ]
                    assert right > max(20.0, *others), (
                        f"{name} gave image {position} another's pixels"
                    )
                    seen.add(position)
            assert system.version
            assert system.settings
    except Unavailable as reason:
        pytest.skip(str(reason))
    assert seen == set(range(5)), "the list comes round"


def test_a_stream_ends_after_n_images(images: Manifest) -> None:
    with loaders.opened(RECIPES["threads"], images.items, images.root, PX, n=7) as system:
        assert [list(positions) for positions, _ in system.batches] == [[0, 1, 2], [3, 4, 0], [1]]


def test_a_peer_that_is_not_installed_names_the_fix(
    images: Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wallclock.engines.third_party.util.find_spec", lambda name: None)
    with (
        pytest.raises(Unavailable, match="imagecodecs is not installed: make setup-peers"),
        loaders.opened(RECIPES["imagecodecs"], images.items, images.root, PX),
    ):
        pass


def test_an_unknown_system_is_an_error_with_the_nearest(images: Manifest) -> None:
    with pytest.raises(UserError, match="did you mean dali"):
        loaders.opened(Recipe("x", engine="dalli"), images.items, images.root, PX)


def test_a_normalized_batch_becomes_its_pixels_again() -> None:
    pixels = making.picture(PX, PX, seed=3)
    assert np.array_equal(loaders.pixels_of(to_float_chw(pixels)[None])[0], pixels)
