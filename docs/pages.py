"""The pages that `make docs` makes: columns of the tables, the paper's numbers, the library.

The meanings of columns are in docs/columns.txt. Which columns a table has is known by the
experiments, the commands and the committed files of the benchmarks.
"""

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import wallclock
from experiments import contents
from experiments.predict import cells as predict
from harness.csvfile import read_columns
from harness.provenance import ROOT
from paper import claims, compare, drift, publish
from paper.claims import CLAIMS, Claim
from wallclock.clock import STAGES
from wallclock.constraints import describe, text_of
from wallclock.job.part import ROWS
from wallclock.job.settings import JobSettings, VerifySettings
from wallclock.service.modules import Embedding
from wallclock.service.settings import ServiceSettings, describe_module

SOURCE = ROOT / "docs" / "columns.txt"
REFERENCES = ROOT / "data" / "reference"
#: What `python -m paper.accuracy` pools, with the columns of an experiment.
POOLED = REFERENCES / "accuracy.csv"
#: Tables of a reference run that a benchmark wrote, and the module that does.
BENCHMARKS: Mapping[str, str] = {
    "loader.csv": "benchmarks.loader",
    "training.csv": "benchmarks.training",
    "decode.csv": "benchmarks.decode",
    "job.csv": "benchmarks.job",
    "formats.csv": "benchmarks.formats",
    "million.csv": "benchmarks.million",
    "peers.csv": "benchmarks.peers",
    "remote.csv": "benchmarks.remote",
    "examples.csv": "examples.measure",
}
#: Tables of commands, of a run and of a job: name → what writes them, and their columns.
OTHERS: Mapping[str, tuple[str, Sequence[str]]] = {
    "claims.csv": ("every run: a row per number of the paper", claims.COLUMNS),
    "failures.csv": ("every run: a row per image that failed", publish._FAILURE_COLUMNS),
    "drift.csv": ("`make drift`: a row per measure", drift.COLUMNS),
    "compare.csv": ("`make compare`: a row per measure", compare.COLUMNS),
    "part-*.parquet": (
        "`wallclock embed`: a row per image, followed by the other columns of the list",
        ["id", "vector", *ROWS.names[1:]],
    ),
    "_failures/part-*.jsonl": (
        "`wallclock embed`: an object per image without a vector",
        ["id", "stage", "reason"],
    ),
}
COLUMNS_PAGE = """\
# Columns of every table

Tables are CSV files in UTF-8 with a header line. An empty cell has no value. `X_min` and `X_max`
are the lowest and the highest repeat of `X`, unless a line says otherwise.
"""
_COLUMNS_HEAD = "\n| column | unit | meaning |\n|---|---|---|\n"
CLAIMS_PAGE = """\
# Every number of the paper

The lines of `data/paper/claims.csv`. Figures and tables are named as the article numbers them. Its
Figures 1 to 9 are fig-01, fig-01b, fig-03, fig-02, fig-04, fig-05, fig-06, fig-07 and fig-10 here.

| claim | experiment | output | paper | allowed | applies to | where in the source |
|---|---|---|---|---|---|---|
"""
_NEEDS = {
    "any": "any machine",
    "cuda": "any CUDA GPU",
    "t4-gpu": "a Tesla T4",
    "t4": "a Tesla T4 beside 16 cores",
    "t4-8": "a Tesla T4 beside 8 cores",
    "abo": "the paper's images",
}
#: Heading → names: those of `wallclock`, or with the module that has them.
LIBRARY: Mapping[str, Sequence[str]] = {
    "Load images": ("open_images", "Images", "Batch", "Failure", "ImageSources", "as_dataloader"),
    "What a batch is": ("Output", "Workers", "Preprocess", "Augment", "wallclock.recipe.Limits"),
    "One image": ("decode", "loader_for"),
    "Jobs": (
        "embed",
        "wallclock.job.Outcome",
        "wallclock.job.verify.verify",
        "wallclock.job.verify.Verdict",
    ),
    "A service's module": ("wallclock.service.modules.Pixels",),
    "Measure and predict": ("StageProfiler", "predict"),
    "Errors": ("UserError", "wallclock.errors.ImageError", "wallclock.errors.Unavailable"),
}
#: Classes whose constructors are not public.
_MADE_BY_OTHERS = ("Images", "wallclock.job.Outcome", "wallclock.job.verify.Verdict")
#: Names of types, which Sphinx finds in their own module only.
ALIASES: Mapping[str, str] = {
    "Failure": "wallclock.loader.batch.Failure",
    "ImageSources": "wallclock.loader.images.ImageSources",
}


class Meaning(NamedTuple):
    """Unit and meaning of a column."""

    unit: str
    text: str


