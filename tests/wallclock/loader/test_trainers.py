"""Trainers of others take `as_dataloader` as they take a DataLoader: every step, also resumed."""

import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest
import torch

from tests import making
from wallclock import Batch, as_dataloader, open_images

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # the trainers' own
]
N, BATCH, EPOCHS = 22, 4, 3
STEPS = 6  # of an epoch
ITEMS = [(making.jpeg(48, 40, seed), seed % 3) for seed in range(N)]
OPTIONS: dict[str, Any] = {"size": 8, "batch": BATCH, "output": "torch,float32"}


def installed(name: str) -> Any:
    return pytest.importorskip(name, reason=f"{name} is not installed: pip install {name}")


class Net(torch.nn.Module):
    """One layer, always with the same weights; takes what `inputs_of` makes of a batch."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(3 * 8 * 8, 3)

    def forward(self, pixel_values: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        logits = self.layer(pixel_values.flatten(1))
        return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}


def inputs_of(batch: Batch[torch.Tensor]) -> dict[str, torch.Tensor]:
    return {"pixel_values": batch.images, "labels": torch.tensor(batch.labels)}


def recorded(images: Any, seen: list[list[int]]) -> Any:
    """A loader that notes which images were trained on."""

    def note(batch: Batch[torch.Tensor]) -> dict[str, torch.Tensor]:
        seen.append([*batch.positions])
        return inputs_of(batch)

    return as_dataloader(images, note)


@pytest.fixture(scope="module")
def everything() -> list[list[int]]:
    with open_images(ITEMS, shuffle=True, epochs=EPOCHS, **OPTIONS) as batches:
        return [list(batch.positions) for batch in batches]


def by_transformers(out: Path, accumulate: int, **train: Any) -> tuple[list[list[int]], Any]:
    """The images of each step, and the weights; saves and evaluates, on the same images."""
    transformers = installed("transformers")
    installed("accelerate")  # Trainer needs it
    seen: list[list[int]] = []

    class Trainer(transformers.Trainer):  # type: ignore[misc, name-defined]
        def get_train_dataloader(self) -> Any:
            return recorded(self.train_dataset, seen)

        def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
            return as_dataloader(eval_dataset or self.eval_dataset, inputs_of)

    options = {"save_strategy": "steps", "save_steps": 2, "eval_strategy": "steps", "eval_steps": 2}
    options |= {"num_train_epochs": EPOCHS, "use_cpu": True, "report_to": [], "disable_tqdm": True}
    options["gradient_accumulation_steps"] = accumulate
    net, arguments = Net(), transformers.TrainingArguments(str(out), **options)
    with open_images(ITEMS, shuffle=True, **OPTIONS) as images:
        trainer = Trainer(net, arguments, train_dataset=images, eval_dataset=images)
        trainer.train(**train)
        assert trainer.evaluate()["eval_loss"] > 0
    return seen, net.layer.weight.detach()


@pytest.mark.parametrize(("accumulate", "step", "batches"), [(1, 8, 8), (2, 4, 8)])
def test_transformers(
    accumulate: int, step: int, batches: int, tmp_path: Path, everything: list[list[int]]
) -> None:
    whole, weights = by_transformers(tmp_path, accumulate)
    assert whole == everything
    saved = str(tmp_path / f"checkpoint-{step}")
    after, resumed = by_transformers(tmp_path / "after", accumulate, resume_from_checkpoint=saved)
    assert after == everything[batches:]
    assert resumed.equal(weights)


def by_lightning(out: Path, limit: int | None, **fit: Any) -> tuple[list[list[int]], Any]:
    """The same; looks at two batches first, validates within an epoch, saves at every step."""
    lightning = installed("lightning")
    seen: list[list[int]] = []

    class Classifier(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.net = Net()

        def training_step(self, batch: Any, _: int) -> Any:
            return self.net(**batch)["loss"]

        def validation_step(self, batch: Any, _: int) -> None:
            self.log("loss", self.net(**batch)["loss"], batch_size=BATCH)

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 0.01)

    save = lightning.pytorch.callbacks.ModelCheckpoint(
        out, "{step}", every_n_train_steps=1, save_top_k=-1, save_on_train_epoch_end=False
    )
    shown = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = lightning.Trainer(
        max_epochs=EPOCHS,
        limit_train_batches=limit,
        val_check_interval=2,
        accelerator="cpu",
        callbacks=[save],
        **shown,
    )
    module = Classifier()
    with open_images(ITEMS, shuffle=True, **OPTIONS) as images:
        training, validation = recorded(images, seen), as_dataloader(images, inputs_of)
        trainer.fit(module, training, validation, **fit)
    return seen, module.net.layer.weight.detach()


@pytest.mark.parametrize("limit", [None, 4])
def test_lightning(limit: int | None, tmp_path: Path, everything: list[list[int]]) -> None:
    """Resumed in the middle of an epoch and at its end, which may come early."""
    whole, weights = by_lightning(tmp_path, limit)
    epochs = [everything[first : first + STEPS] for first in range(0, EPOCHS * STEPS, STEPS)]
    assert whole == [positions for epoch in epochs for positions in epoch[:limit]]
    with open_images(ITEMS, **OPTIONS) as images:  # what Lightning reads to overfit, and not to
        assert isinstance(as_dataloader(images).sampler, torch.utils.data.SequentialSampler)
    for step in (3, limit or STEPS, 9):
        saved = tmp_path / f"step={step}.ckpt"
        after, resumed = by_lightning(tmp_path / f"{step}", limit, ckpt_path=saved)
        assert after == whole[step:]
        assert resumed.equal(weights)


def test_accelerate(tmp_path: Path, everything: list[list[int]]) -> None:
    """It applies gradients at the end of an epoch, skips batches, and saves the loader's state."""
    accelerate = installed("accelerate")
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=4)
    seen, applied = list[list[int]](), list[int]()
    with open_images(ITEMS, shuffle=True, **OPTIONS) as images:
        loader, net = recorded(images, seen), Net()
        accelerator.register_for_checkpointing(loader)
        net, optimizer = accelerator.prepare(net, torch.optim.SGD(net.parameters(), 0.01))
        for step, batch in enumerate(loader):
            with accelerator.accumulate(net):
                accelerator.backward(net(**batch)["loss"])
                optimizer.step()
                optimizer.zero_grad()
            applied += [step] if accelerator.sync_gradients else []
            if step == 1:
                accelerator.save_state(str(tmp_path))
            validated = as_dataloader(images, inputs_of)
            assert len([*validated]) == STEPS
        assert (seen, applied) == (everything[:STEPS], [3, 5])
        for epoch, skipped in ((1, 2), (2, 5)):
            seen.clear()
            loader.set_epoch(epoch)
            rest = accelerate.skip_first_batches(loader, skipped)
            assert len([*rest]) == len(rest) == STEPS - skipped
            first = epoch * STEPS
            assert seen == everything[first + skipped : first + STEPS], "none is loaded"
        seen.clear()
        accelerator.load_state(str(tmp_path))
        assert len([*loader]) == STEPS - 2
        assert seen == everything[2:STEPS]
    assert not accelerator.gradient_state.in_dataloader


