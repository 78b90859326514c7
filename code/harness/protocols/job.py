"""Protocol `job`: `wallclock embed` of a list of `params.n` ids, in a process of its own.

The corpus's files come round again and again, each time under another id, and nothing is
deduplicated: every id is read, decoded, resized and written. `wall` is from the start of the
process to its end, imports and the listing included. Every second a thread of that process,
`python -m harness.protocols.job`, reads memory and open files of it and of those that it has
started, its own collections, and counts the parts that are on the disk. Shared memory counts in
every process that has touched it.
"""

import gc
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from time import perf_counter_ns
from typing import Any

from harness import provenance
from harness.protocols import protocol
from harness.protocols.protocol import Measurement, Progress
from harness.spec import Cell
from wallclock.clock import collect_rarely
from wallclock.errors import UserError
from wallclock.job import embed
from wallclock.machine import ProcessTree, usable_cores

_PERIOD_S = 1.0


def job(cell: Cell, work: Path, progress: Progress) -> Measurement:
    """Run the job once and keep its samples. `params.settings`: of `embed`.

    Values: `startup_s`, all but the loop over batches: imports, the listing, the loader's start;
    and `sampled`, lists of `elapsed_s` since the imports, `n_done` (images in whole parts, the last
    one counted as full), `rss_mib`, `open_files` and `collections`, of all generations.
    """
    manifest = protocol.open_corpus(cell, "jpeg")
    values = protocol.set_conditions(cell, manifest, uses_torch=False)
    n, valid, source = int(cell.params["n"]), manifest.valid, work / "list.csv"
    with source.open("w", encoding="utf-8") as file:
        file.write("id,path\n")
        file.writelines(f"{i},{manifest.root / valid[i % len(valid)].path}\n" for i in range(n))
    settings = {**cell.params["settings"], "batch": cell.recipe.batch_size}
    settings |= {"workers": cell.recipe.workers, "model": "null", "deduplicate": False}
    arguments = [str(source), str(work / "vectors"), json.dumps(settings)]
    start = perf_counter_ns()
    with subprocess.Popen(
        [sys.executable, "-m", "harness.protocols.job", *arguments],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(provenance.CODE)},
    ) as process:
        assert process.stdout is not None
        lines = [json.loads(line) for line in _reported(process.stdout, progress)]
    wall = perf_counter_ns() - start
    if process.returncode or not lines:
        raise UserError(f"wallclock embed ended with status {process.returncode}")
    *samples, ended = lines
    if ended["vectors"] != n:
        raise UserError(f"wallclock embed wrote {ended['vectors']} vectors of {n} images")
    values["sampled"] = {name: [line[name] for line in samples] for name in samples[0]}
    values |= {"n_loaded": n, "startup_s": wall / 1e9 - ended["loop_s"]}
    values |= {"settings": f"wallclock embed, {settings['shard']:,} to a part; {ended['ran']}"}
    values |= {"cores": usable_cores(), "peak_memory_mib": max(values["sampled"]["rss_mib"])}
    return Measurement({"wall": [wall]}, values)


def _reported(lines: Any, progress: Progress) -> Any:
    for line in lines:
        progress(int(json.loads(line).get("n_done", 0)))
        yield line


def _embed(source: str, out: str, settings: dict[str, Any]) -> None:
    """Run the job in this process; print a sample a second, and how it ended, as JSON lines."""
    collect_rarely()  # as the command does
    began, ended, processes = time.monotonic(), threading.Event(), ProcessTree()
    shard = int(settings["shard"])

    def sample() -> None:
        parts = len(list(Path(out).glob("part-*.parquet")))
        line = {
            "elapsed_s": round(time.monotonic() - began, 3),
            "n_done": parts * shard,
            "rss_mib": round(processes.rss_mib(), 1),
            "open_files": processes.open_files(),
            "collections": sum(generation["collections"] for generation in gc.get_stats()),
        }
        print(json.dumps(line), flush=True)

    def watch() -> None:
        while not ended.wait(_PERIOD_S):
            sample()

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        outcome = embed(source, out, **settings)
    finally:
        ended.set()
        watcher.join()
    sample()
    ran = f"limited by the {outcome.tally.limited_by}"
    ended_as = {"loop_s": outcome.tally.wall_s, "vectors": outcome.counts["vectors"], "ran": ran}
    print(json.dumps(ended_as))


if __name__ == "__main__":
    _embed(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]))
