"""What a job does with each row of its list but for the images: data/rows.csv, with its provenance.

A list of n rows, Parquet with `id` and `path`, and the dataset of a job of it that lacks only its
last, small part: in the job's own format, with random hashes and vectors of one number. The places
are URLs, which nothing asks for, but for those of the last part. Each step is a process of its own:
seconds and CPU seconds without the imports, and the peak memory of the process with them.

    list               read the list, digest all columns
    list of files      the same where each place is one of 512 files, which are looked up; up to 5
                       million rows
    index, together    the index of the hashes of all parts, as after a start
    index, one by one  the same of parts in memory, as while a job runs
    list, reuse        read the list, compare it with the dataset, plan the batches
    resume             `wallclock embed` makes the last part
    complete           the same command again
    list s3            `--s3`: list so many keys of a bucket, whose server makes them when asked;
                       `requests` that it answered

`slope` is of log CPU seconds over log n: 1 is proportional. Wall seconds of a shared machine say
what else it did.

    python -m benchmarks.rows [--millions N …] [--s3 N …] [--delay-ms MS]
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from time import perf_counter, process_time
from typing import Any
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from rich.console import Console

from benchmarks.fast import SEED, save
from harness import provenance
from harness.corpora import render
from harness.measures import linear_fit
from harness.testbed.listing import NumberedKeys
from wallclock.job import embed
from wallclock.job.dataset import Dataset, Part, open_existing
from wallclock.job.index import Earlier, HashIndex
from wallclock.job.listing import list_items
from wallclock.job.place.here import Here
from wallclock.job.plan import Plan

#: Rows of a part, and of the last one, whose images are embedded.
_SHARD, _LAST = 10_000, 64
#: Files, which the rows name again and again.
_FILES = 512
_CHUNK = 1_000_000
#: Rows above which no files are looked up.
_MOST_FILES = 6_000_000
_SETTINGS: Mapping[str, Any] = {"model": "null", "device": "cpu", "shard": _SHARD}
#: The step that needs no list: its `work` is the number of keys.
_S3 = "list s3"
_NONE: Mapping[str, str] = {}
#: The code that the table depends on.
TIMED = ("wallclock.job", "wallclock.fetch", "wallclock.loader")


def main() -> None:
    """Measure, write the table, print it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--millions", type=float, nargs="*", default=[1, 5, 20])
    parser.add_argument("--s3", type=float, nargs="*", default=[], help="millions of keys, too")
    parser.add_argument("--delay-ms", type=float, default=0.0, help="of each answer of the server")
    parser.add_argument("--step", choices=(*_STEPS, _S3), help="only this one, in this process")
    parser.add_argument("--work", type=Path, help="the folder of a list and its dataset")
    choices = parser.parse_args()
    if choices.step:
        step = _list_s3 if choices.step == _S3 else _STEPS[choices.step]
        print(json.dumps(_measured(step, choices.work)))
        return
    rows: list[dict[str, object]] = []
    for millions in choices.millions:
        with tempfile.TemporaryDirectory(dir=provenance.ROOT / "data") as work:
            n = round(millions * 1e6) + _LAST
            _generate(Path(work), n)
            steps = [step for step in _STEPS if step != "list of files" or n < _MOST_FILES]
            rows += [{"step": step, "n_rows": n, **_in_process(step, work)} for step in steps]
    rows += [_bucket(round(millions * 1e6), choices.delay_ms) for millions in choices.s3]
    rows.sort(key=lambda row: [*_STEPS, _S3].index(str(row["step"])))
    for row in rows:
        row.setdefault("requests", None)
        row["cpu_ns_per_row"] = float(str(row["cpu_s"])) / int(str(row["n_rows"])) * 1e9
        row["slope"] = _slope([other for other in rows if other["step"] == row["step"]])
        row["origin"] = "measured"
    save("rows", rows, TIMED)


def _slope(rows: Sequence[Mapping[str, object]]) -> float | None:
    if len(rows) < 2:
        return None
    n, seconds = ([math.log(float(str(row[name]))) for row in rows] for name in ("n_rows", "cpu_s"))
    return linear_fit(n, seconds, [1.0] * len(n))[1]


def _bucket(n: int, delay_ms: float) -> dict[str, object]:
    """List n keys of a server in a process of its own."""
    command = [sys.executable, "-m", "harness.testbed.listing", str(n), str(delay_ms / 1e3)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as s3:
        assert s3.stdin is not None
        assert s3.stdout is not None
        store = {"AWS_ENDPOINT_URL": s3.stdout.readline().strip()}
        store |= dict.fromkeys(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), "test")
        measured = _in_process(_S3, str(n), store)
        s3.stdin.close()
        return {"step": _S3, "n_rows": n, **measured, "requests": int(s3.stdout.read())}


def _in_process(step: str, work: str, variables: Mapping[str, str] = _NONE) -> dict[str, object]:
    command = [sys.executable, "-m", "benchmarks.rows", "--step", step, "--work", work]
    env = os.environ | dict(variables)
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=env)
    measured: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    print(step, measured, file=sys.stderr)
    return measured


