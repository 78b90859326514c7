"""The geometry: its text, and its sizes beside those of transformers' own functions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wallclock.errors import UserError
from wallclock.preprocess import FILTERS, RESIZES, Preprocess

transforms = pytest.importorskip("transformers.image_transforms")
sides = st.integers(1, 600)
sizes = st.tuples(sides, sides)


@st.composite
def geometries(draw: st.DrawFn) -> Preprocess:
    """Any that is allowed."""
    resize = draw(st.sampled_from(RESIZES))
    square = draw(sides)
    size = draw(sizes) if resize == "squash" else (square, square)
    crop = draw(sizes if resize != "squash" else st.none() | sizes)
    interpolation, rotate = draw(st.sampled_from(FILTERS)), draw(st.booleans())
    if resize == "none":
        size = (224, 224)
    return Preprocess(resize, size, crop, interpolation, rotate)


@given(geometries())
def test_its_text_reads_back(preprocess: Preprocess) -> None:
    assert Preprocess.parse(str(preprocess)) == preprocess


@pytest.mark.parametrize("text", ["original,bilinear,rotate", "shortest:256,bicubic"])
def test_without_a_crop_images_differ_in_size(text: str) -> None:
    preprocess = Preprocess.parse(text, sizes_differ=True)
    assert (str(preprocess), preprocess.one_size) == (text, False)
    with pytest.raises(UserError, match="images differ in size; add crop"):
        _ = preprocess.canvas
    resized = preprocess.resized(300, 400)
    assert preprocess.place(300, 400) == (resized, (0, 0), resized, (0, 0))


def test_what_is_left_out() -> None:
    assert Preprocess.parse("squash", 518).canvas == (518, 518)
    assert str(Preprocess.parse("shortest:256,crop:224")) == ("shortest:256,crop:224x224,bilinear")
    assert str(Preprocess.parse(" squash:224x336 , bicubic, rotate")) == (
        "squash:224x336,bicubic,rotate"
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("shortest:256", "add crop"),
        ("longest:256", "add crop"),
        ("none", "add crop"),
        ("original,rotate", "add crop"),
        ("orignal", "did you mean original"),
        ("shortest:256x224,crop:224", "one number"),
        ("squash:0", "1 to 8192"),
        ("squash:99999", "1 to 8192"),
        ("crop:a", "give sizes"),
        ("bicubik", "bicubic"),
        ("", "preprocess"),
    ],
)
def test_mistakes_are_one_line(text: str, says: str) -> None:
    with pytest.raises(UserError, match=says) as raised:
        Preprocess.parse(text)
    assert "\n" not in str(raised.value)


@given(height=sides, width=sides, edge=sides)
def test_the_shortest_edge_is_transformers(height: int, width: int, edge: int) -> None:
    image = np.empty((height, width, 3), np.uint8)
    theirs = transforms.get_resize_output_image_size(
        image, edge, default_to_square=False, input_data_format="channels_last"
    )
    assert Preprocess("shortest", (edge, edge), (8, 8)).resized(height, width) == theirs


@given(size=sizes, crop=sizes)
def test_the_crop_is_transformers(size: tuple[int, int], crop: tuple[int, int]) -> None:
    """Which pixels it shows, and where a border of black is."""
    height, width = size
    numbers = np.arange(1, height * width + 1).reshape(1, height, width)
    theirs = transforms.center_crop(numbers, crop, input_data_format="channels_first")[0]
    placement = Preprocess("none", crop=crop).place(height, width)
    ours = np.zeros(crop, int)
    (top, left), (rows, columns) = placement.start, placement.window
    (down, right) = placement.offset
    seen = numbers[0, top : top + rows, left : left + columns]
    ours[down : down + rows, right : right + columns] = seen
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("side", [1, 10])
def test_no_side_vanishes(side: int) -> None:
    """A thousandth of a pixel is a pixel."""
    preprocess = Preprocess("longest", (side, side), (8, 8))
    assert preprocess.resized(10_000, 1) == (side, 1)
    assert preprocess.resized(1, 10_000) == (1, side)
