"""docs/columns.md has every column of every table, with its unit and its meaning.

The meanings are in docs/columns.txt, the columns in the experiments, in the commands and in the
committed files of the benchmarks. `.venv/bin/python -m tests.test_columns` writes the page anew.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

import experiments
from experiments import predict
from harness.records import ARCHIVE
from paper import claims, compare, drift, publish
from paper.csvfile import read_columns
from tests.conftest import ROOT
from wallclock.clock import STAGES
from wallclock.job.dataset import ROWS

SOURCE = ROOT / "docs" / "columns.txt"
PAGE = ROOT / "docs" / "columns.md"
FIX = "edit docs/columns.txt, then run .venv/bin/python -m tests.test_columns"
REFERENCES = ROOT / "data" / "reference"
#: What `python -m paper.accuracy` pools, with the columns of an experiment.
POOLED = REFERENCES / "predictions" / "accuracy.csv"
#: Folders of data/reference whose tables a benchmark writes, and the module that does.
BENCHMARKS: Mapping[str, str] = {
    "fast-parts": "benchmarks.fast parts",
    "dct-margin": "benchmarks.fast margin",
    "progressive": "benchmarks.progressive",
    "preprocess": "benchmarks.preprocess",
    "families": "benchmarks.families",
    "imports": "benchmarks.imports",
    "loader": "benchmarks.loader",
    "ceiling": "benchmarks.ceiling",
    "trace": "benchmarks.trace",
    "tried": "benchmarks.tried",
    "job": "benchmarks.job",
    "rows": "benchmarks.rows",
    "examples": "examples.measure",
}
#: Tables of commands, of a run and of a job: name → what the page says of it, and its columns.
OTHERS: Mapping[str, tuple[str, Sequence[str]]] = {
    "claims.csv": ("every run: a row per number of the paper", claims.COLUMNS),
    "failures.csv": ("every run: a row per image that failed", publish._FAILURE_COLUMNS),
    "drift.csv": ("`make drift`: a row per measure", drift.COLUMNS),
    "compare.csv": ("`make compare`: a row per measure", compare.COLUMNS),
    "part-*.parquet": (
        "`wallclock embed`: a row per image; the other columns of the list follow. Types are in "
        "`_dataset.json`. Vectors of another sink have a file of their own, the rest is in `rows/`",
        ["id", "vector", *ROWS.names[1:]],
    ),
    "_failures/part-*.jsonl": (
        "`wallclock embed`: an object per image without a vector",
        ["id", "stage", "reason"],
    ),
}
INTRODUCTION = """\
# Columns of every table

