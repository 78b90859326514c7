"""No file of a folder vanishes: each is an image, a failure with a reason, or one of the others."""

import io
import struct
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from tests import making
from wallclock import formats
from wallclock.check import read_header, validate
from wallclock.errors import ImageError
from wallclock.fetch.folder import FolderListing
from wallclock.formats import declared_sizes, sniff
from wallclock.job.listing import list_items
from wallclock.loader.images import open_images
from wallclock.recipe import Limits
from wallclock.stages import decode
from wallclock.stages.decode import pil


def coded(kind: str, mode: str = "RGB", **options: Any) -> bytes:
    return making.encode(making.picture(), kind, mode, **options)


def big_endian_tiff() -> bytes:
    """An uncompressed TIFF of 2x1 grey pixels, written by hand: Pillow writes little-endian."""
    tags = {256: 2, 257: 1, 258: 8, 259: 1, 262: 1, 273: 8, 277: 1, 278: 1, 279: 2}
    body = b"".join(struct.pack(">HHIHH", tag, 3, 1, value, 0) for tag, value in tags.items())
    return b"MM\0*\0\0\0\x0a\x10\x20" + struct.pack(">H", len(tags)) + body + bytes(4)


def ftyp(*brands: bytes) -> bytes:
    body = brands[0] + bytes(4) + b"".join(brands)
    return struct.pack(">I4s", len(body) + 8, b"ftyp") + body


def ispe(width: int, height: int) -> bytes:
    box = struct.pack(">I4sIII", 20, b"ispe", 0, width, height)
    for kind, version in ((b"ipco", b""), (b"iprp", b""), (b"meta", bytes(4))):
        box = struct.pack(">I4s", 8 + len(version) + len(box), kind) + version + box
    return box


HEIC = ftyp(b"heic", b"mif1") + ispe(64, 48)
FILES = {
    "a.jpg": (making.jpeg(), "jpeg"),
    "b.png": (coded("PNG"), "png"),
    "c.webp": (coded("WEBP"), "webp"),
    "d.gif": (coded("GIF", "P"), "gif"),
    "e.bmp": (coded("BMP"), "bmp"),
    "f.tif": (coded("TIFF"), "tiff"),
    "g.tiff": (big_endian_tiff(), "tiff"),
    "h.btf": (coded("TIFF", big_tiff=True), "tiff"),
    "i.avif": (coded("AVIF"), "avif"),
    "j.jp2": (coded("JPEG2000"), "jp2"),
    "k.j2k": (coded("JPEG2000", no_jp2=True), "jp2"),
    "l.heic": (HEIC, "heic"),
}
OTHERS = {
    "notes.txt": b"BM no bitmap, but a text",
    "sub/a.csv": b"id,path\n",
    "clip.mp4": ftyp(b"isom"),
}


