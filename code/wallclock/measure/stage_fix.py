"""Protocol `stage_fix`: a stage as the paper's recipe has it, and with its fix; nothing else.

`normalize`: image by image on the host, or one batch on the device. `assemble`: a stack that is
then copied into shared memory, or stacked there. `h2d`: from pageable or from page-locked memory.
`d2h`: every patch's vector, of which the host takes the first, or the first alone. (The network
pools so anyway: the plain copy is of a job that does not.)
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from wallclock.clock import gc_disabled
from wallclock.errors import Unavailable, check_name
from wallclock.measure import protocol
from wallclock.measure.protocol import Measurement, Progress
from wallclock.spec import Cell
from wallclock.stages import assemble, normalize, transfer

#: Stage → whether its fix needs a device with memory of its own.
STAGES = {"normalize": True, "assemble": False, "h2d": True, "d2h": True}
#: A vision transformer's patch of DINOv2, in pixels.
_PATCH_PX = 14
#: In turn, so that a drift of the machine touches both alike.
_ROUNDS = 5
_WARM_UP = 3

#: A batch through a stage.
_Batch: TypeAlias = Callable[[], object]


def stage_fix(cell: Cell, work: Path, progress: Progress) -> Measurement:
    """Time `params.stage` for `params.seconds`, half of it plain and half of it fixed, in turn.

    Samples: `plain`, `fixed`, ns of each round. Values: `n_plain`, `n_fixed`, images of all rounds.

    Raises:
        Unavailable: the fix needs a GPU and the recipe's device is the host.
    """
    stage = check_name(str(cell.params["stage"]), STAGES, "stage")
    if STAGES[stage] and cell.recipe.device != "cuda":
        raise Unavailable("needs a GPU: here the device is the host")
    plain, fixed = _MAKERS[stage](cell)
    seconds, size = float(cell.params["seconds"]) / 2 / _ROUNDS, cell.recipe.batch_size
    samples: dict[str, list[int]] = {"plain": [], "fixed": []}
    values = {"n_plain": 0, "n_fixed": 0}

    def step(run: _Batch) -> int:
        run()
        return size

    with gc_disabled():
        for run in (*[plain] * _WARM_UP, *[fixed] * _WARM_UP):
            run()
        for _ in range(_ROUNDS):
            for name, run in (("plain", plain), ("fixed", fixed)):
                n, ns = protocol.repeat_for(seconds, lambda run=run: step(run))  # type: ignore[misc]
                samples[name].append(ns)
                values[f"n_{name}"] += n
                progress(n)
    return Measurement(samples, values)


def _normalize(cell: Cell) -> tuple[_Batch, _Batch]:
    images = protocol.noise_batch(cell.recipe.batch_size, cell.model.input_px, uint8=True)
    on_host = normalize.make(*cell.model.statistics)
    move = transfer.make(cell.recipe.device)
    on_device = normalize.on_device(*cell.model.statistics, cell.recipe.device)
    batch = move.h2d(images)
    return lambda: [on_host(image) for image in images], _waiting(move, lambda: on_device(batch))


def _assemble(cell: Cell) -> tuple[_Batch, _Batch]:
    import torch

    images = [*protocol.noise_batch(cell.recipe.batch_size, cell.model.input_px, uint8=False)]
    return (
        lambda: torch.from_numpy(np.stack(images)).share_memory_(),  # type: ignore[no-untyped-call]
        lambda: assemble.stack_shared(images),
    )


def _h2d(cell: Cell) -> tuple[_Batch, _Batch]:
    import torch

    images = protocol.noise_batch(cell.recipe.batch_size, cell.model.input_px, uint8=False)
    pageable, move = torch.from_numpy(images), transfer.make(cell.recipe.device)
    pinned = pageable.pin_memory()
    return _waiting(move, lambda: move.h2d(pageable)), _waiting(move, lambda: move.h2d(pinned))


def _d2h(cell: Cell) -> tuple[_Batch, _Batch]:
    import torch

    move, size = transfer.make(cell.recipe.device), cell.recipe.batch_size
    tokens = (cell.model.input_px // _PATCH_PX) ** 2 + 1
    output = torch.zeros(size, tokens, cell.model.dim, device=cell.recipe.device)
    return lambda: move.d2h(output)[:, 0], lambda: move.d2h(output[:, 0])


def _waiting(move: transfer.Transfer, run: _Batch) -> _Batch:
    def wait() -> object:
        result = run()
        if move.synchronize is not None:
            move.synchronize()
        return result

    return wait


_MAKERS: dict[str, Callable[[Cell], Any]] = {
    **{"normalize": _normalize, "assemble": _assemble},
    **{"h2d": _h2d, "d2h": _d2h},
}
