"""Pages of the public names, by pdoc: `pip install pdoc`, `python scripts/api_docs.py -o FOLDER`.

wallclock imports its names when they are first used; pdoc wants them to be there.
"""

import sys

import pdoc.__main__  # type: ignore[import-not-found, unused-ignore]

import wallclock

if __name__ == "__main__":
    for name in wallclock.__all__:
        getattr(wallclock, name)
    pdoc.__main__.cli(["--docformat", "google", *sys.argv[1:], "wallclock"])
