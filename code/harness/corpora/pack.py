"""The same images as tar shards or as pixels, to compare `read` across forms of storage.

A pack's manifest lists the same rows, but `path` is a location: `00003.tar@1536` is the byte where
the image begins in that file. `pixels` are decoded: RGB uint8 (h, w, 3), one image after another in
one file; `pixels_256` after Pillow's antialiased resize to 256 px on the longer side. Nothing is
unpacked. Invalid images are not packed. The same list makes the same bytes.
"""

import io
import shutil
import tarfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from PIL import Image

from harness.corpora import ProgressHook, check_space, readers
from harness.corpora import manifest as manifests
from harness.corpora.manifest import Item, Manifest
from harness.digests import sha256_bytes
from wallclock.errors import ImageError, UserError
from wallclock.files import atomic_open

#: Rows per shard, so that row i is always in the same one.
_SHARD_ROWS = 1000
_BLOCK = tarfile.BLOCKSIZE


def ensure(files: Manifest, form: str, path: Path, progress: ProgressHook) -> Manifest:
    """The manifest at `path` of a pack of what `files` lists; packs it if necessary.

    Raises:
        UserError: no space for it, or a file changed since it was listed.
    """
    root = path.with_suffix("")
    packed = manifests.load_or_none(path, root)
    if packed and packed.digest() == files.digest():
        return packed
    if form.startswith("pixels"):
        needed = sum(3 * item.pixels for item in files.valid)
    else:
        needed = sum(item.bytes + 2 * _BLOCK for item in files.valid)
    check_space(path.parent, needed, f"{files.image_set} as {form}")
    # Written next to its place, then renamed: a run that is killed leaves no partial pack.
    building = root.with_name(f".{root.name}.building")
    for folder in (building, root):
        shutil.rmtree(folder, ignore_errors=True)
    building.mkdir(parents=True)
    try:
        stored = _WRITERS[form](files, building, progress)
        building.rename(root)
    finally:
        # Free the space: the disk may be full.
        shutil.rmtree(building, ignore_errors=True)
    items = tuple(stored.get(item.path, item) for item in files.items)
    packed = replace(files, kind=readers.PACKED, root=root, items=items)
    manifests.save(packed, path)
    return packed


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


#: Form → what writes it: (files, folder, progress) to each image as stored, by its file's path.
_WRITERS: Mapping[str, Callable[[Manifest, Path, ProgressHook], dict[str, Item]]] = {
    "tar": _write_tar,
    "pixels": _write_pixels,
    "pixels_256": partial(_write_pixels, longest=256),
}


def _contents(
    files: Manifest, start: int, n_rows: int, form: str, progress: ProgressHook
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
            raise UserError(f"{path}: {error.reason}") from error
        if sha256_bytes(data) != item.sha256:
            raise UserError(f"{path} is not what was listed: run the same command again")
        yield row, item, data
        progress(row + 1, len(files.items), f"packing {files.image_set} as {form}")
