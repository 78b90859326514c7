"""What a trace says: on the terminal, as JSON, and as a page."""

import signal
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from wallclock.files import pretty_json, write_text
from wallclock.outside import printable, values_without_secrets
from wallclock.trace.fixes import Fixes, fixes_of, say_gain
from wallclock.trace.record import Trace, Use
from wallclock.trace.remedies import Help, helps_of
from wallclock.trace.shares import Row, Shares, Table
from wallclock.trace.sizes import Sizes, say_size, tabulate_sizes
from wallclock.trace.trial import Trial
from wallclock.trace.verdict import Verdict, find_verdict
from wallclock.words import count, digits, keep_together, percent, seconds

if TYPE_CHECKING:
    from rich.console import Console

#: Of the JSON: a number that grows with a change that a reader must know of.
SCHEMA = 3
#: Columns of the page on a terminal at most.
_WIDTH = 100
#: Of them between two columns of a table, and in a column that is not cut to fit.
_GAP, _WIDEST = 2, 26
#: Characters of a paragraph.
_LONGEST = 2000
#: Rows of stages on a terminal; the HTML page has all.
_MOST_ROWS = 5
#: Below this share a stage is not on the terminal.
_LEAST_SHARE = 0.005
#: Fewer images than this are too few to judge by.
_FEW_IMAGES = 100
#: The model's error that is worth a note.
_WORTH_A_NOTE = 0.1
#: Less than this is what traced processes use while they end.
_LEAST_UNTRACED_S = 1.0


class Findings:
    """What there is to say of a trace. Nothing is read but the trace.

    `fixes`: what each would bring the loading; `helps`: what would help the model; `notes`:
    sentences below the verdict; `tables`: of the main process and, if there are any, of workers.
    """

    def __init__(self, trace: Trace) -> None:
        self.trace: Trace = trace
        self.shares: Shares = Shares(trace)
        self.fixes: Fixes = fixes_of(self.shares)
        self.helps: Sequence[Help] = helps_of(self.shares)
        self.verdict: Verdict = find_verdict(self.shares, self.fixes, self.helps)
        self.notes: list[str] = [*say_notes(self.shares, self.fixes)]
        self.sizes: list[Sizes] = tabulate_sizes(trace)
        self.uses: list[Use] = [use for use in trace.uses if not use.name.endswith(".forward")]
        tables = (self.shares.main, self.shares.workers)
        self.tables: list[Table] = [table for table in tables if table.n_threads]

    @property
    def facts(self) -> str:
        """Wall time, start-up, images, cores, CPU use and device, in a line."""
        shares = self.shares
        parts = [f"{seconds(self.trace.wall_s)} in all"]
        if shares.n_images:
            parts.append(
                f"{count(shares.n_images, 'image')}, {digits(shares.img_per_s)} per second"
            )
        use = f", {percent(shares.cpu_use)} of them used" if shares.cpu_use else ""
        parts.append(f"{count(self.trace.cores, 'core')}{use}")
        if self.trace.device:
            parts.append(f"{self.trace.device}, busy {seconds(self.trace.device_busy_s)}")
        return "; ".join(parts)


def stage_cells(row: Row) -> tuple[str, ...]:
    """Seconds, share, calls, images, milliseconds per image."""
    calls = f"{row.spent.calls:,}" if row.spent.calls else ""
    images = f"{row.spent.images:,}" if row.spent.images else ""
    ms = digits(1e3 * row.spent.seconds / row.spent.images) if row.spent.images else ""
    return digits(row.spent.seconds), percent(row.share), calls, images, ms


def image_cells(sizes: Sizes) -> tuple[str, ...]:
    """Format or stage, number, size before, size after, KB each, function."""
    name = sizes.format or "decoded"
    if sizes.function.stage == "resize":
        name = f"resized {sizes.format}".rstrip()
    median = "" if sizes.is_typical else " median"
    made = "in full" if sizes.made == sizes.source else say_size(sizes.made)
    kb = digits(sizes.n_bytes / sizes.count / 1e3) if sizes.n_bytes else ""
    stored = f"{say_size(sizes.source)}{median}"
    return name, f"{sizes.count:,}", stored, made, kb, sizes.function.name


