"""What a job costs beyond embedding each image: data/benchmarks/job.csv and its samples.

The mock model takes no time, so that every other cost shows. The jobs over `n` ids are `wallclock
embed` as it is (`plain`), with one process and with two, and again in the plain job's OUT after 1 %
of the files changed. `open_images` is a loop over the same list that keeps nothing. They run in
turn, each in a process of its own. A row has the wall seconds of the process in the median round,
and `of_plain`, their ratio to the plain job in the same round. `processes` is how many loaded.
`peak_memory_mib` is the most memory of all its processes, sampled every second, shared pages
counted once.

Each id has a file of its own bytes, of a few pictures. With `--repeat`, a few files repeat, and
`deduplicate=false`. `files_gib` is the size of all files, `page_cache_share` how much of it was in
memory when the first job began. `--larger-than-memory` adds a plain job over distinct originals of
1.25 times this machine's memory, most of which come from the disk in each round. If they do not fit
on the disk, the row says so.

    python -m benchmarks.job [--small N] [--original N] [--rounds N] [--jobs JOB …] [--repeat]
                             [--larger-than-memory]
"""

import argparse
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks._common import generated, save, spread
from harness import provenance
from harness.corpora import readers
from harness.corpora.distinct import EXTRA, lay_out
from harness.corpora.manifest import Manifest
from harness.jobs import run_job
from harness.measures import median
from harness.processes import ProcessTree
from wallclock.errors import UserError
from wallclock.recipe import FAST

#: Image set → distinct pictures.
_PICTURES = {"small_256": 512, "original": 96}
_PLAIN, _CHANGED, _LOADER = "plain", "1 % changed", "open_images"
#: Job → its settings.
_JOBS = {
    _PLAIN: (),
    _LOADER: (),
    "1 process": ("processes=1",),
    "2 processes": ("processes=2",),
    _CHANGED: (),
}
#: The loader alone, in batches as large as a job's.
_LOOP = f"""
import csv, sys, wallclock
with open(sys.argv[1], newline="") as file:
    paths = [row["path"] for row in csv.DictReader(file)]
with wallclock.open_images(paths, size=224, batch={FAST.batch_size}) as batches:
    assert sum(len(batch.ids) for batch in batches) == len(paths)
"""
#: Every hundredth id has a changed file.
_EVERY = 100
#: Files that are larger than the memory take so many times its size.
_LARGER = 1.25


@dataclass(frozen=True)
class Run:
    """One job that ended. `from_disk`: bytes that the kernel fetched from block devices for it."""

    seconds: float
    processes: int
    peak_memory_mib: float
    from_disk: int


@dataclass(frozen=True)
class Lists:
    """A list of ids and files; the same with a changed file for every hundredth; their sizes."""

    first: Path
    changed: Path
    n_bytes: int
    cached_share: float | None


