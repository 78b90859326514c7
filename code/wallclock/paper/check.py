"""A reference run rebuilt from its records, and compared byte for byte with what is committed.

    data/reference/<machine>/runs/       the records: all that was measured
                             *.csv, *.meta.json, claims.csv, failures.csv
                             figures/    SVG, CSV, Markdown, LaTeX, Mermaid, traces, report.html
                             README.md   optional, about the machine; never compared

Everything but `runs/` and `README.md` is derived, so a digit that was changed in a record or in a
derived file shows up, as does a change of the code that derives them. PNG and PDF are not part of a
reference: they show what the SVG shows, weigh as much as all else together, and their bytes hang on
zlib's and FreeType's versions. `python -m wallclock.paper figures` makes them.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory

from wallclock.errors import UserError
from wallclock.paper.publish import publish

_RUNS, _FIGURES, _ABOUT = "runs", "figures", "README.md"
_NOT_PART = (".png", ".pdf")


@dataclass(frozen=True)
class Discrepancy:
    """One file in which a reference and its records disagree."""

    path: str
    #: differs, missing (the records make it, it is not committed) or extra (no record makes it)
    what: str
    #: Of the first line that differs: its number, as committed, as rebuilt.
    line: int = 0
    committed: str = ""
    rebuilt: str = ""


def references(folder: Path) -> list[Path]:
    """Every reference run under `folder`."""
    return sorted(path.parent for path in folder.glob(f"*/{_RUNS}") if path.is_dir())


def check(reference: Path) -> list[Discrepancy]:
    """Rebuild a reference run in a temporary folder; return every file that is not as committed.

    Raises:
        UserError: it has no records, or one of them was edited.
    """
    with _rebuilt(reference) as fresh:
        made, committed = _derived(fresh), _files(reference)
        found = []
        for name in sorted(made | committed):
            if name not in committed:
                found.append(Discrepancy(name, "missing"))
            elif name not in made:
                found.append(Discrepancy(name, "extra"))
            elif (fresh / name).read_bytes() != (reference / name).read_bytes():
                found.append(_first_difference(name, reference / name, fresh / name))
        return found


def write(reference: Path) -> list[Path]:
    """Derive everything that a reference run holds from its records, and remove what they do not make.

    Raises:
        UserError: it has no records, or one of them was edited.
    """
    with _rebuilt(reference) as fresh:
        made = _derived(fresh)
        for name in _files(reference) - made:
            (reference / name).unlink()
        for name in made:
            (reference / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(fresh / name, reference / name)
        return [reference / name for name in sorted(made)]


@contextmanager
def _rebuilt(reference: Path) -> Iterator[Path]:
    """A temporary folder in which everything was derived from the reference's records."""
    runs = reference / _RUNS
    if not runs.is_dir():
        raise UserError(f"no records in {runs}; a reference run is a folder with {_RUNS}/ in it")
    with TemporaryDirectory() as name:
        fresh = Path(name)
        (fresh / _RUNS).symlink_to(runs.resolve(), target_is_directory=True)
        if not publish(fresh, fresh / _FIGURES).tables:
            raise UserError(
                f"the records in {runs} fill no table; is its index.json of an experiment missing?"
            )
        yield fresh


def _files(folder: Path) -> set[str]:
    """Files beside and under `figures/`, by path within the folder."""
    found = [
        path for place in (folder, folder / _FIGURES) if place.is_dir() for path in place.iterdir()
    ]
    return {
        str(path.relative_to(folder)) for path in found if path.is_file() and path.name != _ABOUT
    }


def _derived(fresh: Path) -> set[str]:
    """Those of a rebuilt run that belong to a reference."""
    return {name for name in _files(fresh) if not name.endswith(_NOT_PART)}


def _first_difference(name: str, committed: Path, rebuilt: Path) -> Discrepancy:
    texts = [
        path.read_text(encoding="utf-8", errors="replace").split("\n")
        for path in (committed, rebuilt)
    ]
    for number, (one, other) in enumerate(zip_longest(*texts, fillvalue="(no such line)"), start=1):
        if one != other:
            return Discrepancy(name, "differs", number, *_around(one, other))
    return Discrepancy(name, "differs")


def _around(one: str, other: str, width: int = 60) -> tuple[str, str]:
    """The two lines from shortly before the place where they part."""
    same = next(
        (i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b),
        min(len(one), len(other)),
    )
    start = max(0, same - width // 3)
    one, other = (f"{'…' if start else ''}{line[start : start + width]}" for line in (one, other))
    return one, other