@dataclass
class Definitions:
    """Column → meaning: in all tables, and by table."""

    shared: dict[str, Meaning] = field(default_factory=dict)
    of: dict[str, dict[str, Meaning]] = field(default_factory=dict)
    #: Definitions that some table uses: (table, or empty for shared; name).
    used: set[tuple[str, str]] = field(default_factory=set)

    def meaning(self, table: str, column: str) -> Meaning | None:
        """What a column means in a table: its own definition wins over the shared one."""
        stage, _, rest = column.partition("_")
        name = f"<stage>_{rest}" if stage in STAGES and rest.startswith(("s", "share")) else column
        own = self._look_up(self.of.get(table, {}), table, column)
        return own or self._look_up(self.shared, "", name)

    def _look_up(
        self, definitions: Mapping[str, Meaning], table: str, column: str
    ) -> Meaning | None:
        if column in definitions:
            self.used.add((table, column))
            return definitions[column]
        name, _, end = column.rpartition("_")
        if end in ("min", "max") and name in definitions:
            extreme = "lowest" if end == "min" else "highest"
            return Meaning(definitions[name].unit, f"{extreme} of the repeats")
        return None


@cache
def definitions() -> Definitions:
    """The meanings in docs/columns.txt."""
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


def tables() -> Iterator[Table]:
    """Every table, in the order of the page."""
    for name in (*contents.ORDER, *contents.ON_REQUEST):
        module = contents.load(name)
        question = str(module.__doc__).strip().splitlines()[0]
        for csv, columns in module.TABLES.items():
            yield Table(csv, csv, f"experiment `{name}`: {question}", columns)
    for name, (origin, columns) in OTHERS.items():
        yield Table(name, name, origin, columns)
    name = POOLED.relative_to(REFERENCES).as_posix()
    yield Table(name, predict.ACCURACY_CSV, "`python -m paper.accuracy`", read_columns(POOLED))
    measured = {path.name: path for path in REFERENCES.glob("*/benchmarks/*.csv")}
    for name, module_name in BENCHMARKS.items():
        columns = read_columns(measured[name])
        name = f"benchmarks/{name}"
        yield Table(name, name, f"`python -m {module_name}`", columns)


def columns_page() -> str:
    """Every table with the unit and the meaning of its columns."""
    parts = [COLUMNS_PAGE]
    for table in tables():
        parts.append(f"\n## {table.name}\n\nWritten by {table.origin}\n{_COLUMNS_HEAD}")
        for name in table.columns:
            meaning = definitions().meaning(table.section, name) or Meaning("", "")
            parts.append(f"| `{name}` | {meaning.unit} | {meaning.text} |\n")
    return "".join(parts)


def claims_page() -> str:
    """Every claim: its experiment, its table, its tolerance and where it stands."""
    return CLAIMS_PAGE + "".join(map(_claim_line, claims.load(CLAIMS)))


def _claim_line(claim: Claim) -> str:
    allowed = "at most" if claim.tolerance is None else f"± {claim.tolerance:.0%}"
    where = claim.where
    if claim.other_value is not None:
        where += f". Elsewhere {claim.other_value:,.6g}: {claim.other_where}"
    paper = f"{claim.paper_value:,.6g} {claim.unit}"
    parts = (claim.id, claim.experiment, claim.csv, paper, allowed, _NEEDS[claim.needs], where)
    return f"| {' | '.join(parts)} |\n"


def settings_page() -> str:
    """The settings of each command, as `--help` lists them."""
    parts = ["# Settings\n\nType `--max-failures 3`, `--max-failures=3` or `max_failures=3`.\n"]
    for heading, settings in (
        ("wallclock embed", describe(JobSettings)),
        ("wallclock verify", describe(VerifySettings)),
        ("wallclock serve", describe(ServiceSettings)),
        ("The service's default module", describe_module(Embedding)),
    ):
        parts.append(
            f"\n## {heading}\n\n| setting | default | what | allowed |\n|---|---|---|---|\n"
        )
        for setting in settings:
            default = text_of(setting.default) or "none"
            texts = (f"`{setting.name}`", f"`{default}`", setting.meaning, setting.allowed)
            parts.append(f"| {' | '.join(texts)} |\n")
    return "".join(parts)


def library_page() -> str:
    """Every public name of the library; Sphinx puts the docstrings in."""
    parts = ["# Library\n"]
    for heading, names in LIBRARY.items():
        parts += [f"\n## {heading}\n\n", *map(_directive, names)]
    return "".join(parts)


def _directive(name: str) -> str:
    if name in ALIASES:
        return _autodoc("data", ALIASES[name])
    module, _, attribute = name.rpartition(".")
    value = getattr(import_module(module) if module else wallclock, attribute)
    path = name if module else f"wallclock.{name}"
    if inspect.ismodule(value):
        return _autodoc("module", path, "   :members:\n")
    if not inspect.isclass(value):
        return _autodoc("function", path)
    if issubclass(value, Exception):
        return _autodoc("exception", path)
    call = "()" if name in _MADE_BY_OTHERS else ""
    return _autodoc("class", f"{path}{call}", "   :members:\n")


def _autodoc(kind: str, path: str, options: str = "") -> str:
    return f"```{{eval-rst}}\n.. auto{kind}:: {path}\n{options}```\n"


def write(folder: Path) -> None:
    """Write all pages into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for page in (columns_page, claims_page, settings_page, library_page):
        name = page.__name__.removesuffix("_page")
        (folder / f"{name}.md").write_text(page(), encoding="utf-8")
