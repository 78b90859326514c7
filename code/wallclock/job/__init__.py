"""The job itself: a folder, a list or a bucket of images → vectors on the disk.

from wallclock.job import embed

embed("/path/to/images", "/path/to/vectors", model="facebook/dinov2-small")
"""

from wallclock.job.start import Outcome, embed

__all__ = ["Outcome", "embed"]
