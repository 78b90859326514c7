"""The modules in examples/ and in docs/service.md, as they are written."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from PIL import Image

from examples.service_plain import AverageColour
from tests import making
from wallclock.errors import ImageError
from wallclock.service.interface import Module, Request

REQUEST = Request("1", "http://example.org/a.jpg", "http://example.org/done")


def results(module: Module, *images: bytes) -> Any:
    """What the service would send, through the JSON of a callback."""
    batch = np.stack([module.preprocess(image, REQUEST) for image in images])
    return orjson.loads(orjson.dumps(module.process(batch), option=orjson.OPT_SERIALIZE_NUMPY))


def plain_colour(red: int, green: int, blue: int) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (640, 480), (red, green, blue)).save(file, "JPEG", quality=95)
    return file.getvalue()


def test_average_colour() -> None:
    (first,), (second,) = results(
        AverageColour(), plain_colour(200, 30, 60), plain_colour(10, 250, 0)
    )
    np.testing.assert_allclose([first, second], [[200, 30, 60], [10, 250, 0]], atol=3)
    (cells,) = results(AverageColour(grid=2), making.jpeg(200, 100))
    assert np.shape(cells) == (4, 3)


@pytest.mark.parametrize(
    "image", [making.jpeg()[:200], b"GIF89a", making.claiming(making.jpeg(), 9_000, 9_000)]
)
def test_average_colour_of_no_image(image: bytes) -> None:
    with pytest.raises(ImageError, match="decode"):
        AverageColour().preprocess(image, REQUEST)


@pytest.mark.slow
def test_classifier(tmp_path: Path) -> None:
    import transformers

    from examples.service_classifier import Classifier

    small: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    small |= {"intermediate_size": 32, "image_size": 64, "patch_size": 32, "num_labels": 7}
    network: Any = transformers.ViTForImageClassification(transformers.ViTConfig(**small))
    network.save_pretrained(tmp_path)
    processor = transformers.ViTImageProcessor(size={"height": 64, "width": 64})
    processor.save_pretrained(tmp_path)
    image = making.jpeg(64, 64)
    (best,) = results(Classifier(model=str(tmp_path), top=3), image)
    with Image.open(io.BytesIO(image)) as opened:
        pixels = processor(images=opened, return_tensors="pt")["pixel_values"]
    expected = network.eval()(pixel_values=pixels).logits.softmax(1)[0]
    order = expected.argsort(descending=True)[:3].tolist()
    assert [row["label"] for row in best] == [f"LABEL_{at}" for at in order]
    np.testing.assert_allclose(
        [row["score"] for row in best], expected[order].detach().numpy(), atol=1e-3
    )
