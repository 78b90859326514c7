"""Vectors of `wallclock embed` beside those of a plain transformers loop: data/families.csv.

Each family of models is a tiny network with seeded random weights, saved as transformers saves it
(`tests/families.py`). The plain loop is Pillow, the folder's own image processor and the model's
own class (`wallclock.job.reference`). A row has the least cosine of an image's two vectors, and the
median cosine once the mean vector is taken off both: models with random weights give all pictures
nearly one direction.

    python -m benchmarks.families --folder DIR [--n N]
"""

import argparse
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.fast import save
from tests.families import FAMILIES
from wallclock import embed
from wallclock.job.dataset import open_existing
from wallclock.job.reference import Reference
from wallclock.job.settings import JobSettings
from wallclock.summary import cosine

LEAST, CENTERED = 0.999, 0.99
#: What the vectors of either side depend on.
TIMED = (
    "wallclock.processor",
    "wallclock.preprocess",
    "wallclock.orientation",
    "wallclock.loader",
    "wallclock.stages",
    "wallclock.infer",
    "wallclock.job.reference",
)


def main() -> None:
    """Embed, compare, write the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True, help="photos, any formats")
    parser.add_argument("--n", type=int, default=40, help="of them, evenly spaced by name")
    choices = parser.parse_args()
    folder = choices.folder.resolve()  # a list's relative paths are relative to the list
    paths = sorted(path for path in folder.iterdir() if path.suffix.lower() in (".jpg", ".jpeg"))
    chosen = [paths[at] for at in np.linspace(0, len(paths) - 1, choices.n).astype(int)]
    save("families", list(compare(chosen)), TIMED)


def compare(paths: Sequence[Path], names: Sequence[str] = ()) -> Iterator[dict[str, object]]:
    """A row for each family, or for those named."""
    for name in names or FAMILIES:
        with tempfile.TemporaryDirectory() as work:
            model = Path(work) / name
            FAMILIES[name](model)
            yield _row(name, model, paths, Path(work))


def _row(name: str, model: Path, paths: Sequence[Path], work: Path) -> dict[str, object]:
    settings = JobSettings(model=str(model), device="cpu")
    resolved = settings.resolved("cpu")
    source = work / "list.txt"
    source.write_text("\n".join(map(str, paths)), encoding="utf-8")
    embed(source, work / "out", model=str(model), device="cpu")
    stored = _by_id(work / "out")
    reference = Reference(resolved.model, resolved.recipe.preprocess, is_auto=True)
    ours = np.array([stored[str(path)] for path in paths])
    theirs = np.array([reference.vector(reference.open(path.read_bytes())) for path in paths])
    cosines, mean = cosine(ours, theirs), theirs.mean(axis=0)
    centered = cosine(ours - mean, theirs - mean)
    passes = cosines.min() >= LEAST and np.median(centered) >= CENTERED
    return {
        "family": name,
        "processor": reference.source,
        "preprocess": resolved.recipe.preprocess,
        "pool": resolved.model.pool,
        "n_images": len(paths),
        "cosine_min": float(cosines.min()),
        "centered_median": float(np.median(centered)),
        "centered_min": float(centered.min()),
        "gate": "passed" if passes else "failed",
        "origin": "measured",
    }


def _by_id(out: Path) -> Mapping[str, npt.NDArray[np.float32]]:
    dataset = open_existing(out)
    if dataset is None:
        raise RuntimeError(f"no dataset in {out}")
    vectors: dict[str, npt.NDArray[np.float32]] = {}
    for number in dataset.committed():
        ids = dataset.rows(number, ["id"])["id"].to_pylist()
        vectors.update(zip(ids, dataset.vectors(number), strict=True))
    return vectors


if __name__ == "__main__":
    main()
