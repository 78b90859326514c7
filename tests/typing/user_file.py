"""A user's file, which `mypy --strict` checks and `test_typing.py` runs.

A comment `type: ignore[…]` is an assertion: strict checking complains where it is not needed.
"""

import sys
from collections.abc import Iterator
from typing import Any, assert_type

import numpy as np
import numpy.typing as npt
import torch

import wallclock
from wallclock import Batch, Failure, Images, Output, Workers, as_dataloader, open_images

Pixels = npt.NDArray[np.uint8]


def arrays(folder: str) -> Iterator[Pixels]:
    """numpy is the default, also beside other options."""
    with open_images(folder, (20, 30), batch=2, workers=Workers(1), shuffle=True) as batches:
        assert_type(batches, Images[Pixels])
        for batch in batches:
            assert_type(batch, Batch[Pixels])
            assert_type(batch.images, Pixels)
            assert_type(batch.ids, list[str])
            assert_type(batch.failures, list[Failure])
            yield batch.images


def own_sizes(folder: str) -> Any:
    """A geometry may give a list, which its text does not tell a type checker."""
    with open_images(folder, preprocess="original") as batches:
        assert_type(batches, Images[Any])
        return next(batches).images


def tensors(folder: str) -> torch.Tensor:
    """By the text of the output."""
    with open_images(folder, 16, output="torch,float32") as batches:
        batch = next(batches)
        assert_type(batch.images, torch.Tensor)
        return batch.images.mean(dim=(2, 3))


def normalized(folder: str) -> npt.NDArray[np.float32]:
    """float32 of numpy."""
    with open_images(folder, 16, output="float32") as batches:
        return next(batches).images


def trained(folder: str) -> list[torch.Size]:
    """What a trainer takes."""
    with open_images(folder, 16, output="torch") as batches:
        plain = as_dataloader(batches)
        for batch in plain:
            assert_type(batch.to("cpu"), Batch[torch.Tensor])
        converted = as_dataloader(batches, lambda batch: batch.images.shape)
        return [*converted]


def configured(folder: str, output: Output) -> Any:
    """What an `Output` makes, is known when it runs."""
    with open_images(folder, 16, output=output) as batches:
        assert_type(batches, Images[Any])
        return next(batches).images


def count(batch: Batch) -> int:
    """A batch of any images needs no type argument."""
    return len(batch.ids)


def reasons(failures: list[Failure]) -> list[str]:
    """A failure is a dict of text."""
    return [failure["reason"] for failure in failures]


def wrong(folder: str) -> None:
    """What a type checker refuses."""
    open_images(folder, sice=16)  # type: ignore[call-overload]
    open_images(folder, "16")  # type: ignore[call-overload]
    wallclock.open_image(folder)  # type: ignore[attr-defined]
    wallclock.decode(folder, preprocess=3)  # type: ignore[arg-type]


def main(folder: str) -> None:
    """Everything but what is wrong."""
    shapes = [images.shape for images in arrays(folder)]
    floats = configured(folder, Output("float16", hold=2))
    image = wallclock.decode(f"{folder}/0.jpg", 16)
    assert_type(image, Pixels)
    assert isinstance(own_sizes(folder), list)
    assert trained(folder) == [torch.Size([3, 16, 16, 3])]
    print(shapes, tuple(tensors(folder).shape), normalized(folder).dtype, floats.dtype, image.shape)


if __name__ == "__main__":
    main(sys.argv[1])
