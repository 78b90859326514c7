"""An image's bytes, from wherever they are: paths, URLs, buckets, memory."""

from wallclock.fetch.folder import candidates, id_of
from wallclock.fetch.reader import PrefetchingReader, Reader, failure
from wallclock.fetch.retries import PermanentError, TransientError, retry

__all__ = [
    "PermanentError",
    "PrefetchingReader",
    "Reader",
    "TransientError",
    "candidates",
    "failure",
    "id_of",
    "retry",
]
