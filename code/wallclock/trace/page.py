"""What a trace says: on the terminal, as JSON, and as a page."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from wallclock.files import pretty_json, write_text
from wallclock.outside import printable, values_without_secrets
from wallclock.trace.findings import Findings, image_cells, stage_cells
from wallclock.trace.fixes import say_gain
from wallclock.trace.record import Trace
from wallclock.trace.shares import Row, Table
from wallclock.trace.sizes import Sizes
from wallclock.trace.trial import Trial
from wallclock.trace.words import count, digits, keep_together, percent, seconds, times

if TYPE_CHECKING:
    from jinja2 import Template
    from rich.console import Console

#: Of the JSON: a number that grows with a change that a reader must know of.
SCHEMA = 2
#: Columns of the page on a terminal at most.
_WIDTH = 100
#: Of them between two columns of a table, and in a column that is not cut to fit.
_GAP, _WIDEST = 2, 26
#: Characters of a paragraph.
_LONGEST = 2000
#: Rows of stages and kinds of images on a terminal; the HTML page has all.
_MOST_ROWS = 5
#: Below this share a stage is not on the terminal.
_LEAST_SHARE = 0.005
_MOST_KINDS = 4


# --- terminal -----------------------------------------------------------------------------------


def report(trace: Trace, console: "Console") -> None:
    """Print the verdict, where the time goes, the images, and what each change would bring."""
    said = Findings(trace)
    width = min(_WIDTH, console.width)
    _print_text(said.verdict.text, console, width, "bold")
    for note in said.notes:
        _print_text(note, console, width)
    console.print()
    _print_text(f"{said.facts}.", console, width, "dim")
    console.print()
    rows = [row for table in said.tables for row in _stage_rows(said, table)]
    _print_table(_HEADINGS, rows, console, width)
    if said.sizes:
        console.print()
        images = [_image_row(sizes) for sizes in said.sizes[:_MOST_KINDS]]
        _print_table(_IMAGE_HEADINGS, images, console, width)
    if said.shares.n_images:
        console.print()
        _print_fixes(said, console, width)
    for each in said.helps:
        result = f"; {each.result}" if each.result else ""
        _print_text(f"Model: {each.sentence}{result}.", console, width)


_HEADINGS = ("", "seconds", "share", "images", "ms/image", "most of it")
_IMAGE_HEADINGS = ("kind", "number", "stored, px", "made, px", "KB each")
_RIGHT = {"seconds", "share", "images", "ms/image", "number", "KB each", "gain"}


def _stage_rows(said: Findings, table: Table) -> Iterator[Sequence[str]]:
    startup_s = said.shares.startup_s
    if startup_s and table is said.shares.main:
        yield ("start-up", digits(startup_s), "", "", "", "before the first image")
    whose = ["after start-up"] * bool(startup_s) + ["added up"] * (table.n_threads > 1)
    yield (table.title, digits(table.wall_s), "100 %", "", "", ", ".join(whose))
    shown = [row for row in table.rows if row.share >= _LEAST_SHARE]
    most = _MOST_ROWS + (len(shown) == _MOST_ROWS + 1)  # one row for the rest, or the rest itself
    longest = sorted(shown, key=lambda row: -row.share)[:most]
    for row in table.rows:
        if row in longest:
            took_s, part, _, *images = stage_cells(row)
            yield (f"  {row.stage}", took_s, part, *images, _most_of(row))
    rest = [row for row in table.rows if row not in longest and row.spent.seconds]
    share, names = sum(row.share for row in rest), ", ".join(row.stage for row in rest)
    if share >= _LEAST_SHARE:
        took_s = digits(sum(row.spent.seconds for row in rest))
        yield ("  other stages", took_s, percent(share), "", "", names)


def _most_of(row: Row) -> str:
    """The user's line, and the function that it called."""
    name = row.functions[0][0] if row.functions else row.call
    return f"{row.place} {name}".strip()


def _image_row(sizes: Sizes) -> Sequence[str]:
    name, number, *rest, _ = image_cells(sizes)
    return (f"  {name}", number, *rest)


def _print_fixes(said: Findings, console: "Console", width: int) -> None:
    from rich.text import Text

    if said.fixes.recommended:
        rows = [(f"  {each.title}", say_gain(each.gain)) for each in said.fixes.recommended]
        _print_table(("what it would bring", "gain"), rows, console, width, 0)
    for fix in filter(lambda each: each.code, said.verdict.fixes):
        text = Text(f"# {fix.title}\n{fix.code}", style="green")
        console.print(text, no_wrap=True, overflow="ignore", crop=False)  # to be pasted


def report_trial(trial: Trial, console: "Console") -> None:
    """Print what `--try` measured and what follows, below the report."""
    console.print()
    for sentence in trial.sentences:
        _print_text(sentence, console, min(_WIDTH, console.width))


def _print_text(text: str, console: "Console", width: int, style: str = "") -> None:
    """Print a paragraph; rich would part a number from its unit."""
    from rich.text import Text

    lines = wrap(keep_together(printable(text, _LONGEST)), width, break_on_hyphens=False)
    console.print(Text("\n".join(lines), style=style), width=width)


