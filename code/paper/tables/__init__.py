"""Every table of the paper: each module `table_*.py` declares its table and builds it."""

import pkgutil
from collections.abc import Mapping
from pathlib import Path

from harness.drawing.rendering import NothingToDrawError, Output, Rendering, declared, read_sources
from paper.tables.table import Table, save
from wallclock.errors import check_name

TABLES: Mapping[str, Output[Table]] = declared(
    f"{__name__}.{info.name}"
    for info in pkgutil.iter_modules(__path__)
    if info.name.startswith("table_")
)


def build(stem: str, tables_dir: Path) -> Table:
    """Build one table from the CSVs in `tables_dir`.

    Raises UserError if no table is called `stem` or a CSV is damaged, and NothingToDrawError.
    """
    output = TABLES[check_name(stem, TABLES, "table")]
    return output.make(read_sources(tables_dir, output.required, output.optional))


def render(stem: str, tables_dir: Path, out_dir: Path) -> Rendering:
    """Build one table and write it. Raises UserError like `build`."""
    try:
        table = build(stem, tables_dir)
    except NothingToDrawError as nothing:
        return Rendering(stem, (), str(nothing))
    return Rendering(stem, tuple(save(table, TABLES[stem].title, stem, out_dir)))
