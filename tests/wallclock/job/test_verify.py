"""`verify` counts images and embeds a sample again, knowing nothing of the loader."""

import io
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image, ImageOps

from tests import making
from tests.families import FAMILIES
from tests.wallclock.job.conftest import DAMAGED, N, opened
from wallclock import embed
from wallclock.errors import ImageError, UserError
from wallclock.job.dataset import Dataset
from wallclock.job.part import Part
from wallclock.job.reference import Reference
from wallclock.job.verify import verify
from wallclock.recipe import Limits, ModelSpec

Run = Callable[..., Any]
PHOTOS = 24
#: Geometry, pooling and a projection, a map without tokens, and one that Pillow has to prepare.
SOME = ("vit", "clip", "dinov2-registers", "resnet", "dinov3")
SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in FAMILIES if name not in SOME]


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sizes and orientations of all kinds."""
    folder = tmp_path_factory.mktemp("photos")
    for seed in range(PHOTOS):
        width, height = 300 + 31 * seed, 420 - 7 * seed
        data = making.oriented(1 + seed % 8, width=width, height=height, seed=seed, quality=92)
        (folder / f"{seed:02}.jpg").write_bytes(data)
    return folder


@pytest.mark.parametrize("family", [*SOME, *SLOW])
def test_a_model_of_each_kind(family: str, photos: Path, tmp_path: Path) -> None:
    FAMILIES[family](tmp_path / "model")
    embed(photos, tmp_path / "out", model=str(tmp_path / "model"), device="cpu")
    verdict = verify(tmp_path / "out", n=PHOTOS)
    assert verdict.faults == ()
    assert (verdict.compared, verdict.changed) == (PHOTOS, 0)
    assert verdict.centered_median is not None
    assert verdict.centered_median > 0.99
    assert f"less their mean {verdict.centered_median:.6f}" in str(verdict)


@pytest.mark.parametrize(
    "options",
    [
        {"preprocess": "squash"},
        {"preprocess": "shortest:230,crop:224,lanczos"},
        {"pool": "mean"},
        {"dtype": "bf16"},
        {"pool": "cls", "normalize": True},
    ],
)
def test_settings_that_were_typed(options: dict[str, Any], photos: Path, tmp_path: Path) -> None:
    FAMILIES["vit"](tmp_path / "model")
    embed(photos, tmp_path / "out", model=str(tmp_path / "model"), device="cpu", **options)
    assert verify(tmp_path / "out", n=PHOTOS).faults == ()


@pytest.mark.parametrize(
    ("name", "typed"), [("preprocess", "squash"), ("pool", "mean"), ("preprocess", "none,crop:224")]
)
def test_it_sees_what_was_made_otherwise(
    name: str, typed: str, photos: Path, tmp_path: Path
) -> None:
    """The settings say one thing, the vectors are of another."""
    FAMILIES["clip"](tmp_path / "model")
    wrong: dict[str, Any] = {"pool": "tower", name: typed}
    embed(photos, tmp_path / "out", model=str(tmp_path / "model"), device="cpu", **wrong)
    embed(photos, tmp_path / "right", model=str(tmp_path / "model"), device="cpu", pool="tower")
    dataset, right = opened(tmp_path / "out"), opened(tmp_path / "right")
    dataset.describe({**right.about, "source": dataset.about["source"]})
    assert verify(tmp_path / "out", n=PHOTOS).faults


def turned(vectors: npt.NDArray[np.float32], cosine: float) -> npt.NDArray[np.float32]:
    """Vectors of the same lengths with this cosine to each."""
    rng = np.random.default_rng(1)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    units = vectors / lengths
    beside = rng.normal(size=vectors.shape)
    beside -= (beside * units).sum(axis=1, keepdims=True) * units
    beside /= np.linalg.norm(beside, axis=1, keepdims=True)
    mixed = cosine * units + np.sqrt(1 - cosine**2) * beside
    return np.asarray(mixed * lengths, np.float32)


@pytest.mark.parametrize(
    ("share", "cosine", "is_fault"),
    [(1.0, 0.95, True), (0.1, 0.8, True), (0.1, 0.95, False), (1.0, 0.995, False)],
)
def test_median_and_least_are_judged_each(
    share: float,
    cosine: float,
    is_fault: bool,
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All vectors a little off, or some of them by much."""
    run(shard=100)
    right = opened(tmp_path / "out").vectors(0)
    wrong, n = right.copy(), round(share * len(right))
    wrong[:n] = turned(right[:n], cosine)
    monkeypatch.setattr(Dataset, "vectors", lambda *_: wrong)
    verdict = verify(tmp_path / "out", n=N)
    assert ("cosines below 0.99 (median) or 0.9 (least)" in verdict.faults) == is_fault
    assert verdict.cosine_min == pytest.approx(cosine, abs=1e-3)


@pytest.mark.parametrize("kind", ["vectors", "failures"])
def test_an_image_that_is_there_twice(kind: str, run: Run, tmp_path: Path) -> None:
    """In place of another one, so that the number of rows is right."""
    out = tmp_path / "out"
    run(shard=100)
    dataset = opened(out)
    rows, vectors, failures = dataset.rows(0), dataset.vectors(0), dataset.failures(0)
    columns = {name: rows[name].to_pylist() for name in rows.column_names}
    assert len(failures) == DAMAGED
    if kind == "vectors":
        columns["id"][1] = columns["id"][0]
    else:
        failures[1] = failures[0]
    (out / dataset.row_file(0)).unlink()
    dataset.commit(0, Part(columns, vectors, failures))
    faults = verify(out, n=4).faults
    assert f"{N - DAMAGED} vectors and {DAMAGED} failures of {N} images" in faults


