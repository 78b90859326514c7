"""Whatever bytes come, an image is decoded or it is a failure: no other exception, no hang.

Real files are mutated at random (bits, bytes, cuts, splices, repeated and resized segments).
Vetting judges each; what it accepts goes through every decoder and resizer, as a loader would take
it: 2,000 inputs.

Files of every format that is read go through the check and the decoder of `open_images` alone,
within its limits: none may cost more than five seconds or a gigabyte. 1,000 inputs, and 200,000 in
four parts on all cores.
"""

import io
import multiprocessing
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pytest
from PIL import Image

from harness import decoders
from harness.corpora.manifest import Item, Manifest
from harness.corpora.readers import FileReader
from harness.engines import pipeline
from harness.spec import Recipe
from tests import making
from wallclock.check import Inspector, validate
from wallclock.errors import ImageError
from wallclock.loader.loading import Loading
from wallclock.loader.prepare import DecodeImage, in_place_stages
from wallclock.recipe import Limits, ModelSpec

#: An item and its bytes, decoded and resized.
Load: TypeAlias = Callable[[Item, bytes], object]
LIMITS = Limits(max_pixels=4_000_000)
MODEL = ModelSpec("null", "none", input_px=32)
RECIPES = [
    Recipe(
        f"{decoder.name}-{resizer}",
        decoder.name,
        resizer,
        interpolation,
        dct_scale="auto" if decoder.scales else "full",
        engine=engine,
        normalize_on="device",
    )
    for decoder in decoders.DECODERS.values()
    if not decoder.optional
    for resizer, interpolation, engine in (
        ("pil", "bilinear", "dataloader"),
        ("opencv", "area", "serial"),
        ("torch", "bilinear", "threads"),
    )
]


def seeds() -> list[bytes]:
    """One small file of every kind that vetting accepts."""
    pixels = making.picture(96, 64)
    files = [
        making.jpeg(96, 64),
        making.jpeg(96, 64, progressive=True),
        making.jpeg(96, 64, subsampling=0, quality=95),
        making.jpeg(96, 64, mode="L"),
        making.jpeg(96, 64, mode="CMYK"),
        making.oriented(6),
        making.png_16_bit(),
    ]
    files += [making.encode(pixels, kind) for kind in ("PNG", "WEBP", "GIF")]
    files.append(making.encode(pixels, "PNG", "P"))
    return files


def mutate(data: bytes, rng: random.Random, others: Sequence[bytes]) -> bytes:
    """One to four random changes; most of them near the header, where the parsers are."""
    changed = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        if len(changed) < 8:
            break
        near = min(len(changed), rng.choice((64, 700, len(changed))))
        at = rng.randrange(near)
        count = min(rng.choice((1, 1, 2, 4, 16, 64)), len(changed) - at)
        match rng.randrange(8):
            case 0:
                changed[at] ^= 1 << rng.randrange(8)
            case 1:
                changed[at : at + count] = rng.randbytes(count)
            case 2:
                del changed[at : at + count]
            case 3:
                del changed[at:]
            case 4:
                changed[at:at] = changed[at : at + count] * rng.randint(1, 3)
            case 5:
                other = rng.choice(others)
                start = rng.randrange(len(other))
                changed[at:at] = other[start : start + rng.choice((2, 16, 256))]
            case 6:
                changed[at : at + count] = rng.choice((b"\xff", b"\x00")) * count
            case _:
                marker = bytes(
                    (0xFF, rng.choice((0xC0, 0xC2, 0xC4, 0xDA, 0xDB, 0xDD, 0xE1, 0xEE, 0xFE, 0x01)))
                )
                changed[at:at] = marker + rng.randbytes(rng.choice((0, 2, 6)))
    return bytes(changed)


def loads(root: Path) -> list[tuple[str, Load]]:
    """Decode and resize of every recipe, as its engine binds them."""
    return [(recipe.name, _load(recipe, root)) for recipe in RECIPES]


def _load(recipe: Recipe, root: Path) -> Load:
    if recipe.engine != "threads":
        stages = pipeline.load_stages(recipe, MODEL, Manifest("folder", "original", root, ()))
        return lambda item, data: stages.resize(item, stages.decode(item, data))
    in_place = in_place_stages(pipeline.loading_of(recipe, MODEL), FileReader(root))
    row = in_place.as_destination(np.empty((MODEL.input_px, MODEL.input_px, 3), np.uint8))
    return lambda item, data: in_place.resize_into(item, in_place.decode(item, data), row)


def judge(data: bytes, recipes: Sequence[tuple[str, Load]]) -> str:
    """`refused` by vetting, `accepted` by all, or which recipes failed on what vetting accepted."""
    try:
        item = Item("a", "a").with_header(validate(data, LIMITS))
    except ImageError as error:
        return "refused" if " at 0x" not in error.reason else error.reason
    failed = []
    for name, load in recipes:
        try:
            load(item, data)
        except ImageError as error:
            failed.append(f"{name}: {error}")
    return "; ".join(failed) or "accepted"


def fuzz(seed: int, count: int, root: Path) -> Counter[str]:
    """How `count` mutated inputs were judged; raises what a library raised, with the input kept."""
    rng, recipes = random.Random(seed), loads(root)
    files = seeds()
    verdicts: Counter[str] = Counter()
    for _ in range(count):
        data = mutate(rng.choice(files), rng, files)
        try:
            verdicts[judge(data, recipes)] += 1
        except Exception as error:
            kept = root / f"fuzz-{seed}-{sum(verdicts.values())}.bin"
            kept.write_bytes(data)
            raise AssertionError(f"{kept}: {type(error).__name__}: {error}") from error
    return verdicts


