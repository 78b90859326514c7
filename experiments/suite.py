"""How long would the paper's own passes take, by the rates measured here?

Method. Nothing runs. Each pass of the paper has so many images (`PASSES`); its time is that number
over the rate that the pass's experiment measured, in each repeat, its start left out. The limits
are sums of the fastest and of the slowest repeats. The paper does not say how many images its CPU
baseline and its runtimes had, and writing vectors takes seconds: without these, the sum is a lower
bound. A pass that was not measured leaves its experiment, and the sum, without a time.
"""

from collections.abc import Callable
from typing import NamedTuple

from experiments import _common
from experiments._common import Cell, Options, Plan, Record, Records, Row, Tables
from experiments._sentences import MeasuredRows
from experiments._words import digits, percent
from wallclock.summary import median

RANK = 125
ALSO_READS = ("serial", "t4", "opt", "batch", "workers", "decoders")
CSV = "suite.csv"
COLUMNS = _common.columns(
    "what n_passes n_images corpus weights device device_kind repeats",
    _common.with_limits("suite_s"),
    "origin status reason",
)
TABLES = {CSV: COLUMNS}
#: The row of the sum.
ALL = "all"


class _Passes(NamedTuple):
    """An experiment's passes in the paper: images of each by image set, and how many there are."""

    protocol: str
    n_images: dict[str, int]
    n_passes: int
    #: Decoders of the paper's passes; empty for any.
    decoders: tuple[str, ...] = ()


_SMALL, _ORIGINAL = "small_256", "original"
#: Three recipes or decoders on two image sets, seven batch sizes, five numbers of workers. For the
#: worker sweep the paper names no images: those of its batch sweep are taken.
PASSES = {
    "serial": _Passes("serial", {_SMALL: 10_000, _ORIGINAL: 5_000}, 6),
    "t4": _Passes("throughput", {_SMALL: 100_000}, 1),
    "opt": _Passes("throughput", {_SMALL: 100_000}, 1),
    "batch": _Passes("throughput", {_SMALL: 20_000}, 7),
    "workers": _Passes("throughput", {_SMALL: 20_000}, 5, ("turbojpeg",)),
    "decoders": _Passes(
        "decode", {_SMALL: 2_000, _ORIGINAL: 2_000}, 6, ("pil", "opencv", "turbojpeg")
    ),
}


def cells(plan: Plan, options: Options) -> list[Cell]:
    """None: the records are those of other experiments."""
    return []


def tables(records: Records) -> Tables:
    """A row for each experiment, and their sum."""
    rows = [
        _row(name, passes, [record for record in records if record.cell.experiment == name])
        for name, passes in PASSES.items()
    ]
    return {CSV: [*rows, _sum(rows)]}


def _row(name: str, passes: _Passes, records: Records) -> Row:
    groups = [
        repeats
        for repeats in _common.groups(records, passes.protocol).values()
        if _common.image_set_of(repeats[0]) in passes.n_images
        and (not passes.decoders or repeats[0].cell.recipe.decoder in passes.decoders)
        and all(record.ok for record in repeats)
    ]
    row: Row = dict.fromkeys(COLUMNS)
    if groups:
        row |= {**_common.new_row(groups[0], COLUMNS), "origin": "computed"}
    row |= {"what": name, "n_passes": len(groups), "origin": "computed"}
    if len(groups) != passes.n_passes:
        missing = f"{len(groups)} of {passes.n_passes} passes were measured"
        return row | {"status": "not measured", "reason": f"{missing}: --experiment {name}"}
    seconds = [[_seconds(record, passes) for record in repeats] for repeats in groups]
    return row | {
        "n_images": sum(passes.n_images[_common.image_set_of(group[0])] for group in groups),
        "repeats": min(len(repeats) for repeats in groups),
        "suite_s": _total(seconds, median),
        "suite_s_min": _total(seconds, min),
        "suite_s_max": _total(seconds, max),
    }


def _seconds(record: Record, passes: _Passes) -> float:
    """A pass of the paper's length by this record."""
    n_images = passes.n_images[_common.image_set_of(record)]
    if passes.protocol == "decode":
        return n_images * _common.mean_ms(record, "decode") / 1e3
    return n_images * _common.seconds_an_image(record)


def _total(seconds: list[list[float]], of_repeats: Callable[[list[float]], float]) -> float:
    return sum(of_repeats(repeats) for repeats in seconds)


def _sum(rows: list[Row]) -> Row:
    """The sum of all rows, with the machine and the images of the baseline."""
    missing = [str(row["what"]) for row in rows if row["status"] != "ok"]
    about = next(row for row in rows if row["what"] == "t4")
    total = {**about, "what": ALL, "n_passes": sum(_numbers(rows, "n_passes"))}
    if missing:
        reason = f"not all passes were measured: --experiment {','.join(missing)}"
        empty = dict.fromkeys(("n_images", "repeats", *_common.with_limits("suite_s")))
        return {**total, **empty, "status": "not measured", "reason": reason}
    names = ("n_images", *_common.with_limits("suite_s"))
    sums = {name: sum(_numbers(rows, name)) for name in names}
    return {**total, **sums, "repeats": min(_numbers(rows, "repeats"))}


def _numbers(rows: list[Row], column: str) -> list[float]:
    return [float(str(row[column])) for row in rows]


def sentence(rows: MeasuredRows) -> str:
    """The experiment that would take longest, and its share of those that were measured."""
    parts = [row for row in rows[CSV] if row["what"] != ALL]
    if not parts:
        return ""
    total_s = sum(float(row["suite_s"]) for row in parts)
    longest = max(parts, key=lambda row: float(row["suite_s"]))
    share = percent(float(longest["suite_s"]) / total_s, 0)
    return (
        f"by the rates measured here {longest['what']} takes {share} of the "
        f"{digits(total_s / 60)} minutes of the paper's passes that were measured"
    )
