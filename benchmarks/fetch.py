"""`make bench-fetch`: this project's fetcher and awscli, in turn, on the same 20,000 small objects.

One nginx on loopback serves generated images; each fetcher runs as a fresh process into an empty
folder, the two interleaved, with nothing and with 20 ms added to each object. Seconds are from the
process's start to its end, CPU seconds are its own (user and system). Then the fault proxy of the
tests stands in between: all objects must arrive intact, within a bound on memory, and a second run
must ask for nothing.

    python -m benchmarks.fetch [--objects N] [--repeats N] [--threads N] [--no-faults]
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.nginx import INSTALL_HINT, Nginx, find
from benchmarks.results import OUT, publish
from wallclock import provenance
from wallclock.corpus import manifest as manifests
from wallclock.corpus import synthetic
from wallclock.corpus.abo import plan
from wallclock.corpus.vet import read_header
from wallclock.errors import UserError
from wallclock.spec import Limits
from wallclock.summary import median

BUCKET = "amazon-berkeley-objects"
WORK = OUT / "fetch-benchmark"
AWS = provenance.ROOT / ".venv-bench" / "bin" / "aws"

#: Rendered images; the objects are these under many names, each made unique by a comment.
_DISTINCT = 1000
_DELAYS_MS = (0, 20)
_MAX_RSS_MIB = 300
#: Of the images, those whose first answer is broken; and what a silence costs, in seconds.
_FAULT_SHARE = 0.25
_FAULT_TIMEOUT_S = 2.0
#: `max_concurrent_requests`, as awscli comes.
_AWSCLI_THREADS = 10
#: (added ms, at least this many times awscli's objects a second)
_WANTED = {0: 1.5, 20: 2.0}
COLUMNS = (
    *("fetcher", "version", "threads", "added_ms", "repeats", "n_objects", "mean_kb"),
    *("wall_s", "wall_s_min", "wall_s_max", "objects_per_s", "mb_per_s", "cpu_s", "cpu_ms_per_object"),
    *("peak_memory_mib", "objects_per_s_ratio", "cpu_ratio"),
    *("faulty_answers", "requests", "n_intact", "requests_again", "device", "origin"),
)
#: Columns that are shown, and how they are headed.
_SHOWN = {
    **{"added_ms": "+ ms", "fetcher": "fetcher", "objects_per_s": "objects/s"},
    **{"mb_per_s": "MB/s", "cpu_ms_per_object": "CPU ms", "peak_memory_mib": "MiB"},
    **{"objects_per_s_ratio": "× speed", "cpu_ratio": "× CPU"},
}


@dataclass(frozen=True)
class Run:
    """One process: seconds from start to end, its CPU seconds, its peak memory."""

    wall_s: float
    cpu_s: float
    rss_mib: float


def main() -> int:
    """Run the benchmark; 1 if an object was lost or damaged."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--objects", type=int, default=20_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=0, help="of ours; 0: the setting's own")
    parser.add_argument("--no-faults", action="store_true")
    choices = parser.parse_args()
    console = Console()
    for tool, found, hint in (("nginx", find(), INSTALL_HINT), ("awscli", AWS.exists(), "make bench-fetch")):
        if not found:
            sys.exit(f"bench-fetch: no {tool} here: {hint}")
    n_bytes = _make_tree(choices.objects)
    with Nginx(WORK / "tree", BUCKET, WORK / "nginx", "images/small/", max(_DELAYS_MS)) as server:
        runs = _interleaved(server, choices.objects, choices.repeats, choices.threads, console)
        rows = _rows(runs, choices.objects, n_bytes, choices.threads)
        _show(rows, console)
        if not choices.no_faults:
            rows.append(_with_faults(server, choices.objects, n_bytes, console))
    publish("fetch-benchmark", COLUMNS, rows)
    return 0 if choices.no_faults or _survived(rows[-1]) else 1


def ours(endpoint: str, cache: Path, n: int, threads: int, *more: str) -> list[str]:
    """The command that fetches with this project's own code, as `make data` does but for planning experiments."""
    settings = {"endpoint": endpoint, "prefixes": {"small_256": 256}, **({"threads": threads} if threads else {})}
    return [sys.executable, "-m", "benchmarks.fetch_ours", str(cache), str(n), json.dumps(settings), *more]


def awscli(endpoint: str, folder: Path) -> list[str]:
    """The command that fetches the same objects with awscli, as its manual has it."""
    source = f"s3://{BUCKET}/images/small/"
    quiet = ["--only-show-errors", "--no-sign-request", "--region", "us-east-1", "--endpoint-url", endpoint]
    return [str(AWS), "s3", "cp", "--recursive", *quiet, source, str(folder)]


