"""Messages and settings, and the service's own modules: the loader's pixels, the job's vectors."""

import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import wallclock
from tests import making
from tests.devices import Device
from tests.families import FAMILIES
from tests.wallclock.job.conftest import opened
from wallclock.constraints import Help
from wallclock.errors import ImageError, UserError
from wallclock.job import embed
from wallclock.service.interface import ItemError, Module, Request, takes_parameters
from wallclock.service.modules import Embedding, Pixels
from wallclock.service.settings import read

REQUEST = Request("1", "http://example.org/a.jpg", "http://example.org/done")


@pytest.fixture(scope="module")
def null() -> Embedding:
    return Embedding(model="null")


def test_pixels_are_those_of_the_loader(null: Embedding) -> None:
    images = [making.jpeg(700 + 90 * seed, 500, seed) for seed in range(8)]
    images += [making.jpeg(900, 700, progressive=True), making.encode(making.picture(), "PNG")]
    with ThreadPoolExecutor(4) as pool:
        ours = [*pool.map(lambda image: null.preprocess(image, REQUEST), images * 2)]
    with wallclock.open_images(images, batch=len(images)) as batches:
        (batch,) = batches
        np.testing.assert_array_equal(ours[:10], batch.images)
        np.testing.assert_array_equal(ours[10:], batch.images)
    assert null.process(np.stack(ours)) == [[]] * 20


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (b"", "read: empty file"),
        (b"<html>", "decode: not a JPEG"),
        (making.jpeg()[:-40], "decode: "),
        (making.claiming(making.jpeg(), 60_000, 60_000), "60000x60000 pixels, over the limit"),
        (making.claiming(making.jpeg(), 8_000, 8_000), "decode: "),
    ],
)
def test_images_that_are_refused(null: Embedding, image: bytes, message: str) -> None:
    with pytest.raises(ImageError, match=message):
        null.preprocess(image, REQUEST)


def test_the_limit_on_pixels_is_a_setting() -> None:
    module = Embedding(model="null", max_pixels=10_000)
    with pytest.raises(ImageError, match=r"101x100 pixels, over the limit of 10,000"):
        module.preprocess(making.jpeg(101, 100), REQUEST)
    assert module.preprocess(making.jpeg(100, 100), REQUEST).shape == (224, 224, 3)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model": "no-such"}, "model=no-such: give a hub id"),
        ({"device": "tpu"}, "no device is called 'tpu'"),
        ({"model": "null", "max_pixels": 0}, "max_pixels=0: give a whole number"),
    ],
)
def test_settings_that_cannot_be_met(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Embedding(**settings)


def test_vectors_on_a_device_are_the_hosts(device: Device, tmp_path: Path) -> None:
    FAMILIES["dinov2"](tmp_path)
    settings: dict[str, Any] = {"model": str(tmp_path), "dtype": "fp32"}
    there, here = (Embedding(**settings, device=name) for name in ("cuda", "cpu"))
    images = [making.jpeg(300 + 40 * seed, 260, seed) for seed in range(5)]
    batch = np.stack([there.preprocess(image, REQUEST) for image in images])
    for n in (5, 1, 3):
        ours, right = (np.stack(module.process(batch[:n])) for module in (there, here))
        np.testing.assert_allclose(ours, right, rtol=1e-3, atol=1e-4)
    assert np.abs(right[0] - right[1]).max() > 0.01


class Sizes(Pixels):
    def process(self, batch: np.ndarray) -> list[int]:
        return [image.shape[0] for image in batch]


def test_pixels_of_another_size() -> None:
    module = Sizes(size=64)
    assert module.process(np.stack([module.preprocess(making.jpeg(), REQUEST)] * 2)) == [64, 64]
    with pytest.raises(UserError, match="size=0: give a whole number from 1 to 4096"):
        Sizes(size=0)


def test_vectors_are_those_of_the_job(tmp_path: Path) -> None:
    model, folder = tmp_path / "model", tmp_path / "images"
    FAMILIES["dinov2"](model)
    folder.mkdir()
    for seed in range(5):
        (folder / f"{seed}.jpg").write_bytes(making.jpeg(300, 200, seed))
    module = Embedding(model=str(model), device="cpu")
    rows = [module.preprocess(path.read_bytes(), REQUEST) for path in sorted(folder.iterdir())]
    vectors = np.stack(module.process(np.stack(rows)))
    embed(folder, tmp_path / "out", model=str(model), device="cpu")
    job = opened(tmp_path / "out").vectors(0)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors, job, rtol=1e-4, atol=1e-5)