def _print_table(
    headings: Sequence[str],
    rows: Iterable[Sequence[str]],
    console: "Console",
    width: int,
    flexible: int = -1,
) -> None:
    """Print rows under headings; one column, by default the last, is cut to fit the width."""
    from rich.text import Text

    cells = [headings, *([printable(cell) for cell in row] for row in rows)]
    columns = [list(column) for column in zip(*cells, strict=True)]
    widths = [min(_WIDEST, max(map(len, column))) for column in columns]
    widths[flexible] = max(map(len, columns[flexible]))
    spare = width - sum(widths) - _GAP * (len(widths) - 1)
    widths[flexible] = max(len(headings[flexible]), widths[flexible] + min(0, spare))
    for index, row in enumerate(cells):
        parts = []
        for heading, cell, room in zip(headings, row, widths, strict=True):
            text = _cut(cell, room)
            parts.append(text.rjust(room) if heading in _RIGHT else text.ljust(room))
        line = (" " * _GAP).join(parts).rstrip()
        style = "" if index else "bold"
        console.print(Text(line[:width], style=style), width=width, no_wrap=True)


def _cut(text: str, room: int) -> str:
    """`text` in so many columns: without the last entries of a list, or without its middle."""
    whole, _, _ = text.rpartition(", ")
    while whole and len(text) > room:
        text = f"{whole}, …"
        whole, _, _ = whole.rpartition(", ")
    place = text.find(" ") + 1
    head = place if 0 < place < room // 2 else room // 4  # the end says which function it is
    return text if len(text) <= room else f"{text[:head]}…{text[head + 1 - room :]}"


# --- files --------------------------------------------------------------------------------------


def write_json(trace: Trace, path: Path, trial: Trial | None = None) -> None:
    """Write the numbers of a trace as JSON, in one step. Raises OSError: it cannot be written."""
    tried = {} if trial is None else {"try": trial.numbers}
    text = pretty_json(values_without_secrets({**as_json(trace), **tried}))
    # A path that is no UTF-8 is a lone surrogate in Python, and an escape in JSON.
    write_text(Path(path), text.encode("utf-8", "backslashreplace").decode())


def as_json(trace: Trace) -> Mapping[str, Any]:
    """The numbers of a trace; docs/trace.md explains the keys.

    `main` and `workers` map stages to seconds, with `other Python` for what was not traced, after
    start-up where that can be told; `start_up_s` is on its own.
    """
    said = Findings(trace)
    shares = said.shares
    tables = {"main": shares.main.rows, "workers": shares.workers.rows}
    return {
        "schema": SCHEMA,
        "verdict": said.verdict.text,
        "cause": said.verdict.cause,
        "line": said.verdict.line,
        "notes": said.notes,
        "wall_s": trace.wall_s,
        "start_up_s": shares.startup_s,
        **{name: {r.stage: r.spent.seconds for r in rows} for name, rows in tables.items()},
        "lines": {n: {r.stage: r.place for r in rows if r.place} for n, rows in tables.items()},
        "n_workers": shares.n_workers,
        "images": {
            "number": shares.n_images,
            "img_per_s": shares.img_per_s,
            "kinds": [asdict(sizes) for sizes in said.sizes],
        },
        "fixes": [
            {
                "name": each.fix.name,
                "title": each.title,
                "gain": each.gain.speedup,
                "low": each.gain.low,
                "high": each.gain.high,
                "is_recommended": each.gain.is_recommended,
                "code": each.code,
                "cost": each.fix.cost,
            }
            for each in said.fixes.all
        ],
        "model_error": said.fixes.model_error,
        "model": [asdict(each) for each in said.helps],
        "program": {
            "command": list(trace.command),
            "exit_code": trace.exit_code,
            "uses": [{"name": use.name, **use.settings} for use in trace.uses],
        },
        "machine": {
            "cores": trace.cores,
            "cpu_use": shares.cpu_use,
            "device": trace.device,
            "device_busy_s": trace.device_busy_s,
        },
    }


def write_html(trace: Trace, path: Path, trial: Trial | None = None) -> None:
    """Write the page, one file that needs no network. Raises OSError: it cannot be written."""
    from markupsafe import Markup

    said = Findings(trace)
    page = _template().render(
        css=Markup("\n".join(map(_text_of, ("report.css", "trace.css")))),
        program=next((word for word in trace.command if word.endswith(".py")), "a program"),
        said=said,
        trace=trace,
        shares=said.shares,
        fixes=said.fixes,
        tried=trial.sentences if trial else (),
    )
    write_text(Path(path), page)


def _template() -> "Template":
    """The page's template: every text is escaped; a name that is not there is an error."""
    from jinja2 import Environment, StrictUndefined

    jinja = Environment(
        autoescape=True,
        finalize=_readable,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    cells = (stage_cells, image_cells)
    jinja.filters |= {words.__name__: words for words in (digits, percent, seconds, times, *cells)}
    jinja.filters["gain"] = say_gain
    jinja.globals["count"] = count
    return jinja.from_string(_text_of("page.html.jinja"))


def _readable(value: object) -> object:
    return keep_together(printable(value, _LONGEST)) if type(value) is str else value


def _text_of(name: str) -> str:
    return (files("wallclock.trace") / name).read_text(encoding="utf-8")
