"""One archive of the current records of a run, or of several together."""

import io
import lzma
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from harness import records
from harness.digests import digest_of
from harness.records import Record
from wallclock import files
from wallclock.errors import UserError

#: The file name of a packed run.
ARCHIVE = "records.tar.xz"


def pack(runs: Sequence[Path], archive: Path) -> int:
    """Write the current records of one run, or of several together, to one tar.xz.

    An experiment of several runs gets one index: the first run's records, then those that each
    later run adds. What a cell wrote beside its record, such as vectors, is left out. Equal records
    give equal bytes: sorted names, no owner, one mode, one time.

    Returns: how many records were written.

    Raises:
        UserError: a run has no record, one was edited, two runs measured one cell, two records of
            a protocol timed different code, or the disk is full.
    """
    keys: dict[str, list[str]] = {}
    members: dict[PurePosixPath, bytes | Path] = {}
    folders = _joined(runs)
    for folder in folders:
        keys.setdefault(folder.parent.name, []).append(folder.name)
        members |= {PurePosixPath(*path.parts[-3:]): path for path in records.files_of(folder)}
    for experiment, names in keys.items():
        members[PurePosixPath(experiment, "index.json")] = records.index_text(names).encode()
    with (
        files.atomic_open(archive, "wb") as handle,
        tarfile.open(fileobj=handle, mode="w:xz", format=tarfile.USTAR_FORMAT, preset=9) as packed,
    ):
        for path in sorted(members):
            source = members[path]
            content = source.read_bytes() if isinstance(source, Path) else source
            member = tarfile.TarInfo(str(path))
            member.size = len(content)
            packed.addfile(member, io.BytesIO(content))
    return len(folders)


def unpack(archive: Path, runs: Path) -> None:
    """Extract what `pack` wrote. Digests are verified when a record is loaded, not here.

    Raises UserError: the archive is absent, damaged, or holds an unsafe path.
    """
    try:
        with tarfile.open(archive, "r:xz") as packed:
            for member in packed:
                # Debian 12's Python 3.11.2 has no extractall(filter="data").
                path = PurePosixPath(member.name)
                content = packed.extractfile(member) if member.isreg() else None
                if content is None or path.is_absolute() or ".." in path.parts:
                    raise tarfile.ReadError(f"{member.name!r} is not a plain file in it")
                (runs / path).parent.mkdir(parents=True, exist_ok=True)
                (runs / path).write_bytes(content.read())
    except FileNotFoundError as error:
        raise UserError(f"no archive of records at {archive}") from error
    except (tarfile.TarError, lzma.LZMAError, EOFError) as error:
        raise UserError(f"the archive {archive} is damaged: {error}") from error


def _joined(runs: Sequence[Path]) -> list[Path]:
    """Folders of the runs' current records, each cell once: raises as `pack` does.

    A copy of a record is no second measurement, and neither is a cell that could not be measured.
    """
    #: Digest of a cell → its folder and record.
    chosen: dict[str, tuple[Path, Record]] = {}
    #: Protocol → digest of the code it timed → the first record with that digest.
    timed: dict[str, dict[str, Path]] = {}
    for run in runs:
        names = sorted(index.parent.name for index in run.glob("*/index.json"))
        folders = [folder for name in names for folder in records.indexed(run, name)]
        if not folders:
            raise UserError(f"no records under {run}")
        for folder in folders:
            record = records.load(folder)
            cell = digest_of(record.cell.identity())
            first, other = chosen.setdefault(cell, (folder, record))
            if other.ok and record.ok and other != record:
                raise UserError(f"{first} and {folder} measured the same cell: delete one of them")
            if record.ok:
                chosen[cell] = (folder, record)
                codes = timed.setdefault(record.cell.protocol, {})
                codes.setdefault(record.environment["code"], folder)
    _refuse_mixed_code(timed)
    return [folder for folder, _ in chosen.values()]


def _refuse_mixed_code(timed: Mapping[str, Mapping[str, Path]]) -> None:
    """Raise UserError where two records of a protocol are of two states of the code.

    Tables compare records with each other. `timed`: protocol → digest of the timed code → a record.
    """
    for protocol, folders in timed.items():
        if len(folders) > 1:
            first, second, *_ = folders.values()
            differ = f"{first} and {second} timed different code ({protocol})"
            raise UserError(f"{differ}: measure both at the same commit")
