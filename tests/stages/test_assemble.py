"""Images into one batch, in the process's own memory and in memory that others can map."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from wallclock.stages import assemble


@pytest.mark.parametrize(("dtype", "shape"), [("float32", (3, 5, 7)), ("uint8", (5, 7, 3))])
def test_batches_in_own_and_shared_memory(dtype: str, shape: tuple[int, ...]) -> None:
    source = np.random.default_rng(0)
    images = [source.integers(0, 256, shape).astype(dtype) for _ in range(4)]
    images[0].flags.writeable = False  # as Pillow's arrays are
    own, shared = assemble.stack(images), assemble.stack_shared(images)
    assert own.shape == (4, *shape)
    assert own.flags.c_contiguous
    for row, image in zip(own, images, strict=True):
        np.testing.assert_array_equal(row, image)
    assert shared.is_shared()  # type: ignore[no-untyped-call]
    assert not torch.from_numpy(own).is_shared()  # type: ignore[no-untyped-call]
    assert shared.dtype == getattr(torch, dtype)
    np.testing.assert_array_equal(shared.numpy(), own)


def test_two_shapes_make_no_batch() -> None:
    images = [np.zeros((3, 4, 4), np.float32), np.zeros((3, 4, 5), np.float32)]
    for stack in (assemble.stack, assemble.stack_shared):
        with pytest.raises(ValueError, match="shape"):
            stack(images)
