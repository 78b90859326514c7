"""How near `open_images` is to a loader in C: data/benchmarks/ceiling.csv, with its provenance.

`ceiling.c` does the same arithmetic on the same files: it reads them, decodes them at the same DCT
scale and resizes them with the same filter into a batch buffer. It has no checks, ids, failures or
order. It calls the libjpeg-turbo of this machine, whose version is in the row. In each round both
sides take the same passes over the images, and swap their order from round to round. A row has the
CPU time per image (user and system, of all threads, median of the rounds) and `share`: C over ours
in the same round, 1 if the loader costs nothing of its own; `least` is the aim. `calls_us`, of one
thread, is the wall time in its decoder and its resize: if they alone take as long as the C program,
no loader around them can reach a share of 1. The pixels of both sides are compared with Pillow's.
Without a C compiler, libturbojpeg or AVX2, the rows say so.

    python -m benchmarks.ceiling [--folder DIR] [--n N] [--rounds N] [--seconds S]
"""

import argparse
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, process_time

import numpy as np
import numpy.typing as npt
from PIL import Image

from benchmarks._common import PX, arguments, image_sets, save, spread
from harness import native, provenance
from harness.measures import psnr_db
from harness.processes import gc_disabled
from wallclock import open_images
from wallclock.loader.batch import Marks
from wallclock.loader.threads import IMAGE_STAGES
from wallclock.recipe import FAST
from wallclock.summary import median

#: The share that is aimed at, by image set.
LEAST = {"synthetic small_256": 0.9, "synthetic original": 0.94, "folder": 0.94}
#: PSNR of the worst image that either side may have against Pillow.
LEAST_DB = 40.0
THREADS = (1, 2)
#: Columns that a row without a compiler leaves empty.
MEASURED = (
    "c_cpu_us",
    "our_cpu_us",
    "calls_us",
    "share",
    "share_min",
    "share_max",
    "c_psnr_db_min",
    "our_psnr_db_min",
)
SOURCE = Path(__file__).with_suffix(".c")
Pixels = npt.NDArray[np.uint8]


class NoCeilingError(Exception):
    """The C program cannot run here; the message says why."""


@dataclass(frozen=True)
class Cost:
    """µs per image in our loader: CPU time, and wall time in decode and resize."""

    cpu_us: float
    calls_us: float


