"""The synthetic corpus on disk: rendered once, completed where something is missing."""

from pathlib import Path

import pytest

from harness.corpora import manifest, prepare, synthetic
from harness.corpora.manifest import Manifest
from harness.digests import sha256_bytes
from harness.spec import CorpusSpec
from wallclock.errors import UserError

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


def test_rows_and_files_are_the_same_everywhere(tmp_path: Path) -> None:
    first, other = make(tmp_path / "first", 3), make(tmp_path / "other", 3)
    assert first.items == other.items
    assert len(first.valid) == 3
    for item in first.items:
        data = (first.root / item.path).read_bytes()
        assert data == (other.root / item.path).read_bytes()
        assert (len(data), sha256_bytes(data)) == (item.bytes, item.sha256)
        assert max(item.width, item.height) == 256
        assert item.path == f"{item.id[:2]}/{item.id}.jpg"
    csvs = [next((tmp_path / cache).rglob("small_256.csv")) for cache in ("first", "other")]
    assert csvs[0].read_bytes() == csvs[1].read_bytes()


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
