"""Table 2: the baseline, all wins together, and the CPU alone, end to end."""

from __future__ import annotations

from experiments import cpu, opt, t4
from wallclock.paper.labels import CORPORA
from wallclock.paper.rendering import Tables, output
from wallclock.paper.tables import table
from wallclock.paper.tables.table import Column, SourceRow, Table, Value, ratio, rows_of

_RUNS = {t4.CSV: "baseline", opt.CSV: "all wins", cpu.CSV: "CPU, one thread"}
_COLUMNS = (
    Column("run", "run"),
    Column("img_per_s", "img/s", table.NUMBER),
    Column("seconds_per_100k", "100 K images, s", table.NUMBER),
    Column("seconds_per_100k_origin", "these seconds are"),
    Column("minutes_per_million", "1 M images, min (extrapolated)", table.NUMBER),
    Column("minutes_per_million_origin", "these minutes are", csv_only=True),
    Column("speed_up", "speed-up", table.FACTOR),
    Column("usd_per_million", "$ per 1 M images", table.NUMBER),
    Column("status", "status"),
    Column("img_per_s_min", "slowest repeat, img/s", table.NUMBER, csv_only=True),
    Column("img_per_s_max", "fastest repeat, img/s", table.NUMBER, csv_only=True),
    Column("n_images", "images", table.COUNT, csv_only=True),
    Column("repeats", "repeats", table.COUNT, csv_only=True),
    Column("image_set", "image set", csv_only=True),
    *(Column(name, name, csv_only=True) for name in ("corpus", "weights", "device", "reason")),
)
_MINUTES_PER_MILLION = 10 / 60


@output("table-2-end-to-end", "End to end: baseline, all wins, CPU", optional=tuple(_RUNS))
def build(tables: Tables) -> Table:
    """A row a run; one that is absent says so."""
    sources = {csv: next(iter(rows_of(tables, csv)), None) for csv in _RUNS}
    body = tuple(_row(_RUNS[csv], source, sources[t4.CSV]) for csv, source in sources.items())
    measured = [source for source in sources.values() if source and source.ok]
    return Table(_COLUMNS, body, _caption(measured))


def _row(run: str, source: SourceRow | None, baseline: SourceRow | None) -> dict[str, Value]:
    if source is None:
        empty = {column.name: Value() for column in _COLUMNS}
        return empty | {"run": Value(run), "status": Value("not run")}
    row = source.values(_COLUMNS) | {"run": Value(run)}
    if not source.ok:
        return row | {"seconds_per_100k_origin": Value()}
    seconds = row["seconds_per_100k"]
    if isinstance(seconds.value, float):
        row["minutes_per_million"] = Value(seconds.value * _MINUTES_PER_MILLION, seconds.sources)
        row["minutes_per_million_origin"] = Value("extrapolated")
    if baseline is not None and baseline.ok and comparable(source, baseline):
        row["speed_up"] = ratio(source.number("img_per_s"), baseline.number("img_per_s"))
    return row


def comparable(one: SourceRow, other: SourceRow) -> bool:
    """Whether both embedded the same kind of images, and both with a network or both without."""
    alike = all(one.row.get(column) == other.row.get(column) for column in ("corpus", "image_set"))
    return alike and (one.row.get("weights") == "none") == (other.row.get("weights") == "none")


def _caption(sources: list[SourceRow]) -> str:
    """On what each run was measured; runs under equal conditions are named together."""
    runs: dict[str, list[str]] = {}
    for source in sources:
        corpus, device = CORPORA[source.row["corpus"]], source.row["device"]
        on = f"on {device}, n = {int(source.row['n_images']):,} ({corpus}{_forward(source)})"
        runs.setdefault(on, []).append(_RUNS[source.csv])
    measured = "; ".join(f"{' and '.join(names)} {on}" for on, names in runs.items())
    return (
        "Steady state: start-up is not in the rates. The minutes for a million images are always "
        "extrapolated: the data set has 398,212. Speed-up: over the baseline's images a second, "
        f"on like images only. Measured: {measured or 'nothing'}."
    )


def _forward(source: SourceRow) -> str:
    if source.row.get("weights") != "none":
        return f"; {source.row.get('weights')} weights"
    service = source.row.get("service_ms")
    return f"; forward: mock model{f' of {float(service):g} ms a batch' if service else ''}"
