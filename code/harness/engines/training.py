"""One training step: ResNet-50 on a batch of images with random labels.

The network of mlsysim's tutorial, and of most loader benchmarks: He et al., "Deep Residual Learning
for Image Recognition" (2016), as transformers builds it, with seeded random weights. What is
learned is of no interest; what a step costs does not depend on it.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from time import perf_counter_ns
from typing import Any, TypeAlias

from harness.engines import device_augment
from wallclock import machine
from wallclock.errors import UserError
from wallclock.infer import Inference, Vectors, Writer
from wallclock.loader import Batch
from wallclock.recipe import ModelSpec, Recipe
from wallclock.stages import normalize, transfer

#: The parts of a step, in order. `augment` is on the device; `forward` normalizes uint8 first, and
#: ends with the loss.
PARTS = ("h2d", "augment", "forward", "backward", "optimizer")
#: ImageNet's.
_CLASSES = 1000

#: The context in which a part runs, by its name.
Around: TypeAlias = Callable[[str], AbstractContextManager[None]]


def resnet50(seed: int) -> Any:
    """transformers' ResNet-50 for 1,000 classes: FP32, in host memory, in training mode."""
    import torch
    from transformers import ResNetConfig, ResNetForImageClassification

    torch.manual_seed(seed)
    config: Any = ResNetConfig(num_labels=_CLASSES)  # type: ignore[call-arg]
    return ResNetForImageClassification(config).train()


def _no_context(part: str) -> AbstractContextManager[None]:
    return nullcontext()


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
            self._augment = device_augment.on_device(model.input_px, device)

    def step(self, batch: Batch, around: Around = _no_context) -> None:
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


class Training(Inference):
    """Trains on each batch where an embedding job would infer; writes nothing."""

    def __init__(self, trainer: Trainer) -> None:
        self.spans = []
        self.writer = Writer(_nothing_to_write, _nothing_to_close)
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


def _nothing_to_write(ids: object, vectors: Vectors) -> None:
    """The sink of a training: there are no vectors."""


def _nothing_to_close() -> None:
    """The end of that sink."""
