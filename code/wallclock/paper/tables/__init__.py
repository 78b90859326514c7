"""Every table of the paper, in its order; each is a module that names its CSVs and builds from them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from wallclock.errors import check_name
from wallclock.paper.rendering import NothingToDrawError, Rendering, Tables, read_sources
from wallclock.paper.tables import (
    table_1_serialization,
    table_2_end_to_end,
    table_3_checklist,
    table_4_reproducibility,
)
from wallclock.paper.tables.table import Table, save


class TableModule(Protocol):
    """What a table's module offers."""

    #: Name of the files it becomes, without suffix.
    STEM: str
    #: What it shows, in a line.
    TITLE: str
    #: Names of the CSVs without which there is no table.
    SOURCES: tuple[str, ...]
    #: Names of those that it takes where they are there. A table has one or the other.
    OPTIONAL: tuple[str, ...]

    def build(self, tables: Tables) -> Table:
        """Build from CSVs by name. Raises NothingToDrawError."""


_MODULES: tuple[TableModule, ...] = (
    table_1_serialization,
    table_2_end_to_end,
    table_3_checklist,
    table_4_reproducibility,
)
TABLES: Mapping[str, TableModule] = {module.STEM: module for module in _MODULES}


def build(stem: str, tables_dir: Path) -> Table:
    """Build one table from the CSVs in `tables_dir`.

    Raises:
        UserError: no table is called `stem`, or a CSV is damaged.
        NothingToDrawError: the CSVs that it needs are not there, or hold nothing that it shows.
    """
    module = TABLES[check_name(stem, TABLES, "table")]
    return module.build(read_sources(tables_dir, module.SOURCES, module.OPTIONAL))


def render_all(tables_dir: Path, out_dir: Path) -> list[Rendering]:
    """Build and write every table whose CSVs are there, in order; say of the others why not.

    Raises:
        UserError: a CSV is damaged.
    """
    found = []
    for stem, module in TABLES.items():
        try:
            table = build(stem, tables_dir)
        except NothingToDrawError as nothing:
            found.append(Rendering(stem, (), str(nothing)))
        else:
            found.append(Rendering(stem, tuple(save(table, module.TITLE, stem, out_dir))))
    return found
