"""The native resize gives torch's pixels, bit for bit, with any kernels."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import making
from tests.wallclock.native.conftest import Guarded
from wallclock.preprocess import Placement
from wallclock.stages import normalize, resize

pytest.importorskip("torch")

MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
#: Small, as they come, and many times larger than a result.
SIDES = st.one_of(st.integers(1, 20), st.integers(1, 300), st.integers(1, 3000))
PIXELS = 150_000


@dataclass(frozen=True)
class Case:
    """Pixels that were decoded to 1/denominator of `full`, and what becomes of them."""

    pixels: npt.NDArray[np.uint8]
    full: tuple[int, int]
    denominator: int
    resized: tuple[int, int]
    window: tuple[int, int, int, int]
    bicubic: bool

    def plan(self, module: Any, **arguments: Any) -> Any:
        extent = tuple(side / self.denominator for side in self.full)
        return module.Plan(
            self.full,
            self.resized,
            denominator=self.denominator,
            extent=extent,
            window=self.window,
            bicubic=self.bicubic,
            **arguments,
        )

    def by_torch(self) -> npt.NDArray[np.uint8]:
        """Of 3 channels, or 1."""
        top, left, rows, columns = self.window
        resizer = resize.make("torch", "bicubic" if self.bicubic else "bilinear", self.resized)
        if (rows, columns) == self.resized:
            made = resizer.resize(self.pixels, self.full)
        else:
            placement = Placement(self.resized, (top, left), (rows, columns), (0, 0))
            made = resizer.resize_window(self.pixels, placement, self.full)
        return np.array(made[..., :3])


def noise(shape: tuple[int, ...], seed: int) -> npt.NDArray[np.uint8]:
    """Half of it at the ends of the range, where a cubic overshoots."""
    rng = np.random.default_rng(seed)
    pixels = rng.integers(0, 256, shape, dtype=np.uint8)
    return np.where(rng.random(shape) < 0.5, pixels, np.where(pixels > 127, 255, 0)).astype(
        np.uint8
    )


@st.composite
def cases(draw: st.DrawFn) -> Case:
    full_height = draw(SIDES)
    full_width = draw(SIDES.filter(lambda width: width * full_height <= PIXELS))
    n = draw(st.sampled_from([1, 2, 4, 8]))
    height, width = -(-full_height // n), -(-full_width // n)
    resized = (
        draw(st.just(height) | st.integers(1, 400)),
        draw(st.just(width) | st.integers(1, 400)),
    )
    rows, columns = (draw(st.just(side) | st.integers(1, side)) for side in resized)
    top, left = (
        draw(st.integers(0, side - part))
        for side, part in zip(resized, (rows, columns), strict=True)
    )
    channels = draw(st.sampled_from([1, 3, 4]))
    pixels = noise((height, width, channels), draw(st.integers(0, 2**32)))
    window = (top, left, rows, columns)
    return Case(pixels, (full_height, full_width), n, resized, window, draw(st.booleans()))


@pytest.mark.parametrize("n", [300, pytest.param(5_000, marks=pytest.mark.slow)])
def test_pixels_are_those_of_torch(module: Any, n: int) -> None:
    @settings(max_examples=n)
    @given(case=cases(), mirror=st.booleans())
    def check(case: Case, mirror: bool) -> None:
        expected = case.by_torch()
        row = np.full((*case.window[2:], expected.shape[2]), 77, np.uint8)
        assert module.resize(case.pixels, case.plan(module, mirror=mirror), row) == 0
        assert np.array_equal(row, expected[:, ::-1] if mirror else expected)

    check()


@st.composite
def crops(draw: st.DrawFn, size: tuple[int, int]) -> tuple[int, int, int, int]:
    rows, columns = draw(st.integers(1, size[0])), draw(st.integers(1, size[1]))
    top, left = draw(st.integers(0, size[0] - rows)), draw(st.integers(0, size[1] - columns))
    return top, left, rows, columns


@settings(max_examples=100)
@given(data=st.data(), full=st.tuples(st.integers(1, 200), st.integers(1, 200)))
def test_only_what_a_row_depends_on_is_decoded(
    module: Any, data: st.DataObject, full: tuple[int, int]
) -> None:
    """Of a file, a part has the pixels that the same part of the whole image has."""
    n, bicubic = data.draw(st.sampled_from([1, 2, 4, 8])), data.draw(st.booleans())
    file = making.encode(
        noise((*full, 3), data.draw(st.integers(0, 2**32))),
        subsampling=data.draw(st.sampled_from([0, 1, 2])),
        progressive=data.draw(st.booleans()),
        mode=data.draw(st.sampled_from(["RGB", "L"])),
    )
    size = -(-full[0] // n), -(-full[1] // n)
    whole = np.empty((*size, 3), np.uint8)
    plan = module.Plan(full, size, denominator=n)
    assert module.open([file], 1 << 20).fill([plan], [whole])[0][0] == 0
    top, left, rows, columns = crop = data.draw(crops(size))
    part = np.ascontiguousarray(whole[top : top + rows, left : left + columns])
    to = data.draw(st.tuples(st.integers(1, 100), st.integers(1, 100)))
    case = Case(part, (rows, columns), 1, to, data.draw(crops(to)), bicubic)
    options = {"denominator": n, "crop": crop, "window": case.window, "bicubic": bicubic}
    row = np.empty((*case.window[2:], 3), np.uint8)
    plan = module.Plan(full, to, **options)
    assert module.open([file], 1 << 20).fill([plan], [row])[0][0] == 0
    assert np.array_equal(row, case.by_torch())


@pytest.mark.parametrize("dtype", ["float32", "float16", "uint16"])
@pytest.mark.parametrize("width", [1, 7, 8, 224, 225])
def test_normalized_rows(module: Any, dtype: str, width: int) -> None:
    """Bit for bit what the stage `normalize` stores."""
    pixels = noise((50, 60, 3), 1)
    plan = module.Plan((50, 60), (20, width))
    row = np.empty((20, width, 3), np.uint8)
    expected, made = (np.zeros((3, 20, width), dtype) for _ in range(2))
    assert module.resize(pixels, plan, row) == 0
    normalize.make_lookup(MEAN, DEVIATION)(row, expected)
    assert module.resize(pixels, plan, made, normalization(module, dtype)) == 0
    assert made.tobytes() == expected.tobytes()


def normalization(
    module: Any, dtype: str, deviation: tuple[float, float, float] = DEVIATION
) -> Any:
    levels = np.empty((3, 1, 256), dtype)
    grey = np.arange(256, dtype=np.uint8)[None, :, None].repeat(3, axis=2)
    normalize.make_lookup(MEAN, deviation)(grey, levels)
    return module.Normalization(np.ascontiguousarray(levels[:, 0]), MEAN, deviation)


@given(deviation=st.tuples(*[st.floats(2**-8, 4, width=32)] * 3))
def test_float32_levels_are_exact(module: Any, deviation: tuple[float, float, float]) -> None:
    """Whether they can be computed or are looked up."""
    pixels = np.arange(256, dtype=np.uint8).reshape(16, 16, 1).repeat(3, axis=2)
    expected, made = (np.zeros((3, 16, 16), np.float32) for _ in range(2))
    normalize.make_lookup(MEAN, deviation)(pixels, expected)
    plan = module.Plan((16, 16), (16, 16))
    assert module.resize(pixels, plan, made, normalization(module, "float32", deviation)) == 0
    assert made.tobytes() == expected.tobytes()


@pytest.mark.parametrize("size", [(1, 1), (5, 3), (37, 53), (300, 410), (90, 4000)])
@pytest.mark.parametrize("channels", [1, 3, 4])
def test_reads_and_writes_end_at_the_buffer(
    module: Any, guarded: Guarded, size: tuple[int, int], channels: int
) -> None:
    pixels = guarded(*size, channels)
    pixels[:] = noise(pixels.shape, 3)
    for to in ((1, 1), (17, 19), (64, 224), size):
        row = guarded(*to, 3)
        assert module.resize(pixels, module.Plan(size, to), row) == 0
        values = guarded(3 * to[0] * to[1] * 4).view(np.float32).reshape(3, *to)
        plan = module.Plan(size, to)
        assert module.resize(pixels, plan, values, normalization(module, "float32")) == 0


def test_rows_of_a_canvas(module: Any) -> None:
    """A row may be a part of a larger array, of which nothing else is written."""
    pixels = noise((30, 40, 3), 4)
    canvas = np.full((50, 60, 3), 9, np.uint8)
    floats = np.full((3, 50, 60), 9, np.float32)
    plan = module.Plan((30, 40), (20, 25))
    inside = np.s_[10:30, 5:30]
    alone = np.empty((20, 25, 3), np.uint8)
    values = normalization(module, "float32")
    assert module.resize(pixels, plan, canvas[inside]) == 0
    assert module.resize(pixels, plan, floats[:, *inside], values) == 0
    assert module.resize(pixels, plan, alone) == 0
    assert np.array_equal(canvas[inside], alone)
    canvas[inside] = 9
    floats[:, *inside] = 9
    assert (canvas == 9).all()
    assert (floats == 9).all()
