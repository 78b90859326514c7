"""What loaders and the job would do on up to 16 cores, predicted before anyone measured it.

From committed reference runs: the frontier's fastest loaders whose pictures pass, and `wallclock
embed` by threads of one process and by processes. An image costs as many core seconds as it did
there. A process more costs each of them as much as the contention of two says (`predict`); further
ones are taken to cost no more. Threads of one process share its interpreter's lock. What one
process does for all loaders, beside that lock, is of the job's main process where it was measured
(`main_ms_per_image`), else taken to be nothing.

`python -m paper.cores` writes the table. `speedup_vs_one_core` is what another machine can test:
its cores are not like these.
"""

import csv
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from experiments import _common, _many_cores, frontier, scaling
from experiments._common import Record, Records, Row
from experiments._costs import slowdowns
from harness import provenance
from wallclock.predict import gain
from wallclock.summary import median

PATH = provenance.ROOT / "data" / "reference" / "predictions" / "cores.csv"
#: That the sweep measures, as far as a machine has them.
CORES = (1, 2, 4, 8, 16)
#: Loaders of each image set that are predicted.
FASTEST = 5
#: `wallclock embed` → whether its loaders are threads of one process.
EMBED: Mapping[str, bool] = {"embed-threads": True, "embed-processes": False}
#: Loaders whose workers are threads of the main process, in Python.
_ONE_PROCESS = frozenset({"ours"})
#: Columns that are of the measurement that a prediction is made from.
_OF_BASE = _common.columns("system variant workers_per_core allocator image_set corpus device")
COLUMNS = _common.columns(
    _OF_BASE,
    "base_cores base_img_per_s main_ms_per_image contention cores",
    "img_per_s img_per_s_low img_per_s_high speedup_vs_one_core speedup_low speedup_high",
    "limited_by origin",
)


@dataclass(frozen=True)
class Measured:
    """What a system did on all cores of a machine."""

    system: str
    image_set: str
    corpus: str
    device: str
    cores: int
    batch_size: int
    img_per_s: float
    main_ms: float | None = None
    variant: str = ""
    workers_per_core: int = 1
    allocator: str = "default"

    def rows(self, contention: _many_cores.Contention) -> Iterator[Row]:
        """A prediction for each number of cores."""
        main_s = (self.main_ms or 0.0) / 1e3
        slowdown = dict(contention).get(self.cores, 1.0)
        load_s = max(0.0, self.cores / self.img_per_s - main_s) / slowdown
        cases = {
            cores: _many_cores.pipeline(
                load_s,
                main_s,
                cores,
                self.batch_size,
                workers=cores * self.workers_per_core,
                one_process=shares_a_lock(self.system),
                contention=contention,
            )
            for cores in CORES
        }
        shared: Row = {name: getattr(self, name) for name in _OF_BASE}
        for cores, case in cases.items():
            expected = case.predict()
            row = dict.fromkeys(COLUMNS) | shared | {"cores": cores, "origin": "predicted"}
            row |= {
                "base_cores": self.cores,
                "base_img_per_s": self.img_per_s,
                "main_ms_per_image": self.main_ms,
                "contention": slowdown,
                "img_per_s": expected.img_per_s,
                "img_per_s_low": expected.low,
                "img_per_s_high": expected.high,
                "limited_by": expected.bottleneck,
            }
            if cores > 1:
                gained = gain([cases[1].rate()], [case.rate()])
                row |= {"speedup_vs_one_core": gained.speedup}
                row |= {"speedup_low": gained.low, "speedup_high": gained.high}
            yield row


def shares_a_lock(system: str) -> bool:
    """Whether a system's loaders are threads of one process, in Python."""
    return EMBED.get(system, system in _ONE_PROCESS)