def _measured(step: Callable[[Path], None], work: Path) -> dict[str, float]:
    began, cpu_began = perf_counter(), process_time()
    step(work)
    seconds, cpu_s = perf_counter() - began, process_time() - cpu_began
    status = Path("/proc/self/status").read_text(encoding="ascii")
    kib = int(status.partition("VmHWM:")[2].split()[0])  # of this program, not of its parent
    return {"seconds": seconds, "cpu_s": cpu_s, "peak_mib": kib / 1024}


def _generate(work: Path, n: int) -> None:
    """A list of n rows, and its dataset but for the last part."""
    files = []
    for index in range(_FILES):
        path = work / f"{index:03}.jpg"
        path.write_bytes(render.render(SEED, "small_256", index, 1.0))
        files.append(str(path))
    schema = pa.schema([("id", pa.string()), ("path", pa.string())])
    with (
        pq.ParquetWriter(work / "list.parquet", schema) as urls,
        pq.ParquetWriter(work / "files.parquet", schema) as local,
    ):
        for first in range(0, n, _CHUNK):
            numbers = np.arange(first, min(first + _CHUNK, n))
            ids = pc.utf8_lpad(pa.array(numbers).cast(pa.string()), 9, "0")
            paths = pa.array(files).take(pa.array(numbers % _FILES))
            url = pc.binary_join_element_wise("s3://bucket/", ids, ".jpg", "")
            is_last = pa.array(numbers >= n - _LAST)
            urls.write_table(pa.table([ids, pc.if_else(is_last, paths, url)], schema))
            if n < _MOST_FILES:
                local.write_table(pa.table([ids, paths], schema))
    with patch.object(Here, "run", side_effect=_DescribedError), suppress(_DescribedError):
        _embed(work)
    _write_parts(work, n)


class _DescribedError(Exception):
    """The dataset is described, and nothing of it is made."""


def _write_parts(work: Path, n: int) -> None:
    items, dataset = list_items(str(work / "list.parquet")), _dataset(work)
    random = np.random.default_rng(SEED)
    for number, first in enumerate(range(0, n - _LAST, _SHARD)):
        of_part = slice(first, first + _SHARD)
        rows: dict[str, Any] = {
            "id": items.ids[of_part],
            "sha256": _as_text(random.bytes(32 * _SHARD)),
            "width": np.full(_SHARD, 256, np.int32),
            "height": np.full(_SHARD, 256, np.int32),
            "version": items.ids[of_part],
        }
        dataset.commit(number, Part(rows, np.zeros((_SHARD, 1), np.float32)))


def _as_text(hashes: bytes) -> Any:
    """Hashes of 32 bytes as a column of hexadecimal text."""
    ends = np.arange(0, 2 * len(hashes) + 1, 64, dtype=np.int32)
    buffers = pa.py_buffer(ends), pa.py_buffer(hashes.hex().encode())
    return pa.StringArray.from_buffers(len(ends) - 1, *buffers)


def _dataset(work: Path) -> Dataset:
    dataset = open_existing(work / "out")
    assert dataset is not None
    return dataset


def _embed(work: Path) -> None:
    embed(work / "list.parquet", work / "out", console=Console(quiet=True), **_SETTINGS)


def _list(work: Path) -> None:
    list_items(str(work / "list.parquet")).digest()


def _list_files(work: Path) -> None:
    list_items(str(work / "files.parquet")).digest()


def _list_s3(n: Path) -> None:
    """As many keys as the argument says."""
    items = list_items("s3://bucket")
    items.digest()
    keys = NumberedKeys(int(str(n)))
    assert len(items) == len(keys)
    assert items.ids[len(keys) - 1].as_py() == keys[len(keys) - 1]


def _index_together(work: Path) -> None:
    dataset = _dataset(work)
    HashIndex().add_parts(dataset, dataset.committed())


def _index_one_by_one(work: Path) -> None:
    index = HashIndex()
    for number, words in enumerate(_random_words(len(_dataset(work).committed()))):
        index.add_together([(number, words)])


def _random_words(parts: int) -> Iterator[npt.NDArray[np.uint64]]:
    random = np.random.default_rng(SEED)
    for _ in range(parts):
        yield random.integers(0, 1 << 64, (_SHARD, 2), np.uint64)


def _reuse(work: Path) -> None:
    items = list_items(str(work / "list.parquet"))
    items = replace(items, versions=items.ids)
    earlier = Earlier.open(_dataset(work), items, rehash=False)
    plan = Plan(len(items), _SHARD, 64, (), earlier.unread)
    assert plan.images_to_read() == _LAST


_STEPS: dict[str, Callable[[Path], None]] = {
    "list": _list,
    "list of files": _list_files,
    "index, together": _index_together,
    "index, one by one": _index_one_by_one,
    "list, reuse": _reuse,
    "resume": _embed,
    "complete": _embed,
}


if __name__ == "__main__":
    main()
