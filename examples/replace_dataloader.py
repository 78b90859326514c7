"""A loop over `DataLoader` and Pillow transforms, and the same loop over `open_images`.

python -m examples.replace_dataloader FOLDER
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

import wallclock
from examples import arguments

MEAN, STD = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])


class Photos(Dataset[torch.Tensor]):
    """What torchvision's Resize, ToTensor and Normalize do to a file.

    `draft`: with one line more, which few loops have: a JPEG is decoded at a smaller scale.
    """

    def __init__(self, paths: Sequence[str], draft: bool = False) -> None:
        self.paths, self.draft = paths, draft

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> torch.Tensor:
        image: Image.Image = Image.open(self.paths[index])
        if self.draft:
            image.draft("RGB", (224, 224))
        return to_tensor(image.convert("RGB").resize((224, 224), Image.Resampling.BILINEAR))


def to_tensor(image: Image.Image) -> torch.Tensor:
    """What ToTensor and Normalize do: RGB → float32 (3, h, w)."""
    pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous().float() / 255
    return (pixels - MEAN[:, None, None]) / STD[:, None, None]


def before(paths: Sequence[str], workers: int = 2, draft: bool = False) -> Iterator[torch.Tensor]:
    """Batches float32 (n, 3, 224, 224): worker processes decode, resize and normalize."""
    yield from DataLoader(Photos(paths, draft), batch_size=32, num_workers=workers)


def after(paths: Sequence[str], workers: int = 0) -> Iterator[torch.Tensor]:
    """The same batches: threads decode and resize; normalized where the network runs.

    What is yielded is overwritten once the next one is requested.
    """
    memory = torch.empty(32, 224, 224 * 3)
    with wallclock.open_images(
        paths, size=224, batch=32, workers=workers, output="torch"
    ) as batches:
        for batch in batches:
            yield normalize(batch.images, out=memory)


def normalize(
    pixels: torch.Tensor,
    mean: torch.Tensor = MEAN,
    std: torch.Tensor = STD,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Pixels uint8 (n, h, w, 3) → float32 (n, 3, h, w), channels last in memory.

    That is the memory of `out`, float32 (≥ n, h, w × 3), where given: fresh memory of this size
    comes from the kernel, page by page, which takes longer than the arithmetic.
    """
    n, height, width, _ = pixels.shape
    # Whole rows at a time: three values alone are no work for vector code.
    scale, shift = (1 / (255 * std)).repeat(width), (-mean / std).repeat(width)
    rows = torch.empty(n, height, width * 3, device=pixels.device) if out is None else out[:n]
    rows.copy_(pixels.view(rows.shape)).mul_(scale).add_(shift)
    return rows.view(n, height, width, 3).permute(0, 3, 1, 2)


def main(folder: str) -> None:
    """Both loops give the network the same batches."""
    paths = [str(path) for path in sorted(Path(folder).rglob("*.jpg"))]
    for theirs, ours in zip(before(paths), after(paths), strict=True):
        print(tuple(ours.shape), f"mean difference {(theirs - ours).abs().mean():.4f}")


if __name__ == "__main__":
    main(*arguments(__doc__, 1))