def say_notes(shares: Shares, fixes: Fixes) -> Iterator[str]:
    """How the program ended, what is not in the shares, and how sure the gains are."""
    trace = shares.trace
    if trace.exit_code:
        how = _say_exit(trace.exit_code)
        yield f"The program ended {how} after {seconds(trace.wall_s)}; the times are until then."
    if trace.untraced_s > max(_LEAST_UNTRACED_S, _WORTH_A_NOTE * trace.wall_s):
        yield (
            f"Processes that are not traced used {seconds(trace.untraced_s)} of the cores: programs"
            " of another language, or Python with -E, -I or -S or without this environment."
        )
    if shares.n_images and shares.startup_s > 0.5 * trace.wall_s:
        yield (
            f"Start-up took {seconds(shares.startup_s)} of {seconds(trace.wall_s)}:"
            " trace a run of more images to judge the rest."
        )
    error = fixes.model_error
    if shares.is_busy_machine:
        yield (
            f"Other programs used {percent(shares.others)} of the cores: no gain follows from such"
            " times. Trace it again on an idle machine, or add --try."
        )
    elif error >= _WORTH_A_NOTE and fixes.predicted:
        follows = "the intervals are wider for it."
        if not fixes.are_known:
            follows = "no gain follows from it. Run it again, or add --try."
        yield (
            f"The pipeline model's rate differs from the program's by {percent(error)}: {follows}"
        )
    if 0 < shares.n_images < _FEW_IMAGES:
        yield f"This rests on {count(shares.n_images, 'image')}: trace {_FEW_IMAGES} or more."


def _say_exit(code: int) -> str:
    signals = {128 + number: number.name for number in signal.Signals}
    return f"by {signals[code]}" if code in signals else f"with exit code {code}"


# --- terminal -----------------------------------------------------------------------------------


def report(trace: Trace, console: "Console") -> None:
    """Print the verdict, where the time goes, the images, and what each change would bring."""
    said = Findings(trace)
    print_text(said.verdict.text, console, "bold")
    for note in said.notes:
        print_text(note, console)
    console.print()
    print_text(f"{said.facts}.", console, "dim")
    console.print()
    rows: list[Sequence[str]] = [row for t in said.tables for row in _stage_rows(said, t)]
    _print_table(_HEADINGS, rows, console)
    if said.sizes:
        console.print()
        images = [image_cells(sizes)[:-1] for sizes in said.sizes]
        _print_table(_IMAGE_HEADINGS, images, console)
    console.print()
    if said.fixes.recommended:
        rows = [(say_gain(each.gain), each.title) for each in said.fixes.recommended]
        _print_table(("gain", "change"), rows, console)
    for fix in filter(lambda each: each.code, said.verdict.fixes):
        console.out(f"# {fix.title}\n{fix.code}", style="green", highlight=False)  # to be pasted
    for each in said.helps:
        result = f"; {each.result}" if each.result else ""
        print_text(f"Model: {each.sentence}{result}.", console)


_HEADINGS = ("", "seconds", "share", "images", "ms/image", "most of it")
_IMAGE_HEADINGS = ("kind", "number", "stored, px", "made, px", "KB each")
_RIGHT = {"seconds", "share", "images", "ms/image", "number", "KB each"}


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
            name = row.functions[0][0] if row.functions else row.call
            yield (f"  {row.stage}", took_s, part, *images, f"{row.place} {name}".strip())
    rest = [row for row in table.rows if row not in longest and row.spent.seconds]
    share, names = sum(row.share for row in rest), ", ".join(row.stage for row in rest)
    if share >= _LEAST_SHARE:
        took_s = digits(sum(row.spent.seconds for row in rest))
        yield ("  other stages", took_s, percent(share), "", "", names)
    exit_s = said.shares.exit_s
    if table is said.shares.main and exit_s > _WORTH_A_NOTE * said.trace.wall_s:
        yield ("exit", digits(exit_s), "", "", "", "after the program's own code")


