"""Batches in order: none without an image, resumed exactly; `as_dataloader` begins epochs anew."""

import json
import threading
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import making
from wallclock import Output, Workers, as_dataloader, open_images
from wallclock.errors import UserError
from wallclock.loader.stream import EPOCH

DAMAGED = b"no image"
GOOD = [making.jpeg(48, 40, seed) for seed in range(4)]


class Stream:
    """Can be iterated again, has no length."""

    def __init__(self, items: list[Any]) -> None:
        self.items = items

    def __iter__(self) -> Iterator[Any]:
        return iter(self.items)


def taken(batches: Any, n: int | None = None) -> list[Any]:
    """Of each batch, which images and failures it has, its pixels, and whether they come again."""
    rows = []
    for batch in batches:
        failures = [failure["id"] for failure in batch.failures]
        pixels = str(batch.images.tolist())
        rows.append((batch.ids, failures, batches.epoch, batch.repeated, pixels))
        batch.images[...] = 0  # the consumer's: no later batch shows it
        if len(rows) == n:
            break
    return rows


@settings(max_examples=60)
@given(
    damaged=st.lists(st.booleans(), max_size=16),
    batch=st.integers(1, 3),
    world=st.integers(1, 3),
    epochs=st.integers(1, 3),
    shuffle=st.integers(0, 9),
    drop_last=st.booleans(),
    streamed=st.booleans(),
    data=st.data(),
)
def test_damage_anywhere_and_resumed_anywhere(
    damaged: list[bool],
    batch: int,
    world: int,
    epochs: int,
    shuffle: int,
    drop_last: bool,
    streamed: bool,
    data: st.DataObject,
) -> None:
    """Each image and failure once an epoch; interrupted at any batch, the same ones follow."""
    items = [(f"{at}", DAMAGED if bad else GOOD[at % 4]) for at, bad in enumerate(damaged)]
    options: dict[str, Any] = {"batch": batch, "epochs": epochs, "shuffle": shuffle, "workers": 2}
    options |= {"drop_last": drop_last}
    seen, lengths, is_complete = Counter[str](), set[int](), True

    def opened(rank: int) -> Any:
        return open_images(Stream(items) if streamed else items, 8, shard=(rank, world), **options)

    for rank in range(world):
        with opened(rank) as batches:
            try:
                whole = taken(batches)
            except UserError:
                assert shuffle or drop_last or all(damaged[rank::world])
                is_complete = False
                continue
        lengths.add(len(whole))
        assert all(ids for ids, *_ in whole)
        if drop_last and not any(damaged):
            assert {len(ids) for ids, *_ in whole} <= {batch}
        for ids, failures, _, repeated, _ in whole:
            assert repeated in (0, len(ids))
            seen.update([*([] if repeated else ids), *failures])
        stop = data.draw(st.integers(0, len(whole)))
        with opened(rank) as batches:
            before = taken(batches, stop) if stop else []
            state = json.loads(json.dumps(batches.state_dict()))
        with opened(rank) as batches:
            batches.load_state_dict(state)
            assert before + (taken(batches) if stop < len(whole) else []) == whole
        if not (drop_last and world > 1):
            assert not any(repeated for *_, repeated, _ in whole)
    if drop_last and world > 1:
        assert len(lengths) <= 1, "as many batches of every rank that has an image"
    if is_complete and not drop_last:
        assert seen == Counter({name: epochs for name, _ in items})
    if is_complete and drop_last and not any(damaged):
        assert epochs * len(items) - seen.total() < epochs * batch * world


@pytest.mark.parametrize("workers", [Workers(2), Workers(2, processes=2)])
def test_failures_beside_a_batch_join_it(workers: Workers) -> None:
    """At the start they join the next one, else the one before, in the same epoch."""
    names = [str(at) for at in range(80)]  # more than there are buffers
    items = [(name, GOOD[0] if name in ("2", "3", "7") else DAMAGED) for name in names]
    with open_images(items, 8, 2, epochs=2, workers=workers) as batches:
        rows = [(ids, failures) for ids, failures, *_ in taken(batches)]
        assert batches.is_last
    first, second = (["2", "3"], ["0", "1", "4", "5"]), (["7"], ["6", *names[8:]])
    assert rows == [first, second] * 2


