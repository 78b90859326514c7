"""A folder of one's own as a corpus: any directory, recursive, told by content and not by name."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from wallclock.corpus import manifest as manifests
from wallclock.corpus.manifest import Item, Manifest
from wallclock.corpus.validate import sniff, validate
from wallclock.errors import ImageError, UserError
from wallclock.files import digest_of, sha256_bytes
from wallclock.spec import CorpusSpec, Limits, Slice

#: Names that promise an image: such a file is in the list even if it turns out to be none.
_EXTENSIONS = frozenset({".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".gif"})

Progress = Callable[[int, int, str], None]


def prepare(spec: CorpusSpec, n: int | None, cache: Path, progress: Progress) -> Slice:
    """List and vet the images under `spec.path`; return the first `n` of them (all if None).

    They come in the order of their names; with `spec.sample`, in an order that only `spec.seed` and the
    names decide, so that `n` of them are a sample of all, and a larger sample keeps the smaller one.

    The list is kept under `cache`, never in the user's folder. A file whose size or modification
    time changed is vetted again; the others are not read.

    Raises:
        UserError: no such folder, or no image in it.
    """
    root = Path(spec.path).expanduser().resolve()
    if not spec.path:
        raise UserError("corpus=folder needs the folder: add corpus.path=/path/to/images")
    if not root.is_dir():
        what = "is not a folder" if root.exists() else "does not exist"
        raise UserError(f"corpus.path: {root} {what}; give the folder that holds the images")
    sampled = [spec.seed] if spec.sample else []
    key = digest_of([os.fsencode(root).hex(), spec.image_set, vars(spec.limits), *sampled])[:12]
    path = cache / f"folder-{key}" / "manifest.csv"
    known = manifests.load_or_none(path, root)
    manifest = Manifest("folder", spec.image_set, root, _items(root, n, spec, known, progress))
    _remember(manifest, known, path)
    if not manifest.valid:
        first = manifest.items[0]
        raise UserError(
            f"none of the {len(manifest.items)} images under {root} can be read; the first, {first.id}: "
            f"{first.failed_reason}"
        )
    return manifest.slice(path)


def _remember(manifest: Manifest, known: Manifest | None, path: Path) -> None:
    """Keep what was vetted before beyond this slice, so that a smaller `n` forgets nothing."""
    before = known.items if known else ()
    vetted = {item.path for item in manifest.items}
    items = manifest.items + tuple(item for item in before if item.path not in vetted)
    if items != before:
        manifests.save(Manifest(manifest.kind, manifest.image_set, manifest.root, items), path)


def _items(
    root: Path, n: int | None, spec: CorpusSpec, known: Manifest | None, progress: Progress
) -> tuple[Item, ...]:
    names = sorted(_candidates(root), key=_rank(spec.seed) if spec.sample else os.fsencode)
    if not names:
        raise UserError(
            f"no image under {root}: no JPEG, PNG, WebP or GIF file in it or its subfolders"
        )
    names = names[:n]
    old = {item.path: item for item in known.items} if known else {}
    items = []
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        # Vetting releases the GIL in the decoder; map keeps the order.
        for item in pool.map(lambda name: _item(root, name, spec.limits, old.get(name)), names):
            items.append(item)
            progress(len(items), len(names), "vetting images")
    return tuple(items)


def _rank(seed: int) -> Callable[[str], bytes]:
    return lambda name: sha256_bytes(f"{seed}/".encode() + os.fsencode(name)).encode()


def _candidates(root: Path) -> Iterator[str]:
    closed: list[str] = []

    def note(error: OSError) -> None:
        closed.append(os.path.relpath(error.filename, root))

    for folder, subfolders, files in os.walk(root, onerror=note):
        subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
        for name in files:
            path = os.path.join(folder, name)
            if not name.startswith(".") and (
                _extension(name) in _EXTENSIONS or _looks_like_image(path)
            ):
                yield os.path.relpath(path, root)
    # Nobody knows what a folder holds that cannot be listed: it gets a row of its own.
    yield from closed


def _extension(name: str) -> str:
    return os.path.splitext(name)[1].lower()


def _looks_like_image(path: str) -> bool:
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return False
        with open(path, "rb") as handle:
            return sniff(handle.read(16)) is not None
    except OSError:
        return False


def _item(root: Path, name: str, limits: Limits, old: Item | None) -> Item:
    path = root / name
    size = mtime = 0
    data = b""
    try:
        try:
            about = path.stat()
            size, mtime = about.st_size, about.st_mtime_ns
            # What could not be read is tried again: a new permission leaves size and time as they were.
            if (
                old is not None
                and (old.bytes, old.mtime_ns) == (size, mtime)
                and old.failed_stage != "read"
            ):
                return old
            data = _read(path, about, limits)
        except OSError as error:
            link = "dangling link" if path.is_symlink() and not path.exists() else None
            raise ImageError("read", link or error.strerror or type(error).__name__) from error
        header = validate(data, limits)
    except ImageError as error:
        return _make(name, size, mtime, data, failed=(error.stage, error.reason))
    return _make(
        name,
        size,
        mtime,
        data,
        header.width,
        header.height,
        header.format,
        header.process,
        header.components,
    )


def _read(path: Path, about: os.stat_result, limits: Limits) -> bytes:
    if stat.S_ISDIR(about.st_mode):
        os.listdir(path)
    if not stat.S_ISREG(about.st_mode):
        raise ImageError("read", "not a regular file")
    if about.st_size > limits.max_bytes:
        raise ImageError("read", f"{about.st_size:,} bytes, over the limit of {limits.max_bytes:,}")
    return path.read_bytes()


def _make(
    name: str,
    size: int,
    mtime: int,
    data: bytes,
    width: int = 0,
    height: int = 0,
    kind: str = "",
    process: str = "",
    components: int = 0,
    failed: tuple[str, str] = ("", ""),
) -> Item:
    # A name that is not UTF-8 keeps its bytes as \xNN in the id, which every sink can store.
    identity = (
        name.replace(os.sep, "/")
        .encode("utf-8", "surrogateescape")
        .decode("utf-8", "backslashreplace")
    )
    digest = sha256_bytes(data) if data else ""
    reason = " ".join(failed[1].split())
    return Item(
        identity,
        name,
        size,
        width,
        height,
        digest,
        kind,
        process,
        components,
        mtime,
        failed[0],
        reason,
    )
