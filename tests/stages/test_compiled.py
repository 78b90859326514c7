"""Forward passes of a fixed shape, and pixels that are normalized on the device."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from wallclock.errors import Unavailable, UserError
from wallclock.spec import IMAGENET, ModelSpec
from wallclock.stages import assemble, compiled, forward, normalize

TINY = ModelSpec("tiny", "random", input_px=28, dim=48)


def test_a_smaller_batch_is_filled_up_and_cut() -> None:
    shapes: list[tuple[int, ...]] = []

    def run(batch: torch.Tensor) -> torch.Tensor:
        shapes.append(tuple(batch.shape))
        return batch.sum(dim=1, keepdim=True)

    padded = compiled._padded(run)
    whole, rest = torch.ones(4, 3), torch.full((3, 3), 2.0)
    assert padded(whole).tolist() == [[3.0]] * 4
    assert padded(rest).tolist() == [[6.0]] * 3
    assert shapes == [(4, 3), (4, 3)]


def test_graphs_need_a_gpu_and_names_are_checked() -> None:
    assert compiled.make("none", len, "cpu") is len
    with pytest.raises(Unavailable, match="CUDA"):
        compiled.make("cuda_graphs", len, "cpu")
    with pytest.raises(UserError, match="did you mean compile"):
        compiled.make("compiled", len, "cpu")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*script_method.*:DeprecationWarning")
def test_compiled_is_the_same() -> None:
    run = compiled.make("compile", lambda batch: (batch * 2).sum(dim=1), "cpu")
    assert run(torch.ones(4, 3)).tolist() == [6.0] * 4
    assert run(torch.ones(2, 3)).tolist() == [6.0] * 2


@pytest.mark.cuda
def test_a_captured_graph_is_the_same() -> None:
    captured = compiled.make("cuda_graphs", lambda batch: (batch * 2).sum(dim=1), "cuda")
    for n in (4, 2, 4):
        batch = torch.rand(n, 3, device="cuda")
        torch.testing.assert_close(captured(batch), (batch * 2).sum(dim=1))


def test_pixels_normalized_on_the_device_make_the_same_vectors() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (2, 28, 28, 3), np.uint8)
    host = torch.from_numpy(assemble.stack([normalize.to_float_chw(each) for each in pixels]))
    there = forward.make(TINY, "cpu", "fp32").run(host)
    here = forward.make(TINY, "cpu", "fp32", normalize.shift_scale(*IMAGENET)).run(
        torch.from_numpy(pixels)
    )
    torch.testing.assert_close(here, there, atol=1e-4, rtol=1e-4)
