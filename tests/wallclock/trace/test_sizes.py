"""What is said of the images' sizes, and what a program's target is."""

from dataclasses import replace
from typing import Any

import pytest

from tests.wallclock.trace.traces import decoded, process, resized, thread, trace
from wallclock.check import ImageInfo
from wallclock.loader.images import open_images
from wallclock.loader.place import ChooseScale
from wallclock.predict.pictures import MARGIN, Target
from wallclock.preprocess import Preprocess, preprocess_of
from wallclock.recipe import FAST
from wallclock.trace.fixes import say_size_argument
from wallclock.trace.record import ImageKind, Trace
from wallclock.trace.sizes import MOST_ROWS, full_size_share, scale_of, tabulate_sizes, target_of


def of(*kinds: ImageKind) -> Trace:
    return trace([process([thread({"decode": 1.0}, 10)])], kinds)


@pytest.mark.parametrize(
    ("kinds", "target"),
    [
        ((decoded(10), resized(10)), Target((224, 224), "squash")),
        ((decoded(10), resized(10, made=(320, 240))), Target((320, 240), "squash")),
        # Resize(256) of portraits and landscapes.
        (
            (
                decoded(6),
                decoded(5, source=(1000, 3000)),
                resized(6, made=(341, 256)),
                resized(5, source=(1000, 3000), made=(256, 768)),
            ),
            Target((256, 256), "shortest"),
        ),
        (
            (
                decoded(6),
                decoded(5, source=(1000, 3000)),
                resized(6, made=(512, 384)),
                resized(5, source=(1000, 3000), made=(170, 512)),
            ),
            Target((512, 512), "longest"),
        ),
        # RandomResizedCrop: what is resized was cut out.
        (
            (decoded(10), *(resized(1, source=(900 + i, 700 + i)) for i in range(10))),
            Target((224, 224), "crop"),
        ),
        # Turned upright between decode and resize.
        ((decoded(10), resized(10, source=(1920, 2560))), Target((224, 224), "squash")),
        ((decoded(10),), None),
        ((decoded(3), *(resized(1, made=(100 + i, 200 + 2 * i)) for i in range(3))), None),
    ],
)
def test_target(kinds: tuple[ImageKind, ...], target: Target | None) -> None:
    assert target_of(of(*kinds)) == target


@pytest.mark.parametrize(
    ("target", "source", "scale"),
    [
        (Target((224, 224), "squash"), (2560, 1920), 4),
        (Target((224, 224), "squash"), (256, 256), 1),
        (Target((256, 256), "shortest"), (5120, 1280), 2),
        (Target((256, 256), "longest"), (5120, 640), 8),
        (Target((224, 224), "crop"), (8000, 8000), 1),
    ],
)
def test_scale(target: Target, source: tuple[int, int], scale: int) -> None:
    assert target.scale(source) == scale


@pytest.mark.parametrize("mode", ["shortest", "longest"])
@pytest.mark.parametrize("source", [(640, 1280), (1279, 3000), (2560, 2560), (6000, 4000)])
def test_the_scale_is_the_loaders(mode: str, source: tuple[int, int]) -> None:
    """Of a bilinear resize that keeps the aspect ratio."""
    choose = ChooseScale(Preprocess.parse(f"{mode}:160,crop:160x160"), FAST.dct_margin)
    assert Target((160, 160), mode).scale(source) == choose(ImageInfo("x", 1, *source))


def test_the_margin_is_the_default_recipes() -> None:
    assert FAST.dct_margin == MARGIN


@pytest.mark.parametrize(
    "target",
    [
        Target((224, 224), "squash"),
        Target((320, 240), "squash"),
        Target((256, 256), "shortest"),
        Target((512, 512), "longest"),
    ],
)
def test_the_code_is_what_open_images_takes(target: Target) -> None:
    """The arguments that a user is told to write are understood, and mean the target."""
    code = say_size_argument(target)
    arguments = code if "=" in code else f"size={code}"
    options: dict[str, Any] = eval(f"dict({arguments})")
    with open_images([], **options) as batches:
        assert list(batches) == []
    if "preprocess" in options:
        geometry = preprocess_of(replace(FAST, preprocess=str(options["preprocess"])), 224)
        assert (geometry.resize, geometry.size) == (target.mode, target.size)
    else:
        width, height = target.size
        assert options["size"] in ((height, width), height)


@pytest.mark.parametrize(
    ("made", "scale"), [((2560, 1920), 1), ((1280, 960), 2), ((320, 240), 8), ((321, 240), 4)]
)
def test_what_a_decoder_has_shrunk_already(made: tuple[int, int], scale: int) -> None:
    assert scale_of(decoded(1, made=made)) == scale


def test_full_size_is_said_of_pixels() -> None:
    """Many thumbnails beside a few photos: the photos are what takes the time."""
    made = of(decoded(900, source=(256, 256)), decoded(100), resized(1000))
    assert full_size_share(made, Target((224, 224), "squash")) > 0.85
    shrunk = of(decoded(100, made=(640, 480)), resized(100))
    assert full_size_share(shrunk, Target((224, 224), "squash")) == 0
    assert full_size_share(of(decoded(5, "PNG")), Target((224, 224), "squash")) == 0


def test_rows_are_medians_unless_most_are_alike() -> None:
    alike = tabulate_sizes(of(decoded(6), decoded(5, source=(9, 9))))
    assert [(row.source, row.is_typical, row.count) for row in alike] == [((2560, 1920), True, 11)]
    spread = [decoded(1, source=(100 * i, 100), kb=10.0 * i) for i in (1, 2, 5)]
    (row,) = tabulate_sizes(of(*spread))
    assert (row.source, row.is_typical) == ((200, 100), False)
    assert row.kb == pytest.approx(80 / 3)


def test_the_most_frequent_kinds_come_first() -> None:
    kinds = [decoded(i, format) for i, format in enumerate(("A", "B", "C", "D", "E", "F"), 1)]
    rows = tabulate_sizes(of(resized(100), *kinds))
    assert [row.format for row in rows] == ["F", "E", "D", "C", "B"]
    assert len(rows) == MOST_ROWS
