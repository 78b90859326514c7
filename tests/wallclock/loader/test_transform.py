"""A function of the user's own in the workers: what it takes, returns, raises and draws."""

import random
import re
import sys
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from tests import making
from wallclock.errors import ImageError, UserError, install_hint
from wallclock.loader.images import open_images
from wallclock.loader.output import Output, Workers
from wallclock.loader.transform import check_draws
from wallclock.stages.augment import Augment

N = 9
FILES = [making.jpeg(30 + seed, 24, seed) for seed in range(N)]
PNG = making.encode(making.picture(30, 24, 1), "PNG")
SIZE = 4


def images_of(items: Any, augment: Augment, size: Any = SIZE, **options: Any) -> Any:
    """The images of the only batch, as a copy."""
    with open_images(items, size, 64, augment=augment, **options) as batches:
        (batch,) = batches
    assert not batch.failures
    return batch.images


def still(transform: Callable[..., Any], **more: Any) -> Augment:
    """Of a function that draws nothing."""
    return Augment(transform=transform, random=False, **more)


def untransformed(items: Any) -> Any:
    """The same without a function."""
    with open_images(items, SIZE, 64) as batches:
        return next(batches).images


CREWS = [Workers(1), Workers(3), Workers(2, processes=2), Workers(4, processes=2)]


@pytest.mark.parametrize("channels", ["RGB", "L", "RGBA"])
@pytest.mark.parametrize("takes", ["numpy", "torch", "pil"])
def test_what_it_leaves_alone_stays_as_it_is(takes: str, channels: str) -> None:
    seen: list[Any] = []

    def look(pixels: Any) -> Any:
        seen.append((type(pixels), pixels.size if takes == "pil" else tuple(pixels.shape)))
        return pixels

    output = Output(channels=channels)
    with open_images([*FILES, PNG], (6, 8), 64, output=output) as batches:
        expected = next(batches).images
    made = images_of([*FILES, PNG], still(look, takes=takes), (6, 8), output=output)
    np.testing.assert_array_equal(made, expected)
    n = {"RGB": 3, "L": 1, "RGBA": 4}[channels]
    kinds = {"numpy": (np.ndarray, (6, 8, n)), "torch": (torch.Tensor, (n, 6, 8))}
    assert set(seen) == {kinds.get(takes, (Image.Image, (8, 6)))}


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("takes", ["numpy", "torch"])
def test_floats_are_stored_as_they_are(takes: str, dtype: str) -> None:
    """Neither scaled nor normalized: that is the function's."""

    def halve(pixels: Any) -> Any:
        values = np.asarray(pixels).astype(np.float64) / 2
        return torch.from_numpy(values) if takes == "torch" else values.transpose(2, 0, 1)

    with open_images(FILES, SIZE, 64, output="torch") as batches:
        pixels = next(batches).images.clone()
    made = images_of(FILES, still(halve, takes=takes), output=Output(dtype, "torch"))
    expected = (pixels.permute(0, 3, 1, 2).float() / 2).to(getattr(torch, dtype))
    assert made.equal(expected)


def test_another_size_than_it_takes() -> None:
    def cut(pixels: Any, rng: Any) -> Any:
        return pixels[:3, 1:6]

    cropped = images_of(FILES, Augment(transform=cut, size=(3, 5)), 8)
    with open_images(FILES, 8, 64) as batches:
        np.testing.assert_array_equal(cropped, next(batches).images[:, :3, 1:6])


@pytest.mark.parametrize(("preprocess", "side"), [("shortest:12,rotate", 12), ("original", 24)])
def test_images_of_their_own_sizes_come_in(preprocess: str, side: int) -> None:
    """Decoded at the scale that suffices; each may be written to, also of a PNG."""
    seen: list[tuple[int, ...]] = []

    def cut(pixels: Any) -> Any:
        seen.append(pixels.shape)
        pixels += 1
        return pixels[:8, :8]

    items = [making.oriented(6, width=40, height=24), PNG]
    options: dict[str, Any] = {"preprocess": preprocess, "workers": 1}
    made = images_of(items, still(cut, size=8), None, **options)
    if preprocess == "original":
        assert seen == [(24, 40, 3), (24, 30, 3)]
    else:
        assert seen == [(20, 12, 3), (12, 15, 3)]
    with open_images(items, None, 64, **options) as batches:
        for image, whole in zip(made, next(batches).images, strict=True):
            np.testing.assert_array_equal(image, whole[:8, :8] + 1)
    assert side in seen[0]


def test_it_comes_after_crop_and_flip() -> None:
    always: dict[str, Any] = {"scale": (0.2, 0.5), "flip": 1.0, "jitter": 0.0}
    expected = images_of(FILES, Augment(**always))
    made = images_of(FILES, still(lambda pixels: 255 - pixels, **always))
    np.testing.assert_array_equal(made, 255 - expected)


def test_beside_a_transform_the_others_are_off() -> None:
    alone, beside = Augment(), still(np.copy)
    assert (alone.scale, alone.ratio) == ((0.08, 1.0), (3 / 4, 4 / 3))
    assert (alone.flip, alone.jitter, alone.draws_pixels) == (0.5, 0.4, True)
    assert (beside.scale, beside.ratio, beside.draws_pixels) == (None, None, False)
    assert (beside.flip, beside.jitter) == (0.0, 0.0)
    assert still(np.copy, scale=(0.5, 1)).ratio == (3 / 4, 4 / 3)
    assert still(np.copy, ratio=(1, 1)).scale == (0.08, 1.0)
    expected = untransformed(FILES)
    np.testing.assert_array_equal(images_of(FILES, beside), expected)
    mirrored = images_of(FILES, still(np.copy, flip=1.0))
    np.testing.assert_array_equal(mirrored[:, :, ::-1], expected)


