"""The loader where PyTorch Lightning, Accelerate and transformers' Trainer take a DataLoader.

    python -m examples.trainers FOLDER lightning|accelerate|transformers

Needs that library. An image's class is the folder that it is in; the network is tiny.
"""

import sys
import tempfile
from typing import Any

import torch

from examples import arguments
from wallclock import Batch, as_dataloader, open_images

SIZE, EPOCHS = 32, 2
OPTIONS: dict[str, Any] = {"output": "torch,float32", "labels": "folder"}


def inputs_of(batch: Batch[torch.Tensor]) -> dict[str, torch.Tensor]:
    """What a model of transformers takes."""
    return {"pixel_values": batch.images, "labels": torch.tensor(batch.labels)}


def loss_of(network: torch.nn.Module, batch: Batch[torch.Tensor]) -> torch.Tensor:
    """Cross entropy of a batch that is on the network's device."""
    labels = torch.tensor(batch.labels, device=batch.images.device)
    return torch.nn.functional.cross_entropy(network(batch.images), labels)


def make_network() -> torch.nn.Module:
    """One layer."""
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.LazyLinear(10))


def by_lightning(folder: str) -> float:
    """Sanity checks, training, validation; the last validation's loss."""
    import lightning

    class Classifier(lightning.LightningModule):  # type: ignore[misc, unused-ignore]
        def __init__(self) -> None:
            super().__init__()
            self.network = make_network()
            self.network(torch.zeros(1, 3, SIZE, SIZE))

        def training_step(self, batch: Batch[torch.Tensor], _: int) -> torch.Tensor:
            return loss_of(self.network, batch)

        def validation_step(self, batch: Batch[torch.Tensor], _: int) -> None:
            self.log("loss", loss_of(self.network, batch), batch_size=len(batch.ids))

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 0.01)

    trainer = lightning.Trainer(
        max_epochs=EPOCHS,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
    )
    ranks = (trainer.global_rank, trainer.world_size)
    with (
        open_images(folder, SIZE, 4, **OPTIONS, shuffle=True, shard=ranks) as training,
        open_images(folder, SIZE, 4, **OPTIONS, shard=ranks) as validation,
    ):
        trainer.fit(Classifier(), as_dataloader(training), as_dataloader(validation))
    return float(trainer.callback_metrics["loss"])


def by_accelerate(folder: str) -> float:
    """A loop of one's own, sharded by the accelerator's ranks; the last batch's loss."""
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    network = make_network()
    network(torch.zeros(1, 3, SIZE, SIZE))
    network, optimizer = accelerator.prepare(network, torch.optim.SGD(network.parameters(), 0.01))
    ranks = (accelerator.process_index, accelerator.num_processes)
    loss = torch.zeros(())
    with open_images(
        folder, SIZE, 4, **OPTIONS, shuffle=True, epochs=EPOCHS, shard=ranks
    ) as batches:
        for batch in batches:
            loss = loss_of(network, batch.to(accelerator.device))
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
    return float(loss.detach())


def by_transformers(folder: str) -> float:
    """`Trainer` asks for its loaders by two methods; the loss of the evaluation."""
    import transformers

    class Trainer(transformers.Trainer):  # type: ignore[misc, unused-ignore]
        def get_train_dataloader(self) -> Any:
            images: Any = self.train_dataset
            return as_dataloader(images, inputs_of)

        def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
            images: Any = eval_dataset or self.eval_dataset
            return as_dataloader(images, inputs_of)

    sizes: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1}
    sizes |= {"num_attention_heads": 2, "image_size": SIZE, "patch_size": 16, "num_labels": 10}
    model = transformers.ViTForImageClassification(transformers.ViTConfig(**sizes))
    with (
        tempfile.TemporaryDirectory() as out,
        open_images(folder, SIZE, 4, **OPTIONS, shuffle=True) as training,
        open_images(folder, SIZE, 4, **OPTIONS) as evaluation,
    ):
        settings = transformers.TrainingArguments(
            out, num_train_epochs=EPOCHS, use_cpu=True, report_to=[], save_strategy="no"
        )
        trainer = Trainer(model, settings, train_dataset=training, eval_dataset=evaluation)
        trainer.train()
        return float(trainer.evaluate()["eval_loss"])


TRAINERS = {"lightning": by_lightning, "accelerate": by_accelerate, "transformers": by_transformers}


def main(folder: str, name: str) -> None:
    """Train, print the loss."""
    if name not in TRAINERS:
        sys.exit(f"no trainer is called {name}: {', '.join(TRAINERS)}")
    print(f"{name}: loss {TRAINERS[name](folder):.3f}")


if __name__ == "__main__":
    main(*arguments(__doc__, 2))
