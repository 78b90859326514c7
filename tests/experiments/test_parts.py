"""Protocols that time one part of a job."""

import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from experiments.decoders.measure import agreement
from experiments.formats.measure import ENCODINGS, formats
from experiments.nms.measure import Detections, detections, in_numpy, in_python, nms
from experiments.stage_fixes import measure as fixes
from experiments.storage.measure import LateReader, forms
from harness import decoders
from harness.corpora import manifest as manifests
from harness.corpora import readers
from harness.corpora.manifest import Item
from harness.digests import sha256_bytes
from harness.protocols import protocol
from harness.protocols.protocol import no_progress
from harness.protocols.storage import storage
from harness.spec import Cell, Recipe, Slice
from harness.testbed import serving
from tests.harness.engines.conftest import manifest_in
from wallclock.errors import ImageError, Unavailable
from wallclock.recipe import ModelSpec
from wallclock.stages import decode
from wallclock.stages.decode import Decode, Decoder, PixelArray

# --- stage fix ------------------------------------------------------------------------------------


MODEL = ModelSpec("null", weights="none", input_px=32, dim=8)


@pytest.mark.parametrize("stage", fixes.STAGES)
def test_with_and_without_its_fix_a_stage_does_the_same(stage: str, tmp_path: Path) -> None:
    recipe, params = Recipe("stage", batch_size=4), {"stage": stage, "seconds": 0.001}
    cell = Cell("stage_fixes", "stage_fix", stage, 0, recipe, None, MODEL, params)
    if stage != "h2d":  # the host pins nothing
        plain, fixed = (run() for run in fixes.variants(cell, stage).values())
        if stage == "normalize":
            plain = np.stack(plain)
        assert np.asarray(plain).shape == np.asarray(fixed).shape
        assert np.allclose(np.asarray(plain), np.asarray(fixed), atol=1e-5)
    if stage == "assemble":
        assert (plain.is_shared(), fixed.is_shared()) == (True, True)
        result = fixes.stage_fix(cell, tmp_path, no_progress)
        assert [len(rounds) for rounds in result.samples.values()] == [5, 5]
        assert result.values["n_fixed"] % 4 == 0
    else:
        with pytest.raises(Unavailable, match="needs a GPU"):
            fixes.stage_fix(replace(cell), tmp_path, no_progress)


# --- formats --------------------------------------------------------------------------------------


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


# --- storage --------------------------------------------------------------------------------------


WHERE = ["cold", "warm", "http-0"]


def cell_of(corpus: Slice, form: str, where: list[str]) -> Cell:
    params = {"form": form, "where": where, "in_flight": 4, "seconds": 0.001}
    recipe = Recipe("test", decoder="simplejpeg", resizer="pil", normalize_on="device")
    return Cell("storage", "forms", form, 0, recipe, corpus, MODEL, params)


