"""LitData's `StreamingRawDataset`, which reads files as they are, behind torch's DataLoader.

https://github.com/Lightning-AI/litData, "Stream raw files as-is": local files or objects, their
bytes fetched concurrently by an event loop in each worker; what decodes is the user's choice. Here
that is Pillow's `draft`, at the two margins that win with `pil_draft`.
"""

import os
import tempfile
from collections.abc import Sequence
from typing import Any

from harness.engines.third_party import pil_draft
from harness.engines.third_party._interface import LoaderSpec
from harness.engines.third_party._torch import FileDataset, Make, dataloader
from harness.peers import import_or_unavailable


class _RawFiles(FileDataset):
    def __init__(self, spec: LoaderSpec, make: Make) -> None:
        super().__init__(spec, make)
        litdata = import_or_unavailable("litdata")
        indexing = import_or_unavailable("litdata.raw.indexer")
        files = [indexing.FileMetadata(path, os.path.getsize(path)) for path in spec.files]

        class Listed(indexing.FileIndexer):  # type: ignore[misc, name-defined]
            """These files in this order, instead of all that the folder holds."""

            def build_or_load_index(self, *_: object) -> list[Any]:
                return files

        # Local files are not cached; the folder stays empty, and out of the user's home.
        cache = os.path.join(tempfile.gettempdir(), "wallclock-litdata")
        self._raw = litdata.StreamingRawDataset(
            os.path.commonpath(spec.files), cache_dir=cache, indexer=Listed()
        )

    def read(self, positions: Sequence[int]) -> list[bytes]:
        """Bytes of the files, read concurrently."""
        data: list[bytes] = self._raw.__getitems__(list(positions))
        return data


LOADER = dataloader(
    "litdata-raw",
    "LitData raw + PIL draft",
    pil_draft.load_function,
    {name: f"StreamingRawDataset; {pil_draft.VARIANTS[name]}" for name in ("1.25", "1")},
    ("litdata",),
    dataset=_RawFiles,
)
