"""HEIC of grids: what their tiles and they themselves take is known before a library opens them."""

import struct
from collections.abc import Sequence
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wallclock.check import read_header
from wallclock.errors import ImageError
from wallclock.formats import declared_sizes, sniff
from wallclock.recipe import Limits

Size = tuple[int, int]
#: As a phone writes it: 48 tiles, which reach beyond the picture.
PHONE: Size = (4032, 3024)
TILE: Size = (512, 512)


def box(kind: bytes, *parts: bytes) -> bytes:
    body = b"".join(parts)
    return struct.pack(">I4s", len(body) + 8, kind) + body


def full(kind: bytes, version: int, *parts: bytes, flags: int = 0) -> bytes:
    return box(kind, struct.pack(">I", version << 24 | flags), *parts)


def heic(
    kinds: Sequence[bytes] = (b"grid", b"hvc1"),
    parts: Sequence[tuple[int, Sequence[int]]] = ((1, [2] * 48),),
    said: Sequence[Size] = (PHONE, TILE),
    grid: tuple[int, int, int, int] = (6, 8, *PHONE),
    wide: bool = False,
    extents: int = 1,
) -> bytes:
    """Items 1, 2 … of these kinds and sizes, made of others; the first has the grid's description.

    `grid`: rows, columns, width and height. `wide`: numbers of items in 32 bits, and of properties
    in 16. `extents`: pieces of each description, all of them the same bytes.
    """
    word = ">I" if wide else ">H"
    rows, columns, width, height = grid
    payload = bytes((0, wide, rows - 1, columns - 1))
    payload += struct.pack(">II" if wide else ">HH", width, height)
    entries, places, owners = list[bytes](), list[bytes](), list[bytes]()
    for item, kind in enumerate(kinds, 1):
        number = struct.pack(word, item)
        entries.append(full(b"infe", 3 if wide else 2, number, b"\0\0", kind, b"\0"))
        extent = struct.pack(">II", 0, len(payload)) * extents
        places.append(number + struct.pack(">HHIH", 1, 0, 0, extents) + extent)
        association = struct.pack(">BH" if wide else ">BB", 1, item)
        owners.append(number + association)
    count = struct.pack(">I", len(kinds))
    references = list[bytes]()
    for item, of in parts:
        named = b"".join(struct.pack(word, part) for part in of)
        references.append(box(b"dimg", struct.pack(word, item), struct.pack(">H", len(of)), named))
    meta = full(
        b"meta",
        0,
        full(b"iinf", wide, count if wide else count[2:], *entries),
        full(b"iref", wide, *references),
        box(
            b"iprp",
            box(b"ipco", *(full(b"ispe", 0, struct.pack(">II", *size)) for size in said)),
            full(b"ipma", wide, count, *owners, flags=wide),
        ),
        full(b"iloc", 2 if wide else 1, b"\x44\x40", count if wide else count[2:], *places),
        box(b"idat", payload),
    )
    return box(b"ftyp", b"heic", bytes(4), b"mif1heic") + meta


def sizes(data: bytes) -> list[Size]:
    assert sniff(data[:128]) == "heic"
    return [*declared_sizes("heic", data)]


@pytest.mark.parametrize("wide", [False, True])
def test_a_grid_and_its_tiles(wide: bool) -> None:
    """Beside what `ispe` says: the grid's own size, and all of its tiles."""
    assert sizes(heic(wide=wide)) == [PHONE, TILE, PHONE, (8 * 512, 6 * 512)]
    limits = Limits()
    assert all(width * height < limits.max_pixels for width, height in sizes(heic()))


@pytest.mark.parametrize(
    ("data", "claim"),
    [
        (heic(said=((64, 64), TILE), grid=(256, 256, 40_000, 40_000)), "40000x40000"),
        (heic(said=((64, 64), (4096, 4096)), grid=(8, 8, 64, 64)), "32768x32768"),
        (heic(said=((64, 64), (4096, 4096)), grid=(8, 8, 64, 64), wide=True), "32768x32768"),
    ],
    ids=["a large grid", "large tiles of a small one", "wide"],
)
def test_refused_before_a_library_opens_it(
    data: bytes, claim: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("PIL.Image.open", lambda *_, **__: pytest.fail("Pillow was called"))
    with pytest.raises(ImageError, match=f"header claims {claim} pixels, over the limit"):
        read_header(data, Limits())


GRIDS = ((64, 64), (64, 64), (64, 64))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (heic((b"grid", b"grid", b"hvc1"), ((1, [2] * 4), (2, [3] * 4)), GRIDS), "within grids"),
        (heic((b"iden", b"iden", b"hvc1"), ((1, [2]), (2, [3])), GRIDS), "within grids"),
        (heic((b"iovl", b"hvc1"), ((1, [2] * 900),)), "laid over one another"),
        (heic(extents=2), "described in pieces"),
        (heic()[:-1], "ends within its description"),
    ],
    ids=["grids", "the same", "overlay", "pieces", "cut off"],
)
def test_what_multiplies_work_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(ImageError, match=reason):
        sizes(data)


def test_a_grid_that_is_turned_is_read() -> None:
    """A picture that is the same as a grid, and a thumbnail beside it."""
    kinds, said = (b"iden", b"grid", b"hvc1"), (PHONE, PHONE, TILE)
    data = heic(kinds, ((1, [2]), (2, [3] * 48)), said)
    assert sizes(data)[-2:] == [PHONE, (8 * 512, 6 * 512)]


@settings(max_examples=300)
@given(
    st.lists(st.tuples(st.integers(28, len(heic()) - 1), st.integers(0, 255)), max_size=6),
    st.integers(28, len(heic())),
)
def test_damage_raises_nothing_else(edits: list[tuple[int, int]], kept: int) -> None:
    data = bytearray(heic())
    for at, value in edits:
        data[at] = value
    with suppress(ImageError):
        sizes(bytes(data[:kept]))
