"""A loop over Pillow and a small model."""

import sys
from pathlib import Path
from time import perf_counter

import numpy as np
import torch
from PIL import Image

from benchmarks.traced.by_hand import stage

model = torch.nn.Sequential(torch.nn.Conv2d(3, 64, 14, 14), torch.nn.Flatten()).eval()
vectors = []
began = perf_counter()
with torch.inference_mode():
    for path in sorted(Path(sys.argv[1]).glob("*.jpg")):
        with stage("read+decode"):
            image = Image.open(path).convert("RGB")
        with stage("resize"):
            image = image.resize((224, 224))
        pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1)[None] / 255
        with stage("forward"):
            vector = model(pixels)
        vectors.append(vector.numpy())
np.save("vectors.npy", np.concatenate(vectors))
print(len(vectors) / (perf_counter() - began), "images/s")
