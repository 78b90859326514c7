"""Programs as a newcomer writes them, with their stages marked by hand.

Each is run three ways by `benchmarks.trace`: without the marks, under `wallclock trace` without the
marks, and with them. `unmarked` takes the marks out.
"""

import re

_MARK = re.compile(r'^( *)with stage\("[^"]+"\):', re.MULTILINE)
_IMPORT = "from benchmarks.traced.by_hand import stage\n"


def unmarked(source: str) -> str:
    """The program without its marks: blocks stay blocks, nothing is timed."""
    assert _IMPORT in source
    return _MARK.sub(r"\1if True:", source.replace(_IMPORT, ""))