def check(verdicts: Counter[str]) -> None:
    """Both verdicts occur, and no decoder disagrees with vetting."""
    assert verdicts.pop("accepted") > 0
    assert verdicts.pop("refused") > 0
    assert not verdicts, f"accepted, and then: {verdicts.most_common(5)}"


# Pillow warns of damaged metadata, which is no part of the picture.
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_2000_mutated_inputs(tmp_path: Path) -> None:
    check(fuzz(1, 2_000, tmp_path))


#: What an input may cost.
SECONDS, BYTES = 5, 1_000_000_000


def seeds_of_all_formats() -> list[bytes]:
    """Small files of every format and coding; progressive ones that are decoded at 1/8 and 1/4."""
    pixels = making.picture(96, 64)
    files = [
        *seeds(),
        making.jpeg(384, 320, progressive=True),
        making.jpeg(200, 176, progressive=True, subsampling=0, quality=30),
        making.jpeg(96, 64, mode="CMYK", progressive=True),
        making.arithmetic(96, 64, data=b"\x55" * 40),
        making.arithmetic(96, 64, 6, components=3, data=b"\x1c" * 40),
        animated(),
        making.encode(pixels, "BMP"),
        making.encode(pixels, "BMP", "P"),
        making.encode(pixels, "AVIF", speed=10),
        making.encode(pixels, "JPEG2000"),
        making.encode(pixels, "JPEG2000", no_jp2=True, tile_size=(32, 32)),
        making.encode(pixels, "WEBP", "RGBA"),
        making.encode(pixels, "WEBP", lossless=True),
    ]
    codings = (None, "tiff_lzw", "tiff_deflate", "packbits", "jpeg")
    files += [making.encode(pixels, "TIFF", compression=coding) for coding in codings]
    return files


def animated() -> bytes:
    """A GIF of three frames, each disposed of in another way."""
    frames = [Image.fromarray(making.picture(96, 64, seed)).convert("P") for seed in range(3)]
    file = io.BytesIO()
    frames[0].save(file, "GIF", save_all=True, append_images=frames[1:], disposal=[2, 3, 1])
    return file.getvalue()


class OpenImages:
    """The check and the decoding of `open_images`, and what the costliest input took."""

    def __init__(self) -> None:
        self._inspect = Inspector(Limits(), "simplejpeg", rotate=True)
        recipe = Recipe("scaled", "simplejpeg", "torch", dct_scale="auto")
        self._decode = DecodeImage(Loading.of(recipe, MODEL.input_px))
        self.slowest = 0.0

    def judge(self, data: bytes) -> str:
        """`refused` or `accepted`; raises what is neither, AssertionError for what costs more."""
        start = time.process_time()
        verdict, reason = "accepted", ""
        try:
            info = self._inspect(0, "a", data)
            self._decode(info, data)
        except ImageError as error:
            verdict, reason = "refused", error.reason
        assert " at 0x" not in reason, reason
        seconds = time.process_time() - start
        self.slowest = max(self.slowest, seconds)
        assert seconds < SECONDS, f"{seconds:.1f} s"
        return verdict


def bytes_of(word: str) -> int:
    """Of this process: VmRSS, the memory that it has, or VmHWM, the most that it ever had."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return 1024 * int(status.partition(f"{word}:")[2].split()[0])


@contextmanager
def takes_less_than(n_bytes: float) -> Iterator[None]:
    """At its peak, this process, beside what it has."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # VmHWM starts again
    before = bytes_of("VmHWM")
    yield
    assert bytes_of("VmHWM") - before < n_bytes


def fuzz_open_images(seed: int, count: int, root: Path) -> Counter[str]:
    """How `count` mutated inputs were judged, and as `ms` and `MB` the most that any took."""
    rng, files, images = random.Random(seed), seeds_of_all_formats(), OpenImages()
    verdicts = Counter(images.judge(data) for data in files)
    assert verdicts == {"accepted": len(files)}
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # VmHWM starts again
    before = bytes_of("VmRSS")
    for number in range(count):
        data = mutate(rng.choice(files), rng, files)
        try:
            verdicts[images.judge(data)] += 1
            assert bytes_of("VmHWM") - before < BYTES, "more than a gigabyte"
        except Exception as error:
            kept = root / f"fuzz-open-{seed}-{number}.bin"
            kept.write_bytes(data)
            raise AssertionError(f"{kept}: {type(error).__name__}: {error}") from error
    verdicts["ms"] = round(1e3 * images.slowest)
    verdicts["MB"] = (bytes_of("VmHWM") - before) // 10**6
    return verdicts


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_1000_mutated_inputs_of_all_formats(tmp_path: Path) -> None:
    verdicts = fuzz_open_images(7, 1_000, tmp_path)
    assert min(verdicts["accepted"], verdicts["refused"]) > 50


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_200000_mutated_inputs_of_all_formats(part: int, tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    seeds = range(1_000 + 50 * part, 1_050 + 50 * part)
    with context.Pool(len(os.sched_getaffinity(0))) as pool:
        parts = pool.starmap(fuzz_open_images, [(seed, 1_000, tmp_path) for seed in seeds])
    for verdicts in parts:
        assert min(verdicts["accepted"], verdicts["refused"]) > 50
