"""A model's own image processor as a `Preprocess`: the same pixels, or one line that refuses."""

import json
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import transformers as t
from hypothesis import example, given
from hypothesis import strategies as st
from PIL import Image

from tests.families import FAMILIES
from tests.making import picture
from wallclock.errors import UserError
from wallclock.job.settings import JobSettings
from wallclock.preprocess import FILTERS, RESIZES, Preprocess
from wallclock.processor import Processor, read_processor
from wallclock.recipe import IMAGENET, ModelSpec

#: Of pictures: landscape, portrait, square, tiny.
SIZES = {"landscape": (133, 70), "portrait": (71, 210), "square": (64, 64), "tiny": (5, 3)}
RESAMPLING = {name: filter_ for filter_ in Image.Resampling if (name := filter_.name.lower())}
SIDES = {"height": 32, "width": 32}
CROP: dict[str, Any] = {"do_center_crop": True, "crop_size": SIDES}


def model_of(folder: Path) -> ModelSpec:
    return ModelSpec("any", "pretrained", path=str(folder))


def executed(processor: Processor, image: Image.Image) -> npt.NDArray[np.float64]:
    """What a processor says, done by plain Pillow: normalized (3, h, w)."""
    steps = processor.preprocess
    place = steps.place(image.height, image.width)
    height, width = place.resized
    resized = image.resize((width, height), RESAMPLING[steps.interpolation])
    canvas = np.zeros((*steps.canvas, 3))
    (top, left), (rows, columns), (down, right) = place.start, place.window, place.offset
    window = np.asarray(resized)[top : top + rows, left : left + columns]
    canvas[down : down + rows, right : right + columns] = window
    mean, std = np.array(processor.mean), np.array(processor.std)
    normalized: npt.NDArray[np.float64] = (canvas / 255 - mean) / std
    return normalized.transpose(2, 0, 1)


def check_same(folder: Path) -> None:
    """The processor's own pixels, of pictures of all sizes."""
    processor = read_processor(model_of(folder))
    automatic: Any = t.AutoImageProcessor  # untyped
    processor_of_model = automatic.from_pretrained(folder, backend="pil")
    for width, height in SIZES.values():
        image = Image.fromarray(picture(width, height, seed=3))
        expected = processor_of_model(images=image, return_tensors="np")["pixel_values"][0]
        pixels = executed(processor, image)
        assert pixels.shape == expected.shape == (3, *processor.preprocess.canvas)
        assert np.abs(pixels - expected).max() <= 2 / 255 / min(processor.std)


@pytest.mark.parametrize("family", sorted({*FAMILIES} - {"dinov3"}))
def test_same_pixels(family: str, tmp_path: Path) -> None:
    FAMILIES[family](tmp_path)
    check_same(tmp_path)


@pytest.mark.parametrize(
    "processor",
    [
        lambda: t.ConvNextImageProcessorPil(size={"shortest_edge": 384}, **CROP),
        lambda: t.ConvNextImageProcessorPil(size={"shortest_edge": 33}, crop_pct=0.9),
        lambda: t.DeiTImageProcessorPil(size={"height": 36, "width": 40}, crop_size=SIDES),
        lambda: t.MobileNetV1ImageProcessorPil(size={"shortest_edge": 36}, crop_size=SIDES),
        lambda: t.ChameleonImageProcessorPil(size={"shortest_edge": 32}, crop_size=SIDES),
        lambda: t.ViTImageProcessorPil(size=SIDES, do_rescale=False, image_mean=9.0, image_std=7.0),
        lambda: t.ViTImageProcessorPil(size=SIDES, image_mean=0.0, image_std=0.25),
        lambda: t.ViTImageProcessorPil(size=SIDES, resample=1),
        lambda: t.ViTImageProcessorPil(size=SIDES, resample=3),
        lambda: t.ViTImageProcessorPil(size=SIDES, do_normalize=False),
        lambda: t.ViTImageProcessorPil(size=SIDES, do_normalize=False, do_rescale=False),
        lambda: t.CLIPImageProcessorPil(do_resize=False, crop_size={"height": 20, "width": 32}),
        lambda: t.EfficientNetImageProcessorPil(size=SIDES, do_normalize=False),
        lambda: t.EfficientNetImageProcessorPil(
            size=SIDES, rescale_offset=True, image_std=[0.5, 0.4, 0.3]
        ),
    ],
)
def test_same_pixels_of_other_settings(processor: Callable[[], Any], tmp_path: Path) -> None:
    t.ViTConfig().save_pretrained(tmp_path)
    processor().save_pretrained(tmp_path)
    check_same(tmp_path)
    _, model, _ = JobSettings(model=str(tmp_path)).resolved("cpu")
    assert model.statistics == (read_processor(model).mean, read_processor(model).std)


