"""The pinned list of a corpus: one row an image, in a fixed order, failures included.

A manifest is a CSV and a small JSON file that says where the images are. Row i stays image i: a
damaged file keeps its row, with stage and reason, so that ids and vectors never shift.
"""

import csv
import io
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import Field, astuple, dataclass, fields, replace
from pathlib import Path
from typing import Any

from harness.digests import digest_of, sha256_bytes
from harness.measures import median
from harness.spec import Slice
from wallclock.check import Header, Image
from wallclock.errors import ImageError, UserError
from wallclock.files import write_bytes, write_text

VERSION = 2


@dataclass(frozen=True, slots=True)  # a process holds one an image
class Item(Image):
    """One image: its file, its header, and why it cannot be used if it cannot.

    `path` is relative to the manifest's root. `components` counts colour channels; `sampling` is a
    JPEG's chroma subsampling, `other` for one that not every decoder reads. `failed_stage` is empty
    for a valid image. `etag` is the store's.
    """

    id: str
    path: str
    bytes: int = 0
    width: int = 0
    height: int = 0
    sha256: str = ""
    format: str = ""
    process: str = ""
    components: int = 0
    mtime_ns: int = 0
    failed_stage: str = ""
    failed_reason: str = ""
    etag: str = ""
    sampling: str = ""

    @property
    def valid(self) -> bool:
        """Whether the image passed validation."""
        return not self.failed_stage

    def with_header(self, header: Header) -> "Item":
        """The same row with what the file's header says."""
        return replace(
            self,
            format=header.format,
            process=header.process,
            width=header.width,
            height=header.height,
            components=header.components,
            sampling=header.sampling,
        )

    def with_failure(self, error: ImageError) -> "Item":
        """The same row, failed in that stage for that reason."""
        return replace(self, failed_stage=error.stage, failed_reason=" ".join(error.reason.split()))


@dataclass(frozen=True)
class Manifest:
    """A corpus on this machine's disk. `cold`: a file's pages are dropped after each read."""

    kind: str
    image_set: str
    root: Path
    items: tuple[Item, ...]
    cold: bool = False

    def head(self, n: int) -> "Manifest":
        """The same corpus, cut to its first `n` rows."""
        return replace(self, items=self.items[:n])

    @property
    def valid(self) -> list[Item]:
        """The images that can be used, in order."""
        return [item for item in self.items if item.valid]

    @property
    def failed(self) -> list[Item]:
        """The images that cannot be used, in order."""
        return [item for item in self.items if not item.valid]

    def digest(self) -> str:
        """sha256 of ids and contents in order: equal on all machines that hold the same images."""
        return digest_of([[item.id, item.sha256, item.failed_stage] for item in self.items])

    def size_stats(self) -> dict[str, float]:
        """The size distribution that every timing carries, in kB, megapixels and pixels."""
        valid = self.valid
        progressive = sum(item.process == "progressive" for item in valid)
        return {
            "n_sound": len(valid),
            "n_failed": len(self.items) - len(valid),
            "median_kb": median([item.bytes / 1e3 for item in valid]),
            "median_megapixels": median([item.pixels / 1e6 for item in valid]),
            "median_longest_px": median([max(item.width, item.height) for item in valid]),
            "progressive_share": progressive / len(valid),
            "non_jpeg_share": sum(not item.plain_jpeg for item in valid) / len(valid),
        }

    def slice(self, path: Path) -> Slice:
        """Name this manifest, stored at `path`, for a cell."""
        return Slice(self.kind, self.image_set, len(self.items), self.digest(), str(path))


def save(manifest: Manifest, path: Path) -> None:
    """Write the manifest's CSV and its JSON companion, each atomically."""
    text = io.StringIO(newline="")
    # All texts quoted: Python's reader would take a bare carriage return in a name for a new row.
    writer = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    writer.writerow([field.name for field in fields(Item)])
    writer.writerows(astuple(item) for item in manifest.items)
    # File names need not be UTF-8; Python carries their stray bytes as surrogates.
    rows = text.getvalue().encode("utf-8", "surrogateescape")
    write_bytes(path, rows)
    about = {
        "version": VERSION,
        "kind": manifest.kind,
        "image_set": manifest.image_set,
        "root": str(manifest.root),
        "digest": manifest.digest(),
        "sha256": sha256_bytes(rows),
    }
    write_text(path.with_suffix(".json"), json.dumps(about, indent=1) + "\n")


def load(path: Path, root: Path | None = None) -> Manifest:
    """Read a manifest back from its CSV; `root` overrides the folder of images it names.

    Raises:
        UserError: there is none, or its rows are not those that were written.
    """
    try:
        about = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
        rows = path.read_bytes()
        if about["version"] != VERSION or about["sha256"] != sha256_bytes(rows):
            raise UserError(f"the manifest {path} was edited; delete it and run again")
        text = io.TextIOWrapper(io.BytesIO(rows), "utf-8", "surrogateescape", newline="")
        table = csv.reader(text)
        parsers = [_parser(field) for field in fields(Item)]
        next(table)
        items = []
        for row in table:
            values = [parse(value) for parse, value in zip(parsers, row, strict=True)]
            items.append(Item(*values))
        folder = root or Path(about["root"])
        return Manifest(about["kind"], about["image_set"], folder, tuple(items))
    except (FileNotFoundError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"no readable manifest at {path}; run the same command again to make it"
        ) from error


def _parser(field: Field[Any]) -> Callable[[str], Any]:
    """What makes a column's value of its text; one string for all rows that say the same."""
    if field.type is int:
        return int
    is_repeated = field.name in ("format", "process", "sampling", "failed_stage")
    return sys.intern if is_repeated else str


def load_or_none(path: Path, root: Path | None = None) -> Manifest | None:
    """Like `load`, but None for a missing or edited manifest, which can be made again."""
    with suppress(UserError):
        return load(path, root)
    return None


def failure_rows(items: Iterable[Item]) -> Sequence[dict[str, str]]:
    """The rows of failures.csv for images that failed validation."""
    return [
        {"id": item.id, "stage": item.failed_stage, "reason": item.failed_reason}
        for item in items
        if not item.valid
    ]
