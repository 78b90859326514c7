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
    """Three epochs of a linear network on thumbnails; an image's class is its subfolder."""
    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    options: dict[str, Any] = {"augment": True, "shuffle": True, "epochs": 3, "output": "torch"}
    if world > 1:
        torch.distributed.init_process_group("gloo")
        options |= {"shard": (rank, world), "drop_last": True}
    with wallclock.open_images(folder, 224, 8, labels="folder", **options) as batches:
        linear = torch.nn.Linear(48, len(batches.classes))
        network = torch.nn.Sequential(torch.nn.AvgPool2d(56), torch.nn.Flatten(), linear)
        model = torch.nn.parallel.DistributedDataParallel(network) if world > 1 else network
        optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
        parts: dict[str, Any] = {"network": network, "optimizer": optimizer, "images": batches}
        saved = Path(folder, "checkpoint.pt")
        if saved.exists():
            for name, state in torch.load(saved).items():
                parts[name].load_state_dict(state)
        for step, batch in enumerate(batches, 1):
            logits = model(normalize(batch.images))
            loss = torch.nn.functional.cross_entropy(logits, torch.tensor(batch.labels))
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            if rank == 0:  # the others have as many batches behind them
                state = {name: part.state_dict() for name, part in parts.items()}
                torch.save(state, saved.with_suffix(".new"))
                saved.with_suffix(".new").replace(saved)
            print(f"epoch {batches.epoch}, loss {loss:.3f}, positions {list(batch.positions)}")
            if step == stop_after:
                break


if __name__ == "__main__":
    main(arguments(__doc__, 1)[0])
