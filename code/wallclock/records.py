"""One directory a cell: what was asked, every sample, on what; complete or not there.

    data/runs/<experiment>/<key>/record.json    settings, environment, values, failures
                                 samples.json   every duration, in nanoseconds
                                 spans.json     where the first batches were, if the protocol says
                                 COMPLETE       sha256 of these, written last

The directory is made under a temporary name and renamed, so a run killed at any moment leaves no
half record. Loading checks the digests, so an edited record is refused.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wallclock.errors import UserError
from wallclock.files import canonical_json, digest_of, pretty_json, sha256_file, write_text
from wallclock.spec import Cell

SCHEMA = 1

#: Outcomes that a later run takes as they are. An `error` is tried again.
_FINAL = frozenset({"ok", "unavailable", "oom"})


@dataclass(frozen=True)
class Record:
    """What one cell measured.

    `samples` maps a name to durations in nanoseconds. `values` holds everything else that was
    read, each with its unit in its name. `failures` lists images as {id, stage, reason}. `spans`
    are stretches of work as [lane, stage, batch, start_ns, duration_ns].
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
        """Whether there is a measurement to speak of."""
        return self.status == "ok"

    def seconds_in(self, stage: str) -> float:
        """Total of a stage's samples, in seconds; 0 for a stage that never ran."""
        return sum(self.samples.get(stage, ())) / 1e9


def key_of(cell: Cell, identity: Mapping[str, Any]) -> str:
    """The cell's name on disk: readable, then a digest of all that identifies it."""
    label = re.sub(r"[^A-Za-z0-9._-]+", "-", cell.label)
    digest = digest_of({"schema": SCHEMA, "cell": cell.identity(), "identity": identity})
    return f"{label}-r{cell.repeat}-{digest[:12]}"


def directory(runs: Path, cell: Cell, key: str) -> Path:
    """Where a cell's record lies."""
    return runs / cell.experiment / key


def write(target: Path, record: Record, extra_files: Iterable[Path] = ()) -> None:
    """Write a record whole. `extra_files` (the vectors, say) are moved in beside it.

    Raises:
        UserError: the disk is full.
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
    write_text(temporary / "samples.json", _samples_text(record.samples))
    if record.spans:
        write_text(
            temporary / "spans.json",
            "[" + ",\n".join(canonical_json(span) for span in record.spans) + "]\n",
        )
    for path in extra_files:
        shutil.move(path, temporary / path.name)
    write_text(temporary / "COMPLETE", _seal(temporary))
    shutil.rmtree(target, ignore_errors=True)
    temporary.rename(target)


def load(target: Path) -> Record:
    """Read a record back.

    Raises:
        UserError: it is not there, not complete, or was edited.
    """
    try:
        sealed = (target / "COMPLETE").read_text(encoding="utf-8", errors="replace")
        if sealed != _seal(target):
            raise UserError(
                f"the record {target} was changed after it was written; delete it and run again"
            )
        plain = json.loads((target / "record.json").read_text(encoding="utf-8"))
        samples = json.loads((target / "samples.json").read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UserError(f"no complete record at {target}; run the same command again") from error
    spans = target / "spans.json"
    return Record(
        cell=Cell.from_json(plain["cell"]),
        status=plain["status"],
        reason=plain["reason"],
        samples=samples,
        values=plain["values"],
        failures=plain["failures"],
        environment=plain["environment"],
        seconds=plain["seconds"],
        spans=json.loads(spans.read_text(encoding="utf-8")) if spans.exists() else (),
    )


def reusable(target: Path) -> Record | None:
    """The record at `target` if it is complete, untouched and final; else None."""
    if not (target / "COMPLETE").exists():
        return None
    try:
        record = load(target)
    except UserError:
        return None
    return record if record.status in _FINAL else None


def write_index(runs: Path, experiment: str, keys: Sequence[str]) -> None:
    """Say which records, in which order, make up an experiment's table now."""
    write_text(
        runs / experiment / "index.json", pretty_json({"schema": SCHEMA, "keys": list(keys)})
    )


def load_experiment(runs: Path, experiment: str) -> list[Record]:
    """The complete records that the experiment's index names, in its order; empty if it never ran."""
    try:
        index = json.loads((runs / experiment / "index.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return []
    folders = [runs / experiment / key for key in index["keys"]]
    return [load(folder) for folder in folders if (folder / "COMPLETE").exists()]


def attachment(runs: Path, experiment: str, name: str) -> Path | None:
    """The first file of this name beside the experiment's records, in the order of its index; None if none has it."""
    try:
        index = json.loads((runs / experiment / "index.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    found = (runs / experiment / key / name for key in index["keys"])
    return next((path for path in found if path.is_file()), None)


def durations(runs: Path) -> Iterator[tuple[Cell, float]]:
    """Every measured cell on disk with the seconds it took, seals unchecked; what cannot be read is left out."""
    for path in sorted(runs.glob("*/*/record.json")):
        try:
            plain = json.loads(path.read_text(encoding="utf-8"))
            if plain["status"] in _FINAL:
                yield Cell.from_json(plain["cell"]), float(plain["seconds"])
        except (OSError, ValueError, KeyError, TypeError):
            continue


def _seal(folder: Path) -> str:
    names = [
        "record.json",
        "samples.json",
        *(["spans.json"] if (folder / "spans.json").exists() else []),
    ]
    return "".join(f"{sha256_file(folder / name)}  {name}\n" for name in names)


def _samples_text(samples: Mapping[str, Sequence[int]]) -> str:
    # One line a stage: readable, and a diff shows which stage differs.
    lines = [
        f"{canonical_json(name)}:{canonical_json(list(samples[name]))}" for name in sorted(samples)
    ]
    return "{" + ",\n".join(lines) + "}\n"
