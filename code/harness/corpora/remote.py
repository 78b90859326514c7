"""Images of a corpus straight from its store, a GET each."""

from harness.corpora.abo.store import CorpusStore
from harness.corpora.manifest import Item
from wallclock.fetch import PrefetchingReader, TransientError


class RemoteReader(PrefetchingReader):
    """GETs objects and checks them against the manifest.

    Args:
        store: where from; it is closed with the reader.
        prefix: goes before each item's path.
    """

    layout = "remote"

    def __init__(self, store: CorpusStore, prefix: str = "") -> None:
        self._store = store
        self._prefix = prefix
        super().__init__(store.spec.threads, store.spec.attempts)

    def close(self) -> None:
        """Drop what was prefetched and close the connections."""
        super().close()
        self._store.close()

    def _get_once(self, item: Item) -> bytes:
        data, info = self._store.get_bytes(self._prefix + item.path, item.bytes)
        if info.sha256 != item.sha256:
            raise TransientError(f"{len(data)} bytes that are not those of the manifest")
        return data
