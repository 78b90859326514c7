"""`training` with the loader that the trace proposes."""

import sys
from pathlib import Path
from time import perf_counter

import torch

import wallclock

model = torch.nn.Sequential(
    torch.nn.Conv2d(3, 64, 7, 2), torch.nn.ReLU(), torch.nn.Conv2d(64, 64, 3), torch.nn.ReLU()
)
head = torch.nn.Sequential(
    torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(64, 1)
)
network = torch.nn.Sequential(model, head)
optimizer = torch.optim.SGD(network.parameters(), 0.01)
n = 0
began = perf_counter()
paths = sorted(Path(sys.argv[1]).glob("*.jpg"))
geometry = "shortest:224,crop:224,bicubic"
with wallclock.open_images(paths, preprocess=geometry, batch=16, output="torch") as batches:
    for batch in batches:
        # Contiguous, as the batches of a DataLoader: a convolution's time depends on it.
        pixels = (batch.images.permute(0, 3, 1, 2) / 255).contiguous()
        labels = (pixels[:, 0].mean(dim=(1, 2)) > 0.5).float()
        logits = network(pixels)
        loss = torch.nn.functional.binary_cross_entropy_with_logits(logits[:, 0], labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        n += len(batch.ids)
print(float(loss))
print(n / (perf_counter() - began), "images/s")
