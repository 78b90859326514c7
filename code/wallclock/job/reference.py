"""Vectors as a plain loop makes them: Pillow, the model's own processor, the model's own class.

Nothing of the loader, of the stages and of the network's wrapping makes a pixel or a vector, so
that a mistake of theirs cannot stand on both sides of `verify`.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from wallclock import checkpoint
from wallclock.check import read_header
from wallclock.errors import first_line, image_errors, import_extra
from wallclock.orientation import orientation_of
from wallclock.preprocess import Preprocess
from wallclock.recipe import Limits, ModelSpec
from wallclock.stages.decode.pil import (
    load_stored,
    open_image,
    stated_orientation,
    turn_upright,
    without_metadata,
)
from wallclock.stages.forward.networks import load_network

#: An image to the network's input, float32 (1, 3, h, w).
_Prepare: TypeAlias = Callable[[Any], Any]


class Reference:
    """Embeds one image after the other.

    `source` says in words what prepares the pixels: the model's processor where it can be had.

    Args:
        model: as the dataset's job resolved it.
        preprocess: `recipe.preprocess` of that job; with `is_auto` the processor's own.
        limits: of that job.

    Raises UserError: the model, or a library, is not here.
    """

    def __init__(self, model: ModelSpec, preprocess: str, limits: Limits, *, is_auto: bool) -> None:
        self._model, self._limits = model, limits
        self._geometry = Preprocess.parse(preprocess, model.input_px)
        self.source: str = "Pillow"
        self._prepare: _Prepare = self._by_pillow
        self._embed: Callable[[Any], Any] = self._mock
        if model.weights == "none":
            return
        import_extra("transformers", "wallclock verify", "embed")
        if is_auto and model.weights == "pretrained":
            self._prepare_by_processor()
        import torch

        self._embed = torch.inference_mode()(_features(model, self._geometry))

    def open(self, data: bytes) -> Any:
        """An image file as Pillow's RGB image, upright if the geometry says so.

        Raises ImageError: it is over the limits, or Pillow does not read it.
        """
        opened = image_errors("decode", "Pillow", _open)
        return opened(data, self._limits, rotate=self._geometry.rotate)

    def vector(self, image: Any) -> npt.NDArray[np.float32]:
        """The vector (dim,) of an image that `open` returned."""
        vector = np.asarray(self._embed(self._prepare(image)), np.float32).reshape(-1)
        if self._model.normalize:
            vector = vector / (np.linalg.norm(vector.astype(np.float64)) or 1.0)
        return vector

    def _prepare_by_processor(self) -> None:
        from transformers import AutoImageProcessor

        folder = checkpoint.folder_of(self._model)
        try:
            kind: Any = AutoImageProcessor  # untyped in transformers
            processor = kind.from_pretrained(str(folder), backend="pil", local_files_only=True)
        except (ImportError, OSError, ValueError) as error:
            # timm's transforms and some classes need torchvision; their steps are then Pillow's.
            needs = "needs torchvision" if "orchvision" in str(error) else first_line(error)
            self.source = f"Pillow (the processor {needs})"
            return
        self.source = type(processor).__name__
        self._prepare = lambda image: processor(image, return_tensors="pt")["pixel_values"]

    def _by_pillow(self, image: Any) -> Any:
        """Resize all of it, cut out the center, normalize in float64; the mock's pixels as such."""
        from PIL import Image

        rows, columns = self._geometry.resized(image.height, image.width)
        resample = Image.Resampling[self._geometry.interpolation.upper()]
        resized = image.resize((columns, rows), resample)
        height, width = self._geometry.canvas
        top, left = (rows - height) // 2, (columns - width) // 2
        pixels = np.asarray(resized.crop((left, top, left + width, top + height)))
        if self._model.weights == "none":
            return pixels[np.newaxis]
        import torch

        mean, std = self._model.statistics
        normalized = (pixels / 255 - np.array(mean)) / np.array(std)
        return torch.from_numpy(normalized.transpose(2, 0, 1)[np.newaxis].astype(np.float32))

    def _mock(self, pixels: Any) -> Any:
        """The pixels in the middle."""
        flat = pixels.reshape(-1)
        start = max(0, len(flat) - self._model.dim) // 2
        return flat[start : start + self._model.dim]


def _open(data: bytes, limits: Limits, *, rotate: bool) -> Any:
    """As transformers' `load_image` does; of 16-bit samples the high byte, as our policy has it."""
    from PIL import Image

    header = read_header(data, limits)
    with open_image(data, header.format) as image:
        if not rotate:
            upright = load_stored(image)
        else:
            image.load()
            is_cut = header.format == "jpeg" and without_metadata(data) is not data
            turned = orientation_of(data) if is_cut else stated_orientation(image)
            upright = turn_upright(image, turned)
        if upright.mode.startswith("I"):
            high = np.asarray(upright).astype(np.uint32) >> 8
            upright = Image.fromarray(high.astype(np.uint8))
        return upright.convert("RGB")


def _features(model: ModelSpec, geometry: Preprocess) -> Callable[[Any], Any]:
    """Pixels (1, 3, h, w) to the vector that `model.pool` says, by the model's own methods."""
    import torch

    if model.weights == "random":
        # There is no other source of these weights.
        network = load_network(model, geometry.canvas)
        return lambda pixels: network(pixel_values=pixels).pooler_output
    network, has_pooler = _load(model)
    tower = getattr(network, "vision_model", network)
    height, width = geometry.canvas
    patch = getattr(tower.config, "patch_size", None) or height
    patches = (height // patch) * (width // patch)

    def embed(pixels: Any) -> Any:
        if model.pool == "projection":
            method = getattr(network, "get_image_features", network)
            output = method(pixel_values=pixels)
            if isinstance(output, torch.Tensor):
                return output
            embeds = getattr(output, "image_embeds", None)
            return output.pooler_output if embeds is None else embeds
        output = tower(pixel_values=pixels)
        states, pooled = output.last_hidden_state, getattr(output, "pooler_output", None)
        if model.pool in ("tower", "pooler") and pooled is not None and has_pooler:
            return pooled
        if states.ndim == 4:
            return states.mean(dim=(2, 3))
        if model.pool == "mean":
            # Class, distillation and register tokens come first; Swin's merged patches have none.
            return states[:, max(states.shape[1] - patches, 0) :].mean(dim=1)
        return states[:, 0]

    return embed


def _load(model: ModelSpec) -> tuple[Any, bool]:
    """The model by transformers, in FP32; and whether the weights of a pooler were trained."""
    import transformers

    folder = checkpoint.weights_folder_of(model)
    config = checkpoint.read_json(folder / checkpoint.CONFIG)
    architecture = next(iter(config.get("architectures") or []), "")
    kind = transformers.AutoModel
    if architecture.endswith("VisionModelWithProjection"):
        kind = getattr(transformers, architecture)
    network, info = kind.from_pretrained(
        str(folder), use_safetensors=True, output_loading_info=True, local_files_only=True
    )
    missing = [str(name) for name in info["missing_keys"]]
    has_pooler = not any("pooler." in name for name in missing)
    return network.eval().float(), has_pooler
