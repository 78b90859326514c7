"""How long would the paper's own passes take, by the rates measured here?

Nothing runs: a pass takes its images in the paper (`PASSES`) over the rate that its experiment
measured, without its start. Limits are sums of the fastest and of the slowest repeats. The paper
does not say how many images its CPU baseline and its runtimes had, so the sum is a lower bound.
"""

from typing import NamedTuple

from experiments import common
from experiments.common import Cell, Options, Plan, Record, Records, Row, Tables

RANK = 125
ALSO_READS = ("serial", "t4", "opt", "batch", "workers", "decoders")
CSV = "suite.csv"
_TIMES = common.with_limits("suite_s")
COLUMNS = common.columns(
    "what n_passes n_images corpus weights device device_kind repeats",
    _TIMES,
    "origin status reason",
)
TABLES = {CSV: COLUMNS}
MEANINGS = """
what | | setting | the run whose time is added up
n_passes | count | fact | timed passes of that run
suite_s | s | measured | their wall time, with the start of each
"""
#: The row of the sum.
ALL = "all"


class _Passes(NamedTuple):
    """An experiment's passes in the paper: images of each by image set, and how many there are."""

    protocol: str
    n_images: dict[str, int]
    n_passes: int
    decoders: tuple[str, ...] = ()


#: For the worker sweep the paper names no images: those of its batch sweep are taken.
PASSES = {
    "serial": _Passes("serial", {"small_256": 10_000, "original": 5_000}, 6),
    "t4": _Passes("throughput", {"small_256": 100_000}, 1),
    "opt": _Passes("throughput", {"small_256": 100_000}, 1),
    "batch": _Passes("throughput", {"small_256": 20_000}, 7),
    "workers": _Passes("throughput", {"small_256": 20_000}, 5, ("turbojpeg",)),
    "decoders": _Passes(
        "decode", {"small_256": 2_000, "original": 2_000}, 6, ("pil", "opencv", "turbojpeg")
    ),
}


def cells(plan: Plan, options: Options) -> list[Cell]:
    """None: the records are those of other experiments."""
    return []


def tables(records: Records) -> Tables:
    """A row for each experiment, and their sum; without a time where a pass was not measured."""
    rows = [
        _row(name, passes, [record for record in records if record.cell.experiment == name])
        for name, passes in PASSES.items()
    ]
    baseline = rows[list(PASSES).index("t4")]
    total = {**baseline, "what": ALL, "n_passes": sum(row["n_passes"] for row in rows)}
    missing = [row["what"] for row in rows if row["status"] != "ok"]
    if missing:
        reason = f"not all passes were measured: --experiment {','.join(missing)}"
        total |= dict.fromkeys(("n_images", "repeats", *_TIMES))
        total |= {"status": "not measured", "reason": reason}
    else:
        total |= {name: sum(row[name] for row in rows) for name in ("n_images", *_TIMES)}
        total["repeats"] = min(row["repeats"] for row in rows)
    return {CSV: [*rows, total]}


def _row(name: str, passes: _Passes, records: Records) -> Row:
    groups = [
        repeats
        for repeats in common.groups(records, passes.protocol).values()
        if common.image_set_of(repeats[0]) in passes.n_images
        and (not passes.decoders or repeats[0].cell.recipe.decoder in passes.decoders)
        and all(record.ok for record in repeats)
    ]
    row: Row = common.new_row(groups[0], COLUMNS) if groups else dict.fromkeys(COLUMNS)
    row |= {"what": name, "n_passes": len(groups), "origin": "computed"}
    if len(groups) != passes.n_passes:
        missing = f"{len(groups)} of {passes.n_passes} passes were measured"
        return row | {"status": "not measured", "reason": f"{missing}: --experiment {name}"}
    row["n_images"] = sum(passes.n_images[common.image_set_of(group[0])] for group in groups)
    row["repeats"] = min(len(repeats) for repeats in groups)
    seconds = [[_seconds(record, passes) for record in repeats] for repeats in groups]
    of_passes = [common.with_spread("suite_s", repeats) for repeats in seconds]
    return row | {name: sum(of_pass[name] for of_pass in of_passes) for name in _TIMES}


def _seconds(record: Record, passes: _Passes) -> float:
    """A pass of the paper's length by this record."""
    n_images = passes.n_images[common.image_set_of(record)]
    if passes.protocol == "decode":
        return n_images * common.mean_ms(record, "decode") / 1e3
    return n_images * common.seconds_an_image(record)
