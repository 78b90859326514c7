"""What the synthetic product photos show: products, their parts and their materials."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Part:
    """One surface of a product."""

    box: tuple[int, int, int, int]  # left, top, right, bottom; per cent of the product's box
    skin: int = 0  # which of the product's two materials
    round: float = 0.1  # corner radius over half the shorter side
    bend: tuple[int, int] = (0, -1)  # across and down, see `render._slope`
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
    skins: tuple[tuple[Skin, ...], tuple[Skin, ...]]
    parts: tuple[Part, ...]


_BROWN = (0.03, 0.11)
PLAIN = Skin((300, 300), 40, 1, 1.2, 30, 70)
_PLANK = Skin((150, 4), 150, 3, 1.5, 40, 20, _BROWN, 0.7)
_UPRIGHT = Skin((4, 150), 150, 3, 1.5, 40, 20, _BROWN, 0.7)
_CLOTH = Skin((40, 40), 50, 1, 2.0, 130, 0, vivid=0.6)
_STRIPES = Skin((12, 4000), 230, 25, 1.6, 60, 5, vivid=0.7)
_BLOTS = Skin((20, 20), 230, 25, 1.2, 30, 40)
_STONE = Skin((7, 7), 160, 8, 1.2, 30, 30, vivid=0.2)
_HARD, _SOFT = (PLAIN, PLAIN, _STONE), (_CLOTH, _STRIPES)
_WOOD, _PRINT = (_UPRIGHT, PLAIN), (_BLOTS, _STRIPES)

_SLAB, _BOARD, _PILLOW = (-1, -1), (3, 3), (1, 1)
PRODUCTS = {
    "bottle": Product((0.3, 0.5), (_HARD, (PLAIN, _UPRIGHT)), (
        Part((33, 8, 67, 40)), Part((2, 26, 98, 100), round=0.35, belly=0.05, label=0.9),
        Part((30, 0, 70, 15), 1, 0.2))),
    "jar": Product((0.6, 1.0), (_HARD, (PLAIN, _PLANK)), (
        Part((3, 12, 97, 100), round=0.25, label=0.9), Part((0, 0, 100, 20), 1, 0.15))),
    "carton": Product((0.6, 1.5), ((PLAIN, *_PRINT), _HARD), (
        Part((0, 0, 100, 100), 0, 0.04, _BOARD, label=1.0),)),
    "cushion": Product((0.9, 1.5), (_SOFT + _PRINT, _SOFT), (
        Part((0, 0, 100, 100), 0, 0.35, _PILLOW, belly=0.1),)),
    "picture": Product((0.6, 1.6), (_PRINT, (_PLANK, PLAIN)), (
        Part((0, 0, 100, 100), 1, 0.02, _BOARD), Part((6, 6, 94, 94), 0, 0.01, _SLAB, label=0.4))),
    "telephone case": Product((0.45, 0.55), ((PLAIN, *_PRINT), (PLAIN,)), (
        Part((0, 0, 100, 100), 1, 0.28, _BOARD), Part((4, 2, 96, 98), 0, 0.25, _BOARD, label=0.6),
        Part((12, 6, 42, 24), 1, 0.5, _PILLOW))),
    "lamp": Product((0.5, 0.8), (_SOFT, _WOOD), (
        Part((47, 35, 53, 96), 1), Part((26, 93, 74, 100), 1, 0.5),
        Part((0, 0, 100, 50), round=0.06, taper=0.3))),
    "vase": Product((0.7, 1.1), ((*_HARD, *_PRINT), _HARD), (
        Part((30, 0, 70, 30), taper=-0.1), Part((0, 8, 100, 100), round=0.7, belly=0.35))),
    "table": Product((1.0, 1.8), ((_PLANK, _STONE), _WOOD), (
        Part((6, 10, 14, 100), 1, taper=-0.3), Part((86, 10, 94, 100), 1, taper=-0.3),
        Part((10, 60, 90, 67), 0, 0.3, _BOARD), Part((0, 0, 100, 16), 0, 0.2, _BOARD))),
    "sofa": Product((1.5, 2.3), (_SOFT, _WOOD), (
        Part((8, 86, 14, 100), 1), Part((86, 86, 92, 100), 1),
        Part((6, 0, 94, 75), 0, 0.2, _PILLOW), Part((10, 48, 50, 72), 0, 0.4, _PILLOW),
        Part((50, 48, 90, 72), 0, 0.4, _PILLOW), Part((4, 68, 96, 92), 0, 0.15, _BOARD),
        Part((0, 28, 15, 92), 0, 0.6, _PILLOW), Part((85, 28, 100, 92), 0, 0.6, _PILLOW))),
}  # fmt: skip
