"""The augmentation of `wallclock.stages.augment` for a batch on a device, in one call.

A crop is taken from images that the workers have resized to `CANVAS_PX`, so that a small one has
less detail than the file.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from wallclock.stages.augment import GREY, Augmentation, in_pixels, jitter_of


def on_device(size: int, device: str) -> Callable[[Any, Sequence[Augmentation]], Any]:
    """All of it for a batch: uint8 (n, h, w, 3) there → float32 (n, size, size, 3), 0 to 255.

    Bilinear without antialiasing, which up to the 1.14 of 256 to 224 px hardly matters. A sample
    beyond the crop takes its edge, as a resize of the crop alone does.
    """
    import torch

    centres = (torch.arange(size, dtype=torch.float32, device=device) + 0.5) / size
    grey = torch.tensor(GREY, dtype=torch.float32, device=device)

    def augment(pixels: Any, augmentations: Sequence[Augmentation]) -> Any:
        n, height, width = pixels.shape[:3]
        # Of a mean of 1 the offset is a factor of the mean, which only the device knows.
        matrices, offsets = jitter_of(augmentations, np.ones((n, 3)))
        crops = [(*in_pixels(drawn, width, height), drawn.flip) for drawn in augmentations]
        table = np.concatenate([crops, offsets[:, None], matrices.reshape(n, 9)], axis=1)
        # One copy for all parameters of the batch.
        drawn = torch.from_numpy(table.astype(np.float32)).to(device)
        left, top, w, h, flip, offset = drawn[:, :6].T[..., None]
        x = _sampled(torch.where(flip > 0, 1 - centres, centres), left, w, width)
        y = _sampled(centres, top, h, height)
        shape = n, size, size
        grid = torch.stack([x[:, None].expand(shape), y[:, :, None].expand(shape)], dim=-1)
        images = torch.nn.functional.grid_sample(
            pixels.permute(0, 3, 1, 2).float(), grid, "bilinear", "border", align_corners=False
        ).permute(0, 2, 3, 1)
        mean = images.mean(dim=(1, 2)) @ grey
        coloured = images.reshape(n, -1, 3) @ drawn[:, 6:].view(n, 3, 3).mT
        grey_offset = (offset[:, 0] * mean)[:, None, None]
        return (coloured + grey_offset).clamp_(0, 255).view(n, size, size, 3)

    return augment


def _sampled(centres: Any, start: Any, length: Any, side: int) -> Any:
    """Where to sample along one axis, (n, size) from -1 to 1, for crops (n, 1) in whole pixels.

    Between the centres of the crop's first and last pixel.
    """
    at = (start + centres * length - 0.5).clamp(start, start + length - 1)
    return (2 * at + 1) / side - 1
