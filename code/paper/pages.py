"""What the report and the diagnosis share as HTML pages: templates, style, number formats."""

from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from harness.drawing import format as formats
from harness.drawing.style import STAGE_STYLES, is_dark, luminance

_TEMPLATES = Path(__file__).parent / "report_template"


def render_page(template: str, **context: Any) -> str:
    """A page that opens offline; text is escaped, and a name that is not there is an error."""
    jinja = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    jinja.globals |= {"EMPTY": formats.EMPTY}
    for name in ("digits", "percent", "factor", "signed_percent"):
        jinja.filters[name] = getattr(formats, name)
    # The page of `wallclock trace` has the same style, so that the product has the file.
    style = resources.files("wallclock.trace") / "report.css"
    css = Markup(style.read_text(encoding="utf-8"))
    js = Markup((_TEMPLATES / "report.js").read_text(encoding="utf-8"))
    return jinja.get_template(template).render(css=css, js=js, **context)


def segment(stage: str, share: float, href: str = "") -> dict[str, Any]:
    """One stage of a bar of wall time."""
    fill = STAGE_STYLES[stage][0]
    ink = "#fff" if is_dark(fill) else "#1b1f24"
    if 0.18 < luminance(fill) < 0.3:  # a small text needs more contrast than a figure's
        ink = "#000"
    text = formats.percent(share, 0)
    return {"stage": stage, "share": share, "text": text, "fill": fill, "ink": ink, "href": href}
