"""What the synthetic product photos show: products, their parts and their materials."""

import tomllib
from dataclasses import dataclass
from pathlib import Path


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
    skins: list[list[Skin]]
    parts: list[Part]


_TABLES = tomllib.loads(Path(__file__).with_name("products.toml").read_text(encoding="utf-8"))
SKINS = {name: Skin(**fields) for name, fields in _TABLES.pop("skins").items()}
PRODUCTS = {
    name: Product(
        table["shape"],
        [[SKINS[skin] for skin in choice] for choice in table["skins"]],
        [Part(**part) for part in table["parts"]],
    )
    for name, table in _TABLES.items()
}
