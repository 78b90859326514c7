"""Image formats by their first bytes; names and extensions are not trusted."""

import re

#: Formats by their first bytes; names and extensions are not trusted.
_MAGIC = re.compile(
    rb"(?P<jpeg>\xff\xd8\xff)|(?P<png>\x89PNG\r\n\x1a\n)|(?P<gif>GIF8[79]a)|(?P<webp>RIFF.{4}WEBP)",
    re.DOTALL,
)


def sniff(head: bytes) -> str | None:
    """The image format that a file's first 16 bytes announce, or None."""
    match = _MAGIC.match(head)
    return match.lastgroup if match else None
