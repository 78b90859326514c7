"""The sentence that ends a run: one comparison, from the rows of the tables that the run wrote.

An experiment's `sentence(rows)` makes it with these helpers. Two recipes are compared only where
all other settings are equal. A setting is a column that holds no measured value; by the rule for
CSVs, a measured value has its unit in its name.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields

from experiments._common import columns
from experiments._words import SHORT_SETS, digits, factor
from wallclock.recipe import Recipe

#: A row of a table as it is read: text by column.
TableRow = Mapping[str, str]

#: Column and unit: the first that a row fills is its result, in the terminal.
RESULTS = {
    "img_per_s": "img/s",
    "vectors_per_s": "vectors/s",
    "mean_ms": "ms",
    "ns_per_call": "ns a call",
}
#: In the name of a measured value: its unit, a statistic, or what it is.
_MEASURED_WORDS = frozenset(
    columns(
        "s ms us ns kb mb gb mib gib mhz w px db megapixels per usd hours share n",
        "min max mean median used cosine error efficiency utilization speedup vs ratio gain",
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
#: Columns of a recipe's choices, and of its name.
_OF_RECIPE = frozenset(field.name for field in fields(Recipe)) - {"name", "device"} | {"recipe"}


class MeasuredRows:
    """The measured rows of tables by CSV, originals first.

    `read_measured` returns the measured rows of a CSV, none where there is no such table. A table
    is read when its rows are first asked for.
    """

    def __init__(self, read_measured: Callable[[str], Iterable[TableRow]]) -> None:
        self._read_measured = read_measured
        self._tables: dict[str, list[TableRow]] = {}

    def __getitem__(self, csv: str) -> list[TableRow]:
        if csv not in self._tables:
            rows = self._read_measured(csv)
            self._tables[csv] = sorted(
                rows, key=lambda row: row.get("image_set", "original") != "original"
            )
        return self._tables[csv]

    def first(self, csv: str, **cells: str) -> TableRow | None:
        """The first row with these cells; None if there is none."""
        return next((row for row in self[csv] if cells.items() <= row.items()), None)


def is_setting(column: str) -> bool:
    """Whether a column says what was run, not what was measured."""
    if column in _SETTINGS_WITH_UNIT:
        return True
    return column not in _REMARKS and _MEASURED_WORDS.isdisjoint(column.split("_"))


def is_comparable(row: TableRow, base: TableRow) -> bool:
    """Whether two rows differ in no setting but those of their recipes."""
    settings = [name for name in row.keys() & base if is_setting(name) and name not in _OF_RECIPE]
    return all(row[name] == base[name] for name in settings)


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
