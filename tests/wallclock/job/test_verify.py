"""`verify` knows nothing of the loader: wrong pixels, wrong pools and other images are seen."""

from pathlib import Path
from typing import Any

import pytest

from tests import making
from tests.families import FAMILIES
from wallclock import embed
from wallclock.job.dataset import open_existing
from wallclock.job.verify import verify

N = 24
#: Geometry, pooling and a projection, a map without tokens, and one that Pillow has to prepare.
SOME = ("vit", "clip", "dinov2-registers", "resnet", "dinov3")
SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in FAMILIES if name not in SOME]


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sizes and orientations of all kinds."""
    folder = tmp_path_factory.mktemp("photos")
    for seed in range(N):
        width, height = 300 + 31 * seed, 420 - 7 * seed
        data = making.oriented(1 + seed % 8, width=width, height=height, seed=seed, quality=92)
        (folder / f"{seed:02}.jpg").write_bytes(data)
    return folder


@pytest.mark.parametrize("family", [*SOME, *SLOW])
def test_a_model_of_each_kind(family: str, photos: Path, tmp_path: Path) -> None:
    FAMILIES[family](tmp_path / "model")
    embed(photos, tmp_path / "out", model=str(tmp_path / "model"), device="cpu")
    verdict = verify(tmp_path / "out", n=N)
    assert verdict.faults == ()
    assert (verdict.compared, verdict.changed) == (N, 0)
    assert verdict.centered_median is not None
    assert verdict.centered_median > 0.99
    assert f"less their mean {verdict.centered_median:.6f}" in str(verdict)


@pytest.mark.parametrize(
    "options",
    [
        {"preprocess": "squash"},
        {"preprocess": "shortest:230,crop:224,lanczos"},
        {"pool": "mean"},
        {"pool": "cls", "normalize": True},
    ],
)
def test_settings_that_were_typed(options: dict[str, Any], photos: Path, tmp_path: Path) -> None:
    FAMILIES["vit"](tmp_path / "model")
    embed(photos, tmp_path / "out", model=str(tmp_path / "model"), device="cpu", **options)
    assert verify(tmp_path / "out", n=N).faults == ()


@pytest.mark.parametrize(
    ("name", "typed"), [("preprocess", "squash"), ("pool", "mean"), ("preprocess", "none,crop:224")]
)
def test_it_sees_what_was_made_otherwise(
    name: str, typed: str, photos: Path, tmp_path: Path
) -> None:
    """The settings say one thing, the vectors are of another."""
    FAMILIES["clip"](tmp_path / "model")
    wrong: dict[str, Any] = (
        {name: typed, "pool": "tower"} if name == "preprocess" else {name: typed}
    )
    embed(photos, tmp_path / "out", model=str(tmp_path / "model"), device="cpu", **wrong)
    FAMILIES["clip"](tmp_path / "again")
    embed(photos, tmp_path / "right", model=str(tmp_path / "again"), device="cpu", pool="tower")
    dataset = open_existing(tmp_path / "out")
    assert dataset is not None
    right = open_existing(tmp_path / "right")
    assert right is not None
    about = {**right.about, "source": dataset.about["source"]}
    dataset.describe(about)
    assert verify(tmp_path / "out", n=N).faults
