"""What a user's function draws in the workers: the same whatever the workers do."""

import random
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.wallclock.loader.test_transform import CREWS, FILES, SIZE, N, images_of
from wallclock.errors import UserError
from wallclock.loader.images import open_images
from wallclock.loader.output import Workers
from wallclock.loader.transform import check_draws, takes_rng
from wallclock.stages.augment import Augment


def draw_by_rng(pixels: Any, rng: np.random.Generator) -> Any:
    """Nothing of the image is left: all of it is drawn."""
    return rng.integers(0, 256, pixels.shape, np.uint8)


def drawn_by_hand(seed: int, epoch: int, position: int) -> Any:
    """What `draw_by_rng` has to return."""
    rng = np.random.default_rng(seed << 80 | epoch << 40 | position)
    return rng.integers(0, 256, (SIZE, SIZE, 3), np.uint8)


def draw_by_globals(pixels: Any) -> Any:
    """One pixel from each of the three global generators."""
    made = np.zeros_like(pixels)
    made[0, 0] = random.randrange(256), np.random.randint(256), int(torch.randint(256, ()))
    return made


def by_position(batches: Any) -> dict[tuple[int, int], bytes]:
    """Epoch and position → pixels."""
    return {
        (batches.epoch, position): image.tobytes()
        for batch in batches
        for position, image in zip(batch.positions, batch.images, strict=True)
    }


@settings(max_examples=12)
@given(
    crew=st.sampled_from(CREWS),
    seed=st.integers(0, 2**40),
    batch=st.integers(1, 5),
    shuffle=st.booleans(),
    shard=st.sampled_from([(0, 1), (0, 2), (1, 2)]),
    epochs=st.integers(1, 3),
    data=st.data(),
)
def test_what_it_draws_is_of_seed_epoch_and_position(
    crew: Workers,
    seed: int,
    batch: int,
    shuffle: bool,
    shard: tuple[int, int],
    epochs: int,
    data: st.DataObject,
) -> None:
    """Whatever the workers, the batches and the ranks; interrupted and resumed or not."""
    options: dict[str, Any] = {"seed": seed, "shuffle": shuffle, "shard": shard, "epochs": epochs}
    options |= {"augment": Augment(transform=draw_by_rng), "workers": crew}
    with open_images(FILES, SIZE, batch, **options) as batches:
        stop = data.draw(st.integers(0, len(batches)))
        state = batches.state_dict()
        seen: dict[tuple[int, int], bytes] = {}
        for _ in range(stop):
            loaded = next(batches)
            for position, image in zip(loaded.positions, loaded.images, strict=True):
                seen[batches.epoch, position] = image.tobytes()
            state = batches.state_dict()
    with open_images(FILES, SIZE, batch, **options) as batches:
        if stop < len(batches):
            batches.load_state_dict(state)
            for loaded in batches:
                for position, image in zip(loaded.positions, loaded.images, strict=True):
                    seen[batches.epoch, position] = image.tobytes()
    assert len(seen) == epochs * len(range(shard[0], N, shard[1]))
    for (epoch, position), image in seen.items():
        assert image == drawn_by_hand(seed, epoch, position).tobytes()


def test_of_a_stream_it_draws_the_same() -> None:
    options: dict[str, Any] = {"augment": Augment(transform=draw_by_rng), "seed": 5}
    with open_images(iter(FILES), SIZE, 2, shuffle=4, workers=3, **options) as batches:
        seen = by_position(batches)
    assert seen == {(0, at): drawn_by_hand(5, 0, at).tobytes() for at in range(N)}


def global_states() -> Any:
    """Of the three, as they compare."""
    of_numpy: Any = np.random.get_state()
    return random.getstate(), of_numpy[1].tolist(), torch.get_rng_state().tolist()


def test_global_generators_are_seeded_in_processes() -> None:
    """As the image's own, whichever process has it; those of this process go on as they were."""
    seen = []
    random.seed(1)
    np.random.seed(2)
    torch.manual_seed(3)
    expected = global_states()
    for crew in (Workers(2, processes=2), Workers(3, processes=3)):
        options: dict[str, Any] = {"augment": Augment(transform=draw_by_globals), "seed": 7}
        with open_images(FILES, SIZE, 2, epochs=2, workers=crew, **options) as batches:
            pixels = [image[0, 0].tolist() for batch in batches for image in batch.images]
        seen.append(pixels)
    assert seen[0] == seen[1]
    # Of 2 x 9 images each generator has drawn anew.
    assert all(len(set(column)) > 9 for column in zip(*seen[0], strict=True))
    assert global_states() == expected


def test_the_crop_is_not_drawn_from_the_same_numbers() -> None:
    """The key itself is the crop's; the global generators begin elsewhere."""
    at = random.Random(0).random()

    def first(pixels: Any) -> Any:
        assert random.random() != at
        return pixels

    images_of(FILES[:1], Augment(transform=first), workers=Workers(2, processes=2))


@pytest.mark.parametrize("crew", [Workers(1), Workers(3), Workers(4, processes=2)])
def test_what_threads_would_draw_is_refused(crew: Workers) -> None:
    with pytest.raises(UserError, match=r"no parameter rng.*random=False.*processes=\d") as caught:
        open_images(FILES, SIZE, augment=Augment(transform=draw_by_globals), workers=crew)
    assert "\n" not in str(caught.value)


def test_the_advice_of_the_refusal_is_right() -> None:
    augment = Augment(transform=draw_by_globals)
    for threads, processes in ((1, 1), (8, 4)):
        with pytest.raises(UserError) as caught:
            check_draws(augment, threads, processes)
        advised = eval(str(caught.value).rpartition("workers=")[2], {"Workers": Workers})
        check_draws(augment, advised.threads, advised.processes)


def test_who_takes_a_generator() -> None:
    class Flip:
        def __call__(self, pixels: Any, *, rng: Any) -> Any: ...

    assert takes_rng(Flip())
    assert takes_rng(draw_by_rng)
    assert not takes_rng(draw_by_globals)
    assert not takes_rng(lambda **named: named), "it may not know the name"
    assert not takes_rng(np.ascontiguousarray), "of C code nothing is known"
