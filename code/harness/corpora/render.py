"""Seeded synthetic product photos: shaded objects, printed labels, a near-white background.

A seed gives the same bytes on every machine that has the pinned Pillow wheel, because digests of
them identify a corpus. So only exact operations are used: raw PCG64 words (numpy guarantees them
across releases, but not its distributions); + - * / sqrt on float64, which IEEE 754 rounds in one
way only; Pillow's 8-bit fixed-point operations. No sin, exp or pow (they differ between C
libraries), no sum or matrix product of floats (the order of additions differs between CPUs).

Form and light are computed on grids of at most `_GRID` cells a side and enlarged by Pillow; edges
stay sharp because the enlarged distance field is thresholded at full size. Luma (Y) is painted at
full size, chroma (Cb, Cr) at half: 4:2:0 keeps no more.
"""

import colorsys
import io
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageChops, ImageDraw, ImageFont

from harness.spec import IMAGE_SETS
from wallclock.errors import check_name

#: Raised whenever the bytes of any image change; it goes into cache names and digests.
GENERATOR = 1

Box = tuple[int, int, int, int]  # left, top, right, bottom
Tone = tuple[int, int, int]  # Y, Cb, Cr
_Floats = npt.NDArray[np.float64]
T = TypeVar("T")

_BICUBIC = Image.Resampling.BICUBIC
#: Quantiles of the originals' longest side in Amazon Berkeley Objects: (share of images, pixels).
#: The median is the maximum; 0.48 keeps it so in a small sample.
_LONGEST = ((0.0, 500), (0.05, 1000), (0.25, 2000), (0.48, 2560), (1.0, 2560))
#: Range of the encoder's quality setting: thumbnails are kept at less.
_QUALITY = {"small_256": (71, 89), "original": (80, 96)}
#: Cells along the longer side of a part's grid; levels a cell in its distance field.
_GRID, _STEEP = 96, 24
#: Random streams of one image: its size and encoding, its content.
_FRAME, _CONTENT = 0, 1


@dataclass(frozen=True)
class Part:
    """One surface of a product."""

    box: tuple[int, int, int, int]  # left, top, right, bottom; per cent of the product's box
    skin: int = 0  # which of the product's two materials
    round: float = 0.1  # corner radius over half the shorter side
    bend: tuple[int, int] = (0, -1)  # across and down, see `_slope`
    taper: float = 0.0  # above 0: narrower at the top
    belly: float = 0.0  # above 0: wider in the middle
    label: float = 0.0  # chance that a label is printed on it


@dataclass(frozen=True)
class Skin:
    """A material. Lengths are thousandths of the picture's longest side."""

    pitch: tuple[float, float]  # size of the pattern's features, across and down
    cover: int  # how much of the second tone shows at most, of 255
    hard: float  # slope of the pattern's edges: 1 smooth, 25 sharp
    grain: float  # size of the fine texture
    rough: int  # depth of the fine texture, of 255
    gloss: int  # level of the highlight
    hues: tuple[float, float] = (0.0, 1.0)  # in turns of the colour wheel
    vivid: float = 0.85  # highest saturation


@dataclass(frozen=True)
class Product:
    """Its parts, from back to front, and the materials that each of its two skins is drawn from."""

    shape: tuple[float, float]  # narrowest and widest, width over height
    skins: list[list[Skin]]
    parts: list[Part]


_TABLES = tomllib.loads(Path(__file__).with_name("products.toml").read_text(encoding="utf-8"))
_WORDS = _TABLES.pop("words")
SKINS = {name: Skin(**fields) for name, fields in _TABLES.pop("skins").items()}
PRODUCTS = {
    name: Product(
        table["shape"],
        [[SKINS[skin] for skin in choice] for choice in table["skins"]],
        [Part(**part) for part in table["parts"]],
    )
    for name, table in _TABLES.items()
}


