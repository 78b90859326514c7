"""A thread pool that fetches each image from a web server, decodes and resizes it."""

import io
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import perf_counter

import numpy as np
from PIL import Image

from benchmarks.traced.by_hand import stage


def load(name):
    with stage("read"):
        data = urllib.request.urlopen(f"{sys.argv[2]}/{name}").read()
    with stage("decode"):
        image = Image.open(io.BytesIO(data)).convert("RGB")
    with stage("resize"):
        image = image.resize((224, 224))
    return np.array(image)


names = sorted(path.name for path in Path(sys.argv[1]).glob("*.jpg"))
began = perf_counter()
with ThreadPoolExecutor(4) as pool:
    images = list(pool.map(load, names))
print(np.stack(images).mean())
print(len(images) / (perf_counter() - began), "images/s")
