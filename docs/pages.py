"""The pages that `make docs` makes: columns of the tables, the paper's numbers, the library.

Which columns a table has is known by the experiments, the commands and the committed files of the
benchmarks; what they mean by `harness.table`.
"""

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import wallclock
from experiments import contents
from harness.provenance import ROOT
from harness.table import column, read_columns, table_of
from paper import claims, compare, drift, publish
from paper.claims import CLAIMS, Claim
from wallclock.constraints import describe, text_of
from wallclock.job.part import ROWS
from wallclock.job.settings import JobSettings, VerifySettings
from wallclock.service.modules import Embedding
from wallclock.service.settings import ServiceSettings, describe_module

REFERENCES = ROOT / "data" / "reference"
#: Tables that are committed, by their path: what wrote them.
COMMITTED: Mapping[Path, str] = {
    REFERENCES / "accuracy.csv": "`python -m paper.accuracy`",
    **dict.fromkeys(sorted(CLAIMS.parent.glob("*.csv")), "hand: what others measured or assume"),
}
#: Tables of a reference run that a benchmark wrote, and the module that does.
BENCHMARKS: Mapping[str, str] = {
    "loader.csv": "benchmarks.loader",
    "training.csv": "benchmarks.training",
    "decode.csv": "benchmarks.decode",
    "job.csv": "benchmarks.job",
    "formats.csv": "benchmarks.formats",
    "peers.csv": "benchmarks.peers",
    "remote.csv": "benchmarks.remote",
    "trace.csv": "benchmarks.trace",
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
are the lowest and the highest repeat of `X`, unless a line says otherwise. The kind says how two
runs compare: settings, facts and statuses are equal, computed numbers but for rounding, measured
ones within a tolerance.
"""
_COLUMNS_HEAD = "\n| column | unit | kind | meaning |\n|---|---|---|---|\n"
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
    "Errors": ("UserError", "wallclock.errors.ImageError", "wallclock.errors.Unavailable"),
}
#: Classes whose constructors are not public.
_MADE_BY_OTHERS = ("Images", "wallclock.job.Outcome", "wallclock.job.verify.Verdict")
#: Names of types, which Sphinx finds in their own module only.
ALIASES: Mapping[str, str] = {
    "Failure": "wallclock.loader.batch.Failure",
    "ImageSources": "wallclock.loader.images.ImageSources",
}


@dataclass(frozen=True)
class Table:
    """A table of the page; `section` is the name by which it is declared."""

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
    for path, origin in COMMITTED.items():
        name = path.relative_to(ROOT).as_posix()
        yield Table(name, table_of(path), origin, read_columns(path))
    measured = {path.name: path for path in REFERENCES.glob("*/benchmarks/*.csv")}
    for name, module_name in BENCHMARKS.items():
        section = table_of(measured[name])
        yield Table(section, section, f"`python -m {module_name}`", read_columns(measured[name]))


def columns_page() -> str:
    """Every table with the unit and the meaning of its columns."""
    parts = [COLUMNS_PAGE]
    for table in tables():
        parts.append(f"\n## {table.name}\n\nWritten by {table.origin}\n{_COLUMNS_HEAD}")
        for name in table.columns:
            about = column(table.section, name)
            parts.append(f"| `{name}` | {about.unit} | {about.kind} | {about.meaning} |\n")
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