def write(folder: Path, values: dict[str, Any], model_type: str = "vit") -> ModelSpec:
    """A folder with a file of a processor as it stands on the hub."""
    (folder / "config.json").write_text(json.dumps({"model_type": model_type}))
    (folder / "preprocessor_config.json").write_text(json.dumps(values))
    return model_of(folder)


OLD = {"do_normalize": True, "do_resize": True, "resample": 2, "size": 30}


@pytest.mark.parametrize(
    ("values", "model_type", "text"),
    [
        (OLD, "vit", "squash:30x30,bilinear,rotate"),
        (OLD | {"feature_extractor_type": "ViTFeatureExtractor"}, "", "squash:30x30,bilinear"),
        (
            {"feature_extractor_type": "ConvNextFeatureExtractor", "size": 28, "crop_pct": 0.875},
            "resnet",
            "shortest:32,crop:28x28,bicubic,rotate",
        ),
        (
            {"feature_extractor_type": "CLIPFeatureExtractor", "size": 30, "crop_size": 28},
            "clip",
            "shortest:30,crop:28x28,bicubic,rotate",
        ),
        (
            {"image_processor_type": "CLIPImageProcessorFast", "crop_size": 28, "size": SIDES},
            "clip",
            "squash:32x32,crop:28x28,bicubic,rotate",
        ),
    ],
)
def test_old_files(values: dict[str, Any], model_type: str, text: str, tmp_path: Path) -> None:
    """Sizes of one number, and the names of feature extractors."""
    model = write(tmp_path, values, model_type or "vit")
    assert str(read_processor(model).preprocess).startswith(text)


def test_dinov3(tmp_path: Path) -> None:
    """Its class needs torchvision: its file is taken at its word."""
    FAMILIES["dinov3"](tmp_path)
    processor = read_processor(model_of(tmp_path))
    assert str(processor.preprocess) == "squash:224x224,bilinear,rotate"
    np.testing.assert_allclose((processor.mean, processor.std), IMAGENET, rtol=1e-12)
    path = tmp_path / "preprocessor_config.json"
    values = json.loads(path.read_text())
    del values["image_mean"]
    path.write_text(json.dumps(values))
    with pytest.raises(UserError, match=r"DINOv3ViTImageProcessor.* has no image_mean"):
        read_processor(model_of(tmp_path))


def test_part_of_a_whole_processor(tmp_path: Path) -> None:
    """transformers reads processor_config.json first."""
    FAMILIES["clip"](tmp_path)
    settings = {"image_processor_type": "ViTImageProcessor", "size": {"height": 20, "width": 24}}
    (tmp_path / "processor_config.json").write_text(json.dumps({"image_processor": settings}))
    # A processor with code of its own is refused, so that this file must not decide.
    other = {**settings, "auto_map": {"AutoImageProcessor": "code.Processor"}}
    other |= {"size": {"height": 16, "width": 16}}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(other))
    assert read_processor(model_of(tmp_path)).preprocess.size == (20, 24)
    check_same(tmp_path)


def test_random_weights_have_dinov2s() -> None:
    processor = read_processor(ModelSpec("dinov2-small", "random"))
    assert str(processor.preprocess) == "shortest:256,crop:224x224,bicubic,rotate"
    assert (processor.mean, processor.std) == IMAGENET


