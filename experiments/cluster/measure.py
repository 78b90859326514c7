"""Protocol `cluster`: jobs on systems for many machines.

A job is a process of its own (`systems/`): from a list of `params.n` images to Parquet files
of ids and vectors, by a model that takes no time. Every id has a link of its own to one of the
corpus's files, which come round again and again. The rate is that between the first batch in the
model and the last one, the first not counted; of this suite's own jobs, between the first part on
the disk and the last. What a system had prepared by then is in its favour. All before is
`startup_s`. Memory is that of the process and all below it, shared pages once, at the samples that
`run_job` takes.
"""

import json
import math
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from experiments.cluster import systems
from experiments.cluster.systems import SYSTEMS, System
from experiments.cluster.systems._task import Task
from harness.corpora.manifest import Manifest
from harness.jobs import JobRun, run_job
from harness.processes import ProcessTree
from harness.protocols import fidelity, protocol
from harness.protocols.protocol import Measurement, Progress
from harness.spec import Cell, Recipe, from_fields
from wallclock.job import JobSettings
from wallclock.machine import usable_cores
from wallclock.stages.decode import PixelArray

#: Parts of this suite's own jobs.
_PARTS = 8
#: Batches or parts that a rate takes, at least.
_LEAST = 4
#: Of the images that a pass of some length takes by a shorter one: more, so that a third is rare.
_MARGIN = 1.2
_ALL_BLOCKS = -1


def cluster(cell: Cell, work: Path, progress: Progress) -> Measurement:
    """One job. `params.damaged`: every so many-th file is cut in half; 0 for none.

    A job of `params.n` images whose steady part is shorter than `params.least_s` is repeated with
    as many images as that takes, at most `params.most_images`: `n_images` of the last one counts.

    Samples: `wall`, of `n_loaded` images. Values: `job_s`, all of the process; `startup_s`;
    `stored_bytes`, in Ray's object store; `peak_memory_mib`; `fidelity`, in the first repeat. With
    damaged files instead `damaged` of them, `aborted`, the last line where the job failed, `lost`,
    good images without a vector, `delivered`, damaged ones with a vector, and the same for Ray with
    any number of `errored` blocks. Raises RuntimeError: without damage the job failed, or an image
    has no vector or two.
    """
    params, system = cell.params, SYSTEMS[cell.params["system"]]
    system.check()
    manifest = protocol.open_corpus(cell, "jpeg")
    values = protocol.set_conditions(cell, manifest, uses_torch=False)
    values["cores"] = usable_cores()
    n = int(params["n"])
    if params["damaged"] or (cell.repeat == 0 and params["fidelity"]):
        listed = list_images(manifest, n, work / "images", params["damaged"])
        task = task_of(cell, work / "vectors", listed, n)
        if params["damaged"]:
            values["n_images"] = n
            return Measurement({}, values | _damaged(system, task, params, progress))
        values["fidelity"] = _compared(system, task, cell, manifest)
    while True:
        passed = _pass(system, cell, manifest, n, work / f"pass-{n}", progress)
        more = images_for(passed, n, float(params.get("least_s", 0.0)))
        more = min(more, int(params.get("most_images", more)))
        if more <= n:
            break
        n = more
    values |= {
        "n_images": n,
        "n_loaded": passed.n,
        "job_s": passed.outcome.run.wall_ns / 1e9,
        "startup_s": passed.first - passed.outcome.run.began,
        "peak_memory_mib": passed.outcome.peak_mib,
    }
    values |= passed.outcome.report
    return Measurement({"wall": [round(1e9 * passed.seconds)]}, values)


@dataclass(frozen=True)
class Pass:
    """A job that lost nothing: images and seconds of its steady part, and when that began."""

    outcome: "_Outcome"
    n: int
    seconds: float
    first: float


