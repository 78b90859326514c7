"""docs/service.md and examples/: their code as it is written, and the walk by hand."""

import io
import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from examples.service_plain import AverageColour
from tests import making
from tests.conftest import ROOT
from tests.running import PATH
from wallclock.errors import ImageError
from wallclock.service.callbacks import SECRET, SIGNATURE, sign
from wallclock.service.interface import Module, Request

TEXT = (ROOT / "docs" / "service.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", TEXT, flags=re.DOTALL)


@pytest.mark.slow
def test_the_module_runs_and_is_short() -> None:
    source, *_ = blocks("python")
    assert len(source.splitlines()) <= 30
    names: dict[str, Any] = {}
    exec(source, names)
    module = names["Sharpness"](size=128)
    sharp = np.random.default_rng(0).integers(0, 255, (256, 256, 3), dtype=np.uint8)
    images = [making.encode(pixels) for pixels in (sharp, np.full_like(sharp, 90))]
    noisy, flat = results(module, *images)
    assert noisy["sharpness"] > 10 > flat["sharpness"]


def test_a_receiver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SECRET, "secret")
    monkeypatch.setattr("time.time", lambda: 1000.0)
    names: dict[str, Any] = {}
    exec(blocks("python")[-1], names)
    headers = {SIGNATURE: sign("secret", "https://results.example.org/done?a=1", b"{}", 1000)}
    assert names["is_genuine"]("/done?a=1", headers, b"{}")
    assert not names["is_genuine"]("/done?a=1", headers, b"[]")
    assert not names["is_genuine"]("/done?a=2", headers, b"{}")


#: What may make another host of a receiver's origin, or of the request's own.
JOINTS = ["", "/", "//", "@", "/@", ".", ":80@", ":@", "\\", "/\\", "?@", "#@", "https://", "\t//"]
OTHERS = ["elsewhere.example", "results.example.org.elsewhere.example"]


@given(
    signed=st.sampled_from(OTHERS),
    path=st.sampled_from(["/done?a=1", "/", "/done"]),
    joint=st.sampled_from(JOINTS) | st.text(),
    host=st.sampled_from(OTHERS) | st.text(),
)
def test_no_receiver_takes_what_was_signed_for_another(
    signed: str, path: str, joint: str, host: str
) -> None:
    names: dict[str, Any] = {}
    exec(blocks("python")[-1], names)
    headers = {SIGNATURE: sign("secret", f"https://{signed}{path}", b"{}", 1000), "Host": host}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SECRET, "secret")
        patch.setattr("time.time", lambda: 1000.0)
        for target in (f"{joint}{path}", f"{joint}elsewhere.example{path}"):
            assert not names["is_genuine"](target, headers, b"{}")


@pytest.mark.slow
def test_by_hand(tmp_path: Path) -> None:
    """The shell block, with other ports, this Python, and a folder that there is."""
    (tmp_path / "a.jpg").write_bytes(making.jpeg(640, 480))
    (script,) = blocks("bash")
    with ExitStack() as stack:
        for port in ("5600", "5601", "5602", "5603"):
            free = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            script = script.replace(port, str(free.getsockname()[1]))
    script = script.replace("/path/to/images", str(tmp_path))
    script = script.replace('"$PWD/.venv/bin:$PATH"', f'"{Path(sys.executable).parent}:$PATH"')
    script = script.replace("make serve", f"make -o .venv/.ready PY={sys.executable} serve")
    shell = subprocess.Popen(
        ["bash", "-e", "-c", script],
        cwd=ROOT,
        env={**os.environ, **PATH},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, err = shell.communicate(timeout=100)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGKILL)
    assert '"accepted":1' in out, out + err
    assert '"event":"stopped","not_returned":0' in err


REQUEST = Request("1", "http://example.org/a.jpg", "http://example.org/done")


def results(module: Module, *images: bytes) -> Any:
    """What the service would send, through the JSON of a callback."""
    batch = np.stack([module.preprocess(image, REQUEST) for image in images])
    return orjson.loads(orjson.dumps(module.process(batch), option=orjson.OPT_SERIALIZE_NUMPY))


def plain_colour(red: int, green: int, blue: int) -> bytes:
    return making.encode(np.full((480, 640, 3), (red, green, blue), np.uint8), quality=95)


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
