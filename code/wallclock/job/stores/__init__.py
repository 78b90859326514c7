"""Where the files of a dataset are: a folder, or a bucket, which has the methods of a folder."""

import os
from pathlib import Path
from typing import TypeAlias

from wallclock.job.stores.folder import Folder
from wallclock.job.stores.s3 import S3

#: It can be pickled; the copy does not hold the lock.
Store: TypeAlias = Folder | S3


def at(out: str | Path) -> Store:
    """The place that a user names: a folder, or `s3://bucket/prefix`."""
    if str(out).startswith("s3:/"):
        return S3.named(str(out))
    return Folder(Path(os.path.realpath(os.path.expanduser(out))))
