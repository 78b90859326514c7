"""Where the numbers of a document were measured: a line per table, from its provenance.

  <!--machine: frontier-->AMD EPYC (family 25, model 17), 2 cores; commit 7ef8d0d; 2026-11-22; n = 3

docs/numbers.txt says which file `frontier` is. `python -m paper footnotes --write` rewrites what
follows such a marker up to the end of its line; a test compares.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness import provenance
from harness.table import read_table
from paper import accuracy, claims, quoted
from paper.provenance_files import META, PACKED, read_provenance
from wallclock.errors import UserError

#: The marker with the name of a file, and the rest of its line.
MARKER = re.compile(r"(<!--machine: (\w+)-->).*")
#: Columns with the number of times that a row was measured.
_COUNTS = ("repeats", "rounds")
_SHORT_COMMIT = 7


def documents() -> list[Path]:
    """The Markdown files of the checkout's top, of docs/ and of the reference runs."""
    patterns = ("*.md", "docs/*.md", "data/reference/*/README.md")
    return [path for pattern in patterns for path in sorted(provenance.ROOT.glob(pattern))]


def rewritten(text: str, tables: Mapping[str, Path]) -> str:
    """A document with every marked line as the provenance has it.

    Raises UserError: a marker names no file, or the file has no provenance.
    """

    def line(match: re.Match[str]) -> str:
        marker, name = match.groups()
        if name not in tables:
            raise UserError(f"{marker}: no CSV of this name in docs/numbers.txt")
        return f"{marker}{describe(tables[name])}."

    return MARKER.sub(line, text)


def describe(table: Path) -> str:
    """Machine, commit, dates and repeats of a table, in a line; says what is not recorded.

    Raises UserError: the table has no provenance.
    """
    metas = metas_of(table)
    if not metas:
        beside = table.with_suffix(META).name
        raise UserError(f"{table} has neither {beside} nor {PACKED} beside it")
    machines = [machine for meta in metas for machine in machines_of(meta)]
    parts = [" and ".join(dict.fromkeys(map(name_of, machines))), *_code_and_dates(metas)]
    return "; ".join([*parts, *_repeats(table, metas)])


def metas_of(table: Path) -> list[dict[str, Any]]:
    """The provenance of a table, or of the tables that it is derived from; empty without any.

    Verdicts are derived from all tables in their folder, the pooled accuracy from all predictions.
    """
    if table == accuracy.PATH:
        return [meta for path in accuracy.tables() for meta in metas_of(path)]
    by_table = read_provenance(table.parent)
    if table.name == claims.CSV:
        return [*by_table.values()]
    return [by_table[table.name]] if table.name in by_table else []


def machines_of(meta: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """All machines on which a table was measured."""
    return [meta["machine"], *meta.get("other_machines", ())]


def name_of(machine: Mapping[str, Any]) -> str:
    """`AMD EPYC (family 25, model 17), 2 cores, with Tesla T4`.

    Vendors sell processors of several models under one name, which differ in speed.
    """
    topology = machine.get("topology", {})
    parts = [f"{name} {topology[name]}" for name in ("family", "model") if topology.get(name)]
    cpu = " ".join(str(machine["cpu"]).replace("(R)", "").split())
    if parts:
        cpu += f" ({', '.join(parts)})"
    cores = int(machine["cores"])
    gpus = [str(gpu["name"]) for gpu in machine.get("gpus", ())]
    return ", ".join([cpu, f"{cores} core{'s' * (cores != 1)}", *(f"with {gpu}" for gpu in gpus)])


def _code_and_dates(metas: Sequence[Mapping[str, Any]]) -> list[str]:
    """The commits, whether the tree had changes, and the first and the last day."""
    commits = sorted(
        {commit[:_SHORT_COMMIT] for meta in metas for commit in meta.get("commits", ())}
    )
    days = sorted({time[:10] for meta in metas for time in meta.get("measured", ())})
    if not commits and not days:
        return ["commit and date not recorded"]
    code = f"commit{'s' * (len(commits) > 1)} {', '.join(commits)}" if commits else "no commit"
    if any(meta.get("modified") for meta in metas):
        code += " with changes"
    return [code, " to ".join(dict.fromkeys([days[0], days[-1]])) if days else "date not recorded"]


def _repeats(table: Path, metas: Sequence[Mapping[str, Any]]) -> list[str]:
    """`n = 3`, or `n = 1 to 3` if rows differ; empty for a derived table and without counts."""
    if len(metas) != 1:
        return []
    counts = [row[name] for row in read_table(table) for name in _COUNTS if row.get(name)]
    if not counts:
        repeats = (record["repeat"] for meta in metas for record in meta.get("records", ()))
        counts = [max(repeats, default=-1) + 1]
    least, most = min(counts), max(counts)
    if not most:
        return []
    return [f"n = {least}" if least == most else f"n = {least} to {most}"]


def differing(paths: Iterable[Path]) -> dict[Path, str]:
    """The documents whose marked lines or numbers differ from the tables, and their new text."""
    tables = quoted.files()
    texts = {path: path.read_text(encoding="utf-8") for path in paths}
    new = {path: quoted.rewritten(rewritten(text, tables)) for path, text in texts.items()}
    return {path: text for path, text in new.items() if text != texts[path]}


def changes(old: str, new: str) -> Iterator[tuple[str, str]]:
    """Each marked number or line that differs: with its marker, then without."""
    for pattern in (MARKER, quoted.MARKED):
        marked = zip(pattern.finditer(old), pattern.finditer(new), strict=True)
        for before, after in marked:
            if before[0] != after[0]:
                yield before[0], after[0].removeprefix(before[1])
