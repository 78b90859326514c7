"""The page of a trace: one HTML file that opens offline. Every text of the program is escaped."""

from collections.abc import Iterator, Sequence
from html import escape
from importlib.resources import files
from string import Template

from wallclock.trace.findings import Findings, image_cells, say_interval, stage_cells
from wallclock.trace.fixes import Predicted
from wallclock.trace.shares import OTHER, Table
from wallclock.trace.trial import Trial, Untried
from wallclock.trace.words import count, digits, keep_together, percent, printable, seconds, times

#: Fill of each stage: dark and light alternate, so that neighbours differ in grey too.
_FILLS = {
    "read": "#15233F",
    "decode": "#00568C",
    "resize": "#D55E00",
    "transform": "#F3C98B",
    "normalize": "#1DA98A",
    "assemble": "#89ABDF",
    "send": "#5B4A86",
    "h2d": "#FFB6AC",
    "forward": "#B4DBF3",
    "backward": "#4E8FBF",
    "optimizer": "#2D5F86",
    "d2h": "#DBED2B",
    "serialize": "#FBF8DC",
}
#: Time in which a thread waits, and that of code that is not traced, is hatched.
_HATCHES = {"wait": "45deg", "idle": "135deg", OTHER: "90deg"}
_DARK = {"read", "decode", "resize", "send", "backward", "optimizer"}
#: Below this share a segment has no room for its name; the second one on a narrow screen.
_NAMED_SHARE, _NAMED_NARROW_SHARE = 0.06, 0.2

_PAGE = Template("""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<meta name="color-scheme" content="light dark">
<title>wallclock: a trace of $program</title>
<link rel="icon" href="data:,">
<style>
$css
</style>
</head>
<body>
<a class="skip" href="#time">To the times</a>
<header class="masthead">
  <p class="kicker">wallclock · trace of a program</p>
  <h1 class="verdict">$verdict</h1>
$notes
  <dl class="where">
$where
  </dl>
</header>
<nav aria-label="Sections">
  <a href="#time">Time</a>
  <a href="#images">Images</a>
  <a href="#changes">Changes</a>
  <a href="#environment">Environment</a>
</nav>
<main>
<section id="time" aria-labelledby="time-title">
  <h2 id="time-title">1. Where the time goes</h2>
$time
</section>
<section id="images" aria-labelledby="images-title">
  <h2 id="images-title">2. Images</h2>
$images
</section>
<section id="changes" aria-labelledby="changes-title">
  <h2 id="changes-title">3. What each change would bring</h2>
$changes
</section>
<section id="environment" aria-labelledby="environment-title">
  <h2 id="environment-title">Environment</h2>
$environment
</section>
</main>
<footer>Made by wallclock trace. All times are of this one run.</footer>
</body>
</html>
""")


def render(said: Findings, trial: Trial | Untried | None = None) -> str:
    """The page's text; with what `--try` measured below the changes."""
    trace = said.trace
    program = next((word for word in trace.command if word.endswith(".py")), "a program")
    return _PAGE.substitute(
        program=_text(program),
        css=_css(),
        verdict=keep_together(_text(said.verdict)),
        notes="\n".join(
            f'  <p class="lead">{keep_together(_text(note))}</p>' for note in said.notes
        ),
        where="\n".join(_fact(name, value) for name, value in _where(said)),
        time="\n".join(_time(said)),
        images=_images(said),
        changes="\n".join([*_changes(said), *_trial(trial)]),
        environment="\n".join(_environment(said)),
    )


def _css() -> str:
    folder = files("wallclock.trace")
    return "\n".join(
        (folder / name).read_text(encoding="utf-8") for name in ("report.css", "trace.css")
    )


def _text(text: str) -> str:
    return escape(printable(text))


def _code(lines: str) -> str:
    return "\n".join(map(_text, lines.splitlines()))


def _fact(name: str, value: str) -> str:
    return f"    <div><dt>{_text(name)}</dt><dd>{_text(value)}</dd></div>"


