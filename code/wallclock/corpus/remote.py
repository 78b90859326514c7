"""Images of a corpus straight from its store, a GET each."""

import json
from pathlib import Path

from wallclock.corpus.abo.store import Store
from wallclock.corpus.manifest import Item
from wallclock.corpus.prefetch import PrefetchingReader, TransientError
from wallclock.corpus.readers import MARKER
from wallclock.spec import CorpusSpec


class RemoteReader(PrefetchingReader):
    """GETs objects and checks them against the manifest."""

    layout = "remote"

    def __init__(self, root: Path) -> None:
        settings = json.loads((root / MARKER).read_text(encoding="utf-8"))
        self._store = Store(CorpusSpec("abo", **settings["store"]))
        self._prefix = str(settings["prefix"])
        super().__init__(root, self._store.spec.threads, self._store.spec.attempts)

    def close(self) -> None:
        """Drop what was prefetched and close the connections."""
        super().close()
        self._store.close()

    def _get_once(self, item: Item) -> bytes:
        data, info = self._store.get_bytes(self._prefix + item.path, item.bytes)
        if info.sha256 != item.sha256:
            raise TransientError(f"{len(data)} bytes that are not those of the manifest")
        return data
