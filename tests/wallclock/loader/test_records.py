"""One bad record is one failure: with file, member and reason, and the next record arrives."""

import codecs
import io
import os
import posixpath
import tarfile
from dataclasses import replace
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from PIL import Image

import wallclock
from tests import making
from wallclock import Augment, open_images
from wallclock.errors import ImageError, UserError
from wallclock.recipe import FAST
from wallclock.stages.decode import pil

GOOD, OTHER = making.jpeg(24, 20), making.jpeg(24, 20, 1)
CUT, N = GOOD[:-60], 200


def load(items: Any, batch: int = 4, **options: Any) -> Any:
    """`ids`, `labels`, `images` and `skipped` of all batches; the reasons of `failures` by id."""
    loaded = SimpleNamespace(ids=[], labels=[], images=[], skipped=[], failures={})
    options = {"workers": 2, **options}
    with open_images(items, 8, batch, **options) as batches:
        for one in batches:
            for name in ("ids", "labels", "skipped"):
                getattr(loaded, name).extend(getattr(one, name))
            loaded.images += [*one.images.copy()]
            loaded.failures |= {row["id"]: row["reason"] for row in one.failures}
    return loaded


def write_tar(path: Path, members: list[tuple[str, Any]], mode: Any = "w") -> Path:
    with tarfile.open(path, mode) as tar:
        for name, content in members:
            info = tarfile.TarInfo(name)
            if isinstance(content, dict):
                info.pax_headers, content = content, b""
            if isinstance(content, tuple):
                (info.type, info.linkname), content = content, b""
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


@pytest.mark.parametrize(
    ("names", "ids", "skipped"),
    [
        (["IMG_1.2.jpg", "IMG_1.jpg", "v1.0_x.JPG"], ["IMG_1.2", "IMG_1", "v1.0_x"], []),
        (["1 10.22.jpg", "a.0.jpg", "a.1.jpg"], ["1 10.22", "a.0", "a.1"], []),
        (["a.jpg", "a.seg.png", "a.meta.json", "b.jpg"], ["a", "b"], ["a.seg.png"]),
        (["st.petersburg.jpg", "st.x.jpg", "st.x.bin"], ["st.petersburg", "st.x"], []),
        ([f"cam.left_{at}.jpg" for at in range(99)], [f"cam.left_{at}" for at in range(99)], []),
        (["d/._a.jpg", "d/a.jpg", ".DS_Store"], ["d/a"], ["d/._a.jpg", ".DS_Store"]),
        (["__MACOSX/a.jpg", "./d/a.jpg"], ["d/a"], ["__MACOSX/a.jpg"]),
        ([".jpg", ".b.jpg", "c", "d.pdf"], [".b"], [".jpg", "c", "d.pdf"]),
    ],
)
def test_a_name_in_a_tar(
    names: list[str], ids: list[str], skipped: list[str], tmp_path: Path
) -> None:
    members = [(name, b"{}" if name.endswith("json") else GOOD) for name in names]
    loaded = load(str(write_tar(tmp_path / "t.tar", members)), 2)
    assert (loaded.ids, loaded.failures) == (ids, {})
    assert sorted(loaded.skipped) == sorted(f"{tmp_path}/t.tar/{name}" for name in skipped)


ENDS = st.sampled_from(["", ".jpg", ".JPG", ".png", ".cls", ".json", ".txt"])


@given(st.lists(st.tuples(st.text("aB.1_/é", min_size=1, max_size=7), ENDS), max_size=8))
@settings(max_examples=60)
@example([("a", ".jpg"), ("a", ".jpg"), ("a.b", ".jpg"), ("a", ".png")])
def test_any_name_in_a_tar(names: list[tuple[str, str]]) -> None:
    """Each image is a row, or a failure, or named among the skipped; the last record arrives."""
    contents = {".cls": b"1", ".json": b"{}", ".txt": b"a"}
    members = [(f"{stem}{end}", contents.get(end, GOOD)) for stem, end in names]
    with TemporaryDirectory() as folder:
        tar = write_tar(Path(folder, "t.tar"), [*members, ("zz/last.jpg", OTHER)])
        loaded = load(tar, 2)
    assert loaded.ids[-1] == "zz/last"
    for name, content in members:
        path = posixpath.normpath(name)
        stem = path.rpartition(".")[0]
        if content is GOOD and f"{tar}/{path}" not in loaded.skipped:
            assert stem in loaded.ids or f"{tar}/{stem}" in loaded.failures[stem]


