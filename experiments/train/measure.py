"""Protocols `train_step` and `train`: a training step alone, and behind its loader.

A step is ResNet-50 on a batch of images with random labels, the network of mlsysim's tutorial and
of most loader benchmarks: He et al., "Deep Residual Learning for Image Recognition" (2016), as
transformers builds it, with seeded random weights. What is learned is of no interest; what a step
costs does not depend on it.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from time import perf_counter_ns
from typing import Any, TypeAlias

import numpy as np

from harness.engines import loaders
from harness.engines.inference import TimedInference
from harness.engines.positions import CyclicPositions
from harness.engines.writer import Writer
from harness.processes import gc_disabled, set_threads
from harness.profiler import StageProfiler
from harness.protocols import protocol
from harness.protocols.costs import timed_by_size
from harness.protocols.loop import after, run_pass, steady
from harness.protocols.network import require_network
from harness.protocols.protocol import Measurement, Progress, no_progress
from harness.spec import Cell, Recipe
from wallclock import machine
from wallclock.errors import UserError
from wallclock.loader.batch import Batch, Extras
from wallclock.recipe import ModelSpec
from wallclock.stages import augment, normalize, transfer
from wallclock.stages.augment import GREY, Augmentation, in_pixels, jitter_of

#: The parts of a step, in order. `augment` is on the device; `forward` normalizes uint8 first, and
#: ends with the loss.
PARTS = ("h2d", "augment", "forward", "backward", "optimizer")
#: ImageNet's.
_CLASSES = 1000

#: The context in which a part runs, by its name.
Around: TypeAlias = Callable[[str], AbstractContextManager[Any]]


def resnet50(seed: int) -> Any:
    """transformers' ResNet-50 for 1,000 classes: FP32, in host memory, in training mode."""
    import torch
    from transformers import ResNetConfig, ResNetForImageClassification

    torch.manual_seed(seed)
    config: Any = ResNetConfig(num_labels=_CLASSES)  # type: ignore[call-arg]
    return ResNetForImageClassification(config).train()


class Trainer:
    """Network, loss, optimizer and, where the recipe's device augments, the augmentation.

    FP32 without TF32, or automatic mixed precision in the recipe's dtype, with scaled gradients for
    FP16. SGD with momentum, cross entropy, convolutions in channels-last order, as PyTorch's tuning
    guide recommends. Raises `UserError` where the device would augment floats, `Unavailable`
    without the device.
    """

    def __init__(self, model: ModelSpec, recipe: Recipe) -> None:
        import torch

        device = recipe.device
        if recipe.augment == "device" and recipe.normalize_on != "device":
            raise UserError("recipe.augment=device takes uint8: add recipe.normalize_on=device")
        if device == "cuda":
            machine.require_cuda()
        self._torch: Any = torch
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
        network = resnet50(model.seed).to(device=device, memory_format=torch.channels_last)
        self._network, self._device = network, device
        rates: dict[str, Any] = {"lr": 0.01, "momentum": 0.9, "weight_decay": 1e-4}
        self._optimizer = torch.optim.SGD(network.parameters(), fused=device == "cuda", **rates)
        self._dtype = {"fp16": torch.float16, "bf16": torch.bfloat16}.get(recipe.dtype)
        scales = recipe.dtype == "fp16" and device == "cuda"
        self._scaler = torch.amp.GradScaler(device, enabled=scales)
        self._labels = torch.Generator(device).manual_seed(model.seed)
        move = transfer.make(device)
        self._h2d, self.synchronize = move.h2d, move.synchronize
        self._normalize = normalize.on_device(*model.statistics, device)
        self._augment = None
        if recipe.augment == "device":
            self._augment = augment_on_device(model.input_px, device)

    def step(self, batch: Batch, around: Around = nullcontext) -> None:
        """One optimizer step; on a GPU it may return before the device is done with it.

        The copy of the images to the device is done, so that their buffer may be reused. In the
        stream it follows the step before: that one is done, too.
        """
        torch = self._torch
        with around("h2d"):
            images = self._h2d(batch.images)
            copied = self._event()
        if self._augment is not None:
            with around("augment"):
                images = self._augment(images, batch.extras.augmentations)
        with around("forward"):
            if images.shape[-1] == 3:
                images = self._normalize(images)
            images = images.contiguous(memory_format=torch.channels_last)
            labels = torch.randint(
                _CLASSES, (len(images),), device=self._device, generator=self._labels
            )
            with torch.autocast(self._device, self._dtype, enabled=self._dtype is not None):
                scores = self._network(pixel_values=images).logits
                loss = torch.nn.functional.cross_entropy(scores, labels)
        with around("backward"):
            self._scaler.scale(loss).backward()
        with around("optimizer"):
            self._scaler.step(self._optimizer)
            self._scaler.update()
            self._optimizer.zero_grad(set_to_none=True)
        if copied is not None:
            copied.synchronize()

    def _event(self) -> Any:
        if self._device != "cuda":
            return None
        event = self._torch.cuda.Event(blocking=True)
        event.record()
        return event


