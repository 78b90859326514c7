"""joblib: thumbnails in two processes."""

import sys
from pathlib import Path

from joblib import Parallel, delayed
from PIL import Image


def thumbnail(path):
    with Image.open(path) as image:
        return image.convert("RGB").resize((224, 224), Image.Resampling.LANCZOS).getpixel((0, 0))


if __name__ == "__main__":
    paths = sorted(Path(sys.argv[1]).iterdir())
    print(len(Parallel(n_jobs=2)(delayed(thumbnail)(path) for path in paths)))
