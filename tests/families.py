"""Small models of every kind, with random weights, as folders that `save_pretrained` writes.

They are narrow and shallow; their images are as large as those of published checkpoints. Random
weights are widened so that the vectors of different pictures differ by more than rounding.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
import transformers as t

#: A gain above that of most initializations, at which layers keep the scale of their input.
_GAIN = 1.6
_SMALL: dict[str, Any] = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}
_SMALL |= {"intermediate_size": 48, "image_size": 224, "patch_size": 16}
_TEXT: dict[str, Any] = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
_TEXT |= {"intermediate_size": 32, "vocab_size": 32, "max_position_embeddings": 16}
_TEXT |= {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1}
_BLOCKS: dict[str, Any] = {"hidden_sizes": [8, 12, 16, 24], "depths": [1, 1, 1, 1]}
_SQUARE = {"height": 224, "width": 224}
_CLIP_CROP: dict[str, Any] = {"size": {"shortest_edge": 224}, "crop_size": _SQUARE}
_DINO_CROP: dict[str, Any] = {"size": {"shortest_edge": 256}, "crop_size": _SQUARE}
_DINO_CROP |= {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}
#: EfficientNet's, with one block, for ALIGN also. `hidden_dim` is what the coefficient makes of the
#: last layer's channels: of ALIGN the block's, of EfficientNet 1280.
_EFFICIENT: dict[str, Any] = {"image_size": 224, "width_coefficient": 0.25}
_EFFICIENT |= {"in_channels": [32], "out_channels": [64], "kernel_sizes": [3], "strides": [2]}
_EFFICIENT |= {"num_block_repeats": [1], "expand_ratios": [1], "depthwise_padding": []}


def _save(folder: Path, config: Any, kind: Any, processor: Any) -> None:
    torch.manual_seed(0)
    network = kind(config).eval()
    with torch.no_grad():
        for value in network.parameters():
            if value.ndim >= 2:
                fan_in = value[0].numel()
                value.normal_(0.0, _GAIN / fan_in**0.5)
        _smooth_depthwise(network)
        _calibrate(network)
    network.save_pretrained(folder)
    if processor is not None:
        processor.save_pretrained(folder)


def _smooth_depthwise(network: Any) -> None:
    """Depthwise kernels average, as trained ones do mostly.

    Seventeen blocks of white ones in a row make another vector of every rounded pixel.
    """
    for layer in network.modules():
        if isinstance(layer, torch.nn.Conv2d) and layer.groups == layer.in_channels > 1:
            n = layer.weight[0].numel()
            layer.weight.uniform_(0.0, 2 / n)


def _calibrate(network: Any) -> None:
    """Give batch normalization the statistics of its input, as after a training.

    With those of its initialization a deep network shrinks every picture to the same vector.
    """
    layers = [layer for layer in network.modules() if isinstance(layer, torch.nn.BatchNorm2d)]
    if not layers:
        return
    for layer in layers:
        layer.momentum = None
        layer.train()
    tower = getattr(network, "vision_model", network)
    coarse = torch.randn(16, 3, 14, 14)
    tower(pixel_values=torch.nn.functional.interpolate(coarse, scale_factor=16.0))
    network.eval()


def _vit(folder: Path) -> None:
    processor = t.ViTImageProcessorPil(size=_SQUARE)
    _save(folder, t.ViTConfig(**_SMALL), t.ViTModel, processor)


def _dinov2(folder: Path) -> None:
    sizes = {**_SMALL, "mlp_ratio": 2}
    _save(folder, t.Dinov2Config(**sizes), t.Dinov2Model, t.BitImageProcessorPil(**_DINO_CROP))


def _dinov2_registers(folder: Path) -> None:
    config = t.Dinov2WithRegistersConfig(**{**_SMALL, "mlp_ratio": 2, "num_register_tokens": 3})
    _save(folder, config, t.Dinov2WithRegistersModel, t.BitImageProcessorPil(**_DINO_CROP))


def _dinov3(folder: Path) -> None:
    config = t.DINOv3ViTConfig(**_SMALL, num_register_tokens=4)
    _save(folder, config, t.DINOv3ViTModel, None)
    # Its processor needs torchvision: its file, as the library writes it.
    settings = {
        "image_processor_type": "DINOv3ViTImageProcessorFast",
        "do_resize": True,
        "size": _SQUARE,
        "resample": 2,
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": [0.485, 0.456, 0.406],
        "image_std": [0.229, 0.224, 0.225],
    }
    (folder / "preprocessor_config.json").write_text(json.dumps(settings), encoding="utf-8")


def _clip(folder: Path) -> None:
    config = t.CLIPConfig(vision_config=_SMALL, text_config=_TEXT, projection_dim=20)
    _save(folder, config, t.CLIPModel, t.CLIPImageProcessorPil(**_CLIP_CROP))


def _clip_vision(folder: Path) -> None:
    config = t.CLIPVisionConfig(**_SMALL, projection_dim=20)
    processor = t.CLIPImageProcessorPil(**_CLIP_CROP)
    _save(folder, config, t.CLIPVisionModelWithProjection, processor)


def _siglip(folder: Path) -> None:
    config = t.SiglipConfig(vision_config=_SMALL, text_config={**_TEXT, "projection_size": 24})
    _save(folder, config, t.SiglipModel, t.SiglipImageProcessorPil(size=_SQUARE))


def _align(folder: Path) -> None:
    vision = {**_EFFICIENT, "width_coefficient": 1.0, "hidden_dim": 64}
    config = t.AlignConfig(vision_config=vision, text_config=_TEXT, projection_dim=64)
    processor = t.EfficientNetImageProcessorPil(
        size={"height": 256, "width": 256},
        crop_size=_SQUARE,
        do_center_crop=True,
        rescale_factor=1 / 127.5,
        rescale_offset=True,
        do_normalize=False,
        include_top=False,
    )
    _save(folder, config, t.AlignModel, processor)


def _convnext(folder: Path) -> None:
    processor = t.ConvNextImageProcessorPil(size={"shortest_edge": 224})
    _save(folder, t.ConvNextConfig(**_BLOCKS), t.ConvNextModel, processor)


def _convnextv2(folder: Path) -> None:
    processor = t.ConvNextImageProcessorPil(size={"shortest_edge": 384})
    _save(folder, t.ConvNextV2Config(**_BLOCKS), t.ConvNextV2Model, processor)


def _resnet(folder: Path) -> None:
    config = t.ResNetConfig(embedding_size=8, **_BLOCKS)
    processor = t.ConvNextImageProcessorPil(size={"shortest_edge": 224}, crop_pct=0.875)
    _save(folder, config, t.ResNetModel, processor)


def _swin(folder: Path) -> None:
    config = t.SwinConfig(
        image_size=224, patch_size=4, embed_dim=8, depths=[1, 1], num_heads=[2, 2], window_size=7
    )
    _save(folder, config, t.SwinModel, t.ViTImageProcessorPil(size=_SQUARE, resample=3))


def _beit(folder: Path) -> None:
    config = t.BeitConfig(**_SMALL, vocab_size=32)
    processor = t.BeitImageProcessorPil(
        size={"height": 256, "width": 256}, crop_size=_SQUARE, do_center_crop=True
    )
    _save(folder, config, t.BeitModel, processor)


def _mobilenet_v2(folder: Path) -> None:
    config = t.MobileNetV2Config(image_size=224, depth_multiplier=0.35)
    processor = t.MobileNetV2ImageProcessorPil(size={"shortest_edge": 256}, crop_size=_SQUARE)
    _save(folder, config, t.MobileNetV2Model, processor)


def _efficientnet(folder: Path) -> None:
    processor = t.EfficientNetImageProcessorPil(size=_SQUARE, rescale_offset=True)
    config = t.EfficientNetConfig(**_EFFICIENT, hidden_dim=320)
    _save(folder, config, t.EfficientNetModel, processor)


def _bit(folder: Path) -> None:
    sizes = [64, 96, 128, 160]
    config = t.BitConfig(embedding_size=32, num_groups=8, hidden_sizes=sizes, depths=[1, 1, 1, 1])
    side = {"height": 448, "width": 448}
    processor = t.BitImageProcessorPil(size={"shortest_edge": 448}, crop_size=side)
    _save(folder, config, t.BitModel, processor)


#: Name → what writes its folder: config.json, model.safetensors, preprocessor_config.json.
FAMILIES: Mapping[str, Callable[[Path], None]] = {
    "vit": _vit,
    "dinov2": _dinov2,
    "dinov2-registers": _dinov2_registers,
    "dinov3": _dinov3,
    "clip": _clip,
    "clip-vision": _clip_vision,
    "siglip": _siglip,
    "align": _align,
    "convnext": _convnext,
    "convnextv2": _convnextv2,
    "resnet": _resnet,
    "swin": _swin,
    "beit": _beit,
    "mobilenet-v2": _mobilenet_v2,
    "efficientnet": _efficientnet,
    "bit": _bit,
}
