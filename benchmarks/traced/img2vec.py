"""img2vec_pytorch, an image at a time, as its README has it."""

import sys
from pathlib import Path

import weightless  # noqa: F401
from img2vec_pytorch import Img2Vec
from PIL import Image

img2vec = Img2Vec(cuda=False, model="resnet18")
vectors = [img2vec.get_vec(Image.open(path)) for path in sorted(Path(sys.argv[1]).iterdir())]
print(len(vectors))