@dataclass(frozen=True)
class Ceiling:
    """`ceiling.c`, compiled, with the library that it calls."""

    program: Path
    turbojpeg: str

    def cpu_us(self, paths: Sequence[Path], threads: int, passes: int) -> float:
        """CPU time per image. Raises NoCeilingError: it cannot decode an image."""
        n, cpu_s, _ = map(float, self._run(paths, threads, passes).split())
        return cpu_s / n * 1e6

    def pixels(self, paths: Sequence[Path], out: Path) -> Pixels:
        """Uint8 (n, 224, 224, 3). Raises as `cpu_us`."""
        self._run(paths, 1, 1, str(out))
        return np.fromfile(out, np.uint8).reshape(-1, PX, PX, 3)

    def _run(self, paths: Sequence[Path], threads: int, passes: int, *out: str) -> str:
        words = (self.turbojpeg, f"{threads}", f"{passes}", f"{FAST.dct_margin}", *out)
        names = "".join(f"{path}\n" for path in paths)
        done = subprocess.run(
            [self.program, *words], input=names, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise NoCeilingError(done.stderr.strip() or f"ceiling: exit status {done.returncode}")
        return done.stdout


def compile_ceiling(work: Path) -> Ceiling:
    """Compile `ceiling.c` into a folder. Raises NoCeilingError: something is missing."""
    compiler, library = shutil.which("cc"), native.find_libturbojpeg()
    if platform.machine() != "x86_64":
        raise NoCeilingError(f"ceiling.c is for AVX2, this is {platform.machine()}")
    if compiler is None:
        raise NoCeilingError("no C compiler: sudo apt-get install -y gcc libc6-dev")
    if library is None:
        raise NoCeilingError(f"no libturbojpeg: {native.INSTALL_HINT}")
    program = work / "ceiling"
    options = ("-std=gnu11", "-O3", "-mavx2", "-pthread", "-Wall", "-Wextra", "-Werror")
    command = [compiler, *options, "-o", str(program), str(SOURCE), "-ldl", "-lm"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NoCeilingError(done.stderr.strip().splitlines()[0])
    return Ceiling(program, library)


def main() -> None:
    """Measure, write the table, print it."""
    choices = arguments(__doc__).parse_args()
    with tempfile.TemporaryDirectory() as work:
        sets = list(image_sets(choices, Path(work)))
        table = [row for name, paths in sets for row in rows(name, paths, choices, Path(work))]
    save("ceiling", table)


def rows(
    name: str, paths: Sequence[Path], choices: argparse.Namespace, work: Path
) -> Iterator[dict[str, object]]:
    """A row for each number of threads; `choices` has `rounds` and `seconds`."""
    paths, versions = [path for path in paths if _is_plain(path)], provenance.versions()
    for threads in THREADS:
        row: dict[str, object] = {
            "images": name,
            "threads": threads,
            "n_images": len(paths),
            "rounds": choices.rounds,
            "c_library": versions["libturbojpeg"],
            "our_library": versions["libjpeg-turbo in simplejpeg"],
            "origin": "measured",
            "least": LEAST[name],
        }
        try:
            measured = _measured(compile_ceiling(work), paths, threads, choices, work)
        except NoCeilingError as error:
            measured = {**dict.fromkeys(MEASURED), "status": str(error)}
        yield row | measured


def _is_plain(path: Path) -> bool:
    """Whether the C program decodes its colours."""
    with Image.open(path) as image:
        return image.mode in ("RGB", "L")


def _measured(
    ceiling: Ceiling, paths: Sequence[Path], threads: int, choices: argparse.Namespace, work: Path
) -> dict[str, object]:
    truth = [_by_pillow(path) for path in paths]
    c_db = _least_db(ceiling.pixels(paths, work / "pixels"), truth)
    our_db = _least_db(_our_pixels(paths), truth)
    passes = _passes(paths, threads, choices.seconds)
    c_us, our_costs = _costs(ceiling, paths, threads, passes, choices.rounds)
    shares = [c / ours.cpu_us for c, ours in zip(c_us, our_costs, strict=True)]
    # With several threads, wall time includes waits for the GIL.
    calls_us = median([cost.calls_us for cost in our_costs]) if threads == 1 else None
    return {
        "c_cpu_us": median(c_us),
        "our_cpu_us": median([cost.cpu_us for cost in our_costs]),
        "calls_us": calls_us,
        **spread("share", shares),
        "c_psnr_db_min": c_db,
        "our_psnr_db_min": our_db,
        "status": "ok" if min(c_db, our_db) >= LEAST_DB else f"pixels below {LEAST_DB:g} dB",
    }


def _passes(paths: Sequence[Path], threads: int, seconds: float) -> int:
    """How many passes of our loader take so long; also its warm-up."""
    _our_cost(paths, threads, 1)
    began = perf_counter()
    _our_cost(paths, threads, 1)
    return max(1, round(seconds / (perf_counter() - began)))


def _costs(
    ceiling: Ceiling, paths: Sequence[Path], threads: int, passes: int, rounds: int
) -> tuple[list[float], list[Cost]]:
    """CPU time per image of the C program, and the costs of our loader, by round."""
    c_us, our_costs = [], []
    with gc_disabled():
        for number in range(rounds):
            if number % 2:
                c_us.append(ceiling.cpu_us(paths, threads, passes))
            our_costs.append(_our_cost(paths, threads, passes))
            if not number % 2:
                c_us.append(ceiling.cpu_us(paths, threads, passes))
    return c_us, our_costs


def _our_cost(paths: Sequence[Path], threads: int, passes: int) -> Cost:
    """Over some passes, the start and the end of the threads included."""
    began, n = process_time(), 0
    marks: list[Marks] = []
    with open_images(paths, PX, epochs=passes, workers=threads) as batches:
        for batch in batches:
            n += len(batch.ids)
            marks += batch.extras.marks
    cpu_us = (process_time() - began) / n * 1e6
    at = IMAGE_STAGES.index("decode")
    calls_ns = sum(int((each.times[:, -1] - each.times[:, at]).sum()) for each in marks)
    return Cost(cpu_us, calls_ns / n / 1e3)


def _our_pixels(paths: Sequence[Path]) -> Iterator[Pixels]:
    with open_images(paths, PX) as batches:
        for batch in batches:
            yield from batch.images


def _least_db(images: Pixels | Iterator[Pixels], truth: Sequence[Pixels]) -> float:
    pairs = zip(images, truth, strict=True)
    return min(psnr_db(image, expected) for image, expected in pairs)


def _by_pillow(path: Path) -> Pixels:
    """Decoded in full, then resized."""
    with Image.open(path) as stored:
        image = stored.convert("RGB")
    return np.asarray(image.resize((PX, PX), Image.Resampling.BILINEAR))


if __name__ == "__main__":
    main()
