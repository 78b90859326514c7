"""What a fetch takes: bytes, requests, minutes, disk. The catalogue says no sizes; these are averages.

Measured over samples of the real bucket: `small` 7.4 KB an object, `original` 305 to 378 KB, of
which the larger is taken, so that a disk that passes the check holds what comes.
"""

from __future__ import annotations

from dataclasses import dataclass

#: Bytes an object, on average.
OBJECT_BYTES = {"small_256": 7_400, "original": 378_000}
#: For a sample that lies above the average.
MARGIN = 1.1
#: HTTP headers and acknowledgements of a GET, in bytes.
REQUEST_BYTES = 900
#: A file system fills whole blocks of 4 KiB: half of one is lost a file.
BLOCK_LOSS_BYTES = 2_048


@dataclass(frozen=True)
class Cost:
    """Of fetching some objects, on average and without a margin."""

    requests: int
    bytes: int
    disk_bytes: int

    def minutes(self, bits_per_s: float) -> float:
        """Minutes at a link's speed, were the link the only limit."""
        return (self.bytes + self.requests * REQUEST_BYTES) * 8 / bits_per_s / 60


def of(image_set: str, n: int) -> Cost:
    """What `n` objects of a set cost."""
    size = n * OBJECT_BYTES[image_set]
    return Cost(n, size, size + n * BLOCK_LOSS_BYTES)


def disk_needed(image_set: str, n: int) -> int:
    """Bytes that must be free before `n` objects are asked for: the average, and a margin."""
    return round(of(image_set, n).disk_bytes * MARGIN)
