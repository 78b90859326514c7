"""The loader in loops of others: each file is a page, run by tests."""

import sys


def arguments(doc: str | None, n: int) -> list[str]:
    """The `n` words after the module's name; prints its docstring where there are others."""
    words = sys.argv[1:]
    if {"--help", "-h"} & set(words):
        print(doc)
        sys.exit(0)
    if len(words) != n:
        sys.exit((doc or "").strip())
    return words