def _where(said: Findings) -> Iterator[tuple[str, str]]:
    trace, shares = said.trace, said.shares
    yield "program", " ".join(trace.command)
    yield "time", seconds(trace.wall_s)
    if shares.n_images:
        yield "images", f"{shares.n_images:,}, {digits(shares.img_per_s)} per second after start-up"
    use = "" if shares.cpu_use is None else f", {percent(shares.cpu_use)} of them used"
    yield "machine", f"{count(trace.cores, 'core')}{use}; {trace.device or 'no GPU'}"


# --- time ---------------------------------------------------------------------------------------


def _time(said: Findings) -> Iterator[str]:
    shares = said.shares
    if shares.startup_s:
        yield (
            f"  <p>Start-up, before the first image: <b>{seconds(shares.startup_s)}</b>. Shares are"
            f" of the <b>{seconds(shares.steady_s)}</b> from there to the end.</p>"
        )
    for table in said.tables:
        title = said.title_of(table)
        yield f"  <h3>{_text(title.capitalize())}: {seconds(table.wall_s)}</h3>"
        yield _bar(table, title)
        yield _stages(table, title)
    if len(said.tables) > 1:
        yield (
            '  <p class="caption">The workers’ times are added up. Idle: a worker waits for work'
            " or for a free slot; wait: the main process waits for data.</p>"
        )


def _bar(table: Table, title: str) -> str:
    rows = [row for row in table.rows if row.share > 0]
    label = ", ".join(f"{row.stage} {percent(row.share)}" for row in rows)
    segments = "".join(_segment(row.stage, row.share) for row in rows)
    return (
        f'  <div class="bar" role="img" aria-label="{_text(f"{title}: {label}")}">{segments}</div>'
    )


def _segment(stage: str, share: float) -> str:
    text = f"{stage} {percent(share)}"
    slim = " slim" if share < _NAMED_NARROW_SHARE else ""
    label = f"<span>{stage}<br><b>{percent(share)}</b></span>" if share >= _NAMED_SHARE else ""
    return (
        f'<a tabindex="-1" class="{_css_class(stage)}{slim}" style="flex-grow:{share:.5f};'
        f'{_fill(stage)}" title="{text}">{label}</a>'
    )


def _fill(stage: str) -> str:
    if stage in _HATCHES:
        return f"--angle:{_HATCHES[stage]}"
    ink = "#fff" if stage in _DARK else "#1b1f24"
    return f"background:{_FILLS[stage]};color:{ink}"


def _css_class(stage: str) -> str:
    return "hatched" if stage in _HATCHES else "plain"


def _stages(table: Table, title: str) -> str:
    longest = max(table.rows, key=lambda row: row.share, default=None)
    lines = []
    for row in table.rows:
        swatch = f'<i class="swatch {_css_class(row.stage)}" style="{_fill(row.stage)}"></i>'
        names = [f"{name} {seconds(spent.seconds)}" for name, spent in row.functions]
        mark = ' class="pace"' if row is longest else ""
        cells = "".join(f'<td class="r">{keep_together(cell)}</td>' for cell in stage_cells(row))
        lines.append(
            f'<tr{mark}><th scope="row">{swatch}{row.stage}</th>{cells}'
            f'<td class="names">{_text(", ".join(names))}</td></tr>'
        )
    heads = ("seconds", "share", "calls", "images", "ms per image")
    return _grid(title, ("stage", *heads, "functions"), lines, right=heads)


def _grid(label: str, heads: Sequence[str], lines: Sequence[str], right: Sequence[str] = ()) -> str:
    columns = "".join(
        f'<th scope="col"{" class=" + chr(34) + "r" + chr(34) if head in right else ""}>{head}</th>'
        for head in heads
    )
    body = "\n".join(lines)
    return (
        f'  <div class="scroll" tabindex="0" role="group" aria-label="{_text(label)}">\n'
        f'  <table class="shown wide"><thead><tr>{columns}</tr></thead>\n'
        f"  <tbody>\n{body}\n  </tbody></table>\n  </div>"
    )


