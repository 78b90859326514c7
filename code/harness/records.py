"""One directory per cell: settings, every sample, provenance. A record is complete or absent.

    data/runs/<experiment>/index.json           which records are current, in which order
                           <key>/record.json    settings, environment, values, failures
                                 samples.json   every duration, in nanoseconds
                                 spans.json     the timeline of the first batches, if recorded
                                 COMPLETE       sha256 of these files, written last

A record is written under a temporary name and renamed, so that a run killed at any moment leaves no
partial record. Loading verifies the digests, so that an edited record is refused.
"""

import json
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.digests import canonical_json, digest_of
from harness.spec import Cell
from wallclock import files
from wallclock.errors import UserError
from wallclock.files import pretty_json, write_text

SCHEMA = 1


@dataclass(frozen=True)
class Record:
    """What one cell measured.

    `samples` maps a name to durations in nanoseconds. `values` holds all other readings, the unit
    in the name. `failures` lists images as {id, stage, reason}. `spans` lists intervals of work as
    [lane, stage, batch, start_ns, duration_ns].
    """

    cell: Cell
    status: str = "ok"
    reason: str = ""
    samples: Mapping[str, Sequence[int]] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)
    failures: Sequence[Mapping[str, str]] = ()
    environment: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    spans: Sequence[Sequence[Any]] = ()

    @property
    def ok(self) -> bool:
        """Whether the cell was measured."""
        return self.status == "ok"

    def seconds_in(self, stage: str) -> float:
        """Sum of a stage's samples, in seconds; 0 for a stage that never ran."""
        return sum(self.samples.get(stage, ())) / 1e9


def key_of(cell: Cell, identity: Mapping[str, Any]) -> str:
    """The cell's name on disk: its label and repeat, then a digest of all that identifies it.

    A choice at its default is not in the digest: a field that is added later, and not used, leaves
    the key as it was. `reusable` compares the cells themselves.
    """
    label = re.sub(r"[^A-Za-z0-9._-]+", "-", cell.label)
    digest = digest_of({"schema": SCHEMA, "cell": cell.choices(), "identity": identity})
    return f"{label}-r{cell.repeat}-{digest[:12]}"


def write(target: Path, record: Record, extra_files: Iterable[Path] = ()) -> None:
    """Write a record atomically; `extra_files` (a trace, for instance) are moved into it.

    Raises UserError: the disk is full.
    """
    temporary = target.with_name(f".{target.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    plain = {
        "schema": SCHEMA,
        "cell": record.cell.identity(),
        "status": record.status,
        "reason": record.reason,
        "values": record.values,
        "failures": list(record.failures),
        "environment": record.environment,
        "seconds": round(record.seconds, 3),
    }
    write_text(temporary / "record.json", pretty_json(plain))
    # One line per stage, so that a diff shows which stage differs.
    samples = {name: canonical_json(list(record.samples[name])) for name in sorted(record.samples)}
    text = ",\n".join(f"{canonical_json(name)}:{ns}" for name, ns in samples.items())
    write_text(temporary / "samples.json", f"{{{text}}}\n")
    if record.spans:
        spans = ",\n".join(canonical_json(span) for span in record.spans)
        write_text(temporary / "spans.json", f"[{spans}]\n")
    for path in extra_files:
        shutil.move(path, temporary / path.name)
    write_text(temporary / "COMPLETE", _seal(temporary))
    shutil.rmtree(target, ignore_errors=True)
    temporary.rename(target)


def load(target: Path) -> Record:
    """Read a record back. Raises UserError: it is absent, incomplete, or was edited."""
    try:
        if (target / "COMPLETE").read_bytes() != _seal(target).encode():
            fix = "delete it and run again"
            raise UserError(f"the record {target} was changed after it was written; {fix}")
        plain = _json(target / "record.json")
        samples = _json(target / "samples.json")
    except FileNotFoundError as error:
        raise UserError(f"no complete record at {target}; run the same command again") from error
    del plain["schema"]
    cell = Cell.from_json(plain.pop("cell"))
    spans = target / "spans.json"
    return Record(cell, **plain, samples=samples, spans=_json(spans) if spans.exists() else ())


def is_reusable(target: Path, cell: Cell) -> bool:
    """Whether the record at `target` is complete, unedited, measured, and of this cell.

    What was unavailable may be there in the next run. A record of another cell has the same key
    where a default has changed since.
    """
    try:
        record = load(target)
    except UserError:
        return False
    same_cell = digest_of(record.cell.identity()) == digest_of(cell.identity())
    return same_cell and record.ok


def write_index(runs: Path, experiment: str, keys: Sequence[str]) -> None:
    """Write which records an experiment's tables are derived from, in this order."""
    write_text(runs / experiment / "index.json", index_text(keys))


def indexed(runs: Path, experiment: str) -> list[Path]:
    """Folders of the complete records in an experiment's index, in its order."""
    index = runs / experiment / "index.json"
    if not index.exists():
        return []
    folders = [runs / experiment / key for key in _json(index)["keys"]]
    return [folder for folder in folders if (folder / "COMPLETE").exists()]


def load_experiment(runs: Path, experiment: str) -> list[Record]:
    """The complete records in an experiment's index, in its order; empty if it never ran."""
    return [load(folder) for folder in indexed(runs, experiment)]


def index_text(keys: Sequence[str]) -> str:
    """An index as its file has it."""
    return pretty_json({"schema": SCHEMA, "keys": list(keys)})


def files_of(folder: Path) -> list[Path]:
    """The files that are the record; vectors and traces beside them are a cell's output."""
    return [folder / name for name in ("COMPLETE", *_sealed(folder))]


def durations(runs: Path) -> Iterator[tuple[Cell, float]]:
    """Each measured cell and the seconds it took. Seals are not checked, damaged files skipped."""
    for path in sorted(runs.glob("*/*/record.json")):
        try:
            plain = _json(path)
            if plain["status"] == "ok":
                yield Cell.from_json(plain["cell"]), float(plain["seconds"])
        except (OSError, ValueError, KeyError, TypeError):
            continue


def _json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def _seal(folder: Path) -> str:
    return "".join(f"{files.sha256_file(folder / name)}  {name}\n" for name in _sealed(folder))


def _sealed(folder: Path) -> list[str]:
    spans = ["spans.json"] if (folder / "spans.json").exists() else []
    return ["record.json", "samples.json", *spans]