def predict(records: Records) -> list[Row]:
    """A row for each system, image set and number of cores.

    Args:
        records: of `frontier`, `predict` and `scaling`, of one run or several.
    """
    by_name: dict[str, list[Record]] = {}
    for record in records:
        by_name.setdefault(record.cell.experiment, []).append(record)
    bases = [*_fastest(by_name.get("frontier", [])), *_jobs(by_name.get("scaling", []))]
    rows: list[Row] = []
    for base in bases:
        rows += base.rows(_contention(by_name.get("predict", []), base.image_set))
    return rows


def _fastest(records: Records) -> Iterator[Measured]:
    """Of each image set of the run's own corpus, the fastest loaders whose pictures pass."""
    full = [record.cell for record in records if "search" not in record.cell.params]
    cells = {
        (cell.params["system"], cell.images.image_set, cell.params["setup"]): cell
        for cell in full
        if cell.images.kind != "folder"
    }
    rows = [
        row
        for row in frontier.tables(records)[frontier.CSV]
        if (row["status"], row["gate"], row["subset"]) == ("ok", "passed", "all")
        and row["system"] != "ours-crop"
        and not str(row["corpus"]).startswith("folder")
    ]
    rows.sort(key=lambda row: -float(str(row["img_per_s"])))
    taken: dict[str, list[str]] = {}
    for row in rows:
        system, image_set = str(row["system"]), str(row["image_set"])
        cell = cells.get((system, image_set, row["variant"]))
        so_far = taken.setdefault(image_set, [])
        if cell is None or system in so_far or len(so_far) == FASTEST:
            continue
        so_far.append(system)
        yield Measured(
            system,
            image_set,
            str(row["corpus"]),
            str(row["device"]),
            int(str(row["cores"])),
            cell.recipe.batch_size,
            float(str(row["img_per_s"])),
            variant=cell.params["variant"],
            workers_per_core=max(1, cell.recipe.workers // int(str(row["cores"]))),
            allocator=cell.params["allocator"],
        )


def _jobs(records: Records) -> Iterator[Measured]:
    """The longest job of each image set, without its start, by threads and by processes."""
    rows = scaling.tables(records)[scaling.CSV] if records else []
    jobs = [row for row in rows if row["what"] == "job" and row["status"] == "ok"]
    for image_set in dict.fromkeys(row["image_set"] for row in jobs):
        same = [row for row in jobs if row["image_set"] == image_set]
        row = max(same, key=lambda row: float(str(row["n_images"])))
        loop_s = float(str(row["wall_s"])) * (1 - float(str(row["startup_share"])))
        main_ms = row["main_ms_per_image"]
        for system in EMBED:
            yield Measured(
                system,
                str(image_set),
                str(row["corpus"]),
                str(row["device"]),
                int(str(row["cores"])),
                int(str(row["batch_size"])),
                float(str(row["n_images"])) / loop_s,
                main_ms=None if main_ms is None else float(str(main_ms)),
            )


def _contention(records: Records, image_set: str) -> _many_cores.Contention:
    """By how much more an image costs with so many processes, up to the cores: the loaders' median.

    Processes beyond the cores take turns, which is another matter. No image costs less because
    others are loaded: less than 1 is what a single pass is off by.
    """
    factors: dict[int, list[float]] = {}
    passes = [record for record in records if record.cell.protocol == "contention" and record.ok]
    for record in passes:
        cores = record.environment["machine"]["cores"]
        for n, factor in slowdowns(record) if record.cell.images.image_set == image_set else ():
            if n <= cores:
                factors.setdefault(n, []).append(factor)
    return [(n, max(1.0, median(factors[n]))) for n in sorted(factors)]


@cache
def load() -> list[Mapping[str, str]]:
    """The committed rows, as text; none where there is no table."""
    if not PATH.is_file():
        return []
    with PATH.open(encoding="utf-8", newline="") as handle:
        return [*csv.DictReader(handle)]


def committed(
    rows: Iterable[Mapping[str, str]], system: object, image_set: object, cores: object
) -> Mapping[str, str] | None:
    """The row of a system on so many cores; None where there is none."""
    wanted = {"system": str(system), "image_set": str(image_set), "cores": str(cores)}
    return next((row for row in rows if wanted.items() <= row.items()), None)
