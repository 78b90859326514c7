"""Where a model's files come from, and what is said where they cannot be had."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import hub
from tests.conftest import ROOT
from tests.families import FAMILIES
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
    """The lines of `FETCH`, in a process with a cache of its own."""
    environment = {name: text for name, text in os.environ.items() if name[:3] != "HF_"}
    environment |= {"HF_ENDPOINT": address, "HF_HOME": str(home), **more}
    environment |= {"PYTHONPATH": str(ROOT / "code")}
    command = [sys.executable, "-c", FETCH, REPO, revision]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout.strip().splitlines()


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

    def test_closed_port(self, tmp_path: Path) -> None:
        """Without the client's retries, which would be 24 s of pauses: `FETCH` has none."""
        config, _ = fetch(tmp_path, "http://127.0.0.1:9")
        assert config.startswith(f"NoWeightsError 2 cannot load {REPO}: ")

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
        base = JobSettings(model="facebook/dinov2-base", weights="random").resolved_model()
        assert (base.weights, base.dim, base.revision) == ("random", 768, "")

    @pytest.mark.parametrize("model", ["google/vit-base-patch16-224", "null", "."])
    def test_random_weights_of_another_model(self, model: str) -> None:
        with pytest.raises(UserError, match="weights=") as caught:
            JobSettings(model=model, weights="random").resolved_model()
        assert "\n" not in str(caught.value)

    def test_mock_pools_nothing(self) -> None:
        with pytest.raises(UserError, match="leave out"):
            JobSettings(model="null", pool="mean").resolved_model()
        assert JobSettings(model="null", normalize=True).resolved_model().normalize

    @pytest.mark.parametrize(
        ("family", "pool", "dim"),
        [
            ("clip", "projection", 20),
            ("clip-vision", "projection", 20),
            ("siglip", "projection", 24),
            ("align", "projection", 64),
            ("vit", "tower", 24),
            ("swin", "tower", 16),
        ],
    )
    def test_auto_pool(self, family: str, pool: str, dim: int, tmp_path: Path) -> None:
        FAMILIES[family](tmp_path)
        model = JobSettings(model=str(tmp_path)).resolved_model()
        assert (model.pool, model.dim, model.weights) == (pool, dim, "pretrained")
        assert JobSettings(model=str(tmp_path), pool="cls").resolved_model().pool == "cls"

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
