"""What the benchmarks share: images to measure on, and tables with their provenance."""

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from harness import provenance
from harness.corpora import manifest, render, synthetic
from harness.corpora.manifest import Manifest
from harness.measures import median
from harness.processes import gc_disabled
from harness.spec import CorpusSpec
from harness.table import write_table
from paper.provenance_files import PACKED, packed, read_provenance
from wallclock.files import pretty_json, write_text

T = TypeVar("T")

#: Side of the squares that images are resized to.
PX = 224
#: Of the generated images. Those that the pixels of decoders are checked on are of seed 0.
_SEED = 1
#: When this process began to measure.
_STARTED = provenance.utc()


def arguments(description: str | None) -> argparse.ArgumentParser:
    """The options that several benchmarks have; `description`: what the module says of itself."""
    parser = argparse.ArgumentParser(description=(description or "").splitlines()[0])
    parser.add_argument("--folder", type=Path, help="photos of your own, in addition")
    parser.add_argument("--n", type=int, default=100, help="synthetic images of each set")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=2.0, help="of a pass, at least")
    return parser


def image_sets(choices: argparse.Namespace, work: Path) -> Iterator[tuple[str, list[Path]]]:
    """Each set's name and the paths of its images.

    Args:
        choices: `n`, the generated images of a set; `folder`, JPEGs of one's own, or None.
        work: where to write the generated images.
    """
    for kind in ("original", "small_256"):
        paths = []
        for index in range(choices.n):
            path = work / f"{kind}-{index:04}.jpg"
            path.write_bytes(render.render(_SEED, kind, index))
            paths.append(path)
        yield f"synthetic {kind}", paths
    if choices.folder:
        yield "folder", sorted(choices.folder.glob("*.jp*g"))


def generated(images: str, n: int) -> Manifest:
    """The first `n` generated images of a set, kept from one run to the next."""
    cache = provenance.ROOT / "data" / "corpora"
    made = synthetic.prepare(CorpusSpec("synthetic"), images, n, cache, lambda *_: None)
    return manifest.load(Path(made.manifest))


def in_turn(take: Callable[[str], T], names: Iterable[str], rounds: int) -> dict[str, list[T]]:
    """What `take` returns for each name in each round, forwards and backwards in turn."""
    taken: dict[str, list[T]] = {name: [] for name in names}
    for number in range(rounds):
        for name in taken if number % 2 else reversed(taken):
            with gc_disabled():
                taken[name].append(take(name))
    return taken


def spread(column: str, values: Sequence[float]) -> dict[str, float | None]:
    """The median of some rounds, the lowest and the highest; empty where there is none."""
    of_all = (median(values), min(values), max(values)) if values else (None,) * 3
    return dict(zip((column, f"{column}_min", f"{column}_max"), of_all, strict=True))


def save(
    name: str,
    rows: Sequence[dict[str, object]],
    samples: Mapping[str, Sequence[float]] | None = None,
) -> None:
    """Write data/benchmarks/<name>.csv and its provenance, and print the rows.

    Args:
        name: of the table.
        rows: of which all have the first one's columns.
        samples: every value that the rows were computed from, by what it is of; written to
            <name>.samples.json.
    """
    folder = provenance.ROOT / "data" / "benchmarks"
    write_table(folder / f"{name}.csv", tuple(rows[0]), rows)
    git = provenance.git_state()
    about = {
        "command": sys.argv[1:],
        "commits": [git["commit"]] if git else [],
        "modified": bool(git.get("modified")),
        "measured": [_STARTED, provenance.utc()],
        "machine": provenance.machine(),
        "versions": provenance.versions(),
    }
    write_text(folder / PACKED, packed({**read_provenance(folder), f"{name}.csv": about}))
    if samples is not None:
        lists = {key: [float(f"{value:.6g}") for value in samples[key]] for key in samples}
        write_text(folder / f"{name}.samples.json", pretty_json(lists))
    for row in rows:
        cells = (f"{value:.4g}" if isinstance(value, float) else value for value in row.values())
        print(*cells, sep="  ")
