"""imagededup's CNN encodings, as its README has them."""

import sys

import weightless  # noqa: F401
from imagededup.methods import CNN

if __name__ == "__main__":
    print(len(CNN().encode_images(image_dir=sys.argv[1])))