def train_of_rank(rank: int, world: int, port: int, folder: str) -> None:
    """Two epochs; of rank 0, the first batch and a later one are damaged as a whole."""
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": f"{port}"}
    torch.distributed.init_process_group("gloo", rank=rank, world_size=world)
    items = [(b"damaged", 0) if at in (0, 2, 8, 10) else item for at, item in enumerate(ITEMS)]
    net = torch.nn.parallel.DistributedDataParallel(Net())
    optimizer, rows = torch.optim.SGD(net.parameters(), 0.01), []
    options = {**OPTIONS, "batch": 2, "drop_last": True, "shard": (rank, world), "epochs": 2}
    with open_images(items, **options) as batches:
        for batch in batches:
            optimizer.zero_grad()
            net(**inputs_of(batch))["loss"].backward()
            optimizer.step()
            rows.append((list(batch.positions), batch.repeated, len(batch.failures)))
    weights = net.module.layer.weight.flatten().tolist()
    Path(f"{folder}/{rank}.json").write_text(json.dumps([rows, weights]))
    torch.distributed.destroy_process_group()


@pytest.mark.timeout(240)
def test_two_ranks_of_which_one_has_batches_of_damage(tmp_path: Path) -> None:
    """They wait for one another at each step: both have as many, and the same weights."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    spawn: Any = torch.multiprocessing.spawn  # type: ignore[attr-defined]
    spawn(train_of_rank, (2, port, str(tmp_path)), nprocs=2)
    (first, weights), (second, same) = (
        json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)
    )
    rest = [[[4, 6], 0, 0], [[4, 6], 2, 2], [[12, 14], 0, 0], [[16, 18], 0, 0]]
    assert first == [[[4, 6], 2, 2], *rest, [[16, 18], 2, 2], *rest]
    assert [positions for positions, _, _ in second] == [[at, at + 2] for at in range(1, 20, 4)] * 2
    assert weights == same
