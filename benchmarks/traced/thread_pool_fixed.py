"""`thread_pool` with the loader that the trace proposes."""

import sys
from pathlib import Path
from time import perf_counter

import numpy as np
import torch  # noqa: F401 - which the loader would import while the clock runs

import wallclock

images = []
began = perf_counter()
paths = sorted(Path(sys.argv[1]).glob("*.jpg"))
with wallclock.open_images(paths, size=224, batch=32) as batches:
    for batch in batches:
        images.append(batch.images.copy())
images = np.concatenate(images)
print(images.mean())
print(len(images) / (perf_counter() - began), "images/s")
