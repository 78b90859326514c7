"""Any directory as a corpus: recursive, images detected by content, not extension."""

import errno
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.corpora import ProgressHook
from harness.corpora import manifest as manifests
from harness.corpora.manifest import Item, Manifest
from harness.digests import digest_of, sha256_bytes
from harness.spec import CorpusSpec, Slice
from wallclock.check import validate
from wallclock.errors import ImageError, UsageError, UserError
from wallclock.fetch.folder import FolderListing, id_of
from wallclock.recipe import Limits


def require_path(spec: CorpusSpec) -> str:
    """The folder that the user named. Raises UsageError: none."""
    if not spec.path:
        raise UsageError("corpus=folder needs the folder: add corpus.path=/path/to/images")
    return spec.path


def prepare(spec: CorpusSpec, n: int | None, cache: Path, progress: ProgressHook) -> Slice:
    """List and validate the images under `spec.path`; return the first `n` of them (all if None).

    They are ordered by name; with `spec.sample`, by a rank that only `spec.seed` and the names
    determine, so that `n` of them are a sample and a larger sample keeps the smaller one.

    The list is kept under `cache`, never in the user's folder. A file whose size or modification
    time changed is validated again; the others are not read.

    Raises:
        UserError: no such folder, or no image in it.
    """
    root = Path(require_path(spec)).expanduser().resolve()
    if not root.is_dir():
        problem = "is not a folder" if root.exists() else "does not exist"
        raise UsageError(f"corpus.path: {root} {problem}; give the folder that holds the images")
    identity: list[Any] = [os.fsencode(root).hex(), spec.image_set, spec.image_limits]
    if spec.sample:
        identity.append(spec.seed)
    key = digest_of(identity)[:12]
    path = cache / f"folder-{key}" / "manifest.csv"
    saved = manifests.load_or_none(path, root)
    before = saved.items if saved else ()
    items = _items(root, n, spec, before, progress)
    manifest = Manifest("folder", spec.image_set, root, items)
    # Rows beyond this slice are kept: a smaller `n` forgets nothing.
    listed = {item.path for item in items}
    items += tuple(item for item in before if item.path not in listed)
    if items != before:
        manifests.save(replace(manifest, items=items), path)
    if not manifest.valid:
        first = manifest.items[0]
        raise UserError(
            f"none of the {len(manifest.items)} images under {root} can be read; "
            f"the first, {first.id}: {first.failed_reason}"
        )
    return manifest.slice(path)


def _items(
    root: Path, n: int | None, spec: CorpusSpec, before: tuple[Item, ...], progress: ProgressHook
) -> tuple[Item, ...]:
    def rank(name: str) -> bytes:
        if not spec.sample:
            return os.fsencode(name)
        return sha256_bytes(f"{spec.seed}/".encode() + os.fsencode(name)).encode()

    listing = FolderListing(root)
    names = sorted([*listing, *listing.unreadable], key=rank)[:n]
    if not names:
        raise UserError(f"no image under {root}: no file in it or its subfolders is one")
    listed = {item.path: item for item in before}

    def validated(name: str) -> Item:
        return _item(root, name, spec.limits, listed.get(name))

    items = []
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        # Validation releases the GIL in the decoder; map keeps the order.
        for item in pool.map(validated, names):
            items.append(item)
            progress(len(items), len(names), "validating images")
    return tuple(items)


def _item(root: Path, name: str, limits: Limits, earlier: Item | None) -> Item:
    """The row of an image; `earlier`, its row of an earlier list, where its file is the same."""
    path = root / name
    item = Item(id_of(name), name)
    try:
        status = path.stat()
        item = replace(item, bytes=status.st_size, mtime_ns=status.st_mtime_ns)
        # A failed read is retried: a new permission changes neither size nor time.
        if (
            earlier
            and (earlier.bytes, earlier.mtime_ns) == (item.bytes, item.mtime_ns)
            and earlier.failed_stage != "read"
        ):
            return earlier
        data = _read(path, status, limits)
        item = replace(item, sha256=sha256_bytes(data) if data else "")
        return item.with_header(validate(data, limits))
    except OSError as error:
        dangling = error.errno in (errno.ENOENT, errno.ELOOP) and path.is_symlink()
        reason = "dangling link" if dangling else error.strerror or type(error).__name__
        return item.with_failure(ImageError("read", reason))
    except ImageError as error:
        return item.with_failure(error)


def _read(path: Path, status: os.stat_result, limits: Limits) -> bytes:
    if stat.S_ISDIR(status.st_mode):
        os.listdir(path)
    if not stat.S_ISREG(status.st_mode):
        raise ImageError("read", "not a regular file")
    if status.st_size > limits.max_bytes:
        reason = f"{status.st_size:,} bytes, over the limit of {limits.max_bytes:,}"
        raise ImageError("read", reason)
    return path.read_bytes()