def test_vectors_of_zeros_are_a_fault(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = opened(out).vectors(0)
    monkeypatch.setattr(Dataset, "vectors", lambda *_: 0 * right)
    assert verify(out, n=10).faults


def test_what_is_no_dataset(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no complete dataset"):
        verify(tmp_path)


#: Segments of 64 KB: Pillow copies all that it has for each.
N_SEGMENTS = 750
UPRIGHT, STORED = "shortest:256,crop:224,rotate", "squash"
NULL = ModelSpec("null", "none", input_px=224)


def reference(preprocess: str, **limits: Any) -> Reference:
    return Reference(NULL, preprocess, Limits(**limits), is_auto=False)


def exif_bomb(orientation: int, seed: int = 0) -> bytes:
    """A JPEG whose EXIF goes on for 750 segments, the first of which says how it lies."""
    data = making.oriented(orientation, width=300, height=200, seed=seed, quality=95)
    at = data.index(b"\xff\xe1") + 2
    end = at + int.from_bytes(data[at : at + 2], "big")
    body = b"Exif\0\0" + bytes(65_000)
    return data[:end] + making.segment(0xE1, body) * N_SEGMENTS + data[end:]


@pytest.fixture
def lengths(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The length of each file that Pillow opens."""
    lengths, real = list[int](), Image.open

    def noting(file: io.BytesIO, *words: Any, **options: Any) -> Any:
        lengths.append(len(file.getvalue()))
        return real(file, *words, **options)

    monkeypatch.setattr(Image, "open", noting)
    return lengths


@pytest.mark.parametrize("orientation", [1, 3, 6, 7])
def test_metadata_of_megabytes_is_cut_out(orientation: int, lengths: list[int]) -> None:
    """Pillow's time would grow with the square of the segments. The picture is turned as before."""
    plain = making.oriented(orientation, width=300, height=200, seed=0, quality=95)
    for geometry in (UPRIGHT, STORED):
        image = reference(geometry).open(exif_bomb(orientation))
        np.testing.assert_array_equal(image, reference(geometry).open(plain))
    assert max(lengths) < 100_000


def with_orientation(kind: str) -> Callable[[int], bytes]:
    def make(orientation: int) -> bytes:
        picture = making.picture(30, 20, seed=1)
        return making.encode(picture, kind, exif=making.exif(orientation))

    return make


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "TIFF", "WEBP"])
@pytest.mark.parametrize("orientation", [1, 2, 6, 8])
def test_upright_where_the_geometry_says_so(kind: str, orientation: int) -> None:
    """Pillow itself turns a TIFF."""
    data, upright = with_orientation(kind)(orientation), with_orientation(kind)(1)
    stored = np.asarray(reference(STORED).open(data))
    np.testing.assert_array_equal(stored, reference(STORED).open(upright))
    plain = ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB")
    np.testing.assert_array_equal(reference(UPRIGHT).open(data), plain)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (making.claiming(making.jpeg(progressive=True), 20_000, 20_000), "over the limit of 100,0"),
        (making.arithmetic(16_383, 5_000, 10), "s of work, over the limit"),
        (making.jpeg()[:2] + b"\xff\xfe\0\2" * 10_001 + making.jpeg()[2:], "more JPEG segments"),
        (b"no image", "not a JPEG, PNG"),
    ],
)
def test_what_the_loader_refuses_is_not_opened(
    data: bytes, reason: str, lengths: list[int]
) -> None:
    with pytest.raises(ImageError, match=reason):
        reference(STORED).open(data)
    assert lengths == []


def test_the_limits_are_those_of_the_job() -> None:
    assert reference(STORED, max_pixels=64 * 48).open(making.jpeg(64, 48)).size == (64, 48)
    with pytest.raises(ImageError, match="over the limit of 3,071"):
        reference(STORED, max_pixels=64 * 48 - 1).open(making.jpeg(64, 48))


def test_verify_of_files_that_hold_or_became_bombs(tmp_path: Path) -> None:
    """And of what embed takes as well: EXIF that cannot be written anew, an empty JFIF segment."""
    (tmp_path / "in").mkdir()
    plain = making.jpeg(64, 48)
    tags = struct.pack("<HHIHH", 0x112, 3, 1, 6, 0) + struct.pack("<HHI4s", 340, 1, 3, bytes(4))
    body = b"Exif\0\0II*\0" + struct.pack("<IH", 8, 2) + tags + bytes(4)
    odd = plain[:2] + making.segment(0xE1, body) + plain[2:]
    empty = plain[:2] + b"\xff\xe0\0\7JFIF\0" + plain[20:]
    for name, data in {"odd": odd, "empty": empty}.items():
        (tmp_path / "in" / f"{name}.jpg").write_bytes(data)
    for seed in range(3):
        data = making.oriented(6, width=300, height=200, seed=seed, quality=95)
        (tmp_path / "in" / f"{seed}.jpg").write_bytes(exif_bomb(6, seed) if seed == 2 else data)
    values: dict[str, Any] = {"model": "null", "preprocess": UPRIGHT}
    embed(tmp_path / "in", tmp_path / "out", recipe="pillow", device="cpu", **values)
    (tmp_path / "in" / "0.jpg").write_bytes(making.arithmetic(16_383, 5_000, 10))
    verdict = verify(tmp_path / "out")
    assert (verdict.compared, verdict.changed, verdict.faults) == (4, 1, ())