class _Rng:
    """Draws from one raw PCG64 stream, exactly the same on every machine."""

    def __init__(self, seed: int, image_set: str, index: int, stream: int) -> None:
        set_index = IMAGE_SETS.index(check_name(image_set, IMAGE_SETS, "image set"))
        key = (seed, set_index, index, stream)
        self._bits = np.random.PCG64(np.random.SeedSequence(key))

    def uniform(self, low: float, high: float) -> float:
        """A number in [low, high)."""
        return low + (high - low) * ((int(self._bits.random_raw()) >> 11) / 2**53)

    def choice(self, items: Sequence[T]) -> T:
        return items[int(self.uniform(0, len(items)))]

    def noise(self, columns: int, rows: int) -> Image.Image:
        """An L image of independent bytes."""
        words = np.asarray(self._bits.random_raw(-(-columns * rows // 8)), dtype="<u8")
        return Image.frombytes("L", (columns, rows), words.tobytes()[: columns * rows])


class _Canvas:
    """Y at full size (even), Cb and Cr at half; L images."""

    def __init__(self, wide: int, high: int, tone: Tone) -> None:
        self.y = Image.new("L", (wide, high), tone[0])
        self.cb, self.cr = (Image.new("L", (wide // 2, high // 2), level) for level in tone[1:])

    def paste(self, paint: "_Canvas | Tone", box: Box, mask: Image.Image) -> None:
        """Blend a canvas or a colour into `box` (even pixels) by `mask` (L, the box's size)."""
        half = (box[0] // 2, box[1] // 2, box[2] // 2, box[3] // 2)
        small = mask.reduce(2)
        y, cb, cr = paint.planes if isinstance(paint, _Canvas) else paint
        self.y.paste(y, box, mask)
        self.cb.paste(cb, half, small)
        self.cr.paste(cr, half, small)

    @property
    def planes(self) -> tuple[Image.Image, Image.Image, Image.Image]:
        """Y, Cb and Cr."""
        return self.y, self.cb, self.cr


def size(seed: int, image_set: str, index: int) -> tuple[int, int]:
    """(width, height) of one image, in pixels."""
    return _frame(_Rng(seed, image_set, index, _FRAME), image_set)


def image_id(seed: int, image_set: str, index: int) -> str:
    """Eight hexadecimal digits, different for each of the first 2**32 indices of a set."""
    key = int(_Rng(seed, image_set, 0, _FRAME).uniform(0, 2**32))
    x = (index ^ key) & 0xFFFFFFFF
    # Each step is invertible modulo 2**32 (xor with a shift, odd factor): no two indices collide.
    for factor in (0x7FEB352D, 0x846CA68B):
        x = ((x ^ (x >> 16)) * factor) & 0xFFFFFFFF
    return f"{x ^ (x >> 16):08x}"


def render(seed: int, image_set: str, index: int, progressive_share: float = 0.0) -> bytes:
    """One image as a JPEG file (8-bit, 4:2:0, baseline or progressive).

    `progressive_share` of all images are saved progressive, which changes no pixel.
    """
    rng = _Rng(seed, image_set, index, _FRAME)
    wide, high = _frame(rng, image_set)
    quality = int(rng.uniform(*_QUALITY[image_set]))
    progressive = rng.uniform(0, 1) < progressive_share
    image = _compose(_Rng(seed, image_set, index, _CONTENT), wide, high)
    file = io.BytesIO()
    image.save(file, "JPEG", quality=quality, subsampling="4:2:0", progressive=progressive)
    return file.getvalue()


def picture(seed: int, index: int, wide: int, high: int) -> Image.Image:
    """One image of this size, before it is encoded: for other formats than JPEG."""
    return _compose(_Rng(seed, "original", index, _CONTENT), wide, high).convert("RGB")


def _frame(rng: _Rng, image_set: str) -> tuple[int, int]:
    """Draw (width, height): over half square, most others between 1:2 and 1:1, few slivers."""
    share = rng.uniform(0, 1)
    shape = rng.uniform(0, 1)
    ratio = rng.uniform(0, 1)
    upright = rng.uniform(0, 1)
    longest = 256
    if image_set == "original":
        (low, least), (high, most) = next(pair for pair in pairwise(_LONGEST) if share < pair[1][0])
        longest = int(least + (most - least) * (share - low) / (high - low))
    if shape < 0.55:
        aspect = 1.0
    elif shape < 0.985:
        aspect = 0.5 + 0.5 * ratio
    else:
        aspect = 0.125 + 0.375 * ratio
    shortest = round(longest * aspect)
    return (shortest, longest) if upright < 0.5 else (longest, shortest)


def _compose(rng: _Rng, wide: int, high: int) -> Image.Image:
    canvas = _Canvas(wide + wide % 2, high + high % 2, (255, 128, 128))
    fits = [p for p in PRODUCTS.values() if p.shape[0] / 2 <= wide / high <= p.shape[1] * 2]
    # No product is as long as some slivers; these three can be stretched.
    product = rng.choice(fits or [PRODUCTS["carton"], PRODUCTS["cushion"], PRODUCTS["picture"]])
    skins = [_finish(rng, rng.choice(choice)) for choice in product.skins]
    lamp = rng.uniform(-0.6, 0.6)
    boxes = list(_layout(rng, wide, high, product.shape if fits else (0.01, 100)))
    canvas.y.paste(_backdrop(rng, canvas.y.size, boxes))
    for left, top, right, bottom in boxes:
        tones = [[_tone(rng, skin), _tone(rng, skin)] for skin in skins]
        for part in product.parts:
            x0, x1 = (left + (right - left) * part.box[i] // 200 * 2 for i in (0, 2))
            y0, y1 = (top + (bottom - top) * part.box[i] // 200 * 2 for i in (1, 3))
            box = (x0, y0, max(x1, x0 + 4), max(y1, y0 + 4))
            _paint(canvas, rng, part, skins[part.skin], tones[part.skin], box, lamp)
    full = canvas.y.size
    nearest = Image.Resampling.NEAREST
    planes = (canvas.y, canvas.cb.resize(full, nearest), canvas.cr.resize(full, nearest))
    return Image.merge("YCbCr", planes).crop((0, 0, wide, high))


def _layout(rng: _Rng, wide: int, high: int, shape: tuple[float, float]) -> Iterator[Box]:
    """Boxes (even pixels) of one or two products, of widths over heights within `shape`."""
    narrow = shape[1] * high <= wide
    count = 2 if narrow and rng.uniform(0, 1) < 0.5 else 1
    for i in range(count):
        cell = wide / count
        w, h = cell * rng.uniform(0.76, 0.97), high * rng.uniform(0.76, 0.95)
        w, h = min(w, h * shape[1]), min(h, w / shape[0])
        left, top = int(cell * i + (cell - w) / 2), int((high - h) * 0.55)
        yield left // 2 * 2, top // 2 * 2, int(left + w) // 2 * 2, int(top + h) // 2 * 2


def _backdrop(rng: _Rng, full: tuple[int, int], boxes: Sequence[Box]) -> Image.Image:
    """The near-white Y plane (L, `full`), darker towards its edges and under the products."""
    wide, high = full
    columns, rows = (max(4, 64 * side // max(full)) for side in full)
    x = ((np.arange(columns) + 0.5) * wide / columns)[None, :]
    y = ((np.arange(rows) + 0.5) * high / rows)[:, None]
    fade, depth = rng.choice((0.0, 10.0, 30.0)), rng.uniform(30, 110)
    level = 255 - fade * ((x / wide - 0.5) * (x / wide - 0.5) + (y / high - 0.4) * (y / high - 0.4))
    for left, top, right, bottom in boxes:
        across = (2 * x - left - right) / (1.15 * (right - left))
        down = (y - bottom) / (0.03 * (right - left) + 0.05 * (bottom - top))
        near = np.maximum(0.0, 1 - across * across - down * down)
        level = level - depth * near * near
    return _plane(level).resize(full, _BICUBIC)


def _paint(
    canvas: _Canvas, rng: _Rng, part: Part, skin: Skin, tones: list[Tone], box: Box, lamp: float
) -> None:
    """Paint one part into `box` of the canvas: its pattern, its print, then the light on it."""
    full = (box[2] - box[0], box[3] - box[1])
    unit = max(canvas.y.size) / 1000
    surface = _Canvas(*full, tones[0])
    steps = [max(2.0, pitch * unit) for pitch in skin.pitch]
    cells = [int(side / step) + 1 for side, step in zip(full, steps, strict=True)]
    pattern = rng.noise(*cells).resize(full, _BICUBIC).point(_ramp(skin.hard, skin.cover))
    surface.paste(tones[1], (0, 0, *full), pattern)
    if rng.uniform(0, 1) < part.label:
        _label(surface, rng, full)
    edge, light, shine = _form(part, full, lamp)
    # Texture finer than the pixels averages out, as in a photo made smaller.
    fine = max(1.5, skin.grain * unit)
    depth = int(skin.rough * skin.grain * unit / fine)
    cells = [int(side / fine) + 1 for side in full]
    grain = rng.noise(*cells).point([255 - depth * level // 255 for level in range(256)])
    lit = ImageChops.multiply(surface.y, light.resize(full, _BICUBIC))
    lit = ImageChops.multiply(lit, grain.resize(full, Image.Resampling.BILINEAR))
    surface.y = ImageChops.add(lit, shine.point(_ramp(1, skin.gloss)).resize(full, _BICUBIC))
    dim, grey = light.resize(surface.cb.size, _BICUBIC), Image.new("L", surface.cb.size, 128)
    surface.cb = Image.composite(surface.cb, grey, dim)
    surface.cr = Image.composite(surface.cr, grey, dim)
    canvas.paste(surface, box, edge)


def _form(
    part: Part, full: tuple[int, int], lamp: float
) -> tuple[Image.Image, Image.Image, Image.Image]:
    """A part's outline (L, `full`), its light and its highlight (L, at most `_GRID` a side)."""
    columns, rows = (max(6, min(side, _GRID * side // max(full))) for side in full)
    u: _Floats = ((np.arange(columns) + 0.5) * 2 / columns - 1)[None, :]
    v: _Floats = ((np.arange(rows) + 0.5) * 2 / rows - 1)[:, None]
    width = (1 + part.taper * v + part.belly * (1 - v * v)) / (1 + abs(part.taper) + part.belly)
    # Signed distance, in cells, to a box with round corners that ends 1.5 cells inside the grid.
    a, b = columns / 2 - 1.5, rows / 2 - 1.5
    radius = part.round * min(a, b)
    x = np.abs(u) * (columns / 2) - a * width + radius
    y = np.abs(v) * (rows / 2) - b + radius
    beyond_x, beyond_y = np.maximum(x, 0), np.maximum(y, 0)
    corner = np.sqrt(beyond_x * beyond_x + beyond_y * beyond_y)
    distance = corner + np.minimum(np.maximum(x, y), 0) - radius
    edge = _plane(128 - _STEEP * distance).resize(full, _BICUBIC)
    nx = _slope(np.clip(u / width, -1, 1), part.bend[0])
    ny = _slope(v, part.bend[1])
    nz = np.sqrt(np.maximum(1 - nx * nx - ny * ny, 0.05))
    light = 100 + 150 * np.maximum(0, 0.8 * nz + lamp * nx - 0.35 * ny) + 12 * (lamp * u - v)
    shine = np.minimum(1, np.maximum(0, 0.85 * nz + 0.8 * lamp * nx - 0.35 * ny))
    for _ in range(4):
        shine = shine * shine
    return edge.point(_threshold(_STEEP * columns / full[0])), _plane(light), _plane(255 * shine)


def _slope(t: _Floats, flat: int) -> _Floats:
    """Slope of a surface at -1 <= t <= 1: `flat` -1 is a plane, 0 a cylinder, more is flatter."""
    if flat < 0:
        return 0 * t
    for _ in range(flat):
        t = t * t * t
    return t * 0.95


def _label(surface: _Canvas, rng: _Rng, full: tuple[int, int]) -> None:
    """Print a label with sharp edges and small letters on a surface of size `full`."""
    wide, high = (int(side * rng.uniform(0.5, 0.85)) // 2 * 2 for side in full)
    left = (full[0] - wide) // 4 * 2
    top = int((full[1] - high) * rng.uniform(0.3, 0.7)) // 2 * 2
    box = (left, top, left + wide, top + high)
    if min(wide, high) < 16:
        return
    paper = rng.choice(((250, 128, 128), _tone(rng, SKINS["plain"])))
    ink = (20, 128, 128) if paper[0] > 110 else (245, 128, 128)
    surface.paste(paper, box, Image.new("L", (wide, high), 255))
    columns = rng.choice((80, 128, 180))
    letters = _letters(rng, columns, max(24, columns * high // wide)).resize((wide, high), _BICUBIC)
    surface.paste(ink, box, letters.point(_threshold(255 * columns / wide)))


def _letters(rng: _Rng, columns: int, rows: int) -> Image.Image:
    """A heading and lines of small print (L, columns x rows, 255 is ink)."""
    sheet = Image.new("L", (columns, rows))
    # Pillow's built-in bitmap font: no font file of the machine is read.
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default_imagefont()
    word = rng.choice(_WORDS)
    scale = max(1, min((columns - 8) // (6 * len(word)), rows // 24))
    heading = Image.new("L", (6 * len(word), 11))
    ImageDraw.Draw(heading).text((0, 0), word, 255, font)
    large = heading.resize((heading.width * scale, 11 * scale), _BICUBIC)
    sheet.paste(large.point(_threshold(255 / scale)), (4, 4))
    for row in range(8 + 11 * scale, rows - 12, 12):
        if rng.uniform(0, 1) < 0.7:
            words = [rng.choice(_WORDS).lower() for _ in range(columns // 36)]
            draw.text((4, row), " ".join(words), 255, font)
    return sheet


def _finish(rng: _Rng, skin: Skin) -> Skin:
    u = rng.uniform(0, 1)
    return replace(skin, rough=min(200, int(skin.rough * (0.4 + 1.8 * u * u))))


def _tone(rng: _Rng, skin: Skin) -> Tone:
    """A colour that suits a material, muted more often than loud."""
    loud = rng.uniform(0, 1)
    rgb = colorsys.hsv_to_rgb(rng.uniform(*skin.hues), skin.vivid * loud, rng.uniform(0.1, 0.9))
    r, g, b = (int(255 * level) for level in rgb)
    luma = (299 * r + 587 * g + 114 * b) // 1000
    return luma, 128 + (b - luma) * 564 // 1000, 128 + (r - luma) * 713 // 1000


def _plane(levels: _Floats) -> Image.Image:
    """An L image of `levels` (rows, columns), rounded and clipped to 0 .. 255."""
    return Image.fromarray(np.clip(np.rint(levels), 0, 255).astype(np.uint8))


def _ramp(slope: float, top: int) -> list[int]:
    """A table of 256 levels: `slope` around the middle, from 0 to `top`."""
    levels = (127.5 + (level - 127.5) * slope for level in range(256))
    return [int(min(255.0, max(0.0, level)) * top / 255) for level in levels]


def _threshold(rise: float) -> list[int]:
    """A table that makes an edge 1.5 pixels wide of a field rising by `rise` levels a pixel."""
    return _ramp(max(1.0, 255 / (1.5 * rise)), 255)
