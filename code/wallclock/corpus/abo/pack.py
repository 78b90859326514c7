"""The same images as tar shards or as one LMDB, so that `read` can be compared.

A pack's manifest lists the same rows; only `path` says another place: `00003.tar@1536` is the byte
where the image begins in that shard, `00000042` its key in the LMDB. Nothing is ever unpacked. Rows
that cannot be used are not packed. The same list makes the same bytes.
"""

from __future__ import annotations

import json
import shutil
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import lmdb

from wallclock.corpus import manifest as manifests
from wallclock.corpus import readers
from wallclock.corpus.manifest import Item, Manifest
from wallclock.errors import ImageError, UserError
from wallclock.files import atomic_open, pretty_json, sha256_bytes, write_text

#: Images a shard, by row, so that row i is always in the same one.
_SHARD_ROWS = 1000
_BLOCK = tarfile.BLOCKSIZE
#: Images a transaction: LMDB keeps the pages of one in memory.
_COMMIT_ROWS = 256

Progress = Callable[[int, int, str], None]


def ensure(files: Manifest, layout: str, path: Path, verify: bool, progress: Progress) -> Manifest:
    """The manifest at `path` of a pack that holds at least what `files` lists, packed now if it does not.

    Raises:
        UserError: no space for it, or a file changed since it was listed.
    """
    root = path.with_suffix("")
    known = manifests.load_or_none(path, root)
    if (
        known is not None
        and known.first(len(files.items)).digest() == files.digest()
        and _whole(known, verify)
    ):
        return known
    needed = sum(item.bytes + 2 * _BLOCK for item in files.valid) * (2 if layout == "lmdb" else 1)
    free = shutil.disk_usage(path.parent).free
    if needed > free:
        raise UserError(
            f"corpus.layout={layout} needs {needed / 1e9:,.1f} GB more in {path.parent}, {free / 1e9:,.1f} GB are free"
        )
    places = _build(files, layout, root, progress)
    items = tuple(replace(item, path=places.get(item.path, item.path)) for item in files.items)
    packed = Manifest(files.kind, files.image_set, root, items)
    manifests.save(packed, path)
    return packed


def _build(files: Manifest, layout: str, root: Path, progress: Progress) -> dict[str, str]:
    """Write the pack beside `root`, then rename: a killed run leaves no half pack under the name that is read."""
    readers.release(root)
    building = root.with_name(f".{root.name}.building")
    for folder in (building, root):
        shutil.rmtree(folder, ignore_errors=True)
    building.mkdir(parents=True)
    try:
        places = (
            _write_tar(files, building, progress)
            if layout == "tar"
            else _write_lmdb(files, building, progress)
        )
        sizes = {
            file.name: file.stat().st_size
            for file in sorted(building.iterdir())
            if file.name != "lock.mdb"
        }
        write_text(
            building / readers.MARKER,
            pretty_json({"layout": layout, "n_images": len(places), "files": sizes}),
        )
    except lmdb.Error as error:
        shutil.rmtree(building)
        raise UserError(
            f"cannot write {root}: {error}; free some space and run the same command again"
        ) from error
    except BaseException:
        # What it took is needed by whoever runs out of disk.
        shutil.rmtree(building)
        raise
    building.rename(root)
    return places


def _whole(packed: Manifest, verify: bool) -> bool:
    """Whether the pack's files have the sizes that were written; with `verify`, whether every image is in them."""
    try:
        sizes = json.loads((packed.root / readers.MARKER).read_text(encoding="utf-8"))["files"]
        if any((packed.root / name).lstat().st_size != size for name, size in sizes.items()):
            return False
        if verify:
            reader = readers.make(packed.root)
            return all(sha256_bytes(reader(item)) == item.sha256 for item in packed.valid)
    except (OSError, ValueError, KeyError, TypeError, ImageError, lmdb.Error):
        return False
    return True


def _write_tar(files: Manifest, folder: Path, progress: Progress) -> dict[str, str]:
    """Write the shards; return each image's place by its path."""
    places = {}
    for start in range(0, len(files.items), _SHARD_ROWS):
        name = f"{start // _SHARD_ROWS:05d}.tar"
        with atomic_open(folder / name, "wb") as shard:
            for row, data in _contents(files, start, start + _SHARD_ROWS):
                item = files.items[row]
                about = tarfile.TarInfo(item.path)
                about.size = len(data)
                shard.write(about.tobuf(tarfile.USTAR_FORMAT))
                places[item.path] = f"{name}@{shard.tell()}"
                shard.write(data + bytes(-len(data) % _BLOCK))
                progress(row + 1, len(files.items), f"packing {files.image_set} as tar")
            shard.write(bytes(2 * _BLOCK))
    return places


def _write_lmdb(files: Manifest, folder: Path, progress: Progress) -> dict[str, str]:
    """Write the database; return each image's key by its path."""
    places = {}
    # A value fills whole pages of 4 KiB: the map is only address space, the file grows as it is filled.
    map_bytes = sum(item.bytes + 8192 for item in files.valid) * 2 + (64 << 20)
    with lmdb.open(str(folder), map_size=map_bytes, sync=False, metasync=False) as database:
        for start in range(0, len(files.items), _COMMIT_ROWS):
            with database.begin(write=True) as transaction:
                for row, data in _contents(files, start, start + _COMMIT_ROWS):
                    key = f"{row:08d}"
                    transaction.put(key.encode(), data, append=True)
                    places[files.items[row].path] = key
                    progress(row + 1, len(files.items), f"packing {files.image_set} as LMDB")
        database.sync(True)
    return places


def _contents(files: Manifest, start: int, end: int) -> Iterator[tuple[int, bytes]]:
    for row, item in enumerate(files.items[start:end], start):
        if item.valid:
            yield row, _checked(files.root, item)


def _checked(root: Path, item: Item) -> bytes:
    try:
        data = readers.read_file(root, item.path, item.bytes)
    except ImageError as error:
        raise UserError(
            f"{root / item.path}: {error.reason}; run again with corpus.verify=true"
        ) from error
    if sha256_bytes(data) != item.sha256:
        raise UserError(
            f"{root / item.path} is not what was fetched; run again with corpus.verify=true"
        )
    return data
