"""Batches in memory that other processes can map."""

import numpy as np
import pytest
import torch

from harness.engines import assemble


@pytest.mark.parametrize(("dtype", "shape"), [("float32", (3, 5, 7)), ("uint8", (5, 7, 3))])
def test_batches_in_private_and_shared_memory(dtype: str, shape: tuple[int, ...]) -> None:
    source = np.random.default_rng(0)
    images = [source.integers(0, 256, shape).astype(dtype) for _ in range(4)]
    images[0].flags.writeable = False  # as Pillow's arrays are
    private = np.stack(images)
    shared = assemble.stack_shared(images)
    assert private.shape == (4, *shape)
    assert private.flags.c_contiguous
    for row, image in zip(private, images, strict=True):
        np.testing.assert_array_equal(row, image)
    assert shared.is_shared()
    assert not torch.from_numpy(private).is_shared()  # type: ignore[no-untyped-call]
    assert shared.dtype == getattr(torch, dtype)
    np.testing.assert_array_equal(shared.numpy(), private)


def test_two_shapes_make_no_batch() -> None:
    images = [np.zeros((3, 4, 4), np.float32), np.zeros((3, 4, 5), np.float32)]
    with pytest.raises(ValueError, match="shape"):
        assemble.stack_shared(images)
