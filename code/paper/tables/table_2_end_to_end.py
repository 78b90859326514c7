"""Table 2: the baseline, all wins together, and the CPU alone, end to end."""

from experiments.cpu import cells as cpu
from experiments.opt import cells as opt
from experiments.t4 import cells as t4
from harness.drawing.labels import CORPORA, weights
from harness.drawing.rendering import Tables, output
from paper.tables.table import SourceRow, Table, Value, columns_of, ratio, rows_of

_RUNS = {t4.CSV: "baseline", opt.CSV: "all wins", cpu.CSV: "CPU, one thread"}
_COLUMNS = columns_of("table-2-end-to-end")
_MINUTES_PER_MILLION = 10 / 60


@output("table-2-end-to-end", "End to end: baseline, all wins, CPU", optional=tuple(_RUNS))
def build(tables: Tables) -> Table:
    """A row a run; one that is absent says so."""
    sources = [_source(tables, csv) for csv in _RUNS]
    baseline = sources[0]
    rows = tuple(_row(source, baseline) for source in sources)
    return Table(_COLUMNS, rows, _caption([source for source in sources if source.ok]))


def _source(tables: Tables, csv: str) -> SourceRow:
    """The row of a run; where it is absent, a row that says so."""
    rows = rows_of(tables, csv)
    return rows[0] if rows else SourceRow(csv, 0, {"status": "not run"})


def _row(source: SourceRow, baseline: SourceRow) -> dict[str, Value]:
    row = source.values(_COLUMNS) | {"run": Value(_RUNS[source.csv])}
    if not source.ok:
        return row | {"seconds_per_100k_origin": Value()}
    seconds = row["seconds_per_100k"]
    if isinstance(seconds.value, float | int):
        row["minutes_per_million"] = Value(seconds.value * _MINUTES_PER_MILLION, seconds.sources)
        row["minutes_per_million_origin"] = Value("extrapolated")
    if baseline.ok and comparable(source, baseline):
        row["speed_up"] = ratio(source.number("img_per_s"), baseline.number("img_per_s"))
    return row


def comparable(first: SourceRow, second: SourceRow) -> bool:
    """Whether both embedded the same kind of images, and both with a network or both without."""
    for column in ("corpus", "image_set"):
        if first.row.get(column) != second.row.get(column):
            return False
    return (first.row.get("weights") == "none") == (second.row.get("weights") == "none")


def _caption(sources: list[SourceRow]) -> str:
    """On what each run was measured; runs under equal conditions are named together."""
    runs: dict[str, list[str]] = {}
    for source in sources:
        row = source.row
        about = f"{CORPORA[row['corpus']]}; {weights([row])}"
        conditions = f"on {row['device']}, n = {row['n_images']:,} ({about})"
        runs.setdefault(conditions, []).append(_RUNS[source.csv])
    measured = "; ".join(f"{' and '.join(names)} {where}" for where, names in runs.items())
    return (
        "Steady state: start-up is not in the rates. The minutes for a million images are always "
        "extrapolated: the data set has 398,212. Speed-up: over the baseline's images per second, "
        f"on like images only. Measured: {measured or 'nothing'}."
    )