Made from [columns.txt](columns.txt) and from the code that writes the tables; a test compares.
Tables are CSV files in UTF-8, with a header line. An empty cell has no value. Older runs lack newer
columns. `X_min` and `X_max` are the least and the greatest repeat of `X`, unless a line says more.
"""


class Meaning(NamedTuple):
    unit: str
    text: str


@dataclass
class Definitions:
    """Column → meaning: of all tables, and by table."""

    shared: dict[str, Meaning] = field(default_factory=dict)
    of: dict[str, dict[str, Meaning]] = field(default_factory=dict)
    #: Definitions that some table has used: (table, or empty for shared; name).
    used: set[tuple[str, str]] = field(default_factory=set)

    def meaning_in(self, table: str, column: str) -> Meaning | None:
        """What a table says of its column, None where that is what all tables mean."""
        return self._look_up(self.of.get(table, {}), table, column)

    def common(self, column: str) -> Meaning | None:
        """What all tables mean by a column."""
        stage, _, rest = column.partition("_")
        name = f"<stage>_{rest}" if stage in STAGES and rest.startswith(("s", "share")) else column
        return self._look_up(self.shared, "", name)

    def _look_up(
        self, definitions: Mapping[str, Meaning], table: str, column: str
    ) -> Meaning | None:
        if column in definitions:
            self.used.add((table, column))
            return definitions[column]
        name, _, end = column.rpartition("_")
        if end in ("min", "max") and name in definitions:
            extreme = "least" if end == "min" else "greatest"
            return Meaning(definitions[name].unit, f"{extreme} of the repeats")
        return None


@cache
def definitions() -> Definitions:
    """docs/columns.txt."""
    read = Definitions()
    sections = [read.shared]
    for line in SOURCE.read_text(encoding="utf-8").splitlines():
        if not line or line.startswith("#"):
            continue
        if line.startswith("["):
            sections = [read.of.setdefault(name, {}) for name in line[1:-1].split()]
            continue
        name, unit, meaning = (part.strip() for part in line.split("|"))
        for section in sections:
            assert name not in section, f"{name} is defined twice"
            section[name] = Meaning(unit, meaning)
    return read


@dataclass(frozen=True)
class Table:
    """A table of the page; `section` is its name in columns.txt."""

    name: str
    section: str
    origin: str
    columns: Sequence[str]


def question(name: str) -> str:
    """What an experiment asks: the first line of its module."""
    return str(experiments.load(name).__doc__).strip().splitlines()[0]


def tables() -> Iterator[Table]:
    """Every table, in the order of the page."""
    for name in (*experiments.ORDER, *experiments.ON_REQUEST):
        for csv, columns in experiments.load(name).TABLES.items():
            yield Table(csv, csv, f"experiment `{name}`: {question(name)}", columns)
    for name, (origin, columns) in OTHERS.items():
        yield Table(name, name, origin, columns)
    name = POOLED.relative_to(REFERENCES).as_posix()
    yield Table(name, predict.ACCURACY_CSV, "`python -m paper.accuracy`", read_columns(POOLED))
    for folder, module in BENCHMARKS.items():
        paths = sorted((REFERENCES / folder).glob("*.csv"))
        distinct = {tuple(read_columns(path)): path for path in reversed(paths)}
        for columns, path in reversed(distinct.items()):
            name = f"{folder}/{path.name}"
            yield Table(name, folder, f"`python -m {module}`", columns)


def missing() -> list[str]:
    """Columns that nothing defines."""
    read = definitions()
    return [
        f"{table.name}: {column}"
        for table in tables()
        for column in table.columns
        if not (read.meaning_in(table.section, column) or read.common(column))
    ]


def line(name: str, meaning: Meaning) -> str:
    return f"| `{name}` | {meaning.unit} | {meaning.text} |\n"


HEAD = "| column | unit | meaning |\n|---|---|---|\n"


def page() -> str:
    """docs/columns.md."""
    read = definitions()
    parts = [INTRODUCTION, "\n## Columns with the same meaning in every table\n\n", HEAD]
    parts += [line(name, meaning) for name, meaning in read.shared.items()]
    parts.append("\n## Tables\n")
    described: dict[tuple[str, ...], str] = {}
    for table in tables():
        meanings = {name: read.meaning_in(table.section, name) for name in table.columns}
        lines = [line(name, meaning) for name, meaning in meanings.items() if meaning]
        parts.append(f"\n### {table.name}\n\n{table.origin[:1].upper()}{table.origin[1:]}")
        parts.append("" if table.origin[-1] in ".?" else ".")
        earlier = described.setdefault(tuple(table.columns), table.name)
        if earlier != table.name:
            parts.append(f"\n\nThe columns of {earlier}.\n")
            continue
        common = [name for name in table.columns if not meanings[name]]
        if common:
            parts.append(f"\n\nAs above:\n\n{_listed(common)}".rstrip("\n"))
        parts.append(f"\n\n{HEAD}{''.join(lines)}" if lines else "\n")
    return "".join(parts)


def _listed(columns: Sequence[str]) -> str:
    """Names of columns, ten to a line.

    Those of the stages are one name, and no `_min` and `_max` stand beside their own.
    """
    names: dict[str, None] = {}
    for column in columns:
        name = re.sub(r"_(min|max)$", "", column)
        stage, _, rest = column.rpartition("_")
        if stage in STAGES and rest in ("s", "share"):
            names[f"<stage>_{rest}"] = None
        elif name == column or name not in columns:
            names[column] = None
    quoted = [f"`{name}`" for name in names]
    rows = [quoted[start : start + 10] for start in range(0, len(quoted), 10)]
    return "".join(f"- {', '.join(row)}\n" for row in rows)


def test_every_column_has_a_meaning() -> None:
    assert not missing(), FIX


def test_every_definition_is_used() -> None:
    assert not missing()
    read = definitions()
    defined = {("", name) for name in read.shared}
    # Of a benchmark whose tables are not committed nothing can be used.
    absent = {name for name in BENCHMARKS if not (REFERENCES / name).is_dir()}
    defined |= {(table, name) for table in read.of.keys() - absent for name in read.of[table]}
    assert not defined - read.used, FIX


def test_every_committed_table_is_described() -> None:
    folders = {path.parent for path in REFERENCES.glob("*/*.csv")}
    measured = {path.name for path in folders if not (path / ARCHIVE).is_file()}
    assert measured - {POOLED.parent.name} <= BENCHMARKS.keys(), FIX


def test_the_page_is_as_its_sources_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), f"an old table of columns: {FIX}"


def test_units_are_those_of_the_names() -> None:
    """The unit at the end of a name is the one in its line."""
    units = {"s": "s", "ms": "ms", "us": "µs", "db": "dB", "kb": "kB", "mib": "MiB", "gib": "GiB"}
    read = definitions()
    for names in (read.shared, *read.of.values()):
        for name, meaning in names.items():
            end = name.rpartition("_")[2]
            counts = name.startswith("n_") or name.endswith("_per_s")
            if "_" in name and not counts and end in units:
                assert meaning.unit == units[end], name


if __name__ == "__main__":
    if gaps := missing():
        raise SystemExit("\n".join(gaps))
    PAGE.write_text(page(), encoding="utf-8")
