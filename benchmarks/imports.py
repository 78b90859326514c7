"""How long an import takes: data/imports.csv, with its provenance.

Each statement runs in fresh processes, in turn, files in the page cache and bytecode compiled. A
row has the least milliseconds of `--rounds` processes from before the statement to behind it, the
median, and how many modules it loaded. numpy, which every batch is made of, is measured beside
`open_images`, which imports it.

    python -m benchmarks.imports [--rounds N]
"""

import argparse
import subprocess
import sys

from benchmarks.fast import save
from wallclock.summary import median

STATEMENTS = (
    "import wallclock",
    "from wallclock import open_images",
    "import numpy",
    "import numpy, PIL.Image, simplejpeg",
    "from wallclock import embed",
    "import torch",
)
TIMED = ("wallclock",)
_PROGRAM = """
import sys
from time import perf_counter
before, began = len(sys.modules), perf_counter()
{}
print((perf_counter() - began) * 1e3, len(sys.modules) - before, "torch" in sys.modules)
"""


def main() -> None:
    """Measure, write the table, print it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    rows: list[dict[str, object]] = []
    for statement in STATEMENTS:
        take(statement)  # compiles the bytecode, fills the page cache
    times: dict[str, list[float]] = {statement: [] for statement in STATEMENTS}
    for _ in range(rounds):
        for statement in STATEMENTS:
            times[statement].append(take(statement)[0])
    for statement in STATEMENTS:
        _, modules, loads_torch = take(statement)
        rows.append(
            {
                "statement": statement,
                "rounds": rounds,
                "ms_min": min(times[statement]),
                "ms": median(times[statement]),
                "modules": modules,
                "loads_torch": loads_torch,
                "origin": "measured",
            }
        )
    save("imports", rows, TIMED)


def take(statement: str) -> tuple[float, int, str]:
    """Milliseconds, modules loaded, and whether torch is one, in a process of its own."""
    command = [sys.executable, "-c", _PROGRAM.format(statement)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    milliseconds, modules, loads_torch = done.stdout.split()
    return float(milliseconds), int(modules), "yes" if loads_torch == "True" else "no"


if __name__ == "__main__":
    main()
