"""Progressive JPEGs cut off early: `exact` changes no pixel, `early` few; any script, any bytes."""

from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness import decoders
from harness.corpora.manifest import Item, Manifest
from harness.engines.pipeline import load_stages
from harness.measures import psnr_db
from tests import making
from wallclock import jpeg
from wallclock.check import read_header, validate
from wallclock.errors import ImageError
from wallclock.recipe import Limits, ModelSpec, Recipe
from wallclock.stages import decode
from wallclock.stages.decode import scans
from wallclock.stages.decode.decoder import Scaling
from wallclock.stages.pixels import PixelArray

SCALING = [name for name, decoder in decoders.DECODERS.items() if decoder.scales]
SIZE = (200, 136)
#: `target` → the denominator at which a picture of `SIZE` is decoded.
TARGETS = {17: 8, 30: 4, 60: 2, 120: 1}
#: Pillow's subsampling 4:4:4, 4:2:2, 4:2:0; then grayscale.
KINDS = (0, 1, 2, "L")
MODES = ("exact", "early")


class Scan(NamedTuple):
    """One scan; `data` begins with its tables."""

    components: bytes
    first: int
    last: int
    high: int
    data: bytes = b""

    def needs(self, other: "Scan") -> bool:
        """Whether the standard allows it only after `other`, an earlier one of the same file."""
        overlap = self.first <= other.last and other.first <= self.last
        shared = set(self.components) & set(other.components)
        return bool(shared) and (overlap or other.high == other.first == 0)


@cache
def pillow(kind: object, size: tuple[int, int] = SIZE) -> tuple[bytes, list[Scan]]:
    """A picture in libjpeg's script: the header, tables of scans excluded, and the scans."""
    options = {"mode": "L"} if kind == "L" else {"subsampling": kind}
    noise = np.indices(size[::-1]).sum(0)[..., None] * [7, 5, 3] % 32
    pixels = making.picture(*size) ^ noise.astype(np.uint8)
    data = making.encode(pixels, progressive=True, quality=90, **options)
    starts: list[int] = []
    heads: list[Scan] = []
    begins = False
    for marker, at, start, end in jpeg.segments(data):
        if begins:
            starts.append(at)
        begins = marker in (jpeg.SOF_PROGRESSIVE, jpeg.SOS)
        if marker == jpeg.SOS:
            first, last, bits = data[end - 3 : end]
            heads.append(Scan(data[start + 3 : end - 3 : 2], first, last, bits >> 4))
    chunks = [data[begin:end] for begin, end in pairwise(starts)]
    script = [scan._replace(data=chunk) for scan, chunk in zip(heads, chunks, strict=True)]
    return data[: starts[0]], script


def join(header: bytes, script: Sequence[Scan]) -> bytes:
    return header + b"".join(scan.data for scan in script) + b"\xff\xd9"


@st.composite
def scripts(draw: st.DrawFn) -> tuple[bytes, list[Scan]]:
    """A picture whose scans come in any order that the standard allows."""
    header, script = pillow(draw(st.sampled_from(KINDS)))
    rank = draw(st.permutations(range(len(script))))
    left = list(range(len(script)))
    ordered: list[Scan] = []
    while left:
        ready = (i for i in left if not any(script[i].needs(script[j]) for j in left if j < i))
        chosen = min(ready, key=rank.__getitem__)
        left.remove(chosen)
        ordered.append(script[chosen])
    return header, ordered


def scale_of(data: bytes, target: int) -> int:
    """That of a picture for a square of so many pixels; of damaged bytes any."""
    try:
        header = read_header(data, Limits())
    except ImageError:
        return 8
    return Scaling(target, 1.0).denominator(header.width, header.height)


def cut(data: bytes, target: int, mode: str) -> bytes:
    """Cut however little that drops."""
    with patch.object(scans, "_LEAST_DROPPED", 0):
        return scans.cut(data, scale_of(data, target), mode)


@given(scripts(), st.sampled_from([*TARGETS]))
def test_exact_changes_no_pixel(file: tuple[bytes, list[Scan]], target: int) -> None:
    data, less = join(*file), cut(join(*file), target, "exact")
    for name in SCALING:
        decoder, scale = decode.make(name, scales=True), scale_of(data, target)
        assert np.array_equal(decoder(less, scale), decoder(data, scale)), name


@given(scripts(), st.sampled_from([*TARGETS]), st.sampled_from(MODES))
def test_a_cut_file_is_whole(file: tuple[bytes, list[Scan]], target: int, mode: str) -> None:
    """It ends at a scan, is as valid as before and cannot be cut again."""
    header, script = file
    less = cut(join(*file), target, mode)
    assert less in [join(header, script[:n]) for n in range(1, len(script) + 1)]
    assert validate(less, Limits()).process == "progressive"
    assert cut(less, target, mode) == less


