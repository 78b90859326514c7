"""Many images at once by the native module: the images, failures and marks of one after another."""

from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import making
from wallclock import Augment, native, open_images
from wallclock.fetch.sources import Source
from wallclock.loader import at_once
from wallclock.loader.opener import LoaderOptions, open_loader
from wallclock.loader.output import Output, Workers
from wallclock.recipe import FAST, Limits, Recipe

pytestmark = pytest.mark.skipif(native.find() is None, reason=f"native: {native.described()}")

#: What the native module takes the place of; its pixels are theirs.
LIBRARIES = replace(FAST, decoder="simplejpeg", resizer="torch")
BASELINE = making.jpeg(300, 200, 1, subsampling=2)
FILES = {
    "baseline": BASELINE,
    "full chroma": making.jpeg(90, 700, 2, subsampling=0),
    "grey": making.jpeg(257, 129, 3, "L"),
    "progressive": making.jpeg(640, 480, 4, progressive=True),
    "of the right size": making.jpeg(48, 40, 5),
    "a pixel": making.jpeg(1, 1, 6),
    "a line": making.jpeg(1, 300, 7),
    "on its side": making.oriented(6, width=130, height=70),
    "cmyk": making.jpeg(80, 60, 8, "CMYK"),
    "png": making.encode(making.picture(70, 50, 9), "PNG"),
    "alpha": making.encode(making.picture(70, 50, 10), "PNG", "RGBA"),
    "cut off": BASELINE[: len(BASELINE) // 2],
    "no end": BASELINE[:-2],
    "too many pixels": making.claiming(BASELINE, 20_000, 20_000),
    "too many scans": making.scan_bomb(70, width=64, height=64),
    "arithmetic": making.arithmetic(40, 30),
    "text": b"no image",
    "empty": b"",
}
ABSENT = ["absent", "a\0zero.jpg", "folder"]
GEOMETRIES = (
    "squash",
    "squash:33x20,bicubic",
    "shortest:40,crop:32x24,bicubic,rotate",
    "shortest:40,crop:40,bilinear",
    "longest:40,crop:40,bicubic",
    "shortest:40,crop:32,lanczos",
    "original",
)
AUGMENTS: tuple[bool | Augment, ...] = (
    True,
    Augment(jitter=0),
    Augment(transform=lambda pixels, rng: pixels + rng.integers(2, dtype=np.uint8)),
    Augment(flip=0.5, jitter=0.3, transform=lambda pixels: pixels[::-1], random=False),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("at_once")
    for name, data in FILES.items():
        (path / name).write_bytes(data)
    (path / "folder").mkdir()
    return path


def loaded(items: Any, recipe: Recipe, **options: Any) -> tuple[list[Any], ...]:
    """Ids, images, failures and what each file is."""
    ids: list[Any] = []
    images: list[Any] = []
    failures: list[Any] = []
    infos: list[Any] = []
    workers = Workers(2, limits=Limits(max_pixels=1_000_000))
    with (
        patch("wallclock.loader.loading.FAST", recipe),
        open_images(items, batch=7, workers=workers, **options) as batches,
    ):
        for batch in batches:
            ids += batch.ids
            images += [np.array(image) for image in batch.images]
            failures += batch.failures
            infos += batch.extras.infos
    return ids, images, failures, infos


def check_same(items: Any, **options: Any) -> None:
    ids, images, failures, infos = loaded(items, FAST, **options)
    expected = loaded(items, LIBRARIES, **options)
    assert (ids, failures, infos) == (expected[0], expected[2], expected[3])
    for name, image, truth in zip(ids, images, expected[1], strict=True):
        np.testing.assert_array_equal(image, truth, err_msg=name)


@st.composite
def options_of(draw: st.DrawFn) -> dict[str, Any]:
    output = draw(st.sampled_from(["uint8", "float32", "float16", "L", "RGBA"]))
    if draw(st.booleans()) and output in ("uint8", "float32"):
        augments = AUGMENTS if output == "uint8" else AUGMENTS[:2]
        return {"size": 24, "output": output, "augment": draw(st.sampled_from(augments))}
    geometry = draw(st.sampled_from(GEOMETRIES))
    if geometry == "squash":
        return {"size": draw(st.integers(1, 60)), "output": output}
    if geometry == "original":
        output = "uint8"
    return {"preprocess": geometry, "output": output}


@settings(max_examples=25)
@given(
    names=st.lists(st.sampled_from([*FILES, *ABSENT]), min_size=1, max_size=30),
    in_memory=st.booleans(),
    options=options_of(),
)
def test_all_is_as_the_libraries_have_it(
    folder: Path, names: list[str], in_memory: bool, options: dict[str, Any]
) -> None:
    kept = [*(name for name in names if name in FILES or not in_memory), "baseline"]
    items: list[Any] = [(name, FILES[name]) if in_memory else folder / name for name in kept]
    check_same(items, **options)


def test_every_file_once(folder: Path) -> None:
    paths = [folder / name for name in (*FILES, *ABSENT)]
    for geometry in GEOMETRIES[1:]:
        check_same(paths, preprocess=geometry)


def test_what_is_too_long_to_wait_in_memory(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(at_once, "_MOST_BYTES", len(FILES["baseline"]) - 1)
    monkeypatch.setattr(at_once, "_BYTES_AT_ONCE", 5000)
    check_same([folder / name for name in FILES], size=20)


def test_hashes(folder: Path) -> None:
    sources = [Source(name, str(folder / name)) for name in FILES]
    batches = []
    for recipe in (FAST, LIBRARIES):
        options = LoaderOptions.of(20, replace(recipe, workers=1), hashes=True)
        with open_loader(sources, [range(len(sources))], options) as loader:
            (batch,) = loader
            batches.append((batch.ids, batch.images.copy(), batch.extras))
    (ids, images, extras), (expected, truth, other) = batches
    np.testing.assert_array_equal(images, truth)
    assert (ids, extras.infos) == (expected, other.infos)
    assert all(info.sha256 for info in extras.infos)


def test_fallbacks_are_counted() -> None:
    """Of JPEGs and PNGs: here one that is cut off, by both calls, and one of 16 bits."""
    files = [BASELINE, FILES["no end"], FILES["png"], making.png_16_bit(), FILES["progressive"]]
    with open_images(files, 20) as batches:
        (batch,) = batches
    assert (len(batch.failures), batch.extras.fallbacks) == (1, 2)
    assert (batch.extras.labels["decoder"], batch.extras.labels["resizer"]) == ("native", "native")


def test_without_the_module(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [folder / name for name in (*FILES, *ABSENT)]
    here = loaded(paths, FAST, preprocess=GEOMETRIES[2])
    monkeypatch.setattr(native, "find", lambda: None)
    absent = loaded(paths, FAST, preprocess=GEOMETRIES[2])
    assert here[0] == absent[0]
    assert here[2] == absent[2]
    np.testing.assert_array_equal(here[1], absent[1])
    with open_images([BASELINE], 20) as batches:
        labels = next(iter(batches)).extras.labels
    assert (labels["decoder"], labels["resizer"]) == ("simplejpeg", "torch")


def test_other_statistics(folder: Path) -> None:
    output = Output("float32", mean=(0.5,) * 3, std=(0.1, 0.2, 0.3))
    check_same([folder / name for name in FILES], size=(16, 24), output=output)