TIMM = {"input_size": [3, 224, 224], "mean": [0.5] * 3, "std": [0.25] * 3}


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, "shortest:256,crop:224x224,bicubic,rotate"),
        ({"crop_pct": 0.95, "interpolation": "bilinear"}, "shortest:235,crop:224x224,bilinear"),
        ({"crop_pct": 1.0, "crop_mode": "squash"}, "squash:224x224,bicubic,rotate"),
        ({"crop_pct": 0.9, "crop_mode": "squash"}, "squash:248x248,crop:224x224,bicubic"),
        ({"crop_mode": "border"}, "has crop_mode=border"),
        ({"interpolation": "random"}, "interpolation=random"),
        ({"input_size": [1, 28, 28]}, "takes 1 channels"),
        ({"input_size": [3, 28, 32]}, "28x32 px"),
    ],
)
def test_timm(changes: dict[str, Any], text: str, tmp_path: Path) -> None:
    config = {"architecture": "resnet18", "pretrained_cfg": {**TIMM, **changes}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    if text.startswith(("shortest", "squash")):
        processor = read_processor(model_of(tmp_path))
        assert str(processor.preprocess).startswith(text)
        assert (processor.mean, processor.std) == ((0.5,) * 3, (0.25,) * 3)
    else:
        assert text in refusal(model_of(tmp_path))


def refusal(model: ModelSpec) -> str:
    with pytest.raises(UserError) as caught:
        read_processor(model)
    line = str(caught.value)
    assert "\n" not in line
    assert "type preprocess=squash" in line
    return line


CLIP = {"image_processor_type": "CLIPImageProcessor"}
VIT = {"image_processor_type": "ViTImageProcessor"}


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({**CLIP, "auto_map": {"AutoImageProcessor": "own.Own"}}, "code of its own"),
        ({"image_processor_type": "NoSuchImageProcessor"}, "NoSuchImageProcessor"),
        ({"image_processor_type": "Siglip2ImageProcessor"}, "Siglip2ImageProcessor"),
        ({"image_processor_type": "PerceiverImageProcessor"}, "PerceiverImageProcessor"),
        ({**VIT, "do_pad": True}, "do_pad"),
        ({**VIT, "size_divisor": 32}, "size_divisor"),
        ({**CLIP, "size": {"shortest_edge": 30, "longest_edge": 60}}, "both the shortest"),
        ({**CLIP, "do_center_crop": False}, "does not crop"),
        ({**VIT, "do_resize": False}, "neither resizes nor crops"),
        ({**VIT, "resample": 0}, "resample=0"),
        ({**VIT, "resample": None}, "resample=None"),  # transformers raises at the first image
        ({**VIT, "size": {"longest_edge": 64}}, "longest_edge"),
        ({**VIT, "image_std": [0.0, 1.0, 1.0]}, "is not above 0"),
        ({**VIT, "image_mean": [0.5]}, "three channels"),
        ({**VIT, "rescale_factor": -1.0}, "rescale_factor"),
    ],
)
def test_refused_in_one_line(values: dict[str, Any], words: str, tmp_path: Path) -> None:
    assert words in refusal(write(tmp_path, values))


_EDGES = ("height", "width", "shortest_edge", "longest_edge")
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 300) | st.floats() | st.text(max_size=3),
    lambda of: st.lists(of, max_size=3) | st.dictionaries(st.sampled_from(_EDGES), of, max_size=2),
    max_leaves=4,
)
_NAMES = ("size", "crop_size", "image_mean", "image_std", "rescale_factor", "resample", "auto_map")
_OF_TIMM = ("input_size", "mean", "std", "crop_pct", "crop_mode", "interpolation")


def taken(model: ModelSpec) -> Processor | None:
    """None where it is refused, in one line."""
    line = ""
    try:
        return read_processor(model)
    except UserError as error:
        line = str(error)
    assert len(line.splitlines()) == 1
    return None


@given(st.sampled_from((*_NAMES, "do_resize", "do_center_crop", "image_processor_type")), _JSON)
@example("rescale_factor", None)
@example("rescale_factor", "0.004")
@example("size", {"height": "32", "width": "32"})
def test_what_is_taken_the_library_takes_as_well(name: str, value: Any) -> None:
    with TemporaryDirectory() as folder:
        if processor := taken(write(Path(folder), {**VIT, name: value})):
            kind: Any = t.AutoImageProcessor
            own = kind.from_pretrained(folder, backend="pil")
            with np.errstate(all="ignore"):  # as of a mean of 1e38
                pixels = own(Image.new("RGB", (40, 30)), return_tensors="np")["pixel_values"]
            assert pixels.shape == (1, 3, *processor.preprocess.canvas)


@given(st.sampled_from(_OF_TIMM), _JSON)
def test_any_value_of_timm_is_taken_or_refused(name: str, value: Any) -> None:
    with TemporaryDirectory() as folder:
        config = {"pretrained_cfg": {**TIMM, name: value}}
        Path(folder, "config.json").write_text(json.dumps(config))
        taken(model_of(Path(folder)))


def test_no_processor(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "vit"}')
    assert "there is no preprocessor_config.json" in refusal(model_of(tmp_path))
    assert "has no image processor" in refusal(ModelSpec("null", "none"))


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
    with pytest.raises(UserError, match=says):
        Preprocess.parse(text)


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
