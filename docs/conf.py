"""The site of the documents, by Sphinx: `make docs`.

The source tree is the checkout itself, so that a link is the same here and in the files. What a
document links to beside documents is copied into the site; a link to a folder is its text alone.
Tables that no document repeats become pages of the site alone (docs/pages.py, docs/generated/).
Needs requirements/docs.lock, and nothing from the network: no fonts, no scripts.
"""

import os
import re
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sphinx.application import Sphinx
from sphinx.ext.napoleon import Config, GoogleDocstring

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "code"), str(ROOT)]

import wallclock  # noqa: E402
from docs import pages  # noqa: E402
from paper import report  # noqa: E402

project = "wallclock"
author = "The wallclock authors"
release = version = wallclock.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc"]
root_doc = "README"
include_patterns = ["*.md", "docs/*.md", "docs/generated/*.md", "data/reference/*/README.md"]
exclude_patterns = [".*", "site", "figures", "data/corpora", "data/runs", "code", "tests"]
source_suffix = {".md": "markdown"}

html_theme = "furo"
html_title = f"wallclock {release}"
html_show_sourcelink = False
html_copy_source = False
html_show_copyright = False
html_static_path = ["_static"]
html_css_files = ["site.css"]

myst_heading_anchors = 4
# Docstrings have Markdown's backticks.
default_role = "code"
autodoc_typehints = "none"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
python_maximum_signature_line_length = 88

#: Where the report of the reference run is in the site.
REFERENCE = ROOT / "data" / "reference" / "amd-epyc-2-cores"
REPORT = "report.html"
#: What documents link to → the page that the site has in its place.
GENERATED = {
    ROOT / "code" / "harness" / "columns.txt": ROOT / "docs" / "generated" / "columns.md",
    ROOT / "code" / "wallclock" / "__init__.py": ROOT / "docs" / "generated" / "library.md",
    ROOT / "code/wallclock/job/settings.py": ROOT / "docs" / "generated" / "settings.md",
    ROOT / "code/wallclock/service/settings.py": ROOT / "docs" / "generated" / "settings.md",
    REFERENCE / "figures" / "table-4-reproducibility.md": ROOT / "docs" / "generated" / "claims.md",
}

_ENTRY = re.compile(r"^- \[([^]]+)\]\(([^)#]+)\.md\)", re.MULTILINE)
_LINK = re.compile(r"\[([^]]+)\]\(([^)#]+)\)")


def _contents() -> str:
    """The site's menu: the lists of docs/README.md, under their headings."""
    index = ROOT / "docs" / "README.md"
    text = _links_of_the_site(index.read_text(encoding="utf-8"), index.parent)
    menu = "```{toctree}\n:hidden:\n\ndocs/README\n```\n"
    for section in text.split("\n## ")[1:]:
        caption = section.splitlines()[0]
        lines = [f"{text} </docs/{name}>" for text, name in _ENTRY.findall(section)]
        entries = "\n".join(lines).replace("/docs/../", "/")
        menu += f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{entries}\n```\n"
    return menu


def _links_of_the_site(text: str, folder: Path) -> str:
    """A document's text, with links that lead somewhere on the site."""

    def link(match: re.Match[str]) -> str:
        text, target = match.groups()
        path = (folder / target).resolve()
        if page := GENERATED.get(path):
            return f"[{text}]({os.path.relpath(page, folder)})"
        return text if path.is_dir() else match[0]

    return _LINK.sub(link, text)


def adapt(app: Sphinx, document: str, content: list[str]) -> None:
    """Add what a file does not have: the menu, links to made pages, a link to the report."""
    content[0] = _links_of_the_site(content[0], (ROOT / document).parent)
    if document == root_doc:
        content[0] += f"\n{_contents()}"
    elif document == "docs/README":
        name = "the report of the reference run"
        content[0] = content[0].replace(name, f'<a href="../{REPORT}">{name}</a>', 1)


def parse_sections(
    app: Sphinx, what: str, name: str, value: object, options: object, lines: list[str]
) -> None:
    """Sections in the style of Google; an attribute has none, and no type before a colon."""
    if what not in ("attribute", "data", "property"):
        lines[:] = GoogleDocstring(lines, Config(), app, what, name, value, options).lines()


#: Part of a page → what axe-core finds lacking in the theme, and its cure.
ACCESSIBLE = {
    "furo_navigation_tree": ('role="heading"', 'role="heading" aria-level="2"'),
    "body": ('<div class="table-wrapper', '<div tabindex="0" class="table-wrapper'),
}


def make_accessible(app: Sphinx, page: str, template: str, context: Any, doctree: Any) -> None:
    """Give headings of the menu a level, and let keys scroll a wide table."""
    for part, (lacking, cured) in ACCESSIBLE.items():
        if part in context:
            context[part] = context[part].replace(lacking, cured)


def write_pages(app: Sphinx, error: Exception | None) -> None:
    """Beside the documents: the first page under its usual name, and the report."""
    if error is not None:
        return
    site = Path(app.outdir)
    (site / "index.html").write_bytes((site / f"{root_doc}.html").read_bytes())
    with TemporaryDirectory() as name:
        figures = Path(name)
        shutil.copytree(REFERENCE / "figures", figures, dirs_exist_ok=True)
        report.render(REFERENCE, figures)
        shutil.copy(figures / REPORT, site / REPORT)


def generate(app: Sphinx, config: Any) -> None:
    """Write the pages that are not committed."""
    pages.write(ROOT / "docs" / "generated")


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect what this file adds."""
    app.connect("config-inited", generate)
    app.connect("source-read", adapt)
    app.connect("autodoc-process-docstring", parse_sections)
    app.connect("html-page-context", make_accessible, priority=900)  # after the theme's own
    app.connect("build-finished", write_pages)
    return {"parallel_read_safe": True}