def _make_tree(n: int) -> int:
    """Write the objects and their catalogue unless they are there; return the bytes of all images."""
    bucket, stamp = WORK / "tree" / BUCKET, WORK / "tree" / f"{n}.json"
    if stamp.exists():
        return int(json.loads(stamp.read_text(encoding="utf-8"))["bytes"])
    shutil.rmtree(WORK / "tree", ignore_errors=True)
    distinct = [synthetic.render(0, "small_256", i, 0.0) for i in range(min(_DISTINCT, n))]
    rows, total = ["image_id,height,width,path"], 0
    for number in range(n):
        digest = hashlib.sha256(f"object {number}".encode()).hexdigest()[:8]
        image = distinct[number % len(distinct)]
        comment = f"{number:08d}".encode()
        data = image[:2] + b"\xff\xfe" + (2 + len(comment)).to_bytes(2, "big") + comment + image[2:]
        path = bucket / "images" / "small" / digest[:2] / f"{digest}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        total += len(data)
        header = read_header(data, Limits())
        rows.append(f"{number:08d}L,{header.height},{header.width},{digest[:2]}/{digest}.jpg")
    (bucket / plan.KEY).parent.mkdir(parents=True, exist_ok=True)
    (bucket / plan.KEY).write_bytes(gzip.compress("\n".join([*rows, ""]).encode(), mtime=0))
    (bucket / "LICENSE-CC-BY-4.0.txt").write_text("generated images, no licence needed\n", encoding="utf-8")
    stamp.write_text(json.dumps({"bytes": total}), encoding="utf-8")
    return total


def _interleaved(
    server: Nginx, n: int, repeats: int, threads: int, console: Console
) -> dict[tuple[str, int], list[Run]]:
    runs: dict[tuple[str, int], list[Run]] = {}
    shutil.rmtree(WORK / "out", ignore_errors=True)
    for repeat in range(repeats):
        for added_ms in _DELAYS_MS:
            endpoint = server.slow_endpoint if added_ms else server.endpoint
            # Each goes first in turn: who comes second finds a warmer machine.
            for fetcher in ("wallclock", "awscli") if repeat % 2 == 0 else ("awscli", "wallclock"):
                # A new folder each: a file system is slower for a while after a large one was removed.
                folder = WORK / "out" / f"{repeat}-{added_ms}-{fetcher}"
                command = ours(endpoint, folder, n, threads) if fetcher == "wallclock" else awscli(endpoint, folder)
                run = _timed(command)
                arrived = sum(1 for _ in folder.rglob("*.jpg"))
                if arrived != n:
                    raise UserError(f"{fetcher} brought {arrived} of {n} objects")
                runs.setdefault((fetcher, added_ms), []).append(run)
                console.print(
                    f"#{repeat + 1} {added_ms:2d} ms {fetcher:9s} {n / run.wall_s:7.0f} objects/s "
                    f"{run.cpu_s / n * 1e3:5.2f} ms CPU each, {run.rss_mib:.0f} MiB",
                    highlight=False,
                )
    shutil.rmtree(WORK / "out", ignore_errors=True)
    return runs


