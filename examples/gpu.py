"""Embed on a GPU: page-locked batches, a copy of uint8, normalized there.

python -m examples.gpu FOLDER
"""

import torch

import wallclock
from examples import arguments
from examples.replace_dataloader import MEAN, STD, normalize


@torch.inference_mode()
def main(folder: str, device: str = "cuda") -> None:
    """Print each batch's number of images; the threads load the next ones meanwhile."""
    network = torch.nn.Conv2d(3, 384, 14, 14).to(device)
    mean, std = MEAN.to(device), STD.to(device)
    on_gpu = device == "cuda"
    output = "torch,pin" if on_gpu else "torch"
    with wallclock.open_images(folder, 224, 64, output=output) as batches:
        for batch in batches:
            # Not `non_blocking`: the memory goes back to the threads once the batch is dropped.
            pixels = normalize(batch.images.to(device), mean, std)
            print(len(batch.ids), tuple(network(pixels).mean((2, 3)).shape))


if __name__ == "__main__":
    main(*arguments(__doc__, 1))