def main() -> None:
    """Measure, write the table, print it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--small", type=int, default=100_000, help="ids over images of 256 px")
    parser.add_argument("--original", type=int, default=3_000, help="ids over originals")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--jobs", nargs="+", choices=_JOBS, default=[*_JOBS])
    parser.add_argument("--repeat", action="store_true", help="few files, under many ids")
    larger = "also distinct originals that take more than the memory"
    parser.add_argument("--larger-than-memory", action="store_true", help=larger)
    args = parser.parse_args()
    jobs = [job for job in _JOBS if job in {_PLAIN, *args.jobs}]
    rows: list[dict[str, object]] = []
    samples: dict[str, list[float]] = {}
    cases = [
        ("small_256", args.small, jobs, args.repeat),
        ("original", args.original, jobs, args.repeat),
    ]
    if args.larger_than_memory:
        cases.append(("original", _more_than_memory(_pictures("original")), [_PLAIN], False))
    for images, n, chosen, is_repeated in cases:
        try:
            made, runs = _measure(images, n, chosen, args.rounds, is_repeated)
        except UserError as error:  # no space
            rows += [_empty(images, n, job, is_repeated, str(error)) for job in chosen]
            continue
        rows += make_rows(_pictures(images), images, n, made, runs, is_repeated)
        samples |= {f"{images}, {n}, {job}, s": [run.seconds for run in runs[job]] for job in runs}
    save("job", rows, samples)


def _pictures(images: str) -> Manifest:
    """Twice as many pictures as a list has: changed files show other ones."""
    return generated(images, 2 * _PICTURES[images])


def _more_than_memory(pictures: Manifest) -> int:
    """How many distinct files of these pictures take 1.25 times the memory."""
    sizes = [item.bytes + EXTRA for item in pictures.valid]
    return round(_LARGER * memory_bytes() / (sum(sizes) / len(sizes)))


def memory_bytes() -> int:
    """Memory of this machine."""
    return int(psutil.virtual_memory().total)


def make_rows(
    pictures: Manifest,
    images: str,
    n: int,
    lists: Lists,
    runs: Mapping[str, Sequence[Run]],
    is_repeated: bool,
) -> list[dict[str, object]]:
    """A row for each job: medians over the rounds, and shares of the plain job of each round."""
    sizes = pictures.size_stats()
    rows = []
    for job, taken in runs.items():
        seconds = [run.seconds for run in taken]
        shares = [
            run.seconds / plain.seconds for run, plain in zip(taken, runs[_PLAIN], strict=True)
        ]
        rows.append(
            _empty(images, n, job, is_repeated, "")
            | {
                "processes": taken[-1].processes,
                "rounds": len(taken),
                **spread("wall_s", seconds),
                "img_per_s": n / median(seconds),
                **spread("of_plain", shares),
                "peak_memory_mib": max(run.peak_memory_mib for run in taken),
                "median_kb": sizes["median_kb"],
                "median_megapixels": sizes["median_megapixels"],
                "files_gib": lists.n_bytes / 2**30,
                "page_cache_share": lists.cached_share,
                "from_disk_share": median([run.from_disk / lists.n_bytes for run in taken]),
            }
        )
    return rows


def _empty(images: str, n: int, job: str, is_repeated: bool, reason: str) -> dict[str, object]:
    """A row without a measurement."""
    measured = (
        *("processes", "rounds", "wall_s", "wall_s_min", "wall_s_max", "img_per_s"),
        *("of_plain", "of_plain_min", "of_plain_max", "peak_memory_mib", "median_kb"),
        *("median_megapixels", "files_gib", "page_cache_share", "from_disk_share"),
    )
    return {
        "images": images,
        "n_images": n,
        "files": "repeated" if is_repeated else "distinct",
        "deduplicate": not is_repeated and job != _LOADER,
        "job": job,
        **dict.fromkeys(measured),
        "memory_gib": memory_bytes() / 2**30,
        "cpu": provenance.machine()["cpu"],
        "origin": "measured",
        "status": "unavailable" if reason else "ok",
        "reason": reason,
    }


def _measure(
    images: str, n: int, jobs: Sequence[str], rounds: int, is_repeated: bool
) -> tuple[Lists, dict[str, list[Run]]]:
    """Run every job once per round. Raises UserError: the files do not fit on the disk."""
    runs: dict[str, list[Run]] = {job: [] for job in jobs}
    with tempfile.TemporaryDirectory(dir=provenance.ROOT / "data") as folder:
        work = Path(folder)
        lists = _lists(_pictures(images), _PICTURES[images], n, is_repeated, work)
        common = ["deduplicate=false"] if is_repeated else []
        for _ in range(rounds):
            for job in jobs:
                out = work / job
                shutil.rmtree(out, ignore_errors=True)
                if job == _CHANGED:
                    shutil.copytree(work / _PLAIN, out)
                rows = lists.changed if job == _CHANGED else lists.first
                source = Path(shutil.copyfile(rows, work / "list.csv"))
                if job == _LOADER:
                    command = ["-c", _LOOP, str(source)]
                else:
                    where = ["-m", "wallclock", "embed", str(source), str(out)]
                    command = [*where, "model=null", "device=cpu", *common, *_JOBS[job]]
                runs[job].append(_run(command, out.with_suffix(".txt")))
    return lists, runs


def _lists(corpus: Manifest, pictures: int, n: int, is_repeated: bool, work: Path) -> Lists:
    """Lay out the files of n ids, and write both lists."""
    files = [corpus.root / item.path for item in corpus.valid]
    if is_repeated:
        first = [files[i % pictures] for i in range(n)]
        others = files[pictures:]
    else:
        paths = lay_out(files, work / "images", n + -(-n // _EVERY))
        first, others = paths[:n], paths[n:]
    changed = [
        others[i // _EVERY % len(others)] if i % _EVERY == _EVERY - 1 else path
        for i, path in enumerate(first)
    ]
    for name, places in (("first", first), ("changed", changed)):
        with (work / f"{name}.csv").open("w", encoding="utf-8") as file:
            file.write("id,path\n")
            file.writelines(f"{i},{path}\n" for i, path in enumerate(places))
    unique = list(dict.fromkeys(first))
    n_bytes = sum(os.stat(path).st_size for path in unique)
    share = readers.cached_share(unique)
    return Lists(work / "first.csv", work / "changed.csv", n_bytes, share)


def _run(arguments: Sequence[str], output: Path) -> Run:
    """Run Python with these arguments. Raises RuntimeError with its output: it failed."""
    peak_mib = 0.0

    def sample(pid: int) -> None:
        nonlocal peak_mib
        with suppress(psutil.NoSuchProcess):
            peak_mib = max(peak_mib, ProcessTree(pid).pss_mib())

    fetched = readers.disk_bytes()
    run = run_job([sys.executable, *arguments], output, sample)
    fetched = readers.disk_bytes() - fetched
    if run.status:
        raise RuntimeError(run.output)
    # A job prints how many processes it chose, unless it is one.
    told = re.search(r"processes=(\d+)", " ".join(arguments)) or re.search(
        r"(\d+) processes load", run.output
    )
    return Run(run.wall_ns / 1e9, int(told[1]) if told else 1, peak_mib, fetched)


if __name__ == "__main__":
    main()
