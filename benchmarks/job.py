"""What a job costs beyond embedding each image: data/job.csv, with its provenance.

`wallclock embed` of `n` ids over generated files, with the mock model at 0 ms, which makes every
other cost as large as it can be: as it is (`plain`), loading in one process and in two, with
`keep=thumbnails`, and with `reuse=` of the plain run where 1 % of the ids have got another file.
Each in a process of its own, in turns; seconds are from the start of the process to its end, of the
median round. `of_plain` is the same in shares of the plain job's. `processes`: that loaded, of
the plain job as many as the job's rule chose.

Each id has a file of its own bytes, of few pictures, and equal bytes are looked for. With
`--repeat` few files come round again, and `deduplicate=false`.

    python -m benchmarks.job [--small N] [--original N] [--rounds N] [--jobs JOB …] [--repeat]
"""

import argparse
import re
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.fast import save
from harness import provenance
from harness.corpora import manifest, synthetic
from harness.corpora.distinct import lay_out
from harness.jobs import run_job
from harness.spec import CorpusSpec
from wallclock.summary import median

#: Image set → distinct pictures.
_PICTURES = {"small_256": 512, "original": 96}
_PLAIN, _CHANGED = "plain", "1 % changed"
#: Job → its settings.
_JOBS = {
    _PLAIN: (),
    "1 process": ("processes=1",),
    "2 processes": ("processes=2",),
    "thumbnails": ("keep=thumbnails",),
    _CHANGED: (),
}
#: Every hundredth id.
_EVERY = 100
#: The code that the table depends on.
TIMED = ("harness.corpora.distinct", "harness.jobs", "wallclock")


class _Timed(NamedTuple):
    seconds: float
    processes: int


def main() -> None:
    """Measure, write the table, print it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--small", type=int, default=100_000, help="ids over images of 256 px")
    parser.add_argument("--original", type=int, default=3_000, help="ids over originals")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--jobs", nargs="+", choices=_JOBS, default=[*_JOBS])
    parser.add_argument("--repeat", action="store_true", help="few files, under many ids")
    args = parser.parse_args()
    jobs = [job for job in _JOBS if job in {_PLAIN, *args.jobs}]
    rows: list[dict[str, object]] = []
    for images, n in (("small_256", args.small), ("original", args.original)):
        with tempfile.TemporaryDirectory(dir=provenance.ROOT / "data") as work:
            timed = _measure(Path(work), _lists(images, n, args.repeat, Path(work)), jobs, args)
        plain = median([run.seconds for run in timed[_PLAIN]])
        rows += [_row(job, runs, plain, images, n, args.repeat) for job, runs in timed.items()]
    save("job", rows, TIMED)


def _row(
    job: str, runs: Sequence[_Timed], plain: float, images: str, n: int, is_repeated: bool
) -> dict[str, object]:
    seconds = [run.seconds for run in runs]
    return {
        "images": images,
        "n_images": n,
        "files": "repeated" if is_repeated else "distinct",
        "deduplicate": not is_repeated,
        "job": job,
        "processes": runs[-1].processes,
        "rounds": len(runs),
        "wall_s": median(seconds),
        "wall_s_min": min(seconds),
        "wall_s_max": max(seconds),
        "img_per_s": n / median(seconds),
        "of_plain": median(seconds) / plain,
        "origin": "measured",
    }


def _lists(images: str, n: int, is_repeated: bool, work: Path) -> tuple[Path, Path]:
    """A list of n ids, and the same where every hundredth has another file."""
    pictures = _PICTURES[images]
    cache = provenance.ROOT / "data" / "corpora"
    made = synthetic.prepare(CorpusSpec("synthetic"), images, 2 * pictures, cache, lambda *_: None)
    corpus = manifest.load(Path(made.manifest))
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
    return work / "first.csv", work / "changed.csv"


def _measure(
    work: Path, lists: tuple[Path, Path], jobs: Sequence[str], args: argparse.Namespace
) -> dict[str, list[_Timed]]:
    first, changed = lists
    timed: dict[str, list[_Timed]] = {job: [] for job in jobs}
    common = ["deduplicate=false"] if args.repeat else []
    for _ in range(args.rounds):
        for job in jobs:
            out = work / job
            shutil.rmtree(out, ignore_errors=True)
            reuse = [f"reuse={work / _PLAIN}"] if job == _CHANGED else []
            source = changed if job == _CHANGED else first
            timed[job].append(_embed(source, out, *common, *_JOBS[job], *reuse))
    return timed


def _embed(source: Path, out: Path, *settings: str) -> _Timed:
    """Seconds of a job, and what it says. Raises RuntimeError with its output: it failed."""
    command = [sys.executable, "-m", "wallclock", "embed", str(source), str(out), "model=null"]
    run = run_job([*command, "device=cpu", *settings], out.with_suffix(".txt"))
    if run.status:
        raise RuntimeError(run.output)
    # It says what it has chosen, if that is not one.
    told = re.search(r"processes=(\d+)", " ".join(settings)) or re.search(
        r"(\d+) processes load", run.output
    )
    return _Timed(run.wall_ns / 1e9, int(told[1]) if told else 1)


if __name__ == "__main__":
    main()
