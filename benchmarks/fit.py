"""Writes what predictions know of this package's own C, and of resizes, from decode.csv.

A test fails where code/wallclock/predict/fitted.py is not of the committed table.

    python -m benchmarks.fit [TABLE]
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

from harness.provenance import ROOT
from harness.table import Row, read_table

TABLE = ROOT / "data" / "reference" / "amd-epyc-2-cores" / "benchmarks" / "decode.csv"
FITTED = ROOT / "code" / "wallclock" / "predict" / "fitted.py"
_PROCESSES = {"JPEG": "baseline", "progressive JPEG": "progressive"}
_RESIZERS = {"pillow": "pil", "turbo": "torch", "native": "native"}
#: Pixels of an image that is resized, and of what it becomes.
PIXELS, MADE = {"original": 5.476e6, "small_256": 256 * 256}, 224 * 224


def main() -> None:
    """Write the module."""
    table = Path(sys.argv[1]) if sys.argv[1:] else TABLE
    FITTED.write_text("\n".join(source(read_table(table))) + "\n", encoding="utf-8")


def source(rows: Sequence[Row]) -> Iterator[str]:
    """Lines of the module."""
    yield '"""Written by `python -m benchmarks.fit` from benchmarks/decode.csv."""'
    yield ""
    yield "#: Time of the native module over libjpeg-turbo's, by the scale's denominator."
    yield "NATIVE = {"
    for name, process in _PROCESSES.items():
        cells = ", ".join(f"{scale}: {_native(rows, process, scale):.2g}" for scale in (1, 2, 4, 8))
        yield f'    "{name}": {{{cells}}},'
    yield "}"
    yield "#: Nanoseconds of a pixel that a bilinear resize reads, and of one that it makes."
    costs = {library: _resize(rows, f"{name} bilinear") for library, name in _RESIZERS.items()}
    pairs = (f'"{library}": ({read:.2g}, {made:.2g})' for library, (read, made) in costs.items())
    yield f"RESIZE_NS = {{{', '.join(pairs)}}}"


def _native(rows: Sequence[Row], process: str, scale: int) -> float:
    """Of the median sampling with colours."""
    about = {"images": "original", "process": process, "scale": f"1/{scale}"}
    of = [row for row in rows if about.items() <= row.items() and row["sampling"] != "gray"]
    ratios: list[float] = [row["over_native"] for row in of if row["over_native"]]
    return median(1 / ratio for ratio in ratios)


def _resize(rows: Sequence[Row], choice: str) -> tuple[float, float]:
    """Two sizes, two unknowns."""
    ns = {row["images"]: 1e6 * row["ms"] for row in rows if row["choice"] == choice}
    (large, small), (many, few) = (tuple(each[name] for name in PIXELS) for each in (ns, PIXELS))
    per_read = (large - small) / (many - few)
    return per_read, (small - per_read * few) / MADE


if __name__ == "__main__":
    main()
