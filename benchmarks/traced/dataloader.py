"""A Dataset, a DataLoader with sys.argv[2] workers, and a model of sys.argv[3] layers."""

import sys
from pathlib import Path
from time import perf_counter

import numpy as np
import torch
from PIL import Image

from benchmarks.traced.by_hand import stage


class Photos(torch.utils.data.Dataset):
    def __init__(self, folder):
        self.paths = sorted(Path(folder).glob("*.jpg"))

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        with stage("read+decode"):
            image = Image.open(self.paths[index]).convert("RGB")
        with stage("resize"):
            image = image.resize((224, 224), Image.Resampling.BICUBIC)
        return torch.from_numpy(np.array(image)).permute(2, 0, 1) / 255


layers = [torch.nn.Conv2d(3, 64, 4, 4)]
layers += [torch.nn.Conv2d(64, 64, 3, padding=1) for _ in range(int(sys.argv[3]))]
model = torch.nn.Sequential(*layers, torch.nn.AdaptiveAvgPool2d(1)).eval()
loader = torch.utils.data.DataLoader(Photos(sys.argv[1]), 8, num_workers=int(sys.argv[2]))
total = 0.0
began = perf_counter()
batches = iter(loader)
with torch.inference_mode():
    for _ in range(len(loader)):
        with stage("wait"):
            batch = next(batches)
        with stage("forward"):
            output = model(batch)
        total += float(output.sum())
print(total)
print(len(loader.dataset) / (perf_counter() - began), "images/s")
