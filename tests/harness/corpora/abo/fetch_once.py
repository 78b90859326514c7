"""Prepare a small ABO in a process that a test kills: ENDPOINT CACHE N [MAX_FILE_BYTES]."""

import resource
import sys
from pathlib import Path

from harness.corpora import prepare
from harness.spec import CorpusSpec
from tests.harness.corpora.abo import bucket
from wallclock.errors import UserError


def main() -> None:
    endpoint, cache, n, *limit = sys.argv[1:]
    if limit:
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit[0]), resource.RLIM_INFINITY))
    prefixes = {"small_256": 256}
    store = {"endpoint": endpoint, "bucket": bucket.NAME, "region": "us-east-1", "threads": 4}
    spec = CorpusSpec("abo", **store, prefixes=prefixes)  # type: ignore[arg-type]
    print("ready", flush=True)
    try:
        prepare.prepare(spec, "small_256", int(n), Path(cache), lambda *_: None)
    except UserError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
