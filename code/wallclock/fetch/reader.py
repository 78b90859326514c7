"""What reads images' bytes. One of a network GETs what was announced before it is read.

The time of `read` is then the wait for the network, less what was prefetched.
"""

import sys
from collections.abc import Sequence
from typing import Any

from wallclock.errors import ImageError

#: Images that are announced, or fetched and wait to be read, at most.
MOST_AHEAD = 1024


class Reader:
    """Reads images; belongs to the process that opened it, whose threads may share it."""

    #: Where it reads from, for labels and messages.
    layout = ""
    #: Bytes of a file at most.
    max_bytes = sys.maxsize
    #: Whether announcing images with `prefetch` does anything.
    fetches_ahead = False

    def __call__(self, item: Any) -> bytes:
        """The image's bytes. Raises ImageError: they cannot be read."""
        raise NotImplementedError

    def place(self, item: Any) -> str | bytes | None:
        """Its path, or its bytes, of an image that others may read; None: of any other."""
        return None

    def prefetch(self, items: Sequence[Any]) -> None:
        """Fetch these, in this order, after those that were announced before."""

    def stop(self) -> None:
        """Give up what is on its way."""

    def close(self) -> None:
        """Release what is open."""


def failure(error: Exception) -> ImageError:
    """A failure of `read`, in the system's words."""
    return ImageError("read", getattr(error, "strerror", None) or str(error))
