"""One fetch in a process of its own: CACHE N SETTINGS [READ_TIMEOUT_S], for `benchmarks.fetch`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from wallclock.corpus import prepare
from wallclock.spec import CorpusSpec


def main() -> None:
    """Fetch the first N small images of a catalogue."""
    cache, n, settings, *timeout = sys.argv[1:]
    chosen: dict[str, Any] = {"bucket": "amazon-berkeley-objects", "region": "us-east-1", **json.loads(settings)}
    if timeout:
        chosen["read_timeout_s"] = float(timeout[0])
    spec = CorpusSpec("abo", **chosen)
    prepare.prepare(spec, "small_256", int(n), Path(cache), lambda done, total, what: None)


if __name__ == "__main__":
    main()
