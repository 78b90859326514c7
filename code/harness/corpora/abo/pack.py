"""The same images as tar shards, one LMDB, Parquet or pixels, to compare `read` across layouts.

A pack's manifest lists the same rows, but `path` is a location: `00003.tar@1536` is the byte where
the image begins in that shard, `00000042` its key in the LMDB, `5@3` row 3 of Parquet's row group
5. `pixels` are decoded: RGB uint8 (h, w, 3), one image after another in one file; `pixels_256`
after Pillow's antialiased resize to 256 px on the longer side. Nothing is unpacked. Invalid images
are not packed. The same list makes the same bytes.
"""

import io
import json
import shutil
import tarfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import lmdb
from PIL import Image

from harness.corpora import ProgressHook, readers
from harness.corpora import manifest as manifests
from harness.corpora.abo.fetch import check_space
from harness.corpora.manifest import Item, Manifest
from wallclock.errors import ImageError, UserError
from wallclock.files import atomic_open, pretty_json, sha256_bytes, write_text

#: Rows per shard, so that row i is always in the same one.
_SHARD_ROWS = 1000
_BLOCK = tarfile.BLOCKSIZE
#: Images of a Parquet row group, which is read whole.
_GROUP_ROWS = 8
#: Images per transaction: LMDB keeps the pages of one in memory.
_COMMIT_ROWS = 256


def ensure(
    files: Manifest, layout: str, path: Path, verify: bool, progress: ProgressHook
) -> Manifest:
    """The manifest at `path` of a pack of at least what `files` lists; packs it if necessary.

    Raises:
        UserError: no space for it, or a file changed since it was listed.
    """
    root = path.with_suffix("")
    packed = manifests.load_or_none(path, root)
    same = packed and packed.head(len(files.items)).digest() == files.digest()
    if packed and same and _intact(packed, verify):
        return packed
    if layout.startswith("pixels"):
        needed = sum(3 * item.pixels for item in files.valid)
    else:
        needed = sum(item.bytes + 2 * _BLOCK for item in files.valid)
    if layout == "lmdb":
        needed *= 2
    check_space(path.parent, needed, f"{files.image_set} as {layout}")
    stored = _build(files, layout, root, progress)
    items = tuple(stored.get(item.path, item) for item in files.items)
    packed = replace(files, root=root, items=items)
    manifests.save(packed, path)
    return packed


def _build(files: Manifest, layout: str, root: Path, progress: ProgressHook) -> dict[str, Item]:
    """Write the pack next to `root`, then rename it: a killed run leaves no partial pack.

    Returns each image as it is stored, by the path of its file.
    """
    readers.release(root)
    building = root.with_name(f".{root.name}.building")
    for folder in (building, root):
        shutil.rmtree(folder, ignore_errors=True)
    building.mkdir(parents=True)
    try:
        stored = _WRITERS[layout](files, building, progress)
        written = [file for file in sorted(building.iterdir()) if file.name != "lock.mdb"]
        sizes = {file.name: file.stat().st_size for file in written}
        marker = {"layout": layout.partition("_")[0], "n_images": len(stored), "files": sizes}
        write_text(building / readers.MARKER, pretty_json(marker))
        building.rename(root)
    except lmdb.Error as error:
        raise UserError(
            f"cannot write {root}: {error}; free some space and run the same command again"
        ) from error
    finally:
        # Free the space: the disk may be full.
        shutil.rmtree(building, ignore_errors=True)
    return stored


def _intact(packed: Manifest, verify: bool) -> bool:
    """Whether the pack's files have their sizes; with `verify`, whether every image is intact."""
    try:
        sizes = json.loads((packed.root / readers.MARKER).read_text(encoding="utf-8"))["files"]
        if any((packed.root / name).lstat().st_size != size for name, size in sizes.items()):
            return False
        if verify:
            reader = readers.make(packed)
            return all(sha256_bytes(reader(item)) == item.sha256 for item in packed.valid)
    except (OSError, ValueError, KeyError, TypeError, ImageError, lmdb.Error):
        return False
    return True


