"""What all figures share: type, colours, caption, and files that are equal for equal tables."""

import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.text import Annotation

from harness.drawing.labels import CORPORA, DECODERS, weights
from harness.table import Row, distinct, join_distinct
from wallclock.clock import STAGES
from wallclock.files import write_bytes

#: Width of a figure in inches: a page of text, so that 8 pt in the file is 8 pt on paper.
WIDTH = 7.2
INK = "#222222"
GREY = "#666666"
#: Fill of the bar of one method among others.
BAR = "#56B4E9"
#: The outline of every filled area.
EDGE: Mapping[str, Any] = {"edgecolor": INK, "linewidth": 0.4}

_FILLS = (
    "#15233F",
    "#00568C",
    "#D55E00",
    "#1DA98A",
    "#89ABDF",
    "#FFB6AC",
    "#B4DBF3",
    "#DBED2B",
    "#FBF8DC",
)
#: Fill and hatch of each stage. Luminance rises in the order of the stages, in uneven steps: those
#: that take most of the time differ most from their neighbours, and a hatch separates them in grey.
STAGE_STYLES: Mapping[str, tuple[str, str]] = {
    stage: (fill, "///" if stage == "resize" else "")
    for stage, fill in zip(STAGES, _FILLS, strict=True)
}
#: Wall time that no stage accounts for. Lines, not dots: dots make an SVG of a megabyte.
OTHER_STYLE = ("#FFFFFF", "xxx")

_STYLE_SHEET = Path(__file__).with_name("wallclock.mplstyle")
#: The font of the style sheet, as an SVG names it; Verdana has its widths.
_FONT, _FALLBACK = b"'DejaVu Sans'", b", Verdana, sans-serif"
_CLIP = re.compile(rb' *<clipPath id="(p[0-9a-f]+)">\n(.*?) *</clipPath>\n', re.DOTALL)
#: No dates, so that equal tables give equal files; no versions, so that an upgrade changes none.
_METADATA: dict[str, dict[str, None]] = {
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}


