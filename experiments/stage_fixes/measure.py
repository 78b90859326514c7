"""Protocol `stage_fix`: a stage as the paper's recipe has it, and with its fix; nothing else.

`normalize`: image by image on the host, or one batch on the device. `assemble`: a stack that is
then copied into shared memory, or stacked there. `h2d`: from pageable or from page-locked memory.
`d2h`: every patch's vector, of which the host takes the first, or the first alone. (The network
pools so anyway: the plain copy is of a job that does not.)
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from harness.engines import assemble
from harness.processes import gc_disabled
from harness.protocols import protocol
from harness.protocols.protocol import Measurement, Progress
from harness.spec import Cell
from wallclock.errors import Unavailable, check_name
from wallclock.stages import normalize, transfer

#: Stage → whether its fix needs a device with memory of its own.
STAGES = {"normalize": True, "assemble": False, "h2d": True, "d2h": True}
#: A vision transformer's patch of DINOv2, in pixels.
_PATCH_PX = 14
#: In turn, so that a drift of the machine touches both alike.
_ROUNDS = 5


def stage_fix(cell: Cell, work: Path, progress: Progress) -> Measurement:
    """Time `params.stage` for `params.seconds`, half of it plain and half of it fixed, in turn.

    Samples: `plain`, `fixed`, ns of each round. Values: `n_plain`, `n_fixed`, images of all rounds.

    Raises:
        Unavailable: the fix needs a GPU and the recipe's device is the host.
    """
    stage = check_name(str(cell.params["stage"]), STAGES, "stage")
    if STAGES[stage] and cell.recipe.device != "cuda":
        raise Unavailable("needs a GPU: here the device is the host")
    runs = variants(cell, stage)
    seconds = float(cell.params["seconds"]) / len(runs) / _ROUNDS
    samples: dict[str, list[int]] = {name: [] for name in runs}
    values = {f"n_{name}": 0 for name in runs}
    with gc_disabled():
        for turn in range(_ROUNDS + 1):
            for name, run in runs.items():
                n, ns = protocol.repeat_for(seconds, partial(_images, run, cell))
                # The first round warms up.
                if turn:
                    samples[name].append(ns)
                    values[f"n_{name}"] += n
                    progress(n)
    return Measurement(samples, values)


def _images(run: Callable[[], object], cell: Cell) -> int:
    run()
    return cell.recipe.batch_size


def variants(cell: Cell, stage: str) -> dict[str, Callable[[], Any]]:
    """`plain` and `fixed`: one batch through the stage, its output complete."""
    import torch

    recipe, model = cell.recipe, cell.model
    move = transfer.make(recipe.device)
    images = protocol.noise_batch(recipe.batch_size, model.input_px, uint8=stage == "normalize")
    plain: Callable[[], Any]
    fixed: Callable[[], Any]
    if stage == "normalize":
        on_host = normalize.make(*model.statistics)
        on_device = normalize.on_device(*model.statistics, recipe.device)
        batch = move.h2d(images)

        def plain() -> Any:
            return [on_host(image) for image in images]

        fixed = partial(on_device, batch)
    elif stage == "assemble":
        arrays = [*images]

        def plain() -> Any:
            stacked: Any = torch.from_numpy(np.stack(arrays))
            return stacked.share_memory_()

        fixed = partial(assemble.stack_shared, arrays)
    elif stage == "h2d":
        pageable = torch.from_numpy(images)
        plain = partial(move.h2d, pageable)
        fixed = partial(move.h2d, pageable.pin_memory())
    else:
        tokens = (model.input_px // _PATCH_PX) ** 2 + 1
        output = torch.zeros(recipe.batch_size, tokens, model.dim, device=recipe.device)

        def plain() -> Any:
            return move.d2h(output)[:, 0]

        def fixed() -> Any:
            return move.d2h(output[:, 0])

    def complete(run: Callable[[], Any]) -> Any:
        result = run()
        if move.synchronize is not None:
            move.synchronize()
        return result

    return {"plain": partial(complete, plain), "fixed": partial(complete, fixed)}
