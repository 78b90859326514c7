"""What many tiny images cost before the first batch and after it: data/benchmarks/million.csv.

The same `n` images, hard links to JPEGs of 32 px, are a folder, tars of 10,000 images and one
Parquet table. `open_images` reads each to its end, in a process of its own. A row has the seconds
to the first batch, those that a thousand more images take, their CPU time, and the memory when the
first batch was there and the most until the end. Files lie in the page cache.

    python -m benchmarks.million [--n N] [--folder DIR]
"""

import argparse
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from time import perf_counter, process_time

import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from benchmarks._common import save
from harness.corpora import render
from wallclock import open_images

_PX, _BATCH = 32, 256
#: Images of a tar and of a row group; links to one file, of which ext4 allows 65,000.
_EACH, _LINKS = 10_000, 50_000


def tiny(number: int) -> bytes:
    """A JPEG of 32 px."""
    file = io.BytesIO()
    picture = Image.open(io.BytesIO(render.render(1, "small_256", number)))
    picture.resize((_PX, _PX)).save(file, "JPEG")
    return file.getvalue()


def images(n: int) -> Iterator[tuple[str, bytes]]:
    """Names and contents."""
    for number in range(n):
        if number % _LINKS == 0:
            data = tiny(number // _LINKS)
        yield f"{number:09d}.jpg", data


def make_folder(place: Path, n: int) -> str:
    """A folder of hard links."""
    place.mkdir()
    for number, (name, data) in enumerate(images(n)):
        if number % _LINKS == 0:
            first = place / name
            first.write_bytes(data)
        else:
            os.link(first, place / name)
    return str(place)


def make_tars(place: Path, n: int) -> str:
    """Tars as webdataset writes them, without other fields."""
    place.mkdir()
    members = images(n)
    for number in range(-(-n // _EACH)):
        with tarfile.open(place / f"{number:05d}.tar", "w", format=tarfile.USTAR_FORMAT) as tar:
            for name, data in islice(members, _EACH):
                member = tarfile.TarInfo(name)
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
    return f"{place}/{{00000..{(n - 1) // _EACH:05d}}}.tar"


def make_table(place: Path, n: int) -> str:
    """A Parquet table of names and bytes."""
    schema = pa.schema({"id": pa.string(), "image": pa.binary()})
    path, rows = place.with_suffix(".parquet"), images(n)
    with pq.ParquetWriter(path, schema) as writer:
        while some := [*islice(rows, _EACH)]:
            writer.write_table(pa.table([*map(list, zip(*some, strict=True))], schema=schema))
    return str(path)


SOURCES: dict[str, Callable[[Path, int], str]] = {
    "folder": make_folder,
    "tars": make_tars,
    "table": make_table,
}


def measure(source: str) -> dict[str, float]:
    """Read it to its end, in this process."""
    began, n = perf_counter(), 0
    with open_images(source, _PX, _BATCH) as batches:
        next(batches)
        first, first_cpu, first_mib = perf_counter(), process_time(), memory_mib("VmRSS")
        for batch in batches:
            n += len(batch.ids)
    return {
        "first_batch_s": first - began,
        "s_per_1000": (perf_counter() - first) / n * 1000,
        "cpu_us": (process_time() - first_cpu) / n * 1e6,
        "first_batch_mib": first_mib,
        "peak_mib": memory_mib("VmHWM"),
    }


def memory_mib(name: str) -> float:
    """Of this process, in the kernel's words."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1]) / 1024


def main() -> None:
    """Make the images, read them in processes of their own, write the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--n", type=int, default=1_000_000, help="images of each source")
    parser.add_argument("--folder", type=Path, help="where to make them; default: a temporary one")
    parser.add_argument("--read", help=argparse.SUPPRESS)
    choices = parser.parse_args()
    if choices.read:
        print(json.dumps(measure(choices.read)))
        return
    rows = []
    with tempfile.TemporaryDirectory(dir=choices.folder) as work:
        for name, make in SOURCES.items():
            source = make(Path(work) / name, choices.n)
            command = [sys.executable, "-m", "benchmarks.million", "--read", source]
            read = subprocess.run(command, check=True, stdout=subprocess.PIPE)
            row = {"source": name, "n_images": choices.n, **json.loads(read.stdout)}
            rows.append({**row, "origin": "measured"})
    save("million", rows)


if __name__ == "__main__":
    main()
