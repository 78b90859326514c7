"""vectors=float16: half the bytes, three significant digits, nothing over 65,504."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from wallclock.errors import UsageError, UserError
from wallclock.stages.pixels import Vectors

DTYPE = "float16"
#: The sinks whose files can hold it.
SINKS = ("parquet", "npy")


def check_sink(sink: str) -> None:
    """Raise UsageError where a sink's files hold float32 only."""
    if sink not in SINKS:
        fix = f"set {' or '.join(f'sink={name}' for name in SINKS)}, or vectors=float32"
        raise UsageError(f"vectors={DTYPE}: sink={sink} stores float32; {fix}")


def as_float16(ids: Any, vectors: Vectors) -> npt.NDArray[np.float16]:
    """Round (n, dim) float32 vectors to float16; `ids`: n of them, an Arrow column.

    Raises UserError: a finite value became infinite; the line names the first image of such.
    """
    with np.errstate(over="ignore"):
        halves = vectors.astype(np.float16)
    lost = np.isinf(halves) & np.isfinite(vectors)
    if lost.any():
        name = ids[int(np.flatnonzero(lost.any(axis=1))[0])].as_py()
        fix = "set vectors=float32 and another OUT"
        raise UserError(f"the vector of {name} has values that float16 cannot hold; {fix}")
    return halves


def write_npy(path: Path, ids: Sequence[str], vectors: npt.NDArray[np.float16]) -> None:
    """Write what the sink `npy` reads: the rows, and the ids beside them."""
    with path.open("wb") as file:
        np.save(file, vectors)
    path.with_suffix(".ids.json").write_text(json.dumps(list(ids)), encoding="utf-8")