@pytest.mark.parametrize(
    ("transform", "options", "says"),
    [
        (lambda p: p[1:], {}, r"uint8 \(3, 4, 3\), not uint8 \(4, 4, 3\); see augment.size"),
        (lambda p: p.astype(np.float32), {}, r"float32 \(4, 4, 3\), not uint8 \(4, 4, 3\)"),
        (lambda p: p > 3, {}, "bool"),
        (lambda p: p, {"output": "float32"}, r"uint8 \(4, 4, 3\), not float32 \(3, 4, 4\)"),
        (lambda p: p[..., 0], {}, r"uint8 \(4, 4\), not uint8 \(4, 4, 3\)"),
        (lambda p: None, {}, "an object of type NoneType, not an array"),
        (lambda p: Image.fromarray(p).convert("L"), {}, "an image of mode L, not mode RGB"),
        (lambda p: Image.fromarray(p[..., 0]).quantize(), {"output": "L"}, "an image of mode P"),
        (lambda p: torch.from_numpy(p), {}, r"uint8 \(4, 4, 3\), not uint8 \(3, 4, 4\)"),
    ],
)
def test_what_has_no_place_in_the_batch_is_one_line(
    transform: Any, options: dict[str, Any], says: str
) -> None:
    """It names the image and both shapes."""
    items = [("the cat", FILES[0])]
    with pytest.raises(UserError, match=f"^the cat: transform returned {says}"):
        images_of(items, still(transform), workers=1, **options)


class OfTorchvision:
    """Stands for a class of torchvision, which is not installed."""

    def __call__(self, image: Any) -> Any: ...


OfTorchvision.__module__ = "torchvision.transforms.v2"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"transform": 3}, "give a function"),
        ({"transform": np.copy, "takes": "jax"}, "augment.takes is called 'jax'"),
        ({"transform": np.copy, "size": 0}, "augment.size=0: give a height and a width"),
        ({"size": 8}, "of a transform, and there is none"),
        ({"transform": np.copy, "flip": 2}, "at most 1"),
        ({"transform": torch.nn.Identity()}, "torch's, which takes no numpy array: add takes="),
        ({"transform": OfTorchvision()}, "torchvision's, which takes no numpy array"),
    ],
)
def test_mistakes_are_one_line(options: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=says):
        Augment(**options)


def test_a_missing_torch_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(UserError, match=f"needs torch.*{re.escape(install_hint('torch'))}"):
        Augment(transform=np.copy, takes="torch")


def test_a_size_is_needed_where_images_differ() -> None:
    with pytest.raises(UserError, match=r"say what augment.transform makes.*Augment\(size=224\)"):
        next(open_images(FILES, augment=still(np.copy), preprocess="shortest:256"))


class UnpicklableError(Exception):
    """Needs two arguments, of which pickle knows one."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(first + second)


def fail_in_the_users_code(pixels: Any) -> Any:
    raise UnpicklableError("the user's ", "own")


@pytest.mark.parametrize("crew", [Workers(3), Workers(2, processes=2)])
def test_its_error_ends_the_iteration_with_its_traceback(crew: Workers) -> None:
    """A mistake in the program is no failure of an image."""
    with (
        pytest.raises((UnpicklableError, RuntimeError), match="the user's own") as caught,
        open_images(FILES, SIZE, 64, augment=still(fail_in_the_users_code), workers=crew) as images,
    ):
        next(images)
    text = "".join(traceback.format_exception(caught.value))
    assert "in fail_in_the_users_code" in text
    assert "raised by augment.transform, for the image " in text


def test_an_error_of_its_own_type_comes_from_a_process_too() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        images_of(FILES, still(lambda pixels: 1 / 0), workers=Workers(2, processes=2))
    assert any("1 / 0" in note for note in caught.value.__notes__)


@pytest.mark.parametrize("crew", [Workers(1), Workers(2, processes=2)])
def test_stop_iteration_is_no_end(crew: Workers) -> None:
    """It would end the loop as though all images had come."""
    with pytest.raises(RuntimeError, match="StopIteration"):
        images_of(FILES, still(lambda pixels: next(iter(()))), workers=crew)


def test_it_may_say_that_an_image_has_failed() -> None:
    def refuse_dark(pixels: Any) -> Any:
        if pixels.max() == 0:
            raise ImageError("resize", "all of it is black")
        return pixels

    black = making.encode(np.zeros((8, 8, 3), np.uint8), "PNG")
    with open_images([FILES[0], black, FILES[1]], SIZE, augment=still(refuse_dark)) as batches:
        (batch,) = batches
    assert batch.ids == ["0", "2"]
    assert batch.failures == [{"id": "1", "stage": "resize", "reason": "all of it is black"}]


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


@pytest.mark.parametrize("crew", [Workers(1), Workers(3), Workers(4, processes=2)])
def test_what_threads_would_draw_is_refused(crew: Workers) -> None:
    with pytest.raises(UserError, match=r"no parameter rng.*random=False.*processes=\d"):
        open_images(FILES, SIZE, augment=Augment(transform=draw_by_globals), workers=crew)


def test_the_advice_of_the_refusal_is_right() -> None:
    augment = Augment(transform=draw_by_globals)
    for threads, processes in ((1, 1), (8, 4)):
        with pytest.raises(UserError) as caught:
            check_draws(augment, threads, processes)
        advised = eval(str(caught.value).rpartition("workers=")[2], {"Workers": Workers})
        check_draws(augment, advised.threads, advised.processes)