def _write_tar(files: Manifest, folder: Path, progress: ProgressHook) -> dict[str, Item]:
    """Write the shards."""
    stored = {}
    for start in range(0, len(files.items), _SHARD_ROWS):
        name = f"{start // _SHARD_ROWS:05d}.tar"
        with atomic_open(folder / name, "wb") as shard:
            for _, item, data in _contents(files, start, _SHARD_ROWS, "tar", progress):
                member = tarfile.TarInfo(item.path)
                member.size = len(data)
                shard.write(member.tobuf(tarfile.USTAR_FORMAT))
                stored[item.path] = replace(item, path=f"{name}@{shard.tell()}")
                shard.write(data + bytes(-len(data) % _BLOCK))
            shard.write(bytes(2 * _BLOCK))
    return stored


def _write_lmdb(files: Manifest, folder: Path, progress: ProgressHook) -> dict[str, Item]:
    """Write the database."""
    stored = {}
    # A value fills pages of 4 KiB. The map is only address space; the file grows as it fills.
    map_bytes = sum(item.bytes + 8192 for item in files.valid) * 2 + (64 << 20)
    with lmdb.open(str(folder), map_size=map_bytes, sync=False, metasync=False) as database:
        for start in range(0, len(files.items), _COMMIT_ROWS):
            with database.begin(write=True) as transaction:
                for row, item, data in _contents(files, start, _COMMIT_ROWS, "LMDB", progress):
                    stored[item.path] = replace(item, path=f"{row:08d}")
                    transaction.put(stored[item.path].path.encode(), data, append=True)
        database.sync(True)
    return stored


def _write_parquet(files: Manifest, folder: Path, progress: ProgressHook) -> dict[str, Item]:
    """Write one file of ids and bytes, uncompressed: JPEGs are."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    stored = {}
    schema = pa.schema({"id": pa.string(), "image": pa.binary()})
    # Statistics would copy the least and the largest image into the footer.
    options = {"compression": "none", "use_dictionary": False, "write_statistics": False}
    with pq.ParquetWriter(folder / readers.PARQUET_FILE, schema, **options) as file:
        for group, start in enumerate(range(0, len(files.items), _GROUP_ROWS)):
            rows = list(_contents(files, start, _GROUP_ROWS, "Parquet", progress))
            for number, (_, item, _) in enumerate(rows):
                stored[item.path] = replace(item, path=f"{group}@{number}")
            columns = {
                "id": pa.array([item.id for _, item, _ in rows], pa.string()),
                "image": pa.array([data for _, _, data in rows], pa.binary()),
            }
            file.write_table(pa.table(columns, schema=schema), row_group_size=_GROUP_ROWS)
    return stored


def _write_pixels(
    files: Manifest, folder: Path, progress: ProgressHook, longest: int = 0
) -> dict[str, Item]:
    """Write one file of pixels; `longest`: of an image's sides after the resize, 0 for none."""
    stored = {}
    with atomic_open(folder / "pixels.u8", "wb") as file:
        for _, item, data in _contents(files, 0, len(files.items), "pixels", progress):
            image = Image.open(io.BytesIO(data)).convert("RGB")
            if longest:
                image.thumbnail((longest, longest), Image.Resampling.BILINEAR, reducing_gap=None)
            pixels = image.tobytes()
            stored[item.path] = replace(
                item,
                path=f"pixels.u8@{file.tell()}",
                bytes=len(pixels),
                width=image.width,
                height=image.height,
                format="pixels",
            )
            file.write(pixels)
    return stored


#: Layout → what writes it: (files, folder, progress) to each image as stored, by its file's path.
_WRITERS: Mapping[str, Callable[[Manifest, Path, ProgressHook], dict[str, Item]]] = {
    "tar": _write_tar,
    "lmdb": _write_lmdb,
    "parquet": _write_parquet,
    "pixels": _write_pixels,
    "pixels_256": partial(_write_pixels, longest=256),
}


def _contents(
    files: Manifest, start: int, n_rows: int, layout: str, progress: ProgressHook
) -> Iterator[tuple[int, Item, bytes]]:
    """Row, item and bytes of the valid images among `n_rows` rows."""
    reader = readers.FileReader(files.root)
    for row, item in enumerate(files.items[start : start + n_rows], start):
        if not item.valid:
            continue
        path = files.root / item.path
        try:
            data = reader(item)
        except ImageError as error:
            raise UserError(f"{path}: {error.reason}; run again with corpus.verify=true") from error
        if sha256_bytes(data) != item.sha256:
            raise UserError(f"{path} is not what was fetched; run again with corpus.verify=true")
        yield row, item, data
        progress(row + 1, len(files.items), f"packing {files.image_set} as {layout}")