@contextmanager
def paper_style() -> Iterator[None]:
    """Draw and save under these settings and matplotlib's defaults, whatever the user's own are."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(mpl.rc_params_from_file(_STYLE_SHEET, use_default_template=False))
        yield


def new_figure(height: float) -> Figure:
    """An empty figure of the common width, `height` inches high, that no global state knows of."""
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save(figure: Figure, stem: str, title: str, out_dir: Path) -> list[Path]:
    """Write `figure` as PNG (200 dpi), SVG and PDF; equal figures give equal bytes.

    `title`: what the figure shows, for screen readers and lists of documents.
    """
    paths = [out_dir / f"{stem}.{suffix}" for suffix in _METADATA]
    with paper_style():
        for path, (suffix, metadata) in zip(paths, _METADATA.items(), strict=True):
            buffer = BytesIO()
            figure.savefig(buffer, format=suffix, metadata={**metadata, "Title": title})
            data = buffer.getvalue()
            write_bytes(path, _rename_clips(_with_fallback(data)) if suffix == "svg" else data)
    return paths


def _with_fallback(svg: bytes) -> bytes:
    """The SVG with fonts of the same widths where DejaVu Sans is not installed: text stays text."""
    return svg.replace(_FONT, _FONT + _FALLBACK)


def _rename_clips(svg: bytes) -> bytes:
    """The SVG with clip paths named after their printed coordinates.

    Matplotlib names them after all digits, and the layout's last ones differ from run to run.
    """
    clips = _CLIP.findall(svg)
    names = {name: b"p" + sha256(shape).hexdigest()[:10].encode() for name, shape in clips}
    for name, renamed in names.items():
        svg = svg.replace(name, renamed)
    defined: set[bytes] = set()

    def keep_first(clip: re.Match[bytes]) -> bytes:
        is_first = clip[1] not in defined
        defined.add(clip[1])
        return clip[0] if is_first else b""

    return _CLIP.sub(keep_first, svg)


def place_caption(figure: Figure, rows: Sequence[Row], *remarks: str) -> None:
    """Under all panels what was measured where: machine, corpus, weights, n, repeats; `remarks`."""
    images = " / ".join(f"{count:,}" for count in distinct(rows, "n_images"))
    place_note(
        figure,
        join_distinct(rows, "device"),
        join_distinct(rows, "corpus", CORPORA),
        weights(rows),
        f"n = {images}" if images else "",
        repeats_text(rows),
        *remarks,
        _single_batch_remark(rows),
    )


def repeats_text(rows: Sequence[Row]) -> str:
    """Of how many repeats the numbers are the median; empty where no row says."""
    repeats = join_distinct(rows, "repeats")
    if not repeats:
        return ""
    return "1 repeat" if repeats == "1" else f"median of {repeats} repeats"


def _single_batch_remark(rows: Sequence[Row]) -> str:
    """What a pass of one batch behind a full queue says, where rows are of such; else empty."""
    flags = {row.get("steady") for row in rows}
    if False not in flags:
        return ""
    passes = "all" if flags == {False} else "some"
    return f"{passes} passes: one batch behind a full queue, so the forward pass alone"


def place_note(figure: Figure, *parts: str) -> None:
    """Set `parts` small and grey under everything else, broken into lines that fit the width."""
    # textwrap does not break at these spaces, which keeps short parts on one line.
    unbroken = [part.replace(" ", "\u00a0") if len(part) < 60 else part for part in parts if part]
    lines = textwrap.fill(" · ".join(unbroken), width=148, break_on_hyphens=False)
    figure.supxlabel(lines, x=0.01, ha="left", fontsize=6.5, color=GREY, linespacing=1.35)


def place_legend(figure: Figure, styles: Mapping[str, tuple[str, str]]) -> None:
    """A line of filled boxes above all panels: fill and hatch by name."""
    handles = [
        Patch(facecolor=fill, hatch=hatch * 2, label=name, **EDGE)
        for name, (fill, hatch) in styles.items()
    ]
    figure.legend(
        handles=handles, loc="outside upper left", ncols=len(handles), handlelength=1.1,
        handleheight=1.1, handletextpad=0.4, columnspacing=0.9,
    )  # fmt: skip


def decoder_name(row: Row) -> str:
    """Image set and decoder by their labels."""
    return f"{row.get('image_set', '')} {DECODERS[row['decoder']]}".strip()


def omission_remark(rows: Iterable[Row], name: Callable[[Row], str] = decoder_name) -> str:
    """Which rows have no measurement, by `name`, and why, each reason once; empty if all have."""
    by_reason: dict[str, list[str]] = {}
    for row in rows:
        if row["status"] != "ok":
            by_reason.setdefault(status_text(row), []).append(name(row))
    missing = [
        f"{', '.join(dict.fromkeys(names))}: {reason}" for reason, names in by_reason.items()
    ]
    return "not drawn: " + "; ".join(missing) if missing else ""


def status_text(row: Row, width: int = 300) -> str:
    """The status of a row without a measurement, and its reason, cut to `width` characters."""
    text = f"{row['status']} ({row['reason']})" if row.get("reason") else row["status"]
    return textwrap.shorten(text, width, placeholder=" …")


def spread_remark(rows: Sequence[Row], line: str = "vertical lines") -> str:
    """What the line from the slowest to the fastest repeat is; empty if nothing was repeated."""
    repeated = any(row["repeats"] not in (1, None) for row in rows)
    return f"{line}: slowest to fastest repeat" if repeated else ""


def disturbed_remark(rows: Sequence[Row], name: Callable[[Row], str]) -> str:
    """Which rows, by `name`, have no repeat that other programs left alone; empty if none."""
    names = list(dict.fromkeys(name(row) for row in rows if row.get("calm_repeats") == 0))
    if names and len(names) == len({name(row) for row in rows}):
        return "other programs disturbed every repeat"
    return f"other programs disturbed every repeat of: {', '.join(names)}" if names else ""


def mark(row: Row) -> str:
    """A dagger for a time whose pixels were not compared; `mark_remark` explains it."""
    return " †" if row["gate"] == "not checked" else ""


def mark_remark(rows: Sequence[Row]) -> str:
    """What a dagger means, if any of `rows` has one."""
    marked = any(mark(row) for row in rows)
    return "† its pixels were not compared with the others'" if marked else ""


def is_dark(colour: str) -> bool:
    """Whether white is easier to read on this fill than ink."""
    return luminance(colour) < 0.3


def luminance(colour: str) -> float:
    """Relative luminance, 0 to 1."""
    red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return float(0.2126 * red**2.2 + 0.7152 * green**2.2 + 0.0722 * blue**2.2)


def prepare_bar_axes(axes: Axes, names: Sequence[str], margin: float, form: str = "{x:,g}") -> None:
    """Axes of horizontal bars, the first on top: names on the left, no ticks and no line there."""
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.margins(x=margin)
    axes.set_xlim(left=0)
    axes.xaxis.set_major_formatter(form)
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)


def write_beside_bar(axes: Axes, x: float, y: float, text: str) -> Annotation:
    """Write `text` to the right of a horizontal bar that ends at `x`."""
    return axes.annotate(text, (x, y), (6, 0), textcoords="offset points", va="center")


def write_inside(axes: Axes, x: float, y: float, text: str, fill: str, **properties: Any) -> None:
    """Write `text` centred on an area of that fill, in ink that contrasts with it."""
    ink = "white" if is_dark(fill) else INK
    look: dict[str, Any] = {"fontsize": 7.5, "color": ink} | properties
    axes.text(x, y, text, ha="center", va="center", **look)


def draw_range(axes: Axes, ends: tuple[float, float], y: float, size: float = 6) -> None:
    """A thin horizontal line with ticks at both ends: quantiles, or slowest to fastest repeat."""
    axes.plot(ends, [y, y], color=INK, linewidth=1, marker="|", markersize=size)