@pytest.fixture
def cold(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A file system that drops what it is told to; how often it was told."""
    told = list[str]()
    monkeypatch.setattr(readers, "evict", lambda paths: told.append("evict"))
    monkeypatch.setattr(readers, "cached_share", lambda paths: 0.01)
    return told


@pytest.mark.parametrize("form", ["files", "pixels", "tar"])
def test_every_condition_has_a_time_or_a_reason(
    corpus: Slice, tmp_path: Path, cold: list[str], form: str
) -> None:
    where = WHERE if form in ("files", "tar") else WHERE[:2]
    result = forms(cell_of(corpus, form, where), tmp_path, no_progress)
    names = [f"{w}/{n}/{finish}" for w in where for n in (1, 4) for finish in ("bytes", "tensor")]
    assert [*result.samples] == [*result.values["passes"]] == names
    assert result.values["unavailable"] == {}
    for name, values in result.values["passes"].items():
        assert values["n"] >= (18 if name.startswith("cold") else 1)
        assert (values["from_disk_share"] is None) == name.startswith("http")
        assert values["cached_share"] == (0.01 if name.startswith("cold") else None)
        assert values["cpu_ms"] > 0
    assert len(cold) >= 4
    assert result.values["kb_on_disk"] >= result.values["mean_kb"]


def test_pages_that_stay_are_no_cold_pass(
    corpus: Slice, tmp_path: Path, cold: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "cached_share", lambda paths: 0.5)
    result = forms(cell_of(corpus, "files", ["cold"]), tmp_path, no_progress)
    assert result.samples == {}
    assert "mincore finds 50% of them" in result.values["unavailable"]["cold/4/bytes"]


def test_a_store_answers_late_with_a_file_or_a_range(corpus: Slice) -> None:
    manifest = manifests.load(Path(corpus.manifest))
    first, second, *_ = manifest.valid
    root = manifest.root
    with (
        serving.process("images", "--folder", str(root)) as (url, _),
        closing(LateReader(url, 0.05, 1)) as reader,
    ):
        began = time.monotonic()
        assert sha256_bytes(reader(first)) == first.sha256
        assert time.monotonic() - began >= 0.05
        inside = replace(second, path=f"{second.path}@0", bytes=9)
        assert reader(inside) == (root / second.path).read_bytes()[:9]
        with pytest.raises(ImageError, match="the pack was changed"):
            reader(replace(first, bytes=first.bytes + 1))
        with pytest.raises(ImageError, match="404"):
            reader(replace(first, path="none"))


def test_every_cold_pass_reads_all_images_after_an_eviction(
    corpus: Slice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, evict = readers.FileReader.__call__, readers.evict
    events: list[str] = []

    def evicting(files: list[Path]) -> None:
        events.append("evict")
        evict(files)

    def reading(reader: readers.FileReader, item: Item) -> bytes:
        events.append(item.id)
        return read(reader, item)

    monkeypatch.setattr(readers, "evict", evicting)
    monkeypatch.setattr(readers.FileReader, "__call__", reading)
    params = {"readers": [1, 4], "rounds": 2, "seconds": 0.001}
    cell = replace(cell_of(corpus, "files", []), protocol="storage", params=params)
    result = storage(cell, tmp_path, no_progress)
    counts = {name: len(passes) for name, passes in result.samples.items()}
    assert counts == {"cold-1": 2, "cold-4": 2, "warm": 1}
    passes = [ids.split() for ids in " ".join(events).split("evict ")[1:]]
    assert [len(set(ids)) for ids in passes] == [18] * 4
    assert [len(ids) for ids in passes[:3]] == [result.values["n_loaded"]] * 3
    assert result.values["n_warm"] == len(passes[3]) - 18
    assert result.values["mean_bytes"] > 100
    assert result.values["from_disk_share"] >= 0


# --- nms ------------------------------------------------------------------------------------------


def measured(tmp_path: Path, **changes: Any) -> Any:
    params = {"boxes": 40, "n_images": 3, "iou_threshold": 0.5, "seconds": 0.001, **changes}
    cell = Cell("nms", "nms", "boxes-40", 0, Recipe("nms"), None, MODEL, params)
    return nms(cell, tmp_path, no_progress)


def kept_by_definition(proposed: Detections, threshold: float) -> list[int]:
    """Each box against all that were kept before it, overlaps counted on a grid of squares."""
    kept: list[int] = []
    for row in np.argsort(-proposed.scores, kind="stable").tolist():
        overlaps = [overlap(proposed.boxes[row], proposed.boxes[other]) for other in kept]
        if all(value <= threshold for value in overlaps):
            kept.append(row)
    return kept


def overlap(a: Any, b: Any) -> float:
    def covered(box: Any) -> set[tuple[int, int]]:
        left, top, right, bottom = map(int, box)
        return {(x, y) for x in range(left, right) for y in range(top, bottom)}

    return len(covered(a) & covered(b)) / len(covered(a) | covered(b))


@given(st.integers(1, 12), st.integers(0, 1000), st.sampled_from([0.0, 0.3, 0.5, 1.0]))
def test_what_is_kept_by_definition(n: int, seed: int, threshold: float) -> None:
    """Of small boxes at whole pixels, whose overlap can be counted."""
    rng = np.random.default_rng(seed)
    corners = rng.integers(0, 12, (n, 2))
    boxes = np.concatenate([corners, corners + rng.integers(1, 8, (n, 2))], axis=1).astype(float)
    proposed = Detections(boxes, rng.integers(0, 4, n) / 4)
    expected = kept_by_definition(proposed, threshold)
    assert in_python(boxes.tolist(), proposed.scores.tolist(), threshold) == expected
    assert in_numpy(boxes, proposed.scores, threshold).tolist() == expected


def torchvision_of(monkeypatch: pytest.MonkeyPatch, nms_of: Any) -> None:
    """A torchvision whose kernel is `nms_of`."""
    package, ops = ModuleType("torchvision"), ModuleType("torchvision.ops")
    package.__spec__ = ModuleSpec("torchvision", None)
    ops.nms = nms_of  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torchvision", package)
    monkeypatch.setitem(sys.modules, "torchvision.ops", ops)


def test_samples_of_every_way_that_is_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def kernel(boxes: Any, scores: Any, threshold: float) -> Any:
        return in_numpy(boxes.numpy(), scores.numpy(), threshold)

    torchvision_of(monkeypatch, kernel)
    result = measured(tmp_path)
    assert list(result.samples) == ["python", "numpy", "torchvision"]
    for taken in result.samples.values():
        assert len(taken) >= 5 * 3
        assert len(taken) % 3 == 0
        assert min(taken) > 0
    assert result.values["different"] == {"python": 0, "numpy": 0, "torchvision": 0}
    assert result.values["unavailable"] == {}
    kept = [in_numpy(d.boxes, d.scores, 0.5) for d in (detections(40, seed) for seed in range(3))]
    assert result.values["n_kept"] == pytest.approx(sum(map(len, kept)) / 3)


def test_other_boxes_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torchvision_of(monkeypatch, lambda boxes, scores, threshold: np.arange(2))
    assert measured(tmp_path).values["different"] == {"python": 0, "numpy": 0, "torchvision": 3}


# --- agreement ------------------------------------------------------------------------------------


AGREEMENT = Cell(
    "decoders",
    "agreement",
    "agreement-original",
    0,
    Recipe("reference"),
    Slice("folder", "original", 3, "digest", ""),
    MODEL,
    {"images": 3},
)


def fails_when_called(reuse: bool) -> Decode:
    """As a decoder does that imports its library at the first image."""

    def decode_image(
        data: bytes, scale: int = 1, size: tuple[int, int] | None = None
    ) -> PixelArray:
        import missing_library  # type: ignore[import-not-found]

        loaded: PixelArray = missing_library.decode(data)
        return loaded

    return decode_image


def refuses_large(reuse: bool) -> Decode:
    """Pillow's decoder, but for one of the images."""
    pillow = decode.make("pil")
    images: list[bytes] = []

    def decode_image(
        data: bytes, scale: int = 1, size: tuple[int, int] | None = None
    ) -> PixelArray:
        images.append(data)
        if len(images) == 2:
            raise ImageError("decode", "toy: too large")
        return pillow(data)

    return decode_image


@pytest.fixture
def measure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Measure the agreement of some decoders, one of which may be a toy."""
    manifest = manifest_in(tmp_path, 3)
    monkeypatch.setattr(protocol, "open_corpus", lambda cell: manifest)

    def run(*names: str, toy: Callable[[bool], Decode] = refuses_large) -> Any:
        monkeypatch.setitem(decode.DECODERS, "toy", Decoder("toy", "Toy", ("toy",), toy))
        monkeypatch.setattr(decoders, "NAMES", names)
        return agreement(AGREEMENT, tmp_path, lambda done: None)

    return run


def test_a_missing_library_ungates_its_own_decoder_only(measure: Callable[..., Any]) -> None:
    measurement = measure("pil", "toy", "simplejpeg", toy=fails_when_called)
    compared = measurement.values["agreement"]
    assert "missing_library" in compared["toy"]["unavailable"]
    assert compared["pil"] == {"max_abs_diff": 0}
    assert compared["simplejpeg"]["max_abs_diff"] <= 2
    assert measurement.values["n_compared"] == 3
    assert not measurement.failures, "the images are sound"


def test_an_image_that_one_decoder_refuses_is_listed(measure: Callable[..., Any]) -> None:
    measurement = measure("pil", "toy")
    assert measurement.values["agreement"]["toy"] == {"max_abs_diff": 0}
    assert measurement.values["n_compared"] == 2
    (failure,) = measurement.failures
    assert (failure["id"], failure["stage"]) == ("image 1", "decode")
