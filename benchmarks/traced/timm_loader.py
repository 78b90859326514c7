"""timm: a folder's dataset, its loader with two workers, and a model's features."""

import sys

import timm
import torch
from timm.data import create_dataset, create_loader, resolve_model_data_config

if __name__ == "__main__":
    model = timm.create_model("vit_tiny_patch16_224", pretrained=False, num_classes=0).eval()
    config = resolve_model_data_config(model)
    dataset = create_dataset("", sys.argv[1])
    loader = create_loader(
        dataset,
        config["input_size"],
        batch_size=16,
        num_workers=2,
        use_prefetcher=False,
        mean=config["mean"],
        std=config["std"],
    )
    with torch.inference_mode():
        print(sum(len(model(images)) for images, _ in loader))