class Toy(Module):
    def __init__(
        self, batch: int = 1, scale: Annotated[float, Help("of the values")] = 1.0, name: str = ""
    ) -> None:
        self.values = (batch, scale, name)

    def preprocess(self, image: bytes, request: Request) -> np.ndarray:
        return np.frombuffer(image, np.uint8)

    def process(self, batch: np.ndarray) -> list[int]:
        return [0] * len(batch)


TOY = f"module={__name__}:Toy"


def test_request() -> None:
    body = '{"id": "7", "url": "u", "callback_url": "c", "parameters": {"k": 1}, "more": 2}'
    assert Request.parse("m", body) == Request("7", "u", "c", {"k": 1})
    assert Request.parse("m", '{"url": "u", "callback_url": "c"}') == Request("m", "u", "c", {})


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("{", "the body is not JSON: "),
        ("[1]", "the body is not a JSON object"),
        ('{"url": "u"}', "'callback_url' is missing or not a text"),
        ('{"url": "", "callback_url": "c"}', "'url' is missing or not a text"),
        ('{"url": "u", "callback_url": "c", "id": 7}', "'id' is missing or not a text"),
        ('{"url": "u", "callback_url": "c", "parameters": []}', "'parameters' is missing or not"),
    ],
)
def test_no_request(body: str, reason: str) -> None:
    with pytest.raises(ItemError, match=reason) as caught:
        Request.parse("m", body)
    assert (caught.value.stage, caught.value.permanent) == ("parse", True)


@given(st.text())
def test_a_reason_is_a_line_that_a_queue_takes(text: str) -> None:
    assert ItemError("process", f"{text}\0\x1b[31m\udcff").reason.isprintable()


_JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=5),
    lambda of: (
        st.lists(of, max_size=3)
        | st.dictionaries(st.sampled_from(("id", "url", "callback_url")), of, max_size=4)
    ),
    max_leaves=12,
)


def outcome(body: str) -> tuple[str, bool, int] | None:
    try:
        Request.parse("m", body)
    except ItemError as error:
        return error.stage, error.permanent, len(str(error).splitlines())
    return None


@given(st.text(max_size=20) | _JSON.map(json.dumps))
def test_any_body_is_a_request_or_refused_in_one_line(body: str) -> None:
    assert outcome(body) in (None, ("parse", True, 1))


def test_settings_of_a_command_and_a_module() -> None:
    words = [TOY, "batch=16", "queue", "--name", "x", "--private-callbacks", "--read_s=3"]
    url, service, make_module = read(words)
    assert url == "queue"
    assert (service.batch, service.private_callbacks, service.read_s) == (16, True, 3)
    assert make_module().values == (16, 1, "x")  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["batch=0"], "batch=0: give a whole number from 1 to 65536"),
        (["module=nowhere:It"], "module=nowhere:It: No module named 'nowhere'; give package"),
        (["module=json:loads"], "derive it from wallclock.service.Module"),
        (["module=json"], "give package.module:Class"),
    ],
)
def test_mistakes_are_one_line(words: list[str], reason: str) -> None:
    with pytest.raises(UserError, match=reason):
        read(["queue", *(words if words[0].startswith("module") else [TOY, *words])])


def with_process(function: Any) -> Module:
    """A module whose `process` is this."""
    return type("Odd", (Toy,), {"process": function})()  # type: ignore[no-any-return]


def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        return function(*arguments, **named)

    return call


def with_sequence(self: Module, batch: Any, parameters: Sequence[Mapping[str, Any]] = ()) -> Any:
    return [*parameters]


def with_another(self: Module, batch: Any, options: Any) -> Any:
    return []


@pytest.mark.parametrize(
    ("function", "takes"),
    [
        (Toy.process, False),
        (decorated(with_sequence), True),
        (lambda self, batch, *, parameters: [], True),
        (lambda self, *rows, **options: [], False),
    ],
)
def test_whether_process_takes_parameters(function: Any, takes: bool) -> None:
    assert takes_parameters(with_process(function)) is takes


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (with_another, "missing a required argument: 'options'; its arguments are batch and"),
        (lambda self: [], "too many positional arguments; its arguments are batch and"),
        (lambda self, parameters: [], "multiple values for argument 'parameters'; its arguments"),
    ],
)
def test_process_that_cannot_be_called(function: Any, reason: str) -> None:
    with pytest.raises(UserError, match=f"Odd.process: {reason}"):
        takes_parameters(with_process(function))
