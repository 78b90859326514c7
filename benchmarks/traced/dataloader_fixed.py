"""`dataloader` with the loader that the trace proposes; sys.argv[2] is not used."""

import sys
from pathlib import Path
from time import perf_counter

import torch

import wallclock

layers = [torch.nn.Conv2d(3, 64, 4, 4)]
layers += [torch.nn.Conv2d(64, 64, 3, padding=1) for _ in range(int(sys.argv[3]))]
model = torch.nn.Sequential(*layers, torch.nn.AdaptiveAvgPool2d(1)).eval()
total, n = 0.0, 0
began = perf_counter()
paths = sorted(Path(sys.argv[1]).glob("*.jpg"))
with (
    torch.inference_mode(),
    wallclock.open_images(paths, size=224, batch=8, output="torch") as batches,
):
    for batch in batches:
        # Contiguous, as the batches of a DataLoader: a convolution's time depends on it.
        pixels = (batch.images.permute(0, 3, 1, 2) / 255).contiguous()
        total += float(model(pixels).sum())
        n += len(batch.ids)
print(total)
print(n / (perf_counter() - began), "images/s")
