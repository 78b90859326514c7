"""Reference runs: rebuilt from their records and compared byte for byte with what is committed.

    data/reference/<machine>/records.tar.xz    the records: everything that was measured
                             *.csv, *.meta.json, claims.csv, failures.csv
                             figures/          SVG, CSV, Markdown, LaTeX, Mermaid, traces, report
                             README.md         optional, about the machine; not compared

All files except the archive and README.md are derived, so that an edit of a record or of a derived
file is detected, and so is a change of the code that derives them. PNG and PDF are not part of a
reference: they show what the SVG shows, are as large as everything else together, and their bytes
depend on the versions of zlib and FreeType. `python -m wallclock.paper figures` renders them.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory

from wallclock import records
from wallclock.errors import UserError
from wallclock.paper.publish import publish

_FIGURES = "figures"
_UNDERIVED = ("README.md", records.ARCHIVE)
_OMITTED_SUFFIXES = (".png", ".pdf")


@dataclass(frozen=True)
class Discrepancy:
    """One file in which a reference and its records disagree."""

    path: str
    #: differs, missing (derived but not committed) or extra (committed but not derived)
    what: str
    #: The first line that differs: its number, as committed, as rebuilt.
    line: int = 0
    committed: str = ""
    rebuilt: str = ""


def references(folder: Path) -> list[Path]:
    """Every reference run under `folder`."""
    return sorted(path.parent for path in folder.glob(f"*/{records.ARCHIVE}"))


def check(reference: Path) -> list[Discrepancy]:
    """Rebuild a reference run in a temporary folder; return every file that differs.

    Raises UserError if it has no records, or one of them was edited.
    """
    discrepancies = []
    with _rebuilt(reference) as fresh:
        derived, committed = _derived(fresh), _files(reference)
        for name in sorted(derived | committed):
            if name not in committed:
                discrepancies.append(Discrepancy(name, "missing"))
            elif name not in derived:
                discrepancies.append(Discrepancy(name, "extra"))
            elif (fresh / name).read_bytes() != (reference / name).read_bytes():
                discrepancies.append(_first_difference(name, reference / name, fresh / name))
    return discrepancies


def write(reference: Path) -> list[Path]:
    """Derive all files of a reference run from its records; remove files that are not derived.

    Raises UserError if it has no records, or one of them was edited.
    """
    with _rebuilt(reference) as fresh:
        derived = _derived(fresh)
        for name in _files(reference) - derived:
            (reference / name).unlink()
        for name in derived:
            (reference / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(fresh / name, reference / name)
    return [reference / name for name in sorted(derived)]


@contextmanager
def _rebuilt(reference: Path) -> Iterator[Path]:
    """A temporary folder with everything that is derived from the reference's records."""
    with TemporaryDirectory() as name:
        fresh = Path(name)
        records.unpack(reference / records.ARCHIVE, fresh / "runs")
        if not publish(fresh, fresh / _FIGURES).tables:
            raise UserError(f"the records in {reference / records.ARCHIVE} fill no table")
        yield fresh


def _files(folder: Path) -> set[str]:
    """Files in `folder` and its `figures/`, as relative paths."""
    paths = [*folder.iterdir(), *(folder / _FIGURES).glob("*")]
    derived = [path for path in paths if path.is_file() and path.name not in _UNDERIVED]
    return {str(path.relative_to(folder)) for path in derived}


def _derived(fresh: Path) -> set[str]:
    return {name for name in _files(fresh) if not name.endswith(_OMITTED_SUFFIXES)}


def _first_difference(name: str, committed: Path, rebuilt: Path) -> Discrepancy:
    texts = [path.read_text("utf-8", "replace").split("\n") for path in (committed, rebuilt)]
    for number, (one, other) in enumerate(zip_longest(*texts, fillvalue="(no such line)"), start=1):
        if one != other:
            return Discrepancy(name, "differs", number, *_around(one, other))
    return Discrepancy(name, "differs")


def _around(one: str, other: str, width: int = 60) -> tuple[str, str]:
    """Excerpts of two lines, starting shortly before their first difference."""
    shorter = min(len(one), len(other))
    same = next((i for i in range(shorter) if one[i] != other[i]), shorter)
    start = max(0, same - width // 3)
    one, other = (f"{'…' if start else ''}{line[start : start + width]}" for line in (one, other))
    return one, other
