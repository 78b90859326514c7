"""An image's bytes, from wherever they are: paths, URLs, buckets, memory."""

from wallclock.fetch.folder import FolderListing, id_of
from wallclock.fetch.reader import Reader, failure
from wallclock.fetch.retries import PermanentError, TransientError, retry

__all__ = [
    "FolderListing",
    "PermanentError",
    "Reader",
    "TransientError",
    "failure",
    "id_of",
    "retry",
]
