"""Ray: a task for sixteen images."""

import sys
from pathlib import Path

import numpy as np
import ray
from PIL import Image


@ray.remote
def load(paths):
    images = (Image.open(path).convert("RGB").resize((224, 224)) for path in paths)
    return np.stack([np.asarray(image) for image in images])


paths = sorted(Path(sys.argv[1]).iterdir())
ray.init(address="local", num_cpus=2, include_dashboard=False)
made = ray.get([load.remote(paths[start : start + 16]) for start in range(0, len(paths), 16)])
print(sum(map(len, made)))
