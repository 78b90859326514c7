"""Reference runs: rebuilt from their records and compared byte for byte with what is committed.

    data/reference/<machine>/records.tar.xz    the records: everything that was measured
                             *.csv             claims.csv and failures.csv among them
                             provenance.json   of each table: what a run has as its .meta.json
                             figures/          SVG, Markdown, HTML
                             README.md         optional, about the machine; not compared
                             benchmarks/       optional, tables without records; not compared

All other files except the archive are derived. So an edit of a record or of a derived file is
detected, and so is a change of the code that derives them. The other forms of a figure and the
report are not part of a reference: they show the same, and the bytes of PNG and PDF depend on the
versions of zlib and FreeType, too. `python -m paper figures` renders them.
"""

from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory

from paper import packing
from paper.provenance_files import META, PACKED, packed, read_provenance
from paper.publish import publish
from wallclock.errors import UserError
from wallclock.files import write_bytes

_FIGURES = "figures"
_UNDERIVED = ("README.md", packing.ARCHIVE)
#: A reference has one form of each figure.
_OMITTED = (".png", ".pdf", ".tex", ".mmd", "/report.html", META)


def references(folder: Path) -> list[Path]:
    """Every reference run under `folder`."""
    return sorted(path.parent for path in folder.glob(f"*/{packing.ARCHIVE}"))


def check(reference: Path) -> dict[str, str]:
    """Rebuild a reference run; return every file that differs, and how: in one line or three.

    Raises UserError if it has no records, or one of them was edited.
    """
    derived, committed = _derive(reference), _files(reference)
    differences = {}
    for name in sorted(derived | committed):
        if name not in committed:
            differences[name] = "missing: its records make it"
        elif name not in derived:
            differences[name] = "extra: no record makes it"
        elif derived[name] != committed[name]:
            differences[name] = _first_difference(committed[name], derived[name])
    return differences


def write(reference: Path) -> list[Path]:
    """Derive all files of a reference run from its records; remove files that are not derived.

    Raises UserError if it has no records, or one of them was edited.
    """
    derived = _derive(reference)
    for name in _files(reference).keys() - derived:
        (reference / name).unlink()
    for name, data in derived.items():
        write_bytes(reference / name, data)
    return [reference / name for name in sorted(derived)]


def _derive(reference: Path) -> dict[str, bytes]:
    """Everything that is derived from the reference's records."""
    with TemporaryDirectory() as name:
        fresh = Path(name)
        packing.unpack(reference / packing.ARCHIVE, fresh / "runs")
        if not publish(fresh, fresh / _FIGURES).tables:
            raise UserError(f"the records in {reference / packing.ARCHIVE} fill no table")
        files = _files(fresh).items()
        kept = {name: data for name, data in files if not _is_omitted(name)}
        return kept | {PACKED: packed(read_provenance(fresh)).encode()}


def _is_omitted(name: str) -> bool:
    return name.endswith(_OMITTED) or (name.startswith(_FIGURES) and name.endswith(".csv"))


def _files(folder: Path) -> dict[str, bytes]:
    """The files in `folder` and its `figures/`, by relative path."""
    paths = [*folder.iterdir(), *(folder / _FIGURES).glob("*")]
    derived = [path for path in paths if path.is_file() and path.name not in _UNDERIVED]
    return {str(path.relative_to(folder)): path.read_bytes() for path in derived}


def _first_difference(committed: bytes, rebuilt: bytes, width: int = 60) -> str:
    """The first line that differs, from shortly before its difference."""
    texts = [data.decode("utf-8", "replace").split("\n") for data in (committed, rebuilt)]
    pairs = zip_longest(*texts, fillvalue="(no such line)")
    for number, pair in enumerate(pairs, start=1):
        if pair[0] != pair[1]:
            differing = (i for i, (a, b) in enumerate(zip_longest(*pair)) if a != b)
            start = max(0, next(differing) - width // 3)
            before, after = (_excerpt(line, start, width) for line in pair)
            return f"differs in line {number}\n  committed  {before}\n  rebuilt    {after}"
    return "differs"


def _excerpt(line: str, start: int, width: int) -> str:
    return f"{'…' if start else ''}{line[start : start + width]}"
