"""Images that are generated, copied and picked."""

import io
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from experiments.diagnose.measure import copies as measure
from harness.corpora import copies, manifest, prepare, render, synthetic
from harness.corpora import manifest as manifests
from harness.corpora.distinct import EXTRA, lay_out
from harness.corpora.manifest import Manifest
from harness.digests import sha256_bytes
from harness.measures import psnr_db
from harness.protocols.protocol import no_progress
from harness.spec import Cell, CorpusSpec, Recipe
from tests import making
from tests.experiments import made
from tests.making import jpeg
from wallclock.errors import ImageError, UserError
from wallclock.recipe import ModelSpec
from wallclock.stages.decode import make as make_decoder

# --- synthetic ------------------------------------------------------------------------------------


SPEC = CorpusSpec("synthetic")


@pytest.fixture(autouse=True)
def rendered(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The indices that were rendered."""
    seen: list[int] = []
    real = synthetic._render

    def render(spec: CorpusSpec, image_set: str, root: Path, index: int) -> manifest.Item:
        seen.append(index)
        return real(spec, image_set, root, index)

    monkeypatch.setattr(synthetic, "_render", render)
    return seen


def make(cache: Path, n: int, image_set: str = "small_256", spec: CorpusSpec = SPEC) -> Manifest:
    prepared = prepare.prepare(spec, image_set, n, cache, lambda *_: None)
    assert prepared.n == n
    listed = manifest.load(Path(prepared.manifest)).head(n)
    assert listed.digest() == prepared.digest
    return listed


def test_only_new_images_are_rendered(tmp_path: Path, rendered: list[int]) -> None:
    small = make(tmp_path, 2)
    large = make(tmp_path, 5)
    assert large.items[:2] == small.items
    assert make(tmp_path, 2) == small
    assert make(tmp_path, 5) == large
    assert sorted(rendered) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("damage", ["removed", "cut"])
def test_damaged_file_is_rendered_again(tmp_path: Path, rendered: list[int], damage: str) -> None:
    first = make(tmp_path, 3)
    path = first.root / first.items[1].path
    data = path.read_bytes()
    path.unlink() if damage == "removed" else path.write_bytes(data[:-1])
    assert make(tmp_path, 3) == first
    assert path.read_bytes() == data
    assert sorted(rendered) == [0, 1, 1, 2]


def test_seeds_and_progressive_shares_are_kept_apart(tmp_path: Path) -> None:
    specs = (SPEC, CorpusSpec("synthetic", seed=1), CorpusSpec("synthetic", progressive_share=1.0))
    manifests = [make(tmp_path, 2, spec=spec) for spec in specs]
    assert len({manifest.root for manifest in manifests}) == 3
    assert len({manifest.digest() for manifest in manifests}) == 3
    assert {item.process for item in manifests[2].items} == {"progressive"}


def test_names_and_numbers_are_checked(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no corpus is called 'synthetik'; did you mean synthetic"):
        make(tmp_path, 1, spec=CorpusSpec("synthetik"))
    with pytest.raises(UserError, match="at least one image"):
        make(tmp_path, 0)
    with pytest.raises(UserError, match="did you mean small_256"):
        make(tmp_path, 1, image_set="small_265")


# --- render ---------------------------------------------------------------------------------------


ENCODER = "Pillow 13.0.0 (its wheel's libjpeg-turbo 3.2.0) and numpy 2.4.6"
#: sha256 of `render(0, image_set, index)`
GOLDEN = {
    ("small_256", 0): "f3b9075420e526cc55c8370544e0b8dad1056b1e6e7345a6e0da4d9ccff10844",
    ("small_256", 1): "b88a3c05c26676a49c8877e955d95ef8b473f3c10cac2aa0fd30aa9af1af68c4",
    ("small_256", 2): "5fb9fed4121ea1eb1f731c86693b54736f4a0eb368355b4ed33595a0a485353d",
    ("original", 1): "9e0aec86c37ebf45cc0e80d249dc9bbe1e4653cda6f5abe5a26191580c318652",
}


@pytest.mark.parametrize(("image_set", "index"), GOLDEN)
def test_bytes_are_pinned(image_set: str, index: int) -> None:
    digest = sha256(render.render(0, image_set, index)).hexdigest()
    assert digest == GOLDEN[image_set, index], (
        f"image {index} of {image_set} differs from that of {ENCODER}. If the generator changed, "
        "or a newer Pillow encodes differently, raise render.GENERATOR and pin the new digests "
        "here. If neither, an operation is not exact"
    )


def test_originals_have_the_sizes_of_abo() -> None:
    sizes = np.array([render.size(0, "original", index) for index in range(2_000)])
    longest, shortest = sizes.max(axis=1), sizes.min(axis=1)
    p5, p25, median = np.percentile(longest, [5, 25, 50])
    assert 900 <= p5 <= 1100
    assert 1940 <= p25 <= 2060
    assert median == longest.max() == 2560
    assert longest.min() >= 500
    assert 0.5 < np.mean(longest == shortest) < 0.6
    slivers = shortest / longest < 0.495
    assert 0 < np.mean(slivers) < 0.03
    assert 0.4 < np.mean(sizes[longest != shortest, 0] < sizes[longest != shortest, 1]) < 0.6


# --- distinct -------------------------------------------------------------------------------------


@pytest.fixture
def pictures(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / f"{at}.jpg" for at in range(3)]
    for at, path in enumerate(paths):
        path.write_bytes(jpeg(40 + at, 30, progressive=at == 2))
    return paths


def test_every_file_has_its_bytes_and_its_picture(pictures: list[Path], tmp_path: Path) -> None:
    decode = make_decoder("simplejpeg")
    paths = lay_out(pictures, tmp_path / "new", 8)
    assert len({sha256_bytes(path.read_bytes()) for path in paths}) == 8
    for at, path in enumerate(paths):
        data, original = path.read_bytes(), pictures[at % 3].read_bytes()
        assert len(data) == len(original) + EXTRA
        assert np.array_equal(decode(data), decode(original))
        with Image.open(path) as image, Image.open(pictures[at % 3]) as first:
            image.load()
            assert image.tobytes() == first.tobytes()
            assert image.info["comment"] == at.to_bytes(8, "big")


# --- copies ---------------------------------------------------------------------------------------


FILES = {
    "a-large.jpg": making.jpeg(800, 600, seed=1, quality=95),
    "b-large.png": making.encode(making.picture(520, 500, seed=3), "PNG"),
    "c-small.jpg": making.jpeg(64, 48, seed=4),
}
#: How many of the first are replaced.
N_LARGE = 2


def pixels(data: bytes) -> np.ndarray:
    with Image.open(io.BytesIO(data)) as image:
        return np.asarray(image.convert("RGB"))


def test_thumbnails_are_of_the_same_images_in_the_same_order(tmp_path: Path) -> None:
    plan = made.plan(tmp_path, "experiment=[diagnose]")
    images = Path(plan.settings.corpus.path)
    for path in images.iterdir():
        path.unlink()
    for name, data in FILES.items():
        (images / name).write_bytes(data)
    corpus = plan.slice("original", len(FILES))
    copied = plan.thumbnails(corpus)
    assert (copied.n, copied.kind, copied.storage) == (3, corpus.kind, "files:thumbnails")
    manifest = manifests.load(Path(copied.manifest))
    assert len(manifest.valid) == len(FILES)
    for index, (item, data) in enumerate(zip(manifest.valid, FILES.values(), strict=True)):
        copy = (manifest.root / item.path).read_bytes()
        assert (copy != data) == (index < N_LARGE)
        if copy != data:
            assert (item.format, item.process) == ("jpeg", "baseline")
            full = Image.fromarray(pixels(data)).resize((item.width, item.height), 2)
            assert psnr_db(pixels(copy), np.asarray(full)) > 30
            assert min(item.width, item.height) == 256
    assert plan.thumbnails(corpus) == copied

    # What making them costs, by the protocol.
    mock = ModelSpec("null", "none")
    cell = Cell("diagnose", "copies", "copies-thumbnails", 0, Recipe("x"), corpus, mock)
    result = measure(replace(cell, params={"seconds": 9}), tmp_path, no_progress)
    replaced = [*FILES.values()][:N_LARGE]
    assert len(result.samples["encode"]) == N_LARGE
    assert result.values["share"] == N_LARGE / len(FILES)
    assert result.values["mean_bytes_before"] == sum(map(len, replaced)) / N_LARGE
    assert 30 < result.values["psnr_db"] <= 99
    assert not result.failures


def test_an_image_that_cannot_be_copied_stays_as_it_is(tmp_path: Path) -> None:
    """A file that changed after it was listed: the copy is a link, so that no image is missing."""
    (tmp_path / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(30))
    item = manifests.Item("a", "a.png", 38, 600, 600, format="png")
    manifest = manifests.Manifest("folder", "original", tmp_path, (item,))
    with pytest.raises(ImageError):
        copies.thumbnail((tmp_path / "a.png").read_bytes())
    copies.make(manifest, tmp_path / "copies", lambda done, total, step: None)
    assert (tmp_path / "copies" / "0000000").readlink() == tmp_path / "a.png"
