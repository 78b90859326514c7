"""Protocol `job`: `wallclock embed` of a list of `params.n` ids, in a process of its own.

With `params.files` `distinct` each id has a file of its own bytes, as a million real images have,
and equal bytes are looked for, as is the default; a picture comes round again in other files. With
`repeated`, as in cells that do not say, the corpus's files come round again, each time under
another id, and nothing is deduplicated. Every id is read, decoded, resized and written. `wall` is
from the start of the process to its end, imports and the listing included; the files are laid out
before. Every second a thread of that process, `python -m harness.protocols.job`, reads the memory
of it and of those that it has started, and counts the parts that are on the disk. Shared memory
counts in every process that has touched it.
"""

import json
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.dataset as ds

from harness.corpora.distinct import EXTRA, lay_out
from harness.corpora.manifest import Manifest
from harness.jobs import PERIOD_S, run_job
from harness.processes import ProcessTree
from harness.protocols import protocol
from harness.protocols.protocol import Measurement, Progress
from harness.spec import Cell
from wallclock.clock import collect_rarely
from wallclock.errors import UserError
from wallclock.job import embed
from wallclock.machine import usable_cores


def job(cell: Cell, work: Path, progress: Progress) -> Measurement:
    """Run the job once and keep its samples. `params.settings`: of `embed`.

    Values: `startup_s`, all but the loop over batches: imports, the listing, the loader's start;
    `main_cpu_s` and `commit_cpu_s`, CPU seconds of the main process's two threads in that loop;
    `n_files`, distinct hashes in the dataset; `deduplicate`, as the dataset says; `other_cores`
    that other programs kept busy; and `sampled`, lists of `elapsed_s` since the imports, `n_done`
    (images in whole parts, the last one counted as full) and `rss_mib`.
    """
    manifest = protocol.open_corpus(cell, "jpeg")
    n, is_distinct = int(cell.params["n"]), cell.params.get("files") == "distinct"
    listed = _laid_out(manifest, work / "images", n) if is_distinct else manifest
    values = protocol.set_conditions(cell, listed, uses_torch=False)
    source, out, output = work / "list.csv", work / "vectors", work / "output.txt"
    _write_list(source, listed, n)
    settings = dict(cell.params["settings"])
    settings |= {
        "batch": cell.recipe.batch_size,
        "workers": cell.recipe.workers,
        "model": "null",
        "deduplicate": is_distinct,
    }
    arguments = [str(source), str(out), json.dumps(settings)]

    def sample(pid: int) -> None:
        for line in _reports(output.read_text(encoding="utf-8", errors="replace"))[-1:]:
            progress(int(line.get("n_done", 0)))

    with protocol.competing(values):
        run = run_job([sys.executable, "-m", "harness.protocols.job", *arguments], output, sample)
    reports = _reports(run.output)
    if run.status or not reports:
        raise UserError(f"wallclock embed ended with status {run.status}")
    *samples, last = reports
    if last["vectors"] != n:
        raise UserError(f"wallclock embed wrote {last['vectors']} vectors of {n} images")
    progress(samples[-1]["n_done"])
    values |= _what_was_written(out)
    values |= {
        "sampled": {name: [line[name] for line in samples] for name in samples[0]},
        "n_loaded": n,
        "n_unique": len(manifest.valid),
        "main_cpu_s": last["main_cpu_s"],
        "commit_cpu_s": last["commit_cpu_s"],
        "startup_s": run.wall_ns / 1e9 - last["loop_s"],
        "settings": f"wallclock embed, {settings['shard']:,} to a part; {last['ran']}",
        "cores": usable_cores(),
        "peak_memory_mib": max(line["rss_mib"] for line in samples),
    }
    return Measurement({"wall": [run.wall_ns]}, values)


def _laid_out(manifest: Manifest, folder: Path, n: int) -> Manifest:
    """n files of distinct bytes with the pictures of a corpus. Raises UserError: no space."""
    pictures = manifest.valid
    paths = lay_out([manifest.root / item.path for item in pictures], folder, n)
    items = (
        replace(
            pictures[number % len(pictures)],
            id=str(number),
            path=str(path.relative_to(folder)),
            bytes=pictures[number % len(pictures)].bytes + EXTRA,
            sha256="",
        )
        for number, path in enumerate(paths)
    )
    return replace(manifest, root=folder, items=tuple(items))


def _write_list(source: Path, listed: Manifest, n: int) -> None:
    """n ids over the files, in turn."""
    places = [listed.root / item.path for item in listed.valid]
    with source.open("w", encoding="utf-8") as file:
        file.write("id,path\n")
        file.writelines(f"{i},{places[i % len(places)]}\n" for i in range(n))


def _what_was_written(out: Path) -> dict[str, Any]:
    """Distinct hashes of a dataset, and whether it says that equal bytes were looked for."""
    about = json.loads((out / "_dataset.json").read_text(encoding="utf-8"))
    hashes = ds.dataset(sorted(out.glob("part-*.parquet"))).to_table(["sha256"])["sha256"]
    return {
        "n_files": pc.count_distinct(hashes).as_py(),
        "deduplicate": bool(about["settings"]["deduplicate"]),
    }


def _reports(output: str) -> list[dict[str, Any]]:
    """The complete JSON lines of an output; the command's own messages are none."""
    complete = output[: output.rfind("\n") + 1].splitlines()
    return [json.loads(line) for line in complete if line.startswith("{")]


def _embed(source: str, out: str, settings: dict[str, Any]) -> None:
    """Run the job in this process; print a sample a second, and how it ended, as JSON lines."""
    collect_rarely()  # as the command does
    began = time.monotonic()
    ended = threading.Event()
    processes = ProcessTree()
    shard = int(settings["shard"])

    def sample() -> None:
        parts = len(list(Path(out).glob("part-*.parquet")))
        line = {
            "elapsed_s": round(time.monotonic() - began, 3),
            "n_done": parts * shard,
            "rss_mib": round(processes.rss_mib(), 1),
        }
        print(json.dumps(line), flush=True)

    def sample_every_period() -> None:
        while not ended.wait(PERIOD_S):
            sample()

    sampler = threading.Thread(target=sample_every_period)
    sampler.start()
    try:
        outcome = embed(source, out, **settings)
    finally:
        ended.set()
        sampler.join()
    sample()
    tally = outcome.tally
    last = {
        "loop_s": tally.wall_s,
        "main_cpu_s": tally.main_cpu_s,
        "commit_cpu_s": tally.commit_cpu_s,
        "vectors": outcome.counts["vectors"],
        "ran": f"limited by the {tally.limited_by}",
    }
    print(json.dumps(last))


if __name__ == "__main__":
    _embed(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]))
