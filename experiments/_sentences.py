"""The sentence that ends a run: one comparison, from the rows of the tables that the run wrote.

An experiment's `sentence(rows)` makes it with these helpers. Two rows are compared only where all
their settings are equal, except those that name them. A setting is a column that holds no measured
value; by the rule for CSVs, a measured value has its unit in its name.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import fields

from experiments._common import columns
from experiments._words import DECODERS, SHORT_SETS, digits, factor
from wallclock.recipe import Recipe

#: A row of a table as it is read: text by column.
TableRow = Mapping[str, str]

#: Column and unit: the first that a row fills is its result.
RESULTS = {
    "img_per_s": "img/s",
    "vectors_per_s": "vectors/s",
    "mean_ms": "ms",
    "ns_per_call": "ns a call",
}
#: Results of which more is better.
_RATES = ("img_per_s", "vectors_per_s")

#: In the name of a measured value: its unit, a statistic, or what it is.
_MEASURED_WORDS = frozenset(
    columns(
        "s ms us ns kb mb gb mib gib mhz w px db megapixels per usd hours share n",
        "min max mean median used cosine error efficiency utilization speedup vs ratio gain rank",
    )
)
#: Settings whose names carry a unit, too.
_SETTINGS_WITH_UNIT = frozenset(columns("service_ms service_ms_per_image latency_bound_ms"))
#: What a row says of itself, and what it found out about the run.
_REMARKS = frozenset(
    columns(
        "origin status reason note gate repeats steady library settings provider attention",
        "limited_by throttle_reasons other_variants other_cores calm_repeats level next next_close",
        "read_back sink_checked neighbours_kept knee largest_in_bound workers_needed",
    )
)
#: Columns that can name a row, the most telling first.
_NAMES = ("step", "what", "format", "recipe", "decoder", "runtime", "dtype")
_RECIPE_FIELDS = frozenset(field.name for field in fields(Recipe)) - {"name", "device"}
#: Column that names a row → the settings that it stands for.
_STANDS_FOR: Mapping[str, Collection[str]] = {
    "step": _RECIPE_FIELDS | {"recipe"},
    "recipe": _RECIPE_FIELDS,
    "runtime": {"opset"},
}


class MeasuredRows:
    """The measured rows of tables by CSV, originals first, without stages that do nothing.

    `read_measured` returns the measured rows of a CSV, none where there is no such table. A table
    is read when its rows are first asked for.
    """

    def __init__(self, read_measured: Callable[[str], Iterable[TableRow]]) -> None:
        self._read_measured = read_measured
        self._tables: dict[str, list[TableRow]] = {}

    def __getitem__(self, csv: str) -> list[TableRow]:
        if csv not in self._tables:
            rows = [row for row in self._read_measured(csv) if row.get("decoder") != "null"]
            rows.sort(key=lambda row: row.get("image_set", "original") != "original")
            self._tables[csv] = rows
        return self._tables[csv]

    def first(self, csv: str, **cells: str) -> TableRow | None:
        """The first row with these cells; None if there is none."""
        return next((row for row in self[csv] if cells.items() <= row.items()), None)


def is_setting(column: str) -> bool:
    """Whether a column says what was run, not what was measured."""
    if column in _SETTINGS_WITH_UNIT:
        return True
    return column not in _REMARKS and _MEASURED_WORDS.isdisjoint(column.split("_"))


def is_comparable(row: TableRow, base: TableRow, names: Collection[str]) -> bool:
    """Whether two rows differ in no setting but those that `names` name, or stand for."""
    free = set(names)
    for name in names:
        free.update(_STANDS_FOR.get(name, ()))
    settings = [name for name in row if name in base and is_setting(name) and name not in free]
    return all(row[name] == base[name] for name in settings)


def passed(rows: Iterable[TableRow]) -> list[TableRow]:
    """The rows whose output passed its check, or has none."""
    return [row for row in rows if row.get("gate", "passed") in ("passed", "reference")]


def ratio(row: TableRow, base: TableRow, column: str = "img_per_s") -> str:
    """A column of one row over that of another: `2.43×`."""
    return factor(float(row[column]) / float(base[column]))


def rate(row: TableRow) -> str:
    """`608 originals per second`."""
    return f"{digits(row['img_per_s'])} {SHORT_SETS[row['image_set']]} per second"


def sizes(row: TableRow) -> str:
    """` (median 305 KB, 5.02 megapixels)`; empty where the row does not have them."""
    kilobytes, megapixels = row.get("median_kb"), row.get("median_megapixels")
    if not kilobytes or not megapixels:
        return ""
    return f" (median {digits(kilobytes)} KB, {digits(megapixels)} megapixels)"


def mock_note(row: TableRow) -> str:
    """That the forward pass was a mock model's; empty for a network."""
    return " (mock model)" if row.get("weights") == "none" else ""


def best_versus_first(
    rows: MeasuredRows, csvs: Iterable[str], labels: Mapping[str, Mapping[str, str]] | None = None
) -> str:
    """The best row of a table versus the first one, of those that can be compared with it.

    The last table of `csvs` that has both is taken; empty if none has. `labels`: of names, by the
    column that holds them.
    """
    for csv in reversed([*csvs]):
        table = rows[csv]
        column = next((name for name in RESULTS if table and table[0].get(name)), "")
        candidates = [row for row in passed(table) if row.get(column)]
        if not candidates:
            continue
        first = candidates[0]
        others = [row for row in candidates[1:] if _is_alternative(row, first)]
        if not others:
            continue
        names = _distinguishing_columns([first, *others])
        is_rate = column in _RATES
        best = (max if is_rate else min)(others, key=lambda row: float(row[column]))
        on = f"on {SHORT_SETS[best['image_set']]} " if "image_set" in best else ""
        verb = "reaches" if is_rate else "takes"
        result = f"{_name(best, names, labels)} {verb} {digits(best[column])} {RESULTS[column]}"
        versus = f"{ratio(best, first, column)} {_name(first, names, labels)}"
        return f"{on}{result}{mock_note(best)}, {versus}"
    return ""


def _is_alternative(row: TableRow, first: TableRow) -> bool:
    """Whether a row can be compared with the first one, and has another name."""
    names = [name for name in _NAMES if name in row and row[name] != first[name]]
    return bool(names) and is_comparable(row, first, names)


def _distinguishing_columns(rows: Sequence[TableRow]) -> list[str]:
    """The first columns that tell all rows apart."""
    names: list[str] = []
    for name in _NAMES:
        if name in rows[0] and len({row[name] for row in rows}) > 1:
            names.append(name)
        if len({tuple(row[name] for name in names) for row in rows}) == len(rows):
            break
    return names


def _name(
    row: TableRow, names: Sequence[str], labels: Mapping[str, Mapping[str, str]] | None
) -> str:
    by_column = {"decoder": DECODERS, **(labels or {})}
    return " ".join(by_column.get(name, {}).get(row[name], row[name]) for name in names)
