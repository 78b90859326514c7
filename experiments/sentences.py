"""The sentence that ends a run: one comparison, from the rows of the tables that the run wrote.

An experiment's `sentence(rows)` makes it with these helpers.
"""

from collections.abc import Callable, Iterable

from harness.drawing.format import digits, factor
from harness.drawing.labels import SHORT_SETS
from harness.table import Row as TableRow

__all__ = ["MeasuredRows", "TableRow", "mock_note", "rate", "ratio", "sizes"]


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


def ratio(row: TableRow, base: TableRow, column: str = "img_per_s") -> str:
    """A column of one row over that of another: `2.43×`."""
    return factor(row[column] / base[column])


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
