"""`as_dataloader`: every `iter` is an epoch from its start."""

import threading
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest
import torch

from tests import making
from wallclock import as_dataloader, open_images
from wallclock.errors import UserError
from wallclock.loader.stream import EPOCH

FILES = [making.jpeg(48, 40, seed) for seed in range(5)] * 2


def positions_of(batches: Any) -> list[list[int]]:
    """In the epoch, of which a stream's positions have the number too."""
    return [[position % EPOCH % 10 for position in batch.positions] for batch in batches]


def test_an_iteration_that_is_left_is_not_continued() -> None:
    with open_images(FILES, 8, 4) as batches:
        loader = as_dataloader(batches)
        assert len(loader) == 3
        for n in (2, 1, 3):
            assert positions_of(islice(loader, n)) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]][:n]


def epochs_of(n: int) -> list[list[list[int]]]:
    with open_images(FILES, 8, 4, shuffle=True, epochs=n) as batches:
        everything = positions_of(batches)
    return [everything[first : first + 3] for first in range(0, 3 * n, 3)]


def test_iterations_at_a_time_are_independent() -> None:
    """Of one loader, of two over the same images, and of the images themselves."""
    epochs = epochs_of(7)
    with open_images(FILES, 8, 4, shuffle=True) as batches:
        loader, other = as_dataloader(batches), as_dataloader(batches)
        nested = [(list(batch.positions), positions_of(loader)) for batch in loader]
        assert nested == [*zip(epochs[0], epochs[1:4], strict=True)]
        pairs = [(list(a.positions), list(b.positions)) for a, b in zip(*[loader] * 2, strict=True)]
        assert pairs == [*zip(epochs[4], epochs[5], strict=True)]
        assert (positions_of(other), positions_of(batches)) == (epochs[0], epochs[0])
        with pytest.raises(UserError, match="another loop took batches of this one"):
            positions_of(next(iter(batches)) for _ in batches)
        assert repr(loader) == "<Epochs: 10 images, 3 batches of 4, next: epoch 6>"
        left = iter(loader)
        next(left)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("loader")]


@pytest.mark.parametrize("taken", [0, 1, 3, None])
def test_a_state_is_what_comes_next(taken: int | None) -> None:
    """Of an epoch that was left, the next one; of one that is running, the rest of it."""
    epochs = epochs_of(5)
    with open_images(FILES, 8, 4, shuffle=True) as batches:
        loader, other = as_dataloader(batches), as_dataloader(batches)
        loader.set_epoch(2)
        running = iter(loader)
        positions_of(islice(running, taken))
        state = loader.state_dict()
        rest = positions_of(running)
        ended = taken is None
        expected = [(None, epochs[3] if ended else rest), (2, epochs[2] if ended else rest)]
        for epoch, comes in [*expected, (4, epochs[4])]:
            other.load_state_dict(state)
            if epoch is not None:
                other.set_epoch(epoch)
            assert positions_of(other) == comes
        positions_of(islice(loader, 1))
        batches.load_state_dict(loader.state_dict())
        assert positions_of(as_dataloader(batches)) == epochs[4]
        batches.load_state_dict(state)
        assert positions_of(as_dataloader(batches)) == expected[0][1]
        next(batches, None)
        whole = as_dataloader(batches)
        assert len(positions_of(whole)) == len(whole)


class Stream:
    """Can be iterated again, has no length."""

    def __iter__(self) -> Iterator[bytes]:
        yield from FILES


def test_a_stream_begins_again() -> None:
    with open_images(Stream(), 8, 4) as batches:
        loader = as_dataloader(batches)
        with pytest.raises(TypeError, match="a stream has no length"):
            len(loader)
        for n in (2, 3, 3):
            assert positions_of(islice(loader, n)) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]][:n]


def test_what_a_trainer_gets() -> None:
    def convert(batch: Any) -> Any:
        return {"pixel_values": batch.images, "labels": torch.tensor(batch.labels)}

    items = [(data, number) for number, data in enumerate(FILES)]
    with open_images(items, 8, 10, output="torch,float32") as batches:
        for _ in range(2):
            (inputs,) = as_dataloader(batches, convert)
            assert inputs["pixel_values"].shape == (10, 3, 8, 8)
            assert inputs["labels"].tolist() == [*range(10)]


def test_a_batch_goes_to_a_device() -> None:
    with open_images(FILES, 8, 10, output="torch") as batches:
        batch = next(batches)
        moved = batch.to("meta")
        assert (moved.images.device.type, batch.images.device.type) == ("meta", "cpu")
        assert moved.ids == batch.ids
    with open_images(FILES, output="torch", preprocess="original") as batches:
        moved = next(batches).to("meta")
        assert {(image.device.type, *image.shape) for image in moved.images} == {
            ("meta", 40, 48, 3)
        }
    with open_images(FILES, 8) as arrays, pytest.raises(UserError, match="ask for output=torch"):
        next(arrays).to("cpu")
