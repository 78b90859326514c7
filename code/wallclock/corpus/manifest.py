"""The pinned list of a corpus: one row an image, in a fixed order, failures included.

A manifest is a CSV beside (for a folder of one's own: away from) the images, and a small JSON file
that says where the images lie. Row i is image i for good: a file that is damaged keeps its row,
with the stage and the reason, so that ids and vectors never shift.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from wallclock.errors import UserError
from wallclock.files import digest_of, pretty_json, sha256_bytes, write_bytes
from wallclock.spec import Slice
from wallclock.summary import median

VERSION = 1


@dataclass(frozen=True)
class Item:
    """One image: where it is, what it is, and why it cannot be used if it cannot.

    `path` is relative to the manifest's root. `components` counts colour channels.
    `failed_stage` is empty for a sound image. `etag` is what a store said of it.
    """

    id: str
    path: str
    bytes: int
    width: int
    height: int
    sha256: str
    format: str
    process: str
    components: int
    mtime_ns: int
    failed_stage: str = ""
    failed_reason: str = ""
    etag: str = ""

    @property
    def valid(self) -> bool:
        """Whether the image passed the vetting."""
        return not self.failed_stage

    @property
    def plain_jpeg(self) -> bool:
        """Whether every JPEG decoder reads it; the rest goes through Pillow in all recipes alike."""
        return self.format == "jpeg" and self.components in (1, 3)


@dataclass(frozen=True)
class Manifest:
    """A corpus on this machine's disk."""

    kind: str
    image_set: str
    root: Path
    items: tuple[Item, ...]

    def first(self, n: int) -> Manifest:
        """The same corpus, cut to its first `n` rows."""
        return Manifest(self.kind, self.image_set, self.root, self.items[:n])

    @property
    def valid(self) -> list[Item]:
        """The images that can be used, in order."""
        return [item for item in self.items if item.valid]

    @property
    def failed(self) -> list[Item]:
        """The images that cannot, in order."""
        return [item for item in self.items if not item.valid]

    def digest(self) -> str:
        """sha256 of the ids and contents, in order; equal on every machine that holds the same images."""
        return digest_of([[item.id, item.sha256, item.failed_stage] for item in self.items])

    def size_stats(self) -> dict[str, float]:
        """The size distribution that every timing carries: medians, p5 and p95 of bytes and pixels."""
        sound = self.valid
        kilobytes = [item.bytes / 1e3 for item in sound]
        megapixels = [item.width * item.height / 1e6 for item in sound]
        progressive = sum(item.process == "progressive" for item in sound)
        return {
            "n_sound": len(sound),
            "n_failed": len(self.items) - len(sound),
            "median_kb": median(kilobytes),
            "max_kb": max(kilobytes),
            "median_megapixels": median(megapixels),
            "max_megapixels": max(megapixels),
            "median_longest_px": median([max(item.width, item.height) for item in sound]),
            "progressive_share": progressive / len(sound),
            "non_jpeg_share": sum(not item.plain_jpeg for item in sound) / len(sound),
        }

    def slice(self, path: Path) -> Slice:
        """Name this manifest, stored at `path`, for a cell."""
        return Slice(self.kind, self.image_set, len(self.items), self.digest(), str(path))


def save(manifest: Manifest, path: Path) -> None:
    """Write the manifest's CSV and its JSON companion, each whole or not at all."""
    text = io.StringIO(newline="")
    # Every text in quotes: Python's reader would take a bare carriage return in a name for a new row.
    writer = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    names = [field.name for field in fields(Item)]
    writer.writerow(names)
    writer.writerows([getattr(item, name) for name in names] for item in manifest.items)
    # File names need not be UTF-8; Python carries their stray bytes as surrogates.
    rows = text.getvalue().encode("utf-8", "surrogateescape")
    write_bytes(path, rows)
    about = {
        "version": VERSION,
        "kind": manifest.kind,
        "image_set": manifest.image_set,
        "root": str(manifest.root),
        "n_images": len(manifest.items),
        "digest": manifest.digest(),
        "sha256": sha256_bytes(rows),
    }
    write_bytes(path.with_suffix(".json"), pretty_json(about).encode("utf-8", "surrogateescape"))


def load(path: Path, root: Path | None = None) -> Manifest:
    """Read a manifest back.

    Args:
        path: the CSV.
        root: where the images lie, if not where the manifest says.

    Raises:
        UserError: there is none, or its rows are not those that were written.
    """
    try:
        about = json.loads(
            path.with_suffix(".json").read_bytes().decode("utf-8", "surrogateescape")
        )
        rows = path.read_bytes()
        intact = about["version"] == VERSION and about["sha256"] == sha256_bytes(rows)
    except (FileNotFoundError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"no readable manifest at {path}; run the same command again to make it"
        ) from error
    if not intact:
        raise UserError(
            f"the manifest {path} was changed since it was made; delete it and run again"
        )
    reader = csv.DictReader(io.StringIO(rows.decode("utf-8", "surrogateescape"), newline=""))
    items = tuple(_item(row) for row in reader)
    return Manifest(about["kind"], about["image_set"], root or Path(about["root"]), items)


def load_or_none(path: Path, root: Path | None = None) -> Manifest | None:
    """Like `load`, but a missing or changed manifest is None: it can be made again."""
    try:
        return load(path, root)
    except UserError:
        return None


def failure_rows(items: Iterable[Item]) -> Sequence[dict[str, str]]:
    """What failures.csv needs to say of the images that failed the vetting."""
    return [
        {"id": item.id, "stage": item.failed_stage, "reason": item.failed_reason}
        for item in items
        if not item.valid
    ]


def _item(row: dict[str, str]) -> Item:
    numbers = {"bytes", "width", "height", "components", "mtime_ns"}
    known = {field.name for field in fields(Item)}
    typed: dict[str, Any] = {
        name: int(value) if name in numbers else value
        for name, value in row.items()
        if name in known
    }
    return Item(**typed)
