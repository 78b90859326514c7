"""Prepare the small ABO in a process of its own, to be killed: ENDPOINT CACHE N."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

from tests.corpus.abo import bucket
from wallclock.corpus import prepare
from wallclock.errors import UserError
from wallclock.spec import CorpusSpec


def main() -> None:
    """Fetch; a user's error is one line and status 1. A fourth argument limits the size of any file, in bytes."""
    endpoint, cache, n, *limit = sys.argv[1:]
    if limit:
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit[0]), resource.RLIM_INFINITY))
    spec = CorpusSpec(
        "abo",
        endpoint=endpoint,
        bucket=bucket.NAME,
        region="us-east-1",
        threads=4,
        prefixes={"small_256": 256},
    )
    print("ready", flush=True)
    try:
        prepare.prepare(spec, "small_256", int(n), Path(cache), lambda done, total, what: None)
    except UserError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
