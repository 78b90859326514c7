"""What is on the disk: the journal of a fetch, verified files, the licence, the space needed."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from wallclock.corpus.abo.store import PermanentError, Store
from wallclock.corpus.manifest import Item
from wallclock.errors import UserError
from wallclock.files import digest_of, pretty_json, sha256_file, write_bytes, write_text
from wallclock.spec import CorpusSpec

#: Bytes an object, on average, over samples of the real bucket; the originals' larger sample.
OBJECT_BYTES = {"small_256": 7_400, "original": 378_000}
#: For a sample above the average.
SPACE_MARGIN = 1.1
#: Half a block of 4 KiB, which a file system loses with each file.
_BLOCK_LOSS_BYTES = 2_048

#: The bucket's licence files, the licence before the file that mentions it. The dataset's paper
#: says CC BY-NC 4.0, as did an earlier release: the file that was relied on is recorded.
_LICENCES = {
    "LICENSE-CC-BY-4.0.txt": "CC BY 4.0",
    "LICENSE-CC-BY-NC-4.0.txt": "CC BY-NC 4.0",
    "README.md": "as its README.md says",
}
#: The credit that ABO's README asks for, for a store that has no README.
_ATTRIBUTION = (
    "Credit for the data, including all images and 3d models, must be given to: Amazon.com. Credit "
    "for building the dataset, archives and benchmark sets must be given to: Matthieu Guillaumin "
    "(Amazon.com), Thomas Dideriksen (Amazon.com), Kenan Deng (Amazon.com), Himanshu Arora "
    "(Amazon.com), Jasmine Collins (UC Berkeley) and Jitendra Malik (UC Berkeley)"
)
_SECTION = re.compile(r"^#+ *Attribution *\n(.*?)(?=^#|\Z)", re.DOTALL | re.MULTILINE)
_MAX_LICENCE_BYTES = 1_000_000


def folder(spec: CorpusSpec, cache: Path) -> Path:
    """Where this store's images are kept: another store, or other limits, is another folder."""
    return cache / f"abo-{digest_of([spec.endpoint, spec.bucket, vars(spec.limits)])[:12]}"


def make_folder(folder: Path) -> None:
    """Make a folder if it does not exist.

    Raises:
        UserError: something else is there, such as a link to a folder.
    """
    with suppress(FileExistsError):
        folder.mkdir(parents=True)
    if folder.is_symlink() or not folder.is_dir():
        raise UserError(
            f"{folder} is no folder but a link or a file: remove it and run the same command again"
        )


def space_for(image_set: str, n: int) -> int:
    """Bytes that `n` images of a set need on the disk, with a margin."""
    return round(n * (OBJECT_BYTES[image_set] + _BLOCK_LOSS_BYTES) * SPACE_MARGIN)


def check_space(folder: Path, needed: int, purpose: str) -> None:
    """Raise `UserError` if there are fewer free bytes than needed, before any is written."""
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise UserError(
            f"{purpose}: {needed / 1e9:,.2f} GB are needed in {folder}, {free / 1e9:,.2f} GB are "
            "free; free some, set out= to another disk, or take fewer with --n"
        )


@contextmanager
def open_journal(path: Path) -> Iterator[Callable[[Sequence[Item]], None]]:
    """A function that records what has arrived, one line an image, so that a killed run resumes.

    A line is written after the file has its final name and carries a checksum: a torn one counts
    as not written. A full disk raises `OSError`.
    """
    with open(path, "ab", buffering=0) as file:
        if file.tell():
            # Ends a torn line.
            file.write(b"\n")

        def append(items: Sequence[Item]) -> None:
            texts = [json.dumps(list(vars(item).values())).encode() for item in items]
            data = b"".join(b"%08x %s\n" % (zlib.crc32(text), text) for text in texts)
            while data:
                data = data[file.write(data) :]

        yield append


def read_journal(path: Path) -> dict[str, Item]:
    """The images in a journal by path, the last line of each; empty if there is no journal."""
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return {}
    items = {}
    for checksum, _, text in (line.partition(b" ") for line in lines):
        if checksum == b"%08x" % zlib.crc32(text):
            item = Item(*json.loads(text))
            items[item.path] = item
    return items


def verified(
    known: Mapping[str, Item], paths: Iterable[str], root: Path, verify: bool
) -> dict[str, Item]:
    """Which of `paths` are already fetched and intact, with their rows.

    A file of another size, a link, or a missing one is out. A file whose modification time is not
    its object's is hashed. `verify` hashes every file, and drops what the store refused before.
    """
    items = [known[path] for path in paths if path in known]
    refused = [item for item in items if item.failed_stage == "read"]
    files = [item for item in items if item.failed_stage != "read"]
    mtimes = {item.path: _mtime_ns(root / item.path, item) for item in files}
    doubtful = [item for item in files if verify or mtimes[item.path] != item.mtime_ns]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        # Hashing releases the GIL.
        same = pool.map(lambda item: has_digest(root / item.path, item.sha256), doubtful)
        damaged = {item.path for item, intact in zip(doubtful, same, strict=True) if not intact}
    damaged |= {path for path, mtime_ns in mtimes.items() if mtime_ns is None}
    kept = files if verify else files + refused
    return {item.path: item for item in kept if item.path not in damaged}


def _mtime_ns(path: Path, item: Item) -> int | None:
    """The modification time of a regular file of the listed size, else None."""
    with suppress(OSError):
        status = path.lstat()
        if stat.S_ISREG(status.st_mode) and status.st_size == item.bytes:
            return status.st_mtime_ns
    return None


def has_digest(path: Path, sha256: str | None) -> bool:
    """Whether a file is there and has that digest."""
    try:
        return sha256_file(path) == sha256
    except OSError:
        return False


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file; empty if the file is missing or damaged."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def fetch_licence(store: Store, folder: Path) -> None:
    """Keep the bucket's licence files and `licence.json` in `folder`, unless they are intact."""
    summary = folder / "licence.json"
    saved = read_json(summary).get("files")
    if saved is not None and all(has_digest(folder / f["name"], f["sha256"]) for f in saved):
        return
    files = []
    for name in _LICENCES:
        try:
            data, info = store.download(name, _MAX_LICENCE_BYTES)
        except PermanentError:
            continue
        write_bytes(folder / name, data)
        files.append({"name": name, "bytes": len(data), "sha256": info.sha256, "etag": info.etag})
    names = [str(file["name"]) for file in files]
    relied_on = names[0] if names else ""
    missing = "none: this store has no licence file; ABO's own bucket says CC BY 4.0"
    attribution = _attribution(folder / "README.md") if "README.md" in names else _ATTRIBUTION
    credit = {"source": f"{store.config.host}/{store.config.bucket}", "files": files}
    credit |= {"relied_on": relied_on or missing, "attribution": attribution}
    credit |= {"licence": _LICENCES.get(relied_on, "CC BY 4.0")}
    write_text(summary, pretty_json(credit))


def credit(spec: CorpusSpec, cache: Path) -> dict[str, Any]:
    """Licence, attribution and the files they rest on; empty before the corpus was fetched."""
    return read_json(folder(spec, cache) / "licence" / "licence.json")


def _attribution(readme: Path) -> str:
    """The README's section of that name on one line, or ABO's own."""
    section = _SECTION.search(readme.read_text(encoding="utf-8", errors="replace"))
    text = re.sub(r"^ *>", "", section[1], flags=re.MULTILINE) if section else ""
    return " ".join(text.split())[:2_000] or _ATTRIBUTION