@given(st.sampled_from(["cls", "json", "txt", "npy"]), st.binary(max_size=12))
@settings(max_examples=30)
@example("cls", b"")
@example("json", b"[" * 100_000)
def test_any_bytes_beside_an_image(kind: str, data: bytes) -> None:
    with TemporaryDirectory() as folder:
        members = [("a.jpg", GOOD), (f"a.{kind}", data), ("b.jpg", OTHER)]
        loaded = load(write_tar(Path(folder, "t.tar"), members))
    assert loaded.ids[-1] == "b"
    assert len(loaded.ids) + len(loaded.failures) == 2
    assert all(f"t.tar/a.{kind}: damaged: " in reason for reason in loaded.failures.values())


def test_classes_links_and_other_members_of_a_tar(tmp_path: Path) -> None:
    hard, soft = tarfile.LNKTYPE, tarfile.SYMTYPE
    members: list[Any] = [("d/a.jpg", GOOD), ("d/a.cls", b"3\n"), ("d/hard.jpg", (hard, "d/a.jpg"))]
    members += [("d/hard.cls", "café ".encode()), ("d/soft.jpg", (soft, "hard.jpg"))]
    members += [("d/pipe.jpg", (tarfile.FIFOTYPE, ""))]
    members += [("d", (tarfile.DIRTYPE, "")), ("d/two.jpg", GOOD), ("d/two.png", GOOD)]
    members += [("d/b.jpg", OTHER), ("d/b.jpg", OTHER), ("readme", b"")]
    # Between members of `c`, `c.0` has no image and is a field; `c.1` has one.
    members += [("c.jpg", GOOD), ("c.0.npy", b""), ("c.1.cls", b"1"), ("c.1.jpg", GOOD)]
    members += [("c.cls", codecs.BOM_UTF8 + b"5")]
    loaded = load(write_tar(tmp_path / "t.tar", members), 2)
    assert loaded.ids == ["d/a", "d/b", "c", "c.1"]
    assert loaded.labels == [3, None, 5, 1]
    start = f"{tmp_path}/t.tar/"
    link = "link, which is not followed; write the tar with"
    assert loaded.failures == {
        "d/hard": f"{start}d/hard.jpg: a hard {link} --hard-dereference",
        "d/soft": f"{start}d/soft.jpg: a {link} --dereference",
        "d/pipe": f"{start}d/pipe.jpg: no regular file",
        "d/two": f"{start}d/two.png: a second one in one sample",
        "d/b": f"{start}d/b.jpg: a second member of this name",
    }
    assert loaded.skipped == [f"{start}d", f"{start}readme"]
    with pytest.raises(UserError, match=r"t\.tar: no image in it, but .*t\.tar/notes\.txt"):
        load(write_tar(tmp_path / "t.tar", [("notes.txt", b"")]))