def _pass(
    system: System, cell: Cell, manifest: Manifest, n: int, folder: Path, progress: Progress
) -> Pass:
    """Run the job on n images; its files are removed. Raises RuntimeError as `cluster` does."""
    folder.mkdir()
    task = task_of(cell, folder / "vectors", list_images(manifest, n, folder / "images"), n)
    outcome = _run(system, task, progress)
    if outcome.error:
        raise RuntimeError(f"{system.label}: {outcome.error}")
    counts = _counts(task.out, range(n))
    if counts["lost"] or counts["doubled"]:
        raise RuntimeError(f"{system.label}: {counts} of {n} images")
    counted, seconds, first = between(_stamps(system, task))
    shutil.rmtree(folder)
    return Pass(outcome, counted, seconds, first)


def images_for(passed: Pass, n: int, least_s: float) -> int:
    """How many images make the steady part last so long, by the rate of a pass of n: n or more.

    A short pass is slower than a long one: its caches and its processors are cold.
    """
    if passed.seconds >= least_s:
        return n
    return max(n + 1, math.ceil(n * _MARGIN * least_s / passed.seconds))


def list_images(manifest: Manifest, n: int, folder: Path, damaged: int = 0) -> Path:
    """Write the list of n images, as links in a folder; every `damaged`-th is a file cut in half.

    Id is the position in seven digits; also the link's name, as `read_images` has no ids.
    """
    folder.mkdir()
    files = [(manifest.root / item.path).resolve() for item in manifest.valid]
    data = files[0].read_bytes()
    broken = folder.with_name("damaged")
    broken.write_bytes(data[: len(data) // 2])
    ids = [f"{i:07}" for i in range(n)]
    paths = [folder / f"{name}.jpg" for name in ids]
    for i, path in enumerate(paths):
        path.symlink_to(broken if is_damaged(i, damaged) else files[i % len(files)])
    listed = folder.with_name("list.parquet")
    pq.write_table(pa.table({"id": ids, "path": list(map(str, paths))}), listed)
    return listed


def is_damaged(position: int, every: int) -> bool:
    """Whether the file at this position is damaged; not the first."""
    return bool(every) and position % every == every - 1


def rows(out: Path) -> Iterator[tuple[str, bytes]]:
    """Every id in a folder's Parquet files, with its vector's bytes."""
    for path in sorted(out.rglob("*.parquet")):
        if not path.relative_to(out).parts[0].startswith("."):
            table = pq.read_table(path, columns=["id", "vector"]).combine_chunks()
            vectors = np.asarray(table["vector"].combine_chunks().flatten(), np.float32)
            ids = table["id"].to_pylist()
            yield from zip(ids, map(bytes, vectors.reshape(len(ids), -1)), strict=True)


def between(stamps: Sequence[tuple[float, int]]) -> tuple[int, float, float]:
    """Times and sizes of batches → images after the first one, their seconds, the first's time.

    Raises RuntimeError: too few to have a rate.
    """
    ordered = sorted(stamps)
    seconds = ordered[-1][0] - ordered[0][0] if ordered else 0.0
    if len(ordered) < _LEAST or seconds <= 0:
        raise RuntimeError(f"{len(ordered)} batches in {seconds:g} s have no rate: more images")
    return sum(size for _, size in ordered[1:]), seconds, ordered[0][0]


@dataclass(frozen=True)
class _Outcome:
    """A job that has ended. `report`: what it printed; `error`: its last line, where it failed."""

    run: JobRun
    peak_mib: float
    report: Mapping[str, Any]
    error: str


def _run(system: System, task: Task, progress: Progress = protocol.no_progress) -> _Outcome:
    peak_mib = 0.0

    def sample(pid: int) -> None:
        nonlocal peak_mib
        with suppress(psutil.NoSuchProcess):
            peak_mib = max(peak_mib, ProcessTree(pid).pss_mib())
        progress(sum(size for _, size in _stamps(system, task)))

    output = Path(f"{task.out}.output")
    run = run_job(command_of(system, task), output, sample, own_session=True)
    if run.status:
        return _Outcome(run, peak_mib, {}, last_line(run.output))
    report = next(line for line in reversed(run.output.splitlines()) if line.startswith("{"))
    return _Outcome(run, peak_mib, json.loads(report), "")


def command_of(system: System, task: Task) -> list[str]:
    """The command line of a job."""
    module = f"{systems.__name__}.{system.module}"
    return [sys.executable, "-m", module, json.dumps(asdict(task)), *system.words]


def task_of(cell: Cell, out: Path, listed: Path, n: int) -> Task:
    """A job of the n images in a list, on all cores of this machine."""
    batch = cell.recipe.batch_size
    return Task(
        source=str(listed),
        out=str(out),
        px=cell.model.input_px,
        dim=cell.model.dim,
        batch=batch,
        cpus=usable_cores(),
        shard=-(-n // (_PARTS * batch)) * batch,
        object_store_mib=cell.params["object_store_mib"],
    )


def _stamps(system: System, task: Task) -> list[tuple[float, int]]:
    """Time and size of each batch in the model so far; of this suite's own jobs, of each part."""
    if system.is_ours:
        parts = Path(task.out).glob("part-*.parquet")
        return [(path.stat().st_mtime, pq.read_metadata(path).num_rows) for path in parts]
    if not task.stamps.is_file():
        return []
    lines = task.stamps.read_text(encoding="ascii").splitlines()
    return [(float(at), int(size)) for at, size in map(str.split, lines)]


def _damaged(
    system: System, task: Task, params: Mapping[str, Any], progress: Progress
) -> dict[str, Any]:
    bad = [i for i in range(params["n"]) if is_damaged(i, params["damaged"])]
    good = sorted({*range(params["n"])} - {*bad})
    error = _run(system, task, progress).error
    result = {"damaged": len(bad), "aborted": error, **_counts(task.out, good, bad)}
    if error and system.distribution == "ray":
        again = replace(task, out=f"{task.out}-errored", max_errored_blocks=_ALL_BLOCKS)
        aborted = _run(system, again, progress).error
        result["errored"] = {"aborted": aborted, **_counts(again.out, good, bad)}
    return result


def _counts(out: str, good: Sequence[int], bad: Sequence[int] = ()) -> dict[str, int]:
    """Good images without a vector, damaged ones with a vector, and vectors beyond one an id."""
    ids = [int(name) for name, _ in rows(Path(out))]
    unique = set(ids)
    return {
        "lost": len({*good} - unique),
        "delivered": len(unique & {*bad}),
        "doubled": len(ids) - len(unique),
    }


def _compared(system: System, task: Task, cell: Cell, manifest: Manifest) -> dict[str, float]:
    """How far the system's own first pictures are from Pillow's."""
    n = min(cell.params["fidelity"]["images"], len(manifest.valid))
    chosen = replace(manifest, items=tuple(manifest.valid[:n]))
    pictures: dict[int, PixelArray]
    if system.is_ours:
        ours = vars(JobSettings(model="null").resolved_recipe("cpu"))
        recipe = from_fields(Recipe, {**ours, "engine": "threads"})
        made = fidelity.resized(recipe, cell.model, chosen, {})
        pictures = {at: made[item.id] for at, item in enumerate(chosen.items)}
    else:
        folder = Path(task.out).with_name("pixels")
        folder.mkdir()
        listed = list_images(chosen, n, folder / "images")
        few = replace(task, source=str(listed), out=str(folder / "out"), pixels=True)
        error = _run(system, few).error
        if error:
            raise RuntimeError(f"{system.label}: {error}")
        shape = (task.px, task.px, 3)
        pictures = {
            int(name): np.frombuffer(data, np.float32).reshape(shape).astype(np.uint8)
            for name, data in rows(Path(few.out))
        }
    return fidelity.compare_loader_output(pictures, chosen, cell.model, "cpu", 0)


def last_line(text: str) -> str:
    """The last line that is an error's, or the last one; cut."""
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    errors = [line for line in lines if "Error" in line.partition(":")[0]]
    return (errors or lines or ["no output"])[-1][:200]
