"""Training with augmentation, over ranks, resumed in the middle of an epoch.

python -m examples.train FOLDER             # again: it goes on where it stopped
torchrun --nproc-per-node 2 -m examples.train FOLDER
"""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from PIL import Image, ImageEnhance
from torch.utils.data import DataLoader, Dataset

import wallclock
from examples import arguments
from examples.replace_dataloader import normalize, to_tensor
from wallclock import Workers
from wallclock.stages import augment


class Augmented(Dataset[torch.Tensor]):
    """torchvision's RandomResizedCrop, RandomHorizontalFlip and ColorJitter, of Pillow's images.

    They call the same functions of Pillow. The parameters are those that `open_images` draws.
    """

    def __init__(self, paths: Sequence[str]) -> None:
        self.paths = paths

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> torch.Tensor:
        image = Image.open(self.paths[index]).convert("RGB")
        drawn = augment.draw(image.width, image.height, 0, 0, index)
        left, top = round(drawn.left * image.width), round(drawn.top * image.height)
        right = left + round(drawn.width * image.width)
        bottom = top + round(drawn.height * image.height)
        image = image.crop((left, top, right, bottom))
        image = image.resize((224, 224), Image.Resampling.BILINEAR)
        if drawn.flip:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        image = ImageEnhance.Brightness(image).enhance(drawn.brightness)
        image = ImageEnhance.Contrast(image).enhance(drawn.contrast)
        return to_tensor(ImageEnhance.Color(image).enhance(drawn.saturation))


def before(paths: Sequence[str], workers: int = 2) -> Iterator[torch.Tensor]:
    """Batches float32 (n, 3, 224, 224) from worker processes."""
    yield from DataLoader(Augmented(paths), batch_size=32, num_workers=workers)


def after(paths: Sequence[str], workers: int = 2) -> Iterator[torch.Tensor]:
    """The same from processes with a thread each: augmentation is Python for a good part.

    What is yielded is overwritten once the next one is requested.
    """
    memory = torch.empty(32, 224, 224 * 3)
    with wallclock.open_images(
        paths, 224, 32, augment=True, output="torch", workers=Workers(workers, max(workers, 1))
    ) as batches:
        for batch in batches:
            yield normalize(batch.images, out=memory)


def main(folder: str, stop_after: int = 0) -> None:
    """Three epochs of a toy network, which learns whether an image's upper half is brighter."""
    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    network = torch.nn.Sequential(
        torch.nn.AvgPool2d(56), torch.nn.Flatten(), torch.nn.Linear(48, 1)
    )
    optimizer = torch.optim.SGD(network.parameters(), 0.1)
    saved = Path(f"{folder}/checkpoint-{rank}.pt")
    options: dict[str, Any] = {"shuffle": True, "drop_last": world > 1, "shard": (rank, world)}
    with wallclock.open_images(
        folder, 224, 8, epochs=3, augment=True, output="torch", **options
    ) as batches:
        if saved.exists():
            state = torch.load(saved)
            network.load_state_dict(state["network"])
            batches.load_state_dict(state["images"])
        for step, batch in enumerate(batches, 1):
            pixels = normalize(batch.images)
            labels = (pixels[:, :, :112].mean((1, 2, 3)) > pixels.mean((1, 2, 3))).float()
            loss = torch.nn.functional.binary_cross_entropy_with_logits(
                network(pixels)[:, 0], labels
            )
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            state = {"network": network.state_dict(), "images": batches.state_dict()}
            torch.save(state, saved)
            print(f"epoch {batches.epoch}, loss {loss:.3f}, positions {list(batch.positions)}")
            if step == stop_after:
                return


if __name__ == "__main__":
    main(arguments(__doc__, 1)[0])
