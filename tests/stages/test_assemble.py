"""Images into one batch, in the process's own memory and in memory that others can map."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from wallclock.stages import assemble


@pytest.mark.parametrize(("dtype", "shape"), [("float32", (3, 5, 7)), ("uint8", (5, 7, 3))])
def test_both_hold_the_same_and_one_is_shared(dtype: str, shape: tuple[int, ...]) -> None:
    source = np.random.default_rng(0)
    images = [source.integers(0, 256, shape).astype(dtype) for _ in range(4)]
    images[0].flags.writeable = False  # as Pillow's arrays are
    shared = assemble.stack_shared(images)
    assert shared.is_shared()  # type: ignore[no-untyped-call]
    assert not torch.from_numpy(assemble.stack(images)).is_shared()  # type: ignore[no-untyped-call]
    assert shared.dtype == getattr(torch, dtype)
    np.testing.assert_array_equal(shared.numpy(), assemble.stack(images))


def test_images_of_different_shapes_make_no_batch() -> None:
    images = [np.zeros((3, 4, 4), np.float32), np.zeros((3, 4, 5), np.float32)]
    for stack in (assemble.stack, assemble.stack_shared):
        with pytest.raises(ValueError, match="shape"):
            stack(images)