@pytest.mark.parametrize(
    "output", [Output(), Output("float32", "torch"), Output("bfloat16", "torch", hold=1)]
)
def test_a_rank_without_a_batch_repeats_images(output: Output) -> None:
    items = [(f"{at}", DAMAGED if at in (0, 2, 8, 10) else GOOD[at % 4]) for at in range(13)]
    options: dict[str, Any] = {"output": output, "shard": (0, 2), "drop_last": True}
    with open_images(items, 8, 2, **options) as batches:
        rows = taken(batches)
    assert [(ids, repeated, failures) for ids, failures, _, repeated, _ in rows] == [
        (["4", "6"], 2, ["0", "2"]),
        (["4", "6"], 0, []),
        (["4", "6"], 2, ["8", "10"]),
    ]
    assert len({pixels for *_, pixels in rows}) == 1


def test_images_of_their_own_size_are_repeated_too() -> None:
    items = [making.jpeg(30, 20), DAMAGED, DAMAGED, DAMAGED]
    options: dict[str, Any] = {"shard": (0, 2), "drop_last": True, "preprocess": "original"}
    with open_images(items, batch=1, **options) as batches:
        first, second = ([image.copy() for image in batch.images] for batch in batches)
    np.testing.assert_array_equal(first, second)


def test_an_iteration_without_an_image_is_one_line(tmp_path: Path) -> None:
    for name in ("a.jpg", "b.jpg", "c.jpg"):
        (tmp_path / name).write_bytes(making.jpeg()[:200])
    none = r"^none of 3 images could be read; the first, a\.jpg, in "
    with pytest.raises(UserError, match=none), open_images(tmp_path, 8, 2) as batches:
        next(batches)
    assert taken(open_images([], 8)) == []


class Dataset:
    """What is read by number, but not for its state: a fingerprint says which one it is."""

    def __init__(self, fingerprint: str) -> None:
        self._fingerprint = fingerprint

    def __len__(self) -> int:
        return 1000

    def __getitem__(self, index: int) -> bytes:
        raise AssertionError


NAMES = [f"{at}.jpg" for at in range(5000)]


@pytest.mark.parametrize(
    ("items", "others"),
    [
        (NAMES, NAMES[::-1]),
        (NAMES, [*NAMES[:-1], "other.jpg"]),
        (NAMES, ["x", *NAMES[1:]]),
        ([*map(Path, NAMES)], [*map(Path, NAMES[1:]), Path("other.jpg")]),
        ([("a", GOOD[0]), ("b", GOOD[1])], [("b", GOOD[1]), ("a", GOOD[0])]),
        ([{"id": "a", "image": GOOD[0]}], [{"id": "b", "image": GOOD[0]}]),
        (["a.tar", "b.tar"], ["b.tar", "a.tar"]),
        (Dataset("one"), Dataset("another")),
    ],
)
def test_the_state_of_other_images_is_refused(items: Any, others: Any) -> None:
    state = json.loads(json.dumps(open_images(items, 8).state_dict()))
    open_images(items, 8).load_state_dict(state)
    with pytest.raises(UserError, match="is for other images, or for the same ones in an"):
        open_images(others, 8).load_state_dict(state)


def test_the_state_of_another_iteration_is_refused() -> None:
    """Images without an id are known by their number: bytes, and what is read by number."""
    state = open_images(GOOD, 8).state_dict()
    open_images(GOOD[::-1], 8).load_state_dict(state)
    for others, said in (
        (GOOD[:3], "for n=4, .*; this iteration has n=3"),
        (iter(GOOD), "kind of"),
    ):
        with pytest.raises(UserError, match=said) as caught:
            open_images(others, 8, 3, seed=10**200).load_state_dict(state)
        assert len(str(caught.value)) <= 160
    without = {key: value for key, value in state.items() if key != "data"}
    for nothing in ({}, {"order": 3}, None, without):
        with pytest.raises(UserError, match="not a state of open_images"):
            open_images(GOOD, 8).load_state_dict(nothing)  # type: ignore[arg-type]


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


def test_a_stream_begins_again() -> None:
    with open_images(Stream(FILES), 8, 4) as batches:
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
