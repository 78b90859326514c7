"""What a job costs beyond embedding each image: data/job.csv, with its provenance.

`wallclock embed` of `n` ids over generated files, with the mock model at 0 ms, which makes every
other cost as large as it can be: as it is (`plain`), with `keep=thumbnails`, and with `reuse=` of
the plain run where 1 % of the ids have got another file. Each in a process of its own, in turns;
seconds are from the start of the process to its end, of the median round. `of_plain` is the same
in shares of the plain job's.

    python -m benchmarks.job [--small N] [--original N] [--rounds N]
"""

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from benchmarks.fast import save
from harness import provenance
from harness.corpora import manifest, synthetic
from harness.jobs import run_job
from harness.spec import CorpusSpec
from wallclock.summary import median

#: Image set → distinct files.
_FILES = {"small_256": 512, "original": 96}
#: Job → its settings.
_JOBS = {"plain": (), "thumbnails": ("keep=thumbnails",), "1 % changed": ()}
#: Every hundredth id.
_CHANGED = 100
#: The code that the table depends on.
TIMED = ("harness.jobs", "wallclock")


def main() -> None:
    """Measure, write the table, print it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--small", type=int, default=100_000, help="ids over files of 256 px")
    parser.add_argument("--original", type=int, default=3_000, help="ids over originals")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    rows = []
    for images, n in (("small_256", args.small), ("original", args.original)):
        with tempfile.TemporaryDirectory(dir=provenance.ROOT / "data") as work:
            seconds = _measure(images, n, args.rounds, Path(work))
        plain = median(seconds["plain"])
        for job, values in seconds.items():
            rows.append(
                {
                    "images": images,
                    "n_images": n,
                    "job": job,
                    "rounds": args.rounds,
                    "wall_s": median(values),
                    "wall_s_min": min(values),
                    "wall_s_max": max(values),
                    "img_per_s": n / median(values),
                    "of_plain": median(values) / plain,
                    "origin": "measured",
                }
            )
    save("job", rows, TIMED)


def _measure(images: str, n: int, rounds: int, work: Path) -> dict[str, list[float]]:
    spec = CorpusSpec("synthetic")
    cache = provenance.ROOT / "data" / "corpora"
    files = _FILES[images]
    made = synthetic.prepare(spec, images, 2 * files, cache, lambda *_: None)
    corpus = manifest.load(Path(made.manifest))
    paths = [f"{corpus.root}/{item.path}" for item in corpus.valid]
    first, changed = work / "first.csv", work / "changed.csv"
    for path, every in ((first, n + 1), (changed, _CHANGED)):
        with path.open("w", encoding="utf-8") as file:
            file.write("id,path\n")
            for i in range(n):
                other = files if i % every == every - 1 else 0
                file.write(f"{i},{paths[i % files + other]}\n")
    seconds: dict[str, list[float]] = {job: [] for job in _JOBS}
    for _ in range(rounds):
        for job, settings in _JOBS.items():
            out = work / job
            shutil.rmtree(out, ignore_errors=True)
            if job == "1 % changed":
                seconds[job].append(_embed(changed, out, *settings, f"reuse={work / 'plain'}"))
            else:
                seconds[job].append(_embed(first, out, *settings))
    return seconds


def _embed(source: Path, out: Path, *settings: str) -> float:
    """Seconds of a job. Raises RuntimeError with its output: it failed."""
    command = [sys.executable, "-m", "wallclock", "embed", str(source), str(out), "model=null"]
    command += ["device=cpu", "deduplicate=false", *settings]
    run = run_job(command, out.with_suffix(".txt"))
    if run.status:
        raise RuntimeError(run.output)
    return run.wall_ns / 1e9


if __name__ == "__main__":
    main()