@pytest.mark.parametrize(
    ("kind", "mode", "kept"),
    [
        # Of libjpeg's 10 scans, 6 for grayscale, at 1/8, 1/4, 1/2 and in full. At 1/8 subsampled
        # chroma is 2 x 2, which takes its last refinements: the scan before Y's.
        (0, "exact", [7, 10, 10, 10]),
        (1, "exact", [7, 10, 10, 10]),
        (2, "exact", [9, 10, 10, 10]),
        ("L", "exact", [5, 6, 6, 6]),
        (0, "early", [4, 4, 9, 10]),
        (1, "early", [4, 4, 9, 10]),
        (2, "early", [4, 4, 9, 10]),
        ("L", "early", [2, 2, 5, 6]),
    ],
)
def test_scans_kept_of_the_usual_script(kind: object, mode: str, kept: list[int]) -> None:
    header, script = pillow(kind)
    scans_of = {join(header, script[:n]): n for n in range(1, len(script) + 1)}
    data = join(header, script)
    assert [scans_of[cut(data, target, mode)] for target in TARGETS] == kept


def test_too_little_is_not_dropped() -> None:
    data = join(*pillow(2))
    assert len(cut(data, 60, "early")) < len(data)
    share = 1 - len(cut(data, 60, "early")) / len(data)
    for least, is_cut in ((share - 0.01, True), (share + 0.01, False)):
        with patch.object(scans, "_LEAST_DROPPED", least):
            less = scans.cut(data, scale_of(data, 60), "early")
        assert (less is not data) == is_cut


@pytest.mark.parametrize("target", [*TARGETS][:3])
def test_early_is_close(target: int) -> None:
    data, decoder = join(*pillow(2)), decode.make("simplejpeg", scales=True)
    scale = scale_of(data, target)
    less = decoder(cut(data, target, "early"), scale)
    assert 30 < psnr_db(less, decoder(data, scale)) < 60


@given(st.data(), st.sampled_from([*TARGETS]), st.sampled_from(MODES))
def test_any_bytes(data: st.DataObject, target: int, mode: str) -> None:
    """A damaged file is cut or not, and nothing is raised; what is no progressive JPEG is not."""
    sound = bytearray(join(*pillow(data.draw(st.sampled_from(KINDS)))))
    spots = st.tuples(st.integers(0, len(sound) - 1), st.integers(0, 255))
    frame = making.frame_at(bytes(sound))
    near = st.tuples(st.integers(frame, frame + 40), st.integers(0, 255))
    for at, value in data.draw(st.lists(spots | near, max_size=8)):
        sound[at] = value
    damaged = bytes(sound[: data.draw(st.integers(0, len(sound)))])
    less = cut(damaged, target, mode)
    assert less == damaged or (less.endswith(b"\xff\xd9") and damaged.startswith(less[:-2]))
    baseline = making.jpeg(*SIZE)
    assert cut(baseline, target, mode) is baseline


def decode_by_recipe(root: Path, data: bytes, progressive: str, lost: int = 0) -> PixelArray:
    """A file as the stages of a recipe decode it; `lost`: of its last bytes, once it is listed."""
    item = Item("a", "a.jpg", len(data)).with_header(validate(data, Limits()))
    (root / "a.jpg").write_bytes(data[: len(data) - lost] + b"\xff\xd9" * (lost // 2))
    recipe = Recipe("r", "simplejpeg", dct_scale="auto", dct_margin=1.0, progressive=progressive)
    manifest = Manifest("folder", "original", root, (item,))
    stages = load_stages(recipe, ModelSpec("null", "none", input_px=17), manifest)
    return stages.decode(item, stages.read(item))


def test_in_a_pipeline(tmp_path: Path) -> None:
    data = join(*pillow(2))
    full, exact, early = (decode_by_recipe(tmp_path, data, mode) for mode in ("full", *MODES))
    assert np.array_equal(full, exact)
    assert not np.array_equal(full, early)
    baseline = making.jpeg(*SIZE)
    assert np.array_equal(
        decode_by_recipe(tmp_path, baseline, "full"), decode_by_recipe(tmp_path, baseline, "early")
    )


def test_damage_in_dropped_scans_is_not_seen(tmp_path: Path) -> None:
    data = join(*pillow(2))
    with pytest.raises(ImageError):
        decode_by_recipe(tmp_path, data, "full", lost=1000)
    assert np.array_equal(
        decode_by_recipe(tmp_path, data, "exact", lost=1000),
        decode_by_recipe(tmp_path, data, "full"),
    )
    with pytest.raises(ImageError, match="cut off before its end"):
        validate(data[:-1000], Limits())
