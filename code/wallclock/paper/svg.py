"""A figure's SVG made fit to stand inside a page, beside other figures."""

from __future__ import annotations

import re

from markupsafe import Markup, escape

_PROLOG = re.compile(r"\A.*?(?=<svg\b)", re.DOTALL)
_SIZE = re.compile(r'\s(?:width|height)="[^"]*pt"')
_NAMESPACES = re.compile(r'\sxmlns(?::xlink)?="[^"]*"')
#: matplotlib's own addresses and date, its one rule (which would hold for the whole page), its comments.
_UNWANTED = re.compile(
    r"\s*(?:<metadata>.*?</metadata>|<defs>\s*<style\b.*?</style>\s*</defs>|<!--.*?-->)", re.DOTALL
)
_ID = re.compile(r'\bid="([^"]+)"')
_REFERENCE = re.compile(r'(?:xlink:)?(href="#|url\(#)([^")]+)')


def inline(text: str, prefix: str, label: str) -> Markup:
    """The drawing alone, with a name for who cannot see it, and ids that no other figure has.

    Its size goes: the page decides how wide it is.
    """
    body = _UNWANTED.sub("", _PROLOG.sub("", text))
    opening, rest = body.split(">", 1)
    opening = _NAMESPACES.sub("", _SIZE.sub("", opening))
    whole = _ID.sub(
        rf'id="{prefix}-\1"', f'{opening} role="img" aria-label="{escape(label)}">{rest}'
    )
    return Markup(_REFERENCE.sub(rf"\g<1>{prefix}-\g<2>", whole).strip())
