"""Corpora: pinned lists of images, how they are prepared, and how their bytes are read."""

from collections.abc import Callable
from typing import TypeAlias

#: Called with how many images are done, how many there are, and what is being done.
ProgressHook: TypeAlias = Callable[[int, int, str], None]
