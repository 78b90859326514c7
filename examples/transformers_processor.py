"""Embed a folder with any image model of transformers, at its processor's size and statistics.

python -m examples.transformers_processor FOLDER MODEL

The processor resizes one image at a time in the main thread. `open_images` squashes to the square
that the network takes; a processor that crops the centre sees less of the image.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from transformers import AutoImageProcessor, AutoModel

import wallclock
from examples import arguments
from examples.replace_dataloader import normalize


def before(paths: Sequence[str], processor: Any) -> Iterator[torch.Tensor]:
    """Batches float32 (n, 3, h, w), as the model's page on the hub shows it."""
    for first in range(0, len(paths), 32):
        images = [Image.open(path).convert("RGB") for path in paths[first : first + 32]]
        yield processor(images=images, return_tensors="pt")["pixel_values"]


class Processed(Dataset[torch.Tensor]):
    """One image of the processor's per item."""

    def __init__(self, paths: Sequence[str], processor: Any) -> None:
        self.paths, self.processor = paths, processor

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> torch.Tensor:
        image = Image.open(self.paths[index]).convert("RGB")
        pixels: torch.Tensor = self.processor(images=image, return_tensors="pt")["pixel_values"][0]
        return pixels


def before_in_workers(
    paths: Sequence[str], processor: Any, workers: int = 2
) -> Iterator[torch.Tensor]:
    """The same from worker processes, as few pages show it."""
    yield from DataLoader(Processed(paths, processor), batch_size=32, num_workers=workers)


def after(paths: Sequence[str], processor: Any, workers: int = 0) -> Iterator[torch.Tensor]:
    """The same from threads; a batch is overwritten once the next one is requested."""
    sides = dict(getattr(processor, "crop_size", None) or processor.size)
    mean, std = torch.tensor(processor.image_mean), torch.tensor(processor.image_std)
    size = sides.get("height") or sides["shortest_edge"]
    memory = torch.empty(32, size, size * 3)
    with wallclock.open_images(paths, size, batch=32, workers=workers, output="torch") as batches:
        for batch in batches:
            yield normalize(batch.images, mean, std, memory)


@torch.inference_mode()
def main(folder: str, model: str) -> None:
    """Print the shape of every batch of vectors."""
    processor: Any = AutoImageProcessor.from_pretrained(model)  # type: ignore[no-untyped-call]
    network = AutoModel.from_pretrained(model)
    for pixels in after([str(path) for path in sorted(Path(folder).rglob("*.jpg"))], processor):
        print(tuple(network(pixel_values=pixels).last_hidden_state[:, 0].shape))


if __name__ == "__main__":
    main(*arguments(__doc__, 2))