def print_text(text: str, console: "Console", style: str = "") -> None:
    """Print a paragraph; rich would part a number from its unit."""
    width = min(_WIDTH, console.width)
    lines = wrap(keep_together(printable(text, _LONGEST)), width, break_on_hyphens=False)
    console.out("\n".join(lines), style=style, highlight=False)


def _print_table(heads: Sequence[str], rows: Iterable[Sequence[str]], console: "Console") -> None:
    """Print rows under their heads; the last column is cut to fit the width."""
    width = min(_WIDTH, console.width)
    cells = [heads, *([printable(cell) for cell in row] for row in rows)]
    *widths, last = (max(map(len, column)) for column in zip(*cells, strict=True))
    widths = [min(_WIDEST, column) for column in widths]
    widths.append(min(last, width - sum(widths) - _GAP * len(widths)))
    for index, row in enumerate(cells):
        parts = []
        for head, cell, room in zip(heads, row, widths, strict=True):
            text = _cut(cell, room)
            parts.append(text.rjust(room) if head in _RIGHT else text.ljust(room))
        line = (" " * _GAP).join(parts).rstrip()[:width]
        console.out(line, style="" if index else "bold", highlight=False)


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
    """Write the numbers of a trace as JSON, in one step; docs/trace.md explains the keys.

    Raises OSError: it cannot be written.
    """
    said = Findings(trace)
    shares = said.shares
    tables = {"main": shares.main.rows, "workers": shares.workers.rows}
    numbers: dict[str, Any] = {
        "schema": SCHEMA,
        "verdict": said.verdict.text,
        "cause": said.verdict.cause,
        "line": said.verdict.line,
        "notes": said.notes,
        "wall_s": trace.wall_s,
        "start_up_s": shares.startup_s,
        "exit_s": shares.exit_s,
        **{name: {r.stage: r.spent.seconds for r in rows} for name, rows in tables.items()},
        "lines": {n: {r.stage: r.place for r in rows if r.place} for n, rows in tables.items()},
        "n_workers": shares.n_workers,
        "images": {
            "number": shares.n_images,
            "img_per_s": shares.img_per_s,
            "kinds": [asdict(sizes) for sizes in said.sizes],
        },
        "fixes": [
            {"name": e.fix.name, "title": e.title, "gain": asdict(e.gain), "code": e.code}
            for e in said.fixes.all
        ],
        "model_error": said.fixes.model_error,
        "model": [asdict(each) for each in said.helps],
        "program": {
            "command": list(trace.command),
            "exit_code": trace.exit_code,
            "uses": [{"name": use.name, **use.settings} for use in said.uses],
        },
        "machine": {"cores": trace.cores, "cpu_use": shares.cpu_use, "device": trace.device},
        "device_busy_s": trace.device_busy_s,
    }
    if trial is not None:
        numbers["try"] = trial.numbers
    text = pretty_json(values_without_secrets(numbers))
    # A path that is no UTF-8 is a lone surrogate in Python, and an escape in JSON.
    write_text(path, text.encode("utf-8", "backslashreplace").decode())


def write_html(trace: Trace, path: Path, trial: Trial | None = None) -> None:
    """Write the page, one file that needs no network. Raises OSError: it cannot be written."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    # Every text is escaped; a name that is not there is an error.
    jinja = Environment(
        loader=PackageLoader("wallclock.trace", ""),
        autoescape=True,
        finalize=_readable,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    words = (percent, seconds, stage_cells, image_cells, say_gain)
    jinja.filters |= {word.__name__: word for word in words}
    page = jinja.get_template("page.html.jinja").render(said=Findings(trace), trial=trial)
    write_text(Path(path), page)


def _readable(value: object) -> object:
    return keep_together(printable(value, _LONGEST)) if type(value) is str else value