def _timed(command: Sequence[str], expected: int = 0) -> Run:
    env = {**os.environ, "AWS_EC2_METADATA_DISABLED": "true", "AWS_CONFIG_FILE": os.devnull}
    env["PYTHONPATH"] = os.pathsep.join([str(provenance.ROOT / "code"), str(provenance.ROOT)])
    began = time.perf_counter()
    process = subprocess.Popen(command, env=env, cwd=provenance.ROOT)
    _, status, used = os.wait4(process.pid, 0)
    wall = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != expected:
        raise UserError(f"{command[0]} ended with status {process.returncode}")
    return Run(wall, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


def _rows(runs: dict[tuple[str, int], list[Run]], n: int, n_bytes: int, threads: int) -> list[dict[str, object]]:
    """One row a fetcher and delay: the medians, and how many times awscli's."""
    rows = []
    version = subprocess.run([AWS, "--version"], capture_output=True, text=True, check=True).stdout.split()[0]
    for (fetcher, added_ms), some in sorted(runs.items(), key=lambda pair: (pair[0][1], pair[0][0])):
        row = _row(some, n, n_bytes)
        row |= {"fetcher": fetcher, "added_ms": added_ms, "faulty_answers": 0}
        row |= {"version": version if fetcher == "awscli" else "this checkout"}
        row |= {"threads": (threads or _default_threads()) if fetcher == "wallclock" else _AWSCLI_THREADS}
        theirs = runs["awscli", added_ms]
        row["objects_per_s_ratio"] = median([run.wall_s for run in theirs]) / median([run.wall_s for run in some])
        row["cpu_ratio"] = median([run.cpu_s for run in some]) / median([run.cpu_s for run in theirs])
        rows.append(row)
    return rows


def _row(some: Sequence[Run], n: int, n_bytes: int) -> dict[str, object]:
    """What every row says of its runs; the other columns are empty."""
    wall, cpu = median([run.wall_s for run in some]), median([run.cpu_s for run in some])
    row: dict[str, object] = dict.fromkeys(COLUMNS)
    row |= {"repeats": len(some), "n_objects": n, "mean_kb": n_bytes / n / 1e3, "wall_s": wall, "cpu_s": cpu}
    row |= {"wall_s_min": min(run.wall_s for run in some), "wall_s_max": max(run.wall_s for run in some)}
    row |= {"objects_per_s": n / wall, "mb_per_s": n_bytes / wall / 1e6, "cpu_ms_per_object": cpu / n * 1e3}
    row |= {"peak_memory_mib": max(run.rss_mib for run in some), "origin": "measured"}
    return row | {"device": provenance.machine()["cpu"]}


def _default_threads() -> int:
    from wallclock.spec import CorpusSpec

    return CorpusSpec("abo").threads


def _show(rows: Sequence[dict[str, object]], console: Console) -> None:
    table = Table(title=f"{rows[0]['n_objects']:,} small objects from one nginx on loopback, medians", box=box.SIMPLE)
    for head in _SHOWN.values():
        table.add_column(head, justify="right", no_wrap=True)
    for row in rows:
        values = [row[name] for name in _SHOWN]
        table.add_row(*(f"{value:.3g}" if isinstance(value, float) else str(value) for value in values))
    console.print(table)
    for row in rows:
        if row["fetcher"] == "wallclock":
            added_ms, ratio, cpu = (
                int(str(row["added_ms"])),
                float(str(row["objects_per_s_ratio"])),
                float(str(row["cpu_ratio"])),
            )
            held = "held" if ratio >= _WANTED[added_ms] and cpu <= 1 else "missed"
            console.print(
                f"{added_ms} ms added: {ratio:.2f} × awscli's objects a second (wanted {_WANTED[added_ms]}), "
                f"{cpu:.2f} × its CPU time an object (wanted at most 1): {held}",
                highlight=False,
                soft_wrap=True,
            )


def _with_faults(server: Nginx, n: int, n_bytes: int, console: Console) -> dict[str, object]:
    """Fetch through the fault proxy, then once more: the row that says what arrived and what was asked for."""
    cache = WORK / "faults"
    shutil.rmtree(cache, ignore_errors=True)
    command = [sys.executable, "-m", "tests.abo.fault_proxy", str(server.port), str(_FAULT_SHARE)]
    env = {**os.environ, "PYTHONPATH": str(provenance.ROOT)}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env) as proxy:
        assert proxy.stdin is not None
        assert proxy.stdout is not None
        fetch = ours(f"http://127.0.0.1:{int(proxy.stdout.readline())}", cache, n, 0, str(_FAULT_TIMEOUT_S))
        run = _timed(fetch)
        first = _counts(proxy)
        _timed(fetch)
        again = _counts(proxy).requests - first.requests
        proxy.stdin.close()
    row = _row([run], n, n_bytes) | {"fetcher": "wallclock", "version": "this checkout", "added_ms": 0}
    row |= {"threads": _default_threads(), "faulty_answers": sum(first.faults.values()), "requests": first.requests}
    row |= {"n_intact": _intact(cache), "requests_again": again}
    console.print(
        f"with faults {json.dumps(first.faults)}: {row['n_intact']} of {n} objects intact in {run.wall_s:.0f} s and "
        f"{first.requests} requests, peak memory {run.rss_mib:.0f} MiB (wanted at most {_MAX_RSS_MIB}), "
        f"a second run asks for {again}: {'held' if _survived(row) else 'missed'}",
        highlight=False,
        soft_wrap=True,
    )
    shutil.rmtree(cache, ignore_errors=True)
    return row


def _survived(row: dict[str, object]) -> bool:
    """Whether everything arrived through the faults, within the bound on memory, and nothing was asked for again."""
    within = float(str(row["peak_memory_mib"])) <= _MAX_RSS_MIB
    return row["n_intact"] == row["n_objects"] and row["requests_again"] == 0 and within


@dataclass(frozen=True)
class _Counts:
    """What the fault proxy did so far."""

    requests: int
    faults: dict[str, int]


def _counts(proxy: subprocess.Popen[str]) -> _Counts:
    assert proxy.stdin is not None
    assert proxy.stdout is not None
    proxy.stdin.write("\n")
    proxy.stdin.flush()
    return _Counts(**json.loads(proxy.stdout.readline()))


def _intact(cache: Path) -> int:
    """Images that are here and are the store's, byte for byte."""
    (path,) = cache.glob("abo-*/small_256-*-seed0.csv")
    found = manifests.load(path)
    source = WORK / "tree" / BUCKET / "images" / "small"
    return sum((found.root / item.path).read_bytes() == (source / item.path).read_bytes() for item in found.sound)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except UserError as error:
        sys.exit(f"bench-fetch: {error}")
