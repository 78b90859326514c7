"""A module of the service around any image classifier of transformers.

wallclock serve QUEUE_URL module=examples.service_classifier:Classifier top=3

`Pixels` decodes and resizes in threads; what is left to write is the model. It squashes to a
square, where some processors crop the centre.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from transformers import AutoImageProcessor, AutoModelForImageClassification

from wallclock.service.modules import Pixels


class Classifier(Pixels):
    """The most likely labels of an image, as `[{"label": …, "score": …}, …]`, best first."""

    def __init__(self, model: str = "google/vit-base-patch16-224", top: int = 5) -> None:
        processor: Any = AutoImageProcessor.from_pretrained(model)  # type: ignore[no-untyped-call]
        self._network = AutoModelForImageClassification.from_pretrained(model).eval()
        self._mean, self._std = (
            torch.tensor(processor.image_mean),
            torch.tensor(processor.image_std),
        )
        self._labels, self._top = self._network.config.id2label, top
        super().__init__(self._network.config.image_size)

    @torch.inference_mode()
    def process(self, batch: np.ndarray) -> Sequence[Any]:
        """Labels of uint8 images (n, size, size, 3)."""
        pixels = (torch.from_numpy(batch) / 255 - self._mean) / self._std
        scores = self._network(pixel_values=pixels.permute(0, 3, 1, 2)).logits.softmax(1)
        best = torch.topk(scores, self._top)
        rows = zip(best.indices.tolist(), best.values.tolist(), strict=True)
        return [
            [{"label": self._labels[at], "score": score} for at, score in zip(*row, strict=True)]
            for row in rows
        ]
