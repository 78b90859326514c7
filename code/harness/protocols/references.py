"""Reference pictures: how they are resized, and a file of them.

Cells that compare the same images make them once.
"""

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import PIL
from PIL import Image

from harness import provenance
from harness.corpora.manifest import Manifest
from harness.protocols import registry
from wallclock.files import atomic_open, digest_of
from wallclock.loader import Preprocess
from wallclock.stages import resize
from wallclock.stages.decode import PixelArray

#: Kind of reference → pictures by image id.
Pictures: TypeAlias = Mapping[str, Mapping[str, PixelArray]]

_KEY = "key"


def resize_whole(
    pixels: PixelArray, preprocess: Preprocess, resizer: str, interpolation: str
) -> PixelArray:
    """All of an image resized, then cut out or padded with black: no window, no reduced scale.

    Args:
        pixels: decoded in full and upright, uint8 (h, w, 3).
        preprocess: of which the sizes matter.
        interpolation: of the resizer, in the place of that of `preprocess`.

    Returns:
        uint8 (*preprocess.canvas, 3).

    Raises ImageError: the resizer refuses the image.
    """
    rows, columns = preprocess.resized(*pixels.shape[:2])
    resized = resize.make(resizer, interpolation, (rows, columns)).resize(pixels)
    height, width = preprocess.canvas
    top, left = (rows - height) // 2, (columns - width) // 2
    window = Image.fromarray(resized).crop((left, top, left + width, top + height))
    return np.asarray(window)


class References:
    """The file of these images' pictures in a folder. `made_by`: size, decoder, resizers.

    The key also has the images' hashes, and the code and libraries that make the pictures: a file
    with another key is made again.
    """

    def __init__(self, folder: Path, manifest: Manifest, made_by: Sequence[Any]) -> None:
        import cv2  # a loader's process has started its threads by now

        self._names = [item.id for item in manifest.items]
        digest = manifest.digest()
        libraries = [PIL.__version__, cv2.__version__, np.__version__]
        code = provenance.code_digest(registry.timed_by("fidelity"))
        self.key = digest_of([digest, len(self._names), *made_by, libraries, code])
        self._path = folder / "references" / f"{digest[:16]}-{digest_of([*made_by])[:8]}.npz"

    def load(self) -> Pictures | None:
        """The pictures; None where there are none, or the file is damaged or has another key."""
        try:
            with self._path.open("rb") as handle, np.load(handle) as file:
                if str(file[_KEY]) != self.key:
                    return None
                kinds = [name for name in file.files if f"{name}-rows" in file.files]
                return {kind: self._named(file[f"{kind}-rows"], file[kind]) for kind in kinds}
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
            return None

    def save(self, pictures: Pictures) -> None:
        """Write the pictures atomically. Raises UserError: the disk is full."""
        arrays: dict[str, Any] = {_KEY: np.array(self.key)}
        rows = {name: row for row, name in enumerate(self._names)}
        for kind, by_name in pictures.items():
            if by_name:
                arrays[kind] = np.stack([*by_name.values()])
                arrays[f"{kind}-rows"] = np.array([rows[name] for name in by_name])
        with atomic_open(self._path, "wb", sync=False) as file:
            np.savez(file, **arrays)

    def _named(self, rows: Any, pictures: Any) -> dict[str, PixelArray]:
        return {self._names[row]: picture for row, picture in zip(rows, pictures, strict=True)}
