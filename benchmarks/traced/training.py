"""A training step: DataLoader, forward, loss, backward, optimizer."""

import sys
from pathlib import Path
from time import perf_counter

import numpy as np
import torch
from PIL import Image, ImageOps

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
            image = ImageOps.fit(image, (224, 224))
        pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1) / 255
        return pixels, float(pixels[0].mean() > 0.5)


model = torch.nn.Sequential(
    torch.nn.Conv2d(3, 64, 7, 2), torch.nn.ReLU(), torch.nn.Conv2d(64, 64, 3), torch.nn.ReLU()
)
head = torch.nn.Sequential(
    torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(64, 1)
)
network = torch.nn.Sequential(model, head)
optimizer = torch.optim.SGD(network.parameters(), 0.01)
loader = torch.utils.data.DataLoader(Photos(sys.argv[1]), 16, num_workers=2)
began = perf_counter()
batches = iter(loader)
for _ in range(len(loader)):
    with stage("wait"):
        pixels, labels = next(batches)
    with stage("forward"):
        logits = network(pixels)
    loss = torch.nn.functional.binary_cross_entropy_with_logits(logits[:, 0], labels.float())
    with stage("backward"):
        loss.backward()
    with stage("optimizer"):
        optimizer.step()
    optimizer.zero_grad()
print(float(loss))
print(len(loader.dataset) / (perf_counter() - began), "images/s")
