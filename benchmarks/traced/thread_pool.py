"""OpenCV in a pool of threads."""

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import perf_counter

import cv2
import numpy as np

from benchmarks.traced.by_hand import stage

cv2.setNumThreads(1)


def load(path):
    with stage("read+decode"):
        image = cv2.imread(str(path))
    with stage("resize"):
        image = cv2.resize(image, (224, 224), interpolation=cv2.INTER_AREA)
    return image


began = perf_counter()
with ThreadPoolExecutor(2) as pool:
    images = list(pool.map(load, sorted(Path(sys.argv[1]).glob("*.jpg"))))
print(np.stack(images).mean())
print(len(images) / (perf_counter() - began), "images/s")
