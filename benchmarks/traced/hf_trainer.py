"""Hugging Face: datasets.map in two processes, then a Trainer of a small ViT."""

import sys
import tempfile
from pathlib import Path

from datasets import Dataset, Image
from transformers import (
    Trainer,
    TrainingArguments,
    ViTConfig,
    ViTForImageClassification,
    ViTImageProcessor,
)

processor = ViTImageProcessor()


def prepare(rows):
    images = [image.convert("RGB") for image in rows["image"]]
    return {"pixel_values": processor(images)["pixel_values"]}


if __name__ == "__main__":
    paths = [str(path) for path in sorted(Path(sys.argv[1]).iterdir())]
    rows = {"image": paths, "labels": [number % 2 for number in range(len(paths))]}
    dataset = Dataset.from_dict(rows).cast_column("image", Image())
    dataset = dataset.map(prepare, batched=True, batch_size=16, num_proc=2, remove_columns="image")
    dataset.set_format("torch")
    config = ViTConfig(hidden_size=384, num_hidden_layers=2, num_attention_heads=6)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(folder, per_device_train_batch_size=16, num_train_epochs=1)
        Trainer(ViTForImageClassification(config), arguments, train_dataset=dataset).train()
