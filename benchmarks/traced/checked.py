"""pytest: a test that decodes each photo; the folder is in PHOTOS."""

import os
from pathlib import Path

import pytest
from PIL import Image


@pytest.mark.parametrize("path", sorted(Path(os.environ["PHOTOS"]).iterdir()), ids=str)
def test_a_photo(path):
    with Image.open(path) as image:
        assert image.convert("RGB").getpixel((0, 0))
