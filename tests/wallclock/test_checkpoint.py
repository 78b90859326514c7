"""Where a model's files come from; they are loaded, or refused in one line, within a gigabyte."""

import json
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests import hub
from tests.changes import EVIL
from tests.families import FAMILIES
from tests.mutants import load_model
from tests.test_fuzz import takes_less_than
from wallclock import checkpoint
from wallclock.__main__ import main
from wallclock.errors import NoWeightsError, UserError
from wallclock.job.settings import JobSettings
from wallclock.recipe import ModelSpec

REPO, REVISION = checkpoint.DEFAULT.hub_id, checkpoint.DEFAULT.revision
SETTINGS = {"size": {"height": 32, "width": 32}}
#: Prints the folder of each file-fetching call, or the error. The client's pauses are an error.
FETCH = """
import json, sys, time
def sleep(seconds):
    raise AssertionError("the client pauses before it tries again")
time.sleep = sleep
from wallclock import checkpoint
from wallclock.errors import UserError
from wallclock.recipe import ModelSpec
model = ModelSpec("any", "pretrained", hub_id=sys.argv[1], revision=sys.argv[2])
for find in (checkpoint.folder_of, checkpoint.weights_folder_of):
    try:
        print(sorted(path.name for path in find(model).iterdir()))
    except UserError as error:
        print(type(error).__name__, error.status, error)
"""


def fetch(home: Path, address: str, revision: str = REVISION, **more: str) -> list[str]:
    """The lines of `FETCH`."""
    return hub.run(FETCH, address, home, REPO, revision, **more)


def files(folder: Path, revision: str = REVISION) -> dict[str, Path]:
    """Three files of a model, as the hub names them. Their content is not looked at."""
    for name in ("config.json", "preprocessor_config.json", "model.safetensors"):
        (folder / name).write_text(json.dumps(SETTINGS))
    return {f"{REPO}/resolve/{revision}/{path.name}": path for path in folder.iterdir()}


class TestHub:
    def test_unknown_id_is_one_request(self, tmp_path: Path) -> None:
        with hub.serve({}) as (address, requests):
            config, weights = fetch(tmp_path, address)
        assert config.startswith(f"NoWeightsError 2 cannot load {REPO}: ")
        for fix in ("HF_TOKEN", "HF_ENDPOINT", f"`hf download {REPO}`", "model=/folder"):
            assert fix in config
        assert "weights=random" in weights
        about = [request for request in requests if REPO in request]
        # One for each of the two calls.
        assert about == [f"HEAD {REPO}/resolve/{REVISION}/config.json"] * 2

    def test_hub_that_hangs_up_is_asked_once(self, tmp_path: Path) -> None:
        with hub.hang_up() as (address, requests):
            config, _ = fetch(tmp_path, address)
        assert config.startswith(f"NoWeightsError 2 cannot load {REPO}: ")
        assert len([line for line in requests if REPO in line]) == 2

    def test_what_is_cached_needs_no_hub(self, tmp_path: Path) -> None:
        revision = "main"
        (tmp_path / "files").mkdir()
        served = files(tmp_path / "files") | files(tmp_path / "files", revision)
        with hub.serve(served, REVISION) as (address, _):
            first = fetch(tmp_path, address, revision)
        assert first[1] == str(["config.json", "model.safetensors", "preprocessor_config.json"])
        assert fetch(tmp_path, "http://127.0.0.1:9", revision)[1] == first[1]
        assert fetch(tmp_path, address, revision, HF_HUB_OFFLINE="1")[1] == first[1]

    def test_a_cached_commit_is_not_asked_for(self, tmp_path: Path) -> None:
        (tmp_path / "files").mkdir()
        with hub.serve(files(tmp_path / "files")) as (address, requests):
            first = fetch(tmp_path, address)
            n_requests = len([request for request in requests if REPO in request])
            assert fetch(tmp_path, address)[1] == first[1]
        assert len([request for request in requests if REPO in request]) == n_requests

    def test_command_ends_with_2(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
    ) -> None:
        def refuse(model: ModelSpec) -> Path:
            raise NoWeightsError("cannot load it")

        monkeypatch.setattr(checkpoint, "folder_of", refuse)
        (tmp_path / "in").mkdir()
        (tmp_path / "in" / "a.jpg").touch()
        assert main(["embed", str(tmp_path / "in"), str(tmp_path / "out")]) == 2
        assert capsys.readouterr().err.splitlines()[-1] == "wallclock: cannot load it"
        assert main(["embed", str(tmp_path / "in"), str(tmp_path / "out"), "weights=best"]) == 2


class TestSettings:
    """`JobSettings.resolved_model`."""

    def test_random_weights_only_on_request(self) -> None:
        assert JobSettings(weights="random").resolved_model() == checkpoint.DEFAULT

    @pytest.mark.parametrize("model", ["facebook/dinov2-base", "null", "."])
    def test_random_weights_of_another_model(self, model: str) -> None:
        with pytest.raises(UserError, match="weights="):
            JobSettings(model=model, weights="random").resolved_model()

    def test_mock_pools_nothing(self) -> None:
        with pytest.raises(UserError, match="leave out"):
            JobSettings(model="null", pool="mean").resolved_model()
        assert JobSettings(model="null", normalize=True).resolved_model().normalize

    def test_defaults_that_a_file_leaves_out(self, tmp_path: Path) -> None:
        """As google/siglip-base-patch16-224's, which names no size."""
        config = {"model_type": "siglip", "vision_config": {"model_type": "siglip_vision_model"}}
        (tmp_path / "config.json").write_text(json.dumps(config))
        model = JobSettings(model=str(tmp_path)).resolved_model()
        assert (model.dim, model.input_px, model.pool) == (768, 224, "projection")


def test_null_where_timm_would_say_it(tmp_path: Path) -> None:
    config = {"model_type": "vit", "hidden_size": 8, "image_size": 32, "pretrained_cfg": None}
    (tmp_path / "config.json").write_text(json.dumps(config))
    model = ModelSpec("any", "pretrained", path=str(tmp_path), input_px=0, dim=0)
    resolved = checkpoint.resolve(model, "tower")
    assert (resolved.dim, resolved.input_px) == (8, 32)


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
    with takes_less_than(1e9), pytest.raises(UserError) as caught:
        load_model(folder)
    line = str(caught.value).replace(str(folder), "")
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