# --- images, changes, environment ---------------------------------------------------------------


def _images(said: Findings) -> str:
    if not said.sizes:
        return '  <p class="absent">No image was decoded or resized in a traced function.</p>'
    lines = []
    for sizes in said.sizes:
        name, number, stored, made, kb, function = image_cells(sizes)
        lines.append(
            f'<tr><th scope="row">{_text(name)}</th><td class="r">{number}</td>'
            f"<td>{keep_together(stored)}</td><td>{keep_together(made)}</td>"
            f'<td class="r">{kb}</td><td>{_text(function)}</td></tr>'
        )
    heads = ("kind", "number", "stored, px", "made, px", "KB each", "by")
    note = (
        '  <p class="caption">The most frequent kinds; “median” where sizes differ. Of a resize,'
        " stored is what it was given.</p>"
    )
    return _grid("images", heads, lines, right=("number", "KB each")) + "\n" + note


def _changes(said: Findings) -> Iterator[str]:
    fixes = said.fixes.all
    if not fixes:
        yield "  <p>No change of the loading would make this program faster.</p>"
        return
    highest = max(fix.gain.high for fix in fixes)
    first = next(iter(said.fixes.to_write), None)
    lines = [_change(fix, highest, is_first=fix is first) for fix in fixes]
    heads = ("change", "gain", "from 0 to the highest", "interval", "what it costs")
    yield _grid("changes", heads, lines, right=("gain", "interval"))
    yield (
        '  <p class="caption">Gain: times as many images per second after start-up, predicted by a'
        " model of the pipeline from this trace, not measured. A change is recommended where all of"
        " its interval is a gain. The model’s rate for the program as it is"
        f" differs from the measured one by {percent(said.fixes.model_error)}; intervals are wider"
        " by that.</p>"
    )
    for fix in fixes:
        if fix.gain.is_recommended:
            yield f"  <h3>{_text(fix.title)}</h3>\n  <pre>{_code(fix.code)}</pre>"


def _trial(trial: Trial | Untried | None) -> Iterator[str]:
    if trial is not None:
        yield '  <h3 id="try">Tried on the program’s own images</h3>'
        for sentence in trial.sentences:
            yield f"  <p>{keep_together(_text(sentence))}</p>"


def _change(fix: Predicted, highest: float, *, is_first: bool) -> str:
    tag = ""
    if not fix.gain.is_recommended:
        tag = ' <span class="miss">uncertain</span>'
    elif is_first:
        tag = ' <span class="tag">first</span>'
    low, gain, high = (
        100 * value / highest for value in (fix.gain.low, fix.gain.speedup, fix.gain.high)
    )
    drawn = (
        f'<span class="range" title="{say_interval(fix)}"><i style="width:{gain:.2f}%"></i>'
        f'<b style="left:{low:.2f}%;right:{100 - high:.2f}%"></b>'
        f'<u style="left:{gain:.2f}%"></u></span>'
    )
    return (
        f"<tr><td>{_text(fix.title)}{tag}</td>"
        f'<td class="r">{keep_together(times(fix.gain.speedup))}</td><td>{drawn}</td>'
        f'<td class="r">{say_interval(fix)}</td><td>{_text(fix.fix.cost)}</td></tr>'
    )


def _environment(said: Findings) -> Iterator[str]:
    trace = said.trace
    yield '  <dl class="facts">'
    yield f"    <div><dt>command</dt><dd><code>{_text(' '.join(trace.command))}</code></dd></div>"
    yield _fact("exit code", str(trace.exit_code))
    for use in trace.loaders:
        settings = ", ".join(f"{name}={value}" for name, value in use.settings.items())
        yield _fact(use.name, settings or "no settings")
    yield '  </dl>\n  <h3>Versions</h3>\n  <dl class="facts columns">'
    for name, version in sorted(trace.versions.items()):
        yield _fact(name, version)
    yield "  </dl>"
