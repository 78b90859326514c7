"""Corpora: pinned lists of images, how they are prepared, and how their bytes are read."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from wallclock.errors import UserError

#: Called with how many images are done, how many there are, and what is being done.
ProgressHook: TypeAlias = Callable[[int, int, str], None]


def check_space(folder: Path, needed: float, purpose: str) -> None:
    """Raise `UserError` if there are fewer free bytes than needed, before any is written."""
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise UserError(
            f"{purpose}: {needed / 1e9:,.2f} GB are needed in {folder}, {free / 1e9:,.2f} GB are "
            "free; free some, set out= to another disk, or take fewer with --n"
        )