def test_data_comes_before_a_reference(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(OTHER)
    path, table = str(tmp_path / "a.jpg"), str(tmp_path / "t.parquet")
    columns = {"PATH": [path] * 3, " Jpg ": [GOOD, None, GOOD], "image": [None] * 3}
    pq.write_table(pa.table({**columns, "Cls": [*"abc"]}), table)
    rows: list[Any] = [
        {"path": path, "bytes": GOOD, "cls": "a"},
        {"url": path, "image": None, "label": "b"},
        {"image": path, "webp": GOOD, "cls": "c"},
    ]
    expected = load([GOOD, OTHER, GOOD]).images
    for items in (table, rows):
        loaded = load(items)
        np.testing.assert_array_equal(loaded.images, expected)
        assert loaded.labels == [*"abc"]
    for wrong, words in {"path, Path": "leave one column path", "text": "one column must"}.items():
        pq.write_table(pa.table({column: [path] for column in wrong.split(", ")}), table)
        with pytest.raises(UserError, match=rf"t\.parquet has {wrong}: {words}"):
            load(table)


def test_a_pair_is_an_image_and_its_label(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.jpg").write_bytes(GOOD)
    os.mkdir("cat")
    mask = np.zeros((20, 24), np.uint8)
    labels = [mask, Image.fromarray(mask), {"path": "x.jpg", "boxes": []}, 3, None]
    loaded = load([("a.jpg", label) for label in labels])
    assert all(got is label for got, label in zip(loaded.labels, labels, strict=True))
    assert loaded.ids == ["a.jpg"] * 5
    wrong: list[Any] = [("a.jpg", "cat"), ("mine", mask)]
    loaded = load([*wrong, GOOD])
    assert loaded.ids == ["2"]
    fix = "the first of two texts is the id; write {'image': 'a.jpg', 'label': 'cat'}"
    assert f"'cat' is not a file: {fix}" in loaded.failures["a.jpg"]
    assert "'mine' is not a file: the second of a pair is its label; write" in loaded.failures["1"]
    os.rename("a.jpg", "a")  # a label is told from a path where its image is there
    for pair in (("a", "cat"), wrong[1]):
        with pytest.raises(UserError, match=r"is not a file: the \w+ of .*; write {'i"):
            open_images([pair] * 3)


def test_labels_of_folders(tmp_path: Path) -> None:
    for name in ("b/x.jpg", "a/deep/y.jpg", "Z/z.jpg"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_bytes(GOOD)
    with open_images(tmp_path, 8, labels="folder") as batches:
        (batch,) = batches
        assert batches.classes == ["Z", "a", "b"]
    assert (batch.ids, batch.labels) == (["Z/z.jpg", "a/deep/y.jpg", "b/x.jpg"], [0, 1, 2])
    (tmp_path / "top.jpg").write_bytes(GOOD)
    (tmp_path / "a/notes.txt").write_bytes(b"")
    for options in ({}, {"shard": (0, 2)}, {"shard": (1, 2)}):
        again = load(tmp_path, 1, labels="folder", epochs=2, **options)
        skipped = ["top.jpg", "a/notes.txt"] * 2
        assert again.skipped == ([] if options.get("shard") == (1, 2) else skipped)
        assert {*zip(again.ids, again.labels, strict=True)} <= {
            *zip(batch.ids, batch.labels, strict=True)
        }
    assert load(tmp_path).skipped == ["a/notes.txt"]
    (tmp_path / "c").mkdir()
    (tmp_path / "c/top.jpg").write_bytes(GOOD)
    with pytest.raises(UserError, match="no image in a folder under"):
        open_images(tmp_path / "c", labels="folder")
    wrong: list[Any] = [([GOOD], "folder"), (tmp_path, "name"), ("a.tar", "folder")]
    for items, labels in wrong:
        with pytest.raises(UserError, match="give 'folder', with a folder, or leave it out"):
            open_images(items, labels=labels)


def test_decode_names_the_file_and_a_batch_is_two_lines() -> None:
    with pytest.raises(ImageError, match=r"^gone\.jpg: read: No such file"):
        wallclock.decode("gone.jpg")
    with pytest.raises(ImageError, match=r"^ndarray: decode: an array of float16 \(4, 4\): give"):
        wallclock.decode(np.zeros((4, 4), np.float16))
    (batch,) = open_images([GOOD, CUT], 8)
    start = "<Batch: 1 images uint8 (1, 8, 8, 3), 1 failures, 0 skipped\n  failure: 1, in decode: "
    assert repr(batch).startswith(start)


def assert_same(picture: Any, image: Image.Image) -> None:
    """A picture gives what its file does: the same pixels, or no row."""
    file = io.BytesIO()
    image.save(file, "PNG" if image.mode in ("1", "L", "LA", "P", "RGB", "RGBA") else "TIFF")
    for output in ("RGB", "RGBA", "L"):
        options: dict[str, Any] = {"preprocess": "original", "output": output}
        with open_images([picture, file.getvalue(), GOOD], **options) as batches:
            (batch,) = batches
        assert len(batch.ids) != 2
        if len(batch.ids) == 3:
            pixels, expected = np.stack(batch.images[:2]).astype(int)
            # The luma of YCbCr, which is not rounded to RGB before, is a level off.
            assert np.abs(pixels - expected).max() <= (image.mode == "YCbCr")


@pytest.mark.parametrize("mode", Image.MODES)
def test_a_pillow_image_of_any_mode_is_as_its_file(mode: str) -> None:
    picture = Image.fromarray(np.random.default_rng(1).integers(0, 255, (7, 9, 4), np.uint8))
    if mode.startswith(("I", "F", "LAB")):
        n = len(Image.new(mode, picture.size).tobytes())
        picture = Image.frombytes(mode, picture.size, (picture.tobytes() * 2)[:n])
    else:
        through = {"La": "LA", "PA": "P", "P": "RGB", "YCbCr": "RGB"}.get(mode, "RGBA")
        picture = picture.convert(through).convert(mode)
    written = picture.convert({"HSV": "RGB", "RGBa": "RGBA", "La": "LA"}.get(mode, mode))
    assert_same(picture, Image.fromarray(np.asarray(picture)) if mode == "I;16N" else written)
    assert len(load([picture, GOOD]).ids) == (1 if mode in ("I", "F") else 2)


SHAPES = [(7, 9), (7, 9, 2), (7, 9, 3), (7, 9, 4), (7, 9, 7), (0, 9), (9,), ()]
PIXELS = [*product(["B", "H", ">u2"], SHAPES[:4]), ("?", (7, 9))]


def test_other_arrays_are_refused() -> None:
    kinds = product([*"?bBhHiIlLqQefdgFDGSUVOMm", ">u2", ">i4"], SHAPES)
    others = [np.zeros(shape, dtype) for dtype, shape in kinds if (dtype, shape) not in PIXELS]
    loaded = load([*others, GOOD], 64)
    assert (loaded.ids, len(loaded.failures)) == ([str(len(others))], len(others))


@pytest.mark.parametrize(("dtype", "shape"), PIXELS)
def test_an_array_is_as_its_file(dtype: str, shape: tuple[int, ...]) -> None:
    most = 1 if dtype == "?" else np.iinfo(dtype).max
    array = np.random.default_rng(2).integers(0, most, shape, endpoint=True).astype(dtype)
    assert_same(array, Image.fromarray((array >> 8).astype(np.uint8) if most > 255 else array))


@pytest.mark.parametrize("kind", ["in blocks", "of others", "aligned", "in place"])
def test_where_pillow_has_the_pixels(kind: str) -> None:
    """In its own memory they are read in place; a user's are not changed."""
    core: Any = getattr(Image, "core")  # noqa: B009 - not in its type stubs
    array = making.picture(61, 530)
    block, picture = core.get_block_size(), Image.fromarray(array)
    try:
        core.set_block_size(4096 if kind == "in blocks" else block)
        core.set_alignment(64 if kind == "aligned" else 1)
        for mode in ("RGB", "RGBA", "L", "CMYK"):
            image = Image.fromarray(np.asarray(picture.convert(mode)), mode)
            if kind != "of others":
                image = picture.convert(mode).copy()
            assert_same(image, picture.convert(mode))
    finally:
        core.set_block_size(block)
        core.set_alignment(1)
    if kind == "in place":
        row = pil.pixels_of(picture, "RGB")
        picture.putpixel((3, 2), (1, 2, 3))
        assert row[2, 3].tolist() == [1, 2, 3]
        assert not row.flags.writeable


def test_an_array_is_read_where_it_lies() -> None:
    """Whatever its layout; who transforms it has an array of their own."""
    array = making.picture(40, 30)
    layouts = [array, array[::-1], array[:, ::-1], array[..., ::-1], array[3:20, 5:9]]
    layouts += [np.asfortranarray(array), np.broadcast_to(array[:1], array.shape)]

    def blacken(pixels: Any) -> Any:
        assert np.array_equal(pixels, pixels.copy())
        pixels[...] = 0
        return pixels

    geometries = "squash:20x20,bilinear", "original", "shortest:20,crop:20x20,bicubic"
    for preprocess, pixels in product(geometries, layouts):
        pair = [pixels, making.encode(pixels, "PNG")]
        with open_images(pair, preprocess=preprocess) as batches:
            (batch,) = batches
        np.testing.assert_array_equal(*batch.images)
    kept = array.copy()
    augment = Augment(size=(30, 40), transform=blacken, random=False)
    options: Any = {"augment": augment, "preprocess": "squash:30x40,bilinear", "workers": 1}
    for resizer in ("native", "torch", "pil"):
        recipe = replace(FAST, resizer=resizer)
        with (
            patch("wallclock.loader.loading.FAST", recipe),
            open_images([array], **options) as batches,
        ):
            (batch,) = batches
        assert not np.any(batch.images[0])
    np.testing.assert_array_equal(array, kept)


def test_a_pillow_image_brings_no_metadata_but_its_orientation() -> None:
    turned = Image.open(io.BytesIO(making.oriented(6, width=24, height=20)))
    tiff = io.BytesIO()
    turned.save(tiff, "TIFF", big_tiff=True, exif=turned.getexif())
    turned.info["icc_profile"] = os.urandom(1_200_000)
    opened = Image.open(tiff)  # Pillow turns a TIFF when it decodes it, once
    plain = Image.open(io.BytesIO(making.jpeg(20, 24, exif=b"Exif\0\0nothing")))
    with open_images([turned, opened, opened, plain], preprocess="original,rotate") as batches:
        (batch,) = batches
    assert [image.shape for image in batch.images] == [(24, 20, 3)] * 4


def image_at(at: int) -> Any:
    """An image as a dict has it: of twenty, ten are damaged."""
    pictures: list[Any] = [CUT, b"", None, {"bytes": None, "path": None}, f"none{at}.jpg", 7, {}]
    pictures += [np.zeros((4, 4), np.float32), making.png_16_bit()[:60]]
    if at % 20 == 9:  # which Pillow has not decoded yet
        return Image.open(io.BytesIO(making.jpeg(512, 512)[:3000]))
    return pictures[at % 20] if at % 20 < len(pictures) else GOOD


class Dataset:
    def __len__(self) -> int:
        return N

    def __getitem__(self, at: int) -> Any:
        if at % 20 == 10:
            raise KeyError("damaged row")
        return {"id": f"{at}", "image": image_at(at), "label": at}


@pytest.mark.parametrize("kind", ["list", "stream", "dataset", "pairs"])
def test_items_of_any_sequence(kind: str) -> None:
    items: Any = Dataset()
    if kind == "pairs":
        items = [(image_at(at), at) for at in range(N)]
    elif kind != "dataset":
        items = ({"id": f"{at}", "image": image_at(at), "label": at} for at in range(N))
    loaded = load([*items] if kind == "list" else items, 64)
    assert loaded.labels == [at for at in range(N) if at % 20 > (10 if kind == "dataset" else 9)]
    assert loaded.ids == [str(label) for label in loaded.labels]
    assert len(loaded.ids) + len(loaded.failures) == N


def as_if_text(array: Any) -> Any:
    """Bytes that an Arrow column calls text, UTF-8 or not."""
    return pa.Array.from_buffers(pa.string(), len(array), array.buffers())


@pytest.mark.parametrize("is_struct", [False, True])
def test_rows_of_a_table(is_struct: bool, tmp_path: Path) -> None:
    images: list[Any] = [[CUT, b"", None][at % 20] if at % 20 < 3 else GOOD for at in range(N)]
    labels = pa.array([b"\xff" if at % 20 == 3 else b"cat" for at in range(N)])
    if is_struct:
        images = [{"bytes": data, "path": None} for data in images]
    table, ids = tmp_path / "t.parquet", [f"r{at}" for at in range(N)]
    columns: dict[str, Any] = {"Image": images, "id": ids, "label": as_if_text(labels)}
    # No pixel depends on what Python cannot have of these.
    columns["time"] = pa.array([0] * N, pa.timestamp("us", tz="Mars/Phobos"))
    columns["day"] = pa.array([1 << 30] * N, pa.date32())
    pq.write_table(pa.table(columns), table)
    loaded = load(table, 64)
    assert loaded.ids == [f"r{at}" for at in range(N) if at % 20 > 3]
    assert {*loaded.labels} == {"cat"}
    assert len(loaded.failures) == 4 * N // 20
    assert loaded.failures["r23"].startswith(f"{table}: label: ")
    assert loaded.failures["r22"] == f"{table}: item 22 has no image"
    assert loaded.failures["r1"] == f"{table}: empty file"
