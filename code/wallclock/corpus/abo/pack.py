"""The same images as tar shards or as one LMDB, to compare `read` across layouts.

A pack's manifest lists the same rows, but `path` is a location: `00003.tar@1536` is the byte where
the image begins in that shard, `00000042` its key in the LMDB. Nothing is unpacked. Invalid images
are not packed. The same list makes the same bytes.
"""

import json
import shutil
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import lmdb

from wallclock.corpus import Progress, readers
from wallclock.corpus import manifest as manifests
from wallclock.corpus.abo.fetch import check_space
from wallclock.corpus.manifest import Item, Manifest
from wallclock.errors import ImageError, UserError
from wallclock.files import atomic_open, pretty_json, sha256_bytes, write_text

#: Rows per shard, so that row i is always in the same one.
_SHARD_ROWS = 1000
_BLOCK = tarfile.BLOCKSIZE
#: Images per transaction: LMDB keeps the pages of one in memory.
_COMMIT_ROWS = 256


def ensure(files: Manifest, layout: str, path: Path, verify: bool, progress: Progress) -> Manifest:
    """The manifest at `path` of a pack of at least what `files` lists; packs it if necessary.

    Raises:
        UserError: no space for it, or a file changed since it was listed.
    """
    root = path.with_suffix("")
    packed = manifests.load_or_none(path, root)
    same = packed and packed.head(len(files.items)).digest() == files.digest()
    if packed and same and _intact(packed, verify):
        return packed
    needed = sum(item.bytes + 2 * _BLOCK for item in files.valid) * (2 if layout == "lmdb" else 1)
    check_space(path.parent, needed, f"corpus.layout={layout}")
    locations = _build(files, layout, root, progress)
    items = tuple(replace(item, path=locations.get(item.path, item.path)) for item in files.items)
    packed = replace(files, root=root, items=items)
    manifests.save(packed, path)
    return packed


def _build(files: Manifest, layout: str, root: Path, progress: Progress) -> dict[str, str]:
    """Write the pack next to `root`, then rename it: a killed run leaves no partial pack."""
    readers.release(root)
    building = root.with_name(f".{root.name}.building")
    for folder in (building, root):
        shutil.rmtree(folder, ignore_errors=True)
    building.mkdir(parents=True)
    try:
        write = _write_tar if layout == "tar" else _write_lmdb
        locations = write(files, building, progress)
        written = [file for file in sorted(building.iterdir()) if file.name != "lock.mdb"]
        sizes = {file.name: file.stat().st_size for file in written}
        marker = {"layout": layout, "n_images": len(locations), "files": sizes}
        write_text(building / readers.MARKER, pretty_json(marker))
        building.rename(root)
    except lmdb.Error as error:
        raise UserError(
            f"cannot write {root}: {error}; free some space and run the same command again"
        ) from error
    finally:
        # Free the space: the disk may be full.
        shutil.rmtree(building, ignore_errors=True)
    return locations


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


def _write_tar(files: Manifest, folder: Path, progress: Progress) -> dict[str, str]:
    """Write the shards; return each image's location by its path."""
    locations = {}
    for start in range(0, len(files.items), _SHARD_ROWS):
        name = f"{start // _SHARD_ROWS:05d}.tar"
        with atomic_open(folder / name, "wb") as shard:
            for _, item, data in _contents(files, start, _SHARD_ROWS, "tar", progress):
                member = tarfile.TarInfo(item.path)
                member.size = len(data)
                shard.write(member.tobuf(tarfile.USTAR_FORMAT))
                locations[item.path] = f"{name}@{shard.tell()}"
                shard.write(data + bytes(-len(data) % _BLOCK))
            shard.write(bytes(2 * _BLOCK))
    return locations


def _write_lmdb(files: Manifest, folder: Path, progress: Progress) -> dict[str, str]:
    """Write the database; return each image's key by its path."""
    locations = {}
    # A value fills pages of 4 KiB. The map is only address space; the file grows as it fills.
    map_bytes = sum(item.bytes + 8192 for item in files.valid) * 2 + (64 << 20)
    with lmdb.open(str(folder), map_size=map_bytes, sync=False, metasync=False) as database:
        for start in range(0, len(files.items), _COMMIT_ROWS):
            with database.begin(write=True) as transaction:
                for row, item, data in _contents(files, start, _COMMIT_ROWS, "LMDB", progress):
                    locations[item.path] = f"{row:08d}"
                    transaction.put(locations[item.path].encode(), data, append=True)
        database.sync(True)
    return locations


def _contents(
    files: Manifest, start: int, n_rows: int, layout: str, progress: Progress
) -> Iterator[tuple[int, Item, bytes]]:
    """Row, item and bytes of the valid images among `n_rows` rows."""
    reader = readers.Reader(files.root)
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
