"""Table 2: the baseline, all wins together, and the CPU alone, end to end."""

from __future__ import annotations

from wallclock.paper.labels import CORPORA
from wallclock.paper.rendering import Tables
from wallclock.paper.tables.table import (
    COUNT,
    FACTOR,
    NUMBER,
    Cell,
    Column,
    Found,
    Table,
    found_in,
    ratio,
)

STEM = "table-2-end-to-end"
TITLE = "End to end: baseline, all wins, CPU"
SOURCES: tuple[str, ...] = ()
OPTIONAL: tuple[str, ...] = (
    "t4-baseline-stages.csv",
    "optimized-end-to-end.csv",
    "cpu-baseline-stages.csv",
)

_NAMES = dict(zip(OPTIONAL, ("baseline", "all wins", "CPU, one thread"), strict=True))
_COLUMNS = (
    Column("run", "run"),
    Column("img_per_s", "img/s", NUMBER),
    Column("seconds_per_100k", "100 K images, s", NUMBER),
    Column("seconds_per_100k_origin", "these seconds are"),
    Column("minutes_per_million", "1 M images, min (extrapolated)", NUMBER),
    Column("minutes_per_million_origin", "these minutes are", csv_only=True),
    Column("speed_up", "speed-up", FACTOR),
    Column("usd_per_million", "$ per 1 M images", NUMBER),
    Column("status", "status"),
    Column("img_per_s_min", "slowest repeat, img/s", NUMBER, csv_only=True),
    Column("img_per_s_max", "fastest repeat, img/s", NUMBER, csv_only=True),
    Column("n_images", "images", COUNT, csv_only=True),
    Column("repeats", "repeats", COUNT, csv_only=True),
    Column("image_set", "image set", csv_only=True),
    Column("corpus", "corpus", csv_only=True),
    Column("weights", "weights", csv_only=True),
    Column("device", "device", csv_only=True),
    Column("reason", "reason", csv_only=True),
)
_TEXTS = ("seconds_per_100k_origin", "status", "image_set", "corpus", "weights", "device", "reason")
_NUMBERS = (
    "img_per_s",
    "seconds_per_100k",
    "usd_per_million",
    "img_per_s_min",
    "img_per_s_max",
    "n_images",
    "repeats",
)
_MINUTES_PER_MILLION = 10 / 60


def build(tables: Tables) -> Table:
    """A row a run; one that was not made says so."""
    rows = {name: next(iter(found_in(tables, name)), None) for name in OPTIONAL}
    baseline = rows[OPTIONAL[0]]
    body = tuple(_row(_NAMES[name], found, baseline) for name, found in rows.items())
    return Table(_COLUMNS, body, _caption([found for found in rows.values() if found and found.ok]))


def _row(run: str, found: Found | None, baseline: Found | None) -> dict[str, Cell]:
    row = {column.name: Cell() for column in _COLUMNS} | {"run": Cell(run)}
    if found is None:
        return row | {"status": Cell("not run")}
    row |= {name: found.text(name) for name in _TEXTS} | {
        name: found.number(name) for name in _NUMBERS
    }
    if not found.ok:
        return row | {"seconds_per_100k_origin": Cell()}
    seconds = row["seconds_per_100k"]
    if isinstance(seconds.value, float):
        row["minutes_per_million"] = Cell(seconds.value * _MINUTES_PER_MILLION, seconds.sources)
        row["minutes_per_million_origin"] = Cell("extrapolated")
    if baseline is not None and baseline.ok and _comparable(found, baseline):
        row["speed_up"] = ratio(found.number("img_per_s"), baseline.number("img_per_s"))
    return row


def _comparable(one: Found, other: Found) -> bool:
    """Whether both embedded the same kind of images, and both with a network or both without."""
    alike = all(one.row.get(column) == other.row.get(column) for column in ("corpus", "image_set"))
    return alike and (one.row.get("weights") == "none") == (other.row.get("weights") == "none")


def _caption(found: list[Found]) -> str:
    """On what each run was made, like runs together."""
    places: dict[str, list[str]] = {}
    for each in found:
        corpus = CORPORA.get(each.row["corpus"], each.row["corpus"])
        place = (
            f"on {each.row['device']}, n = {int(each.row['n_images']):,} ({corpus}{_forward(each)})"
        )
        places.setdefault(place, []).append(_NAMES[each.csv])
    on = "; ".join(f"{' and '.join(runs)} {place}" for place, runs in places.items())
    return (
        "Steady state: start-up is not in the rates. The minutes for a million images are always extrapolated: "
        "the data set has 398,212. Speed-up: over the baseline's images a second, on like images only. "
        f"Measured: {on or 'nothing'}."
    )


def _forward(found: Found) -> str:
    if found.row.get("weights") != "none":
        return f"; {found.row.get('weights')} weights"
    service = found.row.get("service_ms")
    return (
        f"; forward: mock model of {float(service):g} ms a batch"
        if service
        else "; forward: mock model"
    )
