"""What loaders and the job would do on up to 16 cores, from the costs of reference runs.

    python -m paper.cores [--from REFERENCE ...] [--write]

Without --write it compares what the reference runs' records make with what is committed; with it,
it writes data/reference/predictions/cores.csv, and beside it when, by which command and from which
records. Write it before anyone measures: `--experiment cores` compares its own rates with it.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments import _core_predictions
from harness import provenance, records
from harness.records import Record
from paper.csvfile import read_table, write_table
from wallclock.errors import UserError
from wallclock.files import pretty_json, sha256_file, write_text

_REFERENCES = provenance.ROOT / "data" / "reference"
#: Has the frontier, the costs and the longest job.
_FROM = (_REFERENCES / "amd-epyc-2-cores",)
#: Experiment → which of several references is taken: the last that has it.
_EXPERIMENTS = ("frontier", "predict", "scaling")


def read(references: Sequence[Path]) -> tuple[list[Record], list[dict[str, Any]]]:
    """The records of the experiments that predictions are made from, and what they are.

    Of an experiment that several references have, the last one's count.

    Raises UserError: a reference has no records, or none has those of the frontier.
    """
    taken: dict[str, list[Record]] = {}
    sources: dict[str, dict[str, Any]] = {}
    for reference in references:
        archive = reference / records.ARCHIVE
        with tempfile.TemporaryDirectory() as name:
            records.unpack(archive, Path(name))
            for experiment in _EXPERIMENTS:
                loaded = records.load_experiment(Path(name), experiment)
                if loaded:
                    taken[experiment] = loaded
                    sources[experiment] = _source(experiment, archive, loaded)
    if "frontier" not in taken:
        raise UserError(f"no records of frontier in {', '.join(map(str, references))}")
    return [record for loaded in taken.values() for record in loaded], [*sources.values()]


def _source(experiment: str, archive: Path, loaded: Sequence[Record]) -> dict[str, Any]:
    environment = loaded[0].environment
    states = [record.environment["before"] for record in loaded]
    path = archive.resolve()
    inside = path.is_relative_to(provenance.ROOT)
    return {
        "experiment": experiment,
        "records": str(path.relative_to(provenance.ROOT) if inside else path),
        "sha256": sha256_file(archive),
        "cpu": environment["machine"]["cpu"],
        "cores": environment["machine"]["cores"],
        "commits": sorted({state["git"].get("commit", "") for state in states}),
        "measured": sorted({state["utc"][:10] for state in states}),
    }


def write(references: Sequence[Path], command: str) -> list[dict[str, object]]:
    """Write the table and its meta file; its rows. Raises as `read` does."""
    loaded, sources = read(references)
    rows = _core_predictions.predict(loaded)
    path = _core_predictions.PATH
    path.parent.mkdir(parents=True, exist_ok=True)
    write_table(path, _core_predictions.COLUMNS, rows)
    meta = {"command": command, "date": time.strftime("%Y-%m-%d", time.gmtime()), "from": sources}
    write_text(path.with_suffix(".meta.json"), pretty_json(meta))
    return rows


def differs(references: Sequence[Path]) -> bool:
    """Whether the committed table is another than these records make. Raises as `read` does."""
    rows = _core_predictions.predict(read(references)[0])
    with tempfile.TemporaryDirectory() as name:
        made = Path(name) / _core_predictions.PATH.name
        write_table(made, _core_predictions.COLUMNS, rows)
        path = _core_predictions.PATH
        return not path.is_file() or made.read_bytes() != path.read_bytes()


def _describe() -> list[str]:
    """A line for each system and image set: the most cores over one."""
    most = str(_core_predictions.CORES[-1])
    rows = [row for row in read_table(_core_predictions.PATH) if row["cores"] == most]
    return [
        f"{row['system']} on {row['image_set']}: {float(row['img_per_s']):,.0f} images/s on "
        f"{most} cores, {float(row['speedup_vs_one_core']):.1f}× one "
        f"({float(row['speedup_low']):.1f} to {float(row['speedup_high']):.1f})"
        for row in rows
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 0, or 1 where the table is another one, or the request cannot be met."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    parser = argparse.ArgumentParser(prog="python -m paper.cores")
    what = "reference runs with records; default: that of README's numbers"
    parser.add_argument("--from", dest="references", type=Path, nargs="+", default=_FROM, help=what)
    parser.add_argument("--write", action="store_true", help=f"write {_core_predictions.PATH}")
    options = parser.parse_args(words)
    try:
        if options.write:
            write(options.references, " ".join(["python -m paper.cores", *words]))
        elif differs(options.references):
            raise UserError(
                f"{_core_predictions.PATH}: these records make another table; python -m "
                "paper.cores --write"
            )
        print("\n".join(_describe()))
    except UserError as error:
        print(f"paper.cores: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
