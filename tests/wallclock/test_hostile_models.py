"""A folder of a model from elsewhere is loaded, or refused in one line, within a gigabyte."""

import json
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.changes import EVIL
from tests.families import FAMILIES
from tests.mutants import load_model
from tests.test_fuzz import bytes_of
from wallclock.errors import UserError

CONFIG, PREPROCESSOR, WEIGHTS = "config.json", "preprocessor_config.json", "model.safetensors"
INDEX = f"{WEIGHTS}.index.json"


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("models")
    FAMILIES["vit"](base)
    load_model(base)
    return base


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved, tmp_path / "model"))


def refusal(folder: Path, capfd: pytest.CaptureFixture[str]) -> str:
    """The one line that refuses a model; its folder is left out."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # VmHWM starts again
    before = bytes_of("VmHWM")
    with pytest.raises(UserError) as caught:
        load_model(folder)
    assert bytes_of("VmHWM") - before < 1e9
    line = str(caught.value).replace(str(folder), "")
    assert line.isprintable()
    assert len(line) < 400
    assert "".join(capfd.readouterr()) == ""
    return line


def edit(path: Path, **fields: Any) -> None:
    content = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**content, **fields}))


WHOLE, NUMBER = "give a whole number", "give a number from -1000 to 1000"


@pytest.mark.parametrize(
    ("file", "field", "value", "words"),
    [
        (CONFIG, "hidden_size", 10**9, f"hidden_size=1000000000: {WHOLE} from 1 to 65536"),
        (CONFIG, "hidden_size", [24, "x"], f"hidden_size=x: {WHOLE}"),
        (CONFIG, "num_hidden_layers", 10**6, f"num_hidden_layers=1000000: {WHOLE}"),
        (CONFIG, "num_labels", 10**9, f"num_labels=1000000000: {WHOLE}"),
        (CONFIG, "image_size", 10**6, f"image_size=1000000: {WHOLE}"),
        (CONFIG, "patch_size", 0, f"patch_size=0: {WHOLE} from 1"),
        (CONFIG, "model_type", ["vit"], "model_type=['vit']: give a text"),
        (CONFIG, "architectures", 5, "architectures=5: give a list"),
        (CONFIG, "vision_config", [1], "vision_config=[1]"),
        (CONFIG, "pretrained_cfg", {"crop_pct": 1e-300}, "pretrained_cfg.crop_pct=1e-300: give"),
        (CONFIG, "attn_implementation", "someone/kernels", "no attn_implementation is called"),
        (PREPROCESSOR, "size", {"height": 10**6, "width": 8}, f"size.height=1000000: {WHOLE}"),
        (PREPROCESSOR, "image_mean", float("nan"), f"image_mean=nan: {NUMBER}"),
        (PREPROCESSOR, "image_mean", 10**400, NUMBER),
        (PREPROCESSOR, "image_std", [0.5, EVIL, 0.5], "image_std=x\\x1b]0;owned\\x07\\nFAKE"),
        (PREPROCESSOR, "auto_map", "own.Own", "auto_map=own.Own"),
        ("processor_config.json", "image_processor", 5, "image_processor=5"),
    ],
)
def test_a_field_is_named(
    file: str, field: str, value: Any, words: str, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    edit(folder / file, **{field: value})
    line = refusal(folder, capfd)
    assert line.startswith(f"/{file} cannot be read: ")
    assert words in line


@pytest.mark.parametrize(
    ("file", "field", "value", "words"),
    [
        (CONFIG, "hidden_size", None, "hidden_size"),
        (CONFIG, "num_hidden_layers", 60_000, "more than 20,000 layers"),
        (CONFIG, "intermediate_size", 10**12, "more weights than its files"),
        (CONFIG, "intermediate_size", 49, "fc1.bias is (48,) in its files, (49,) by config.json"),
        (CONFIG, "layer_norm_eps", float("nan"), "its vectors are not finite"),
        (CONFIG, "model_type", EVIL, "model type `x\\x1b]0;owned"),
        (CONFIG, "hidden_act", EVIL, "KeyError: 'x\\x1b]0;owned"),
        (CONFIG, "hidden_dropout_prob", 10**400, "dropout probability"),
        (CONFIG, "quantization_config", {"quant_method": "torchao"}, "not installed"),
        (PREPROCESSOR, "image_processor_type", EVIL, "image_processor_type=x\\x1b]0;owned"),
        (PREPROCESSOR, "image_processor_type", "ViTModel", "which is not an image processor"),
        (PREPROCESSOR, "feature_extractor_type", "ViTModel", "which is not an image processor"),
        (PREPROCESSOR, "image_processor_type", "NoImageProcessor", "Unrecognized image processor"),
        (PREPROCESSOR, "size", {"height": 4096, "width": 4096}, "cannot embed an image of 4096x"),
        (PREPROCESSOR, "image_std", {"r": 1, "g": 1, "b": 1}, "is not of three channels"),
    ],
)
def test_what_only_the_library_knows(
    file: str, field: str, value: Any, words: str, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    edit(folder / file, **{field: value})
    assert words in refusal(folder, capfd)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"[" * 100_000 + b"]" * 100_000, "nested too deep"),
        (b'{"size": ' * 50 + b"1" + b"}" * 50, "nested too deep"),
        (b"", "Expecting value"),
        (b"\xff\xfe\x00", "cannot be read"),
        (b"[1]", "no JSON object"),
        (b'{"a": 1' + b"0" * 5000 + b"}", "cannot be read"),
        (None, "more than 4,194,304 bytes"),
    ],
)
@pytest.mark.parametrize("file", [CONFIG, PREPROCESSOR])
def test_a_file(
    file: str, data: bytes | None, words: str, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    if data is None:
        with (folder / file).open("r+b") as handle:
            handle.truncate(1 << 30)
    else:
        (folder / file).write_bytes(data)
    line = refusal(folder, capfd)
    assert line.startswith(f"/{file} cannot be read: ")
    assert words in line


@pytest.mark.parametrize(
    ("index", "words"),
    [
        ({"weight_map": {"a": "../a.safetensors"}}, "its weight_map names ['../a.safetensors']"),
        ({"weight_map": {"a": "a.bin"}}, "its weight_map names ['a.bin']"),
        ({"weight_map": {EVIL: EVIL}}, "its weight_map names ['x\\x1b]0;owned"),
        ({"weight_map": {"a": ["b"]}}, "weight_map.a=['b']: give a text"),
        ({"weight_map": ["a"]}, "weight_map=['a']"),
        ({"weight_map": {}}, "its weight_map names []"),
        ({"metadata": {}}, "its weight_map names []"),
    ],
)
def test_an_index(index: Any, words: str, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (folder / WEIGHTS).rename(folder / "a.safetensors")
    edit(folder / INDEX, **index)
    line = refusal(folder, capfd)
    assert words in line
    assert line.startswith(f"/{INDEX}")


def test_parts_that_an_index_names(folder: Path) -> None:
    (folder / WEIGHTS).rename(folder / "a-1.safetensors")
    names = load_file(folder / "a-1.safetensors")
    edit(folder / INDEX, metadata={}, weight_map=dict.fromkeys(names, "a-1.safetensors"))
    load_model(folder)


def with_header(header: bytes, length: int | None = None) -> bytes:
    return struct.pack("<Q", len(header) if length is None else length) + header + bytes(4)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "header too small"),
        (with_header(b"{}", 1 << 63), "header too large"),
        (with_header(b"{}", 99_000_000), "invalid header length"),
        (with_header(b"[" * 200_000), "invalid JSON in header"),
        (
            with_header(
                b'{"a":{"dtype":"F32","shape":[9999999999,9999999999],"data_offsets":[0,4]}}'
            ),
            "overflow",
        ),
    ],
)
def test_a_header(data: bytes, words: str, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (folder / WEIGHTS).write_bytes(data)
    line = refusal(folder, capfd)
    assert words in line
    assert line.startswith(f"cannot load /{WEIGHTS}: ")


def test_weights_of_another_shape(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    weights = load_file(folder / WEIGHTS)
    weights["embeddings.cls_token"] = torch.zeros(1, 1, 7)
    save_file(weights, folder / WEIGHTS, {"format": "pt"})
    line = refusal(folder, capfd)
    assert "embeddings.cls_token is (1, 1, 7) in its files, (1, 1, 24) by config.json" in line
