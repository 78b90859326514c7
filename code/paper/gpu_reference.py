"""What scripts/gpu-reference.sh asks for, and the README of the reference that it leaves.

    python -m paper.gpu_reference gpu|folder|order
    python -m paper.gpu_reference readme --steps DIR --runs DIR --reference DIR
    python -m paper.gpu_reference restore --runs DIR --reference DIR

`gpu`: the GPU's name, or an empty line. `folder`: the name of the machine's reference run. `order`:
the experiments by the value of what they say about a GPU. `readme` says how far the run has come:
machine, versions, tests, pieces, and the cells that have no measurement, with the reason.
`restore` unpacks a reference's records of the code that is here, which a run then reuses.
"""

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from experiments import contents
from harness import provenance, records
from harness.protocols import registry
from harness.records import Record
from paper import packing
from wallclock.errors import UserError
from wallclock.files import write_text

#: What the paper's claims on a GPU need, most of them first; the others follow in their own order.
_FIRST = ("serial", "t4", "opt", "onnx", "batch", "workers", "fast")
#: The prefix of the steps that run tests; their last line counts them.
_TESTS = "cuda-"
_COUNTS = re.compile(r"=* ?((?:\d+ \w+,? ?)+) in ")


def order() -> list[str]:
    """The experiments of `--experiment all`, by value."""
    return [*_FIRST, *(name for name in contents.ORDER if name not in _FIRST)]


def folder() -> str:
    """Name of the reference of this machine: its GPU, its CPU and its cores."""
    machine = provenance.machine()
    parts = [*(gpu["name"] for gpu in machine["gpus"][:1]), machine["cpu"]]
    text = f"{' '.join(parts)} {machine['cores']} cores".lower()
    return re.sub(r"[^a-z0-9]+", "-", text).strip("-")


def readme(steps: Path, runs: Path) -> str:
    """The page of a run: `steps` has a log and, once it ended, the exit status of each piece."""
    machine = provenance.machine()
    gpu = next(iter(machine["gpus"]), None)
    devices = [*([gpu["name"]] if gpu else []), machine["cpu"], f"{machine['cores']} cores"]
    taken = [*_recorded(runs)]
    lines = [
        f"# Reference run: {', '.join(devices)}",
        "",
        *_about(gpu, taken),
        "",
        "`make gpu-reference` made this, piece by piece; run it again to resume.",
        "",
        "| piece | result |",
        "|---|---|",
        *_pieces(steps),
        "",
        "## Cells without a measurement",
        "",
        *(_unmeasured(taken) or ["None."]),
        "",
        "## Memory and clock of the passes on the GPU",
        "",
        *_of_passes(taken),
    ]
    return "\n".join(lines) + "\n"


def restore(reference: Path, runs: Path) -> None:
    """Unpack a reference's records; those that timed other code are in no index.

    Records of two states of the code would not be packed together.
    """
    packing.unpack(reference / packing.ARCHIVE, runs)
    for index in sorted(runs.glob("*/index.json")):
        name = index.parent.name
        current = [path.name for path in records.indexed(runs, name) if _is_current(path)]
        records.write_index(runs, name, current)


def _is_current(folder: Path) -> bool:
    """Whether a record timed the code that is here."""
    record = records.load(folder)
    protocol, experiment = record.cell.protocol, record.cell.experiment
    if not registry.is_known(protocol, experiment):
        return False
    digest = provenance.code_digest(registry.timed_by(protocol, experiment))
    return bool(record.environment["code"] == digest)


def _recorded(runs: Path) -> Iterator[Record]:
    for name in (*contents.ORDER, *contents.ON_REQUEST):
        yield from records.load_experiment(runs, name)


def _about(gpu: Any, taken: Sequence[Record]) -> list[str]:
    """Driver, versions, when, and at which commits."""
    versions = provenance.versions()
    about = [f"torch {versions.get('torch', 'absent')}, Python {provenance.machine()['python']}"]
    if gpu:
        about.append(f"driver {gpu['driver']}, {gpu['memory_gib']} GiB")
    states = [record.environment["before"] for record in taken if "before" in record.environment]
    dates = sorted({state["utc"][:10] for state in states})
    if dates:
        about.append(f"measured {dates[0]} to {dates[-1]}" if dates[1:] else f"measured {dates[0]}")
    commits = sorted({state["git"].get("commit", "")[:12] for state in states} - {""})
    if commits:
        about.append(f"at commit {', '.join(commits)}")
    return ["; ".join(about) + "."]


def _pieces(steps: Path) -> Iterator[str]:
    """A row for each piece that was begun, in the order of their logs."""
    logs = sorted(steps.glob("*.log"), key=lambda path: path.stat().st_mtime_ns)
    for log in logs:
        done = log.with_suffix(".done")
        status = done.read_text(encoding="ascii").strip() if done.exists() else ""
        result = {"": "not complete", "0": "complete"}.get(status, f"ended with status {status}")
        if log.stem.startswith(_TESTS):
            result = _counts(log) or result
        elif status not in ("", "0"):
            result += f": {_last_line(log)}"
        yield f"| {log.stem} | {result} |"


def _counts(log: Path) -> str:
    """`12 passed, 1 skipped`; empty where pytest did not come to its end."""
    match = _COUNTS.search(_last_line(log))
    return match[1].strip() if match else ""


def _last_line(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1].strip().replace("|", "/")[:200] if lines else ""


def _unmeasured(taken: Sequence[Record]) -> list[str]:
    reasons = {
        f"- {record.cell.experiment}/{record.cell.label}: {record.status}: {record.reason}"
        for record in taken
        if not record.ok
    }
    return sorted(reasons)


def _of_passes(taken: Sequence[Record]) -> list[str]:
    """Whether the allocator grew while a pass was timed, and how far the clocks were apart."""
    timed = [record for record in taken if "gpu_segments_allocated" in record.values]
    if not timed:
        return ["No pass ran on a GPU."]
    grew = [record for record in timed if record.values["gpu_segments_allocated"]]
    lines = [f"{len(timed)} passes; in {len(grew)} of them the allocator took memory while timed."]
    lines += sorted(
        f"- {record.cell.experiment}/{record.cell.label}, repeat {record.cell.repeat + 1}: "
        f"{record.values['gpu_segments_allocated']} segments, {len(record.failures)} failed images"
        for record in grew
    )
    worst = max(record.values["clock_error_us"] for record in timed)
    return [
        *lines,
        "",
        f"The times of GPU stages are right to {worst:.1f} µs (latencies, timeline).",
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 0, or 1 for a record that was edited, or a full disk."""
    parser = argparse.ArgumentParser(prog="python -m paper.gpu_reference")
    parser.add_argument("what", choices=("gpu", "folder", "order", "readme", "restore"))
    for name in ("steps", "runs", "reference"):
        parser.add_argument(f"--{name}", type=Path)
    options = parser.parse_args(arguments)
    try:
        if options.what == "readme":
            write_text(options.reference / "README.md", readme(options.steps, options.runs))
        elif options.what == "restore":
            restore(options.reference, options.runs)
        elif options.what == "gpu":
            print(next((gpu["name"] for gpu in provenance.machine()["gpus"]), ""))
        else:
            print(folder() if options.what == "folder" else " ".join(order()))
    except UserError as error:
        print(f"paper.gpu_reference: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
