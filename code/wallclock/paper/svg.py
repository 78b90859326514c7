"""A figure's SVG, adapted to be inlined into a page with other figures."""

from __future__ import annotations

import re

from markupsafe import Markup, escape

_PROLOG = re.compile(r"\A.*?(?=<svg\b)", re.DOTALL)
_SIZE = re.compile(r'\s(?:width|height)="[^"]*pt"')
_NAMESPACES = re.compile(r'\sxmlns(?::xlink)?="[^"]*"')
#: matplotlib's metadata, its style rule (which would apply to the whole page), its comments.
_UNWANTED = re.compile(
    r"\s*(?:<metadata>.*?</metadata>|<defs>\s*<style\b.*?</style>\s*</defs>|<!--.*?-->)", re.DOTALL
)
_ID = re.compile(r'\bid="([^"]+)"')
_REFERENCE = re.compile(r'(?:xlink:)?(href="#|url\(#)([^")]+)')


def inline(text: str, prefix: str, label: str) -> Markup:
    """The drawing with a label for screen readers, ids that are unique on the page, and no size."""
    body = _UNWANTED.sub("", _PROLOG.sub("", text))
    opening, rest = body.split(">", 1)
    opening = _NAMESPACES.sub("", _SIZE.sub("", opening))
    drawing = f'{opening} role="img" aria-label="{escape(label)}">{rest}'
    drawing = _ID.sub(rf'id="{prefix}-\1"', drawing)
    return Markup(_REFERENCE.sub(rf"\g<1>{prefix}-\g<2>", drawing).strip())