@pytest.fixture
def no_heif(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the plugin is installed, as if it were not."""
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    monkeypatch.delitem(Image.OPEN, "HEIF", raising=False)
    pil._register_heif.cache_clear()


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """A folder of twelve formats, three files that are no images, and hidden ones."""
    (tmp_path / "sub").mkdir()
    (tmp_path / ".hidden").mkdir()
    files = {name: data for name, (data, _) in FILES.items()} | OTHERS
    files |= {".DS_Store": b"x", ".hidden/x.jpg": FILES["a.jpg"][0]}
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    return tmp_path


@pytest.mark.parametrize("name", FILES)
def test_content_says_what_a_file_is(name: str) -> None:
    data, format = FILES[name]
    assert formats.sniff(data[: formats.HEAD_BYTES]) == format
    sizes = [*formats.declared_sizes(format, data)]
    expected = (2, 1) if name == "g.tiff" else (64, 48)
    assert {*sizes} == (set() if format == "jpeg" else {expected})


@pytest.mark.parametrize(
    ("brands", "format"),
    [
        ((b"avis",), "avif"),
        ((b"mif1", b"avif"), "avif"),
        ((b"heic", b"avif"), "heic"),
        ((b"mif1", b"heic"), "heic"),
        ((b"msf1",), "heic"),
        ((b"isom", b"mp42"), None),
    ],
)
def test_brands(brands: tuple[bytes, ...], format: str | None) -> None:
    assert formats.sniff(ftyp(*brands)) == format


@pytest.mark.usefixtures("no_heif")
def test_counts_of_a_mixed_folder_add_up(mixed: Path) -> None:
    under = FolderListing(mixed)
    skipped = sorted([*OTHERS, ".DS_Store", ".hidden/"])
    assert (list(under), under.others) == (sorted(FILES), skipped)
    items = list_items(str(mixed))
    assert items.others == tuple(skipped)
    with open_images(mixed, 16, 99) as batches:
        (batch,) = batches
    assert batch.ids == [name for name in sorted(FILES) if name != "l.heic"]
    reason = "HEIC needs pillow-heif: pip install pillow-heif"
    assert [(row["id"], row["stage"], row["reason"]) for row in batch.failures] == [
        ("l.heic", "decode", reason)
    ]
    n_files = sum(path.is_file() for path in mixed.rglob("*"))  # a hidden folder has one
    assert len(batch.ids) + len(batch.failures) + len(items.others) == n_files


@pytest.mark.filterwarnings("ignore:Image appears to be a malformed MPO")  # and still a JPEG
def test_the_torture_folder_adds_up(torture: list[tuple[Path, str]]) -> None:
    root = torture[0][0].parent
    with open_images(root, 16, 64) as loader:
        batches = [(list(batch.ids), list(batch.failures)) for batch in loader]
    accounted = [name for ids, _ in batches for name in ids]
    failures = [row for _, rows in batches for row in rows]
    files = {path.name for path in root.iterdir() if not path.name.startswith(".")}
    under = FolderListing(root)
    assert list(under)
    listed = accounted + [row["id"] for row in failures] + under.others
    assert sorted(listed) == sorted(files)
    assert all(row["reason"] for row in failures)


def bmp(width: int, height: int) -> bytes:
    head = struct.pack(
        "<2sIIIIiiHHIIIIII", b"BM", 58, 0, 54, 40, width, height, 1, 24, 0, 4, 0, 0, 0, 0
    )
    return head + bytes(4)


def gif(screen: int, frame: int) -> bytes:
    head = struct.pack("<6sHHBBB", b"GIF89a", screen, screen, 0x80, 0, 0) + bytes(6)
    control = b"\x21\xf9\x04\x08\0\0\0\0"  # disposal: to the background, which is filled at once
    return (
        head + control + struct.pack("<B4HB", 0x2C, 0, 0, frame, frame, 0) + b"\x02\x02\x4c\x01\0;"
    )


def tiff_of(*entries: tuple[int, int]) -> bytes:
    body = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in entries)
    return b"II*\0\x08\0\0\0" + struct.pack("<H", len(entries)) + body + bytes(4)


def siz(width: int, height: int) -> bytes:
    return b"\xff\x4f\xff\x51" + struct.pack(">HHIIII", 41, 0, width, height, 0, 0) + bytes(30)


LYING = {
    "jpeg": making.claiming(making.jpeg(), 60_000, 60_000),
    "png": making.png(60_000, 60_000),
    "gif screen": gif(65_535, 1),
    "gif frame": gif(1, 65_535),
    "bmp": bmp(60_000, 60_000),
    "bmp from the top": bmp(60_000, -60_000),
    "tiff": tiff_of((256, 60_000), (257, 60_000)),
    "tiff tile": tiff_of((256, 16), (257, 16), (322, 60_000), (323, 60_000)),
    "avif": ftyp(b"avif", b"mif1") + ispe(60_000, 60_000),
    "heic": ftyp(b"heic", b"mif1") + ispe(60_000, 60_000),
    "j2k": siz(60_000, 60_000),
    "jp2": b"\0\0\0\x0cjP  \r\n\x87\n" + struct.pack(">I4s", 0, b"jp2c") + siz(60_000, 60_000),
    "webp": b"RIFF\x1e\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0" + b"\x5f\xea\0" * 2,
}


@pytest.mark.parametrize("name", LYING)
def test_sizes_are_limited_before_a_decoder_is_called(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for decoder in ("PIL.Image.open", "simplejpeg.decode_jpeg"):
        monkeypatch.setattr(decoder, lambda *_, **__: pytest.fail("a decoder was called"))
    with pytest.raises(ImageError, match=r"header claims \d+x\d+ pixels, over the limit"):
        validate(LYING[name], Limits())


def test_pillows_own_limit_is_raised_and_never_lifted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    validate(coded("PNG"), Limits(max_pixels=5_000))
    assert Image.MAX_IMAGE_PIXELS == 5_000
    decode.make("pil")
    assert Limits.max_pixels == Image.MAX_IMAGE_PIXELS
    validate(coded("PNG"), Limits(max_pixels=5_000))
    assert Limits.max_pixels == Image.MAX_IMAGE_PIXELS


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (tiff_of((254, 1), (256, 16), (257, 16)), "a camera's raw file"),
        (tiff_of((256, 16), (257, 16), (50706, 1)), "a camera's raw file"),
        (b"II*\0\x10\0\0\0CR\2\0" + bytes(4) + tiff_of((256, 16))[8:], "a camera's raw file"),
        (b"MM\0+\0\x08\0\0" + bytes(20), "no big-endian BigTIFF"),
        (tiff_of((256, 16)), "cannot decode this tiff"),
        (gif(9, 9)[:19] + b"\x21\xfe" + b"\1x" * 20_000 + b"\0" + gif(9, 9)[19:], "GIF blocks"),
        (b"GIF89a" + bytes(20_000), "GIF blocks"),
        (HEIC[:40], "HEIC needs|cannot decode this heic"),
    ],
)
def test_refused_with_a_reason(data: bytes, reason: str) -> None:
    with pytest.raises(ImageError, match=reason):
        validate(data, Limits())


def test_an_installed_heif_plugin_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fake pillow-heif, which registers a plugin of that name."""

    class Plugin:
        @staticmethod
        def register_heif_opener(**_: object) -> None:
            picture = Image.fromarray(making.picture())
            monkeypatch.setitem(Image.OPEN, "HEIF", (lambda fp, name: picture.copy(), None))

    monkeypatch.setitem(sys.modules, "pillow_heif", Plugin)
    pil._register_heif.cache_clear()
    assert validate(HEIC, Limits()).format == "heic"
    np.testing.assert_array_equal(decode.make_other("pil")(HEIC), making.picture())
    pil._register_heif.cache_clear()


def test_every_extension_is_listed_by_its_name(tmp_path: Path) -> None:
    names = sorted(f"x{kind}" for kind in (".JPG", ".Tif", ".heif", ".bmp", ".avif", ".j2k"))
    for name in [*names, "x.ico"]:
        (tmp_path / name).write_bytes(b"")
    icon = io.BytesIO()
    Image.fromarray(making.picture(16, 16)).save(icon, "ICO")
    (tmp_path / "y.ico").write_bytes(icon.getvalue())
    under = FolderListing(tmp_path)
    assert list(under) == names
    assert under.others == ["x.ico", "y.ico"]


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