def augment_on_device(size: int, device: str) -> Callable[[Any, Sequence[Augmentation]], Any]:
    """`augment` for a batch on a device, in one call.

    uint8 (n, h, w, 3) there → float32 (n, size, size, 3), 0 to 255. The workers have resized images
    to `CANVAS_PX`, so that a small crop has less detail than the file.

    Bilinear without antialiasing, which up to the 1.14 of 256 to 224 px hardly matters. A sample
    beyond the crop takes its edge, as a resize of the crop alone does.
    """
    import torch

    centres = (torch.arange(size, dtype=torch.float32, device=device) + 0.5) / size
    grey = torch.tensor(GREY, dtype=torch.float32, device=device)

    def augment_batch(pixels: Any, augmentations: Sequence[Augmentation]) -> Any:
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

    return augment_batch


def _sampled(centres: Any, start: Any, length: Any, side: int) -> Any:
    """Where to sample along one axis, (n, size) from -1 to 1, for crops (n, 1) in whole pixels.

    Between the centres of the crop's first and last pixel.
    """
    at = (start + centres * length - 0.5).clamp(start, start + length - 1)
    return (2 * at + 1) / side - 1


class Training(TimedInference):
    """Trains on each batch where an embedding job would infer; writes nothing."""

    def __init__(self, trainer: Trainer) -> None:
        super().__init__(Writer(lambda ids, vectors: None, lambda: None))
        self._trainer = trainer

    def submit(self, batch: Batch, requested: int) -> None:
        """Train; the step's time in this thread counts as `forward`."""
        began = perf_counter_ns()
        self._trainer.step(batch)
        self.spans.append([("forward", began, perf_counter_ns() - began)])

    def finish(self) -> None:
        """Wait for the last step."""
        if self._trainer.synchronize is not None:
            self._trainer.synchronize()
        super().finish()


#: Positions of a stream that is effectively endless.
_ENDLESS = 1_000_000


def train_step(cell: Cell, work: Path, progress: Progress) -> Measurement:
    """Train on noise: `params.batches` steps for each size, after `params.warmup_batches`.

    As the recipe's loader delivers it, and for at most `params.seconds` a size. Samples:
    `<part>-<size>`, nanoseconds of each part of each step; a GPU is waited for after each part.
    """
    require_network(cell.model)
    threads = set_threads(cell.recipe, uses_torch=True)
    trainer = Trainer(cell.model, cell.recipe)

    def run(images: Any, profiler: StageProfiler) -> None:
        seed, px = cell.model.seed, augment.CANVAS_PX
        augmentations: Sequence[Any] = ()
        if cell.recipe.augment == "device":
            augmentations = [augment.draw(px, px, seed, 0, at) for at in range(len(images))]
        extras = Extras(augmentations=augmentations)
        batch = Batch([], range(len(images)), images, extras=extras)
        trainer.step(batch, profiler.stage)

    new_profiler = partial(StageProfiler, trainer.synchronize, frozenset(PARTS))
    values: dict[str, Any] = dict(threads)
    with protocol.competing(values):
        samples = timed_by_size(cell, run, new_profiler, progress)
    return Measurement(samples, values | {"peak_memory_mib": protocol.peak_memory_mib()})


def train(cell: Cell, work: Path, progress: Progress) -> Measurement:
    """Loader and training step together, in the steady state, for `params.seconds`.

    The images again and again, augmented anew in every epoch. What the loader had ready before the
    first step is trained on first and not timed. Samples: the loader's stages in its workers,
    `wait`, the main process waiting for a batch, `forward`, the whole step as that process sees it,
    and `wall`. `params.batches`: the least number measured.
    """
    require_network(cell.model)
    recipe, model = cell.recipe, cell.model
    manifest = protocol.open_corpus(cell, "jpeg")
    values = protocol.set_conditions(cell, manifest, uses_torch=True)
    positions = CyclicPositions(_ENDLESS, recipe.batch_size, _ENDLESS)
    # Workers first: a fork after CUDA has started would copy a broken context.
    with gc_disabled(), loaders.open_loader(manifest, recipe, model, positions) as loader:
        trainer = Trainer(model, recipe)
        run = partial(run_pass, loader, max_failures=int(cell.params["max_failures"]))
        run(after(loader.prefetched), no_progress, inference=Training(trainer))
        least = max(int(cell.params["batches"]), loader.burst)
        until = steady(float(cell.params["seconds"]), least, loader.burst)
        progress(0)
        with protocol.competing(values):
            result = run(until, progress, inference=Training(trainer))
        values["peak_memory_mib"] = protocol.peak_memory_mib()
    values |= {
        "n_loaded": result.images,
        "n_batches": result.batches,
        "ran": {"engine": loader.engine, "workers": loader.workers, **result.labels},
    }
    samples: dict[str, Sequence[int]] = dict(result.samples)
    samples["wall"] = [result.wall_ns]
    return Measurement(samples, values, result.failures)
