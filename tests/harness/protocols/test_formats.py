"""Protocol `formats`: the same pictures in every format, encoded once; what is missing is said."""

from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from harness.corpora import manifest as manifests
from harness.protocols.formats import ENCODINGS, formats
from harness.protocols.protocol import no_progress
from harness.spec import Cell, Slice
from wallclock.recipe import ModelSpec, Recipe

MODEL = ModelSpec("null", weights="none", input_px=32)
LOSSLESS = {"png", "webp_lossless"}
KEYS = [name if name in LOSSLESS else f"{name}-80" for name in ENCODINGS]


@pytest.fixture
def cell(corpus: Slice, tmp_path: Path) -> Cell:
    """Three pictures of 256 px, whose files go to the test's folder."""
    manifest = manifests.load(Path(corpus.manifest)).head(3)
    manifests.save(manifest, tmp_path / "list.csv")
    recipe, params = Recipe("pil", "pil"), {"encodings": KEYS}
    where = manifest.slice(tmp_path / "list.csv")
    return Cell("formats", "formats", "x", 0, recipe, where, MODEL, params)


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("formats-*/*")}


def test_every_format_holds_the_same_pictures(cell: Cell, tmp_path: Path) -> None:
    result = formats(cell, tmp_path, no_progress)
    values, made = result.values, files(tmp_path)
    assert values["unavailable"] == {}
    assert {key: len(ns) for key, ns in result.samples.items()} == dict.fromkeys(KEYS, 3)
    assert min(min(ns) for ns in result.samples.values()) > 0
    assert {key for key, psnr in values["psnr_db"].items() if psnr == 99} == LOSSLESS
    assert min(values["psnr_db"].values()) > 25
    assert values["kb"]["jpeg_444-80"] > values["kb"]["jpeg_baseline-80"] > 0
    pictures = [name for name in made if not name.endswith(".psnr_db")]
    assert len(pictures) == 3 * len(KEYS)
    for name in pictures:
        with Image.open(next(tmp_path.glob(f"*/{name}"))) as image:
            assert max(image.size) == 253, "three rows and columns less than the source"
            assert bool(image.info.get("progressive")) == ("progressive" in name)
    # A lost file is written again, the same; the others stay.
    for name in pictures[::4]:
        next(tmp_path.glob(f"*/{name}.psnr_db")).unlink()
    assert formats(cell, tmp_path, no_progress).values["psnr_db"] == values["psnr_db"]
    assert files(tmp_path) == made


def test_what_is_missing_has_a_reason(
    cell: Cell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A decoder that lacks a format, Pillow without a codec: no time, and why."""
    recipe = replace(cell.recipe, decoder="simplejpeg", dct_scale="auto")
    values = formats(replace(cell, recipe=recipe), tmp_path, no_progress)
    assert {*values.samples} == {"jpeg_baseline-80", "jpeg_progressive-80", "jpeg_444-80"}
    assert values.values["unavailable"]["png"].startswith("simplejpeg: ")
    Image.init()
    monkeypatch.delitem(Image.SAVE, "AVIF")
    values = formats(cell, tmp_path, no_progress)
    assert "built without AVIF" in values.values["unavailable"]["avif-80"]
    assert {*values.samples} == {*KEYS} - {"avif-80"}
