"""A source that changes: what is new is embedded alone, and every image is there once."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import making
from tests.wallclock.job.conftest import QUICK, content
from wallclock.errors import UserError
from wallclock.fetch.folder import FolderListing
from wallclock.job import embed
from wallclock.job.dataset import Dataset
from wallclock.job.part import Part
from wallclock.job.verify import verify

SMALL: dict[str, Any] = {**QUICK, "batch": 2, "shard": 4}


def write(folder: Path, seeds: dict[int, int]) -> Path:
    """A folder with these images, each by its seed."""
    folder.mkdir(exist_ok=True)
    for at, seed in seeds.items():
        (folder / f"{at:03}.jpg").write_bytes(making.jpeg(48, 40, seed))
    return folder


def files(out: Path) -> dict[Path, tuple[int, bytes]]:
    """Of all parts: when each file was written, and its bytes."""
    paths = (path for path in out.rglob("part-*") if path.is_file())
    return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in paths}


def as_new(src: Path, out: Path) -> Any:
    embed(src, out, **SMALL)
    return content(out)


def test_only_new_images_are_read(tmp_path: Path) -> None:
    src, out = write(tmp_path / "in", dict.fromkeys(range(10), 7)), tmp_path / "out"
    embed(src, out, **SMALL)
    before = files(out)
    write(src, {at: at for at in range(20, 25)})
    outcome = embed(src, out, **SMALL)
    assert (outcome.tally.images, outcome.counts["parts"]) == (5, 5)
    assert {path: about for path, about in files(out).items() if path in before} == before
    assert content(out) == as_new(src, tmp_path / "right")
    assert str(embed(src, out, **SMALL)).startswith("complete already: 15 vectors")


def test_changed_failed_and_gone(tmp_path: Path) -> None:
    src, out = write(tmp_path / "in", {at: at for at in range(10)}), tmp_path / "out"
    (src / "bad.jpg").write_bytes(b"")
    options = SMALL
    embed(src, out, **options)
    before = files(out)
    write(src, {3: 103})
    (src / "005.jpg").touch()
    (src / "bad.jpg").write_bytes(making.jpeg(seed=99))
    (src / "009.jpg").unlink()
    outcome = embed(src, out, **options)
    assert outcome.tally.images == 3
    assert str(outcome).endswith("gone from SRC: 1 (prune=true removes them)")
    verdict = verify(out)
    assert (verdict.faults, verdict.gone, verdict.compared) == ((), 1, 10)
    assert "complete already" in str(embed(src, out, **options))
    assert "009.jpg" in content(out).rows
    counts = embed(src, out, prune=True, **options).counts
    assert (counts["vectors"], counts["gone"]) == (10, 0)
    embed(src, tmp_path / "right", **options)
    assert content(out) == content(tmp_path / "right")
    assert verify(out).faults == ()
    assert files(out) != before


def test_nothing_is_gone_that_may_be_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that cannot be read, or a limit."""
    src, out = write(tmp_path / "in", {0: 0}), tmp_path / "out"
    write(src / "sub", {1: 1})
    embed(src, out, limit=1, **SMALL)
    assert embed(src, out, limit=2, **SMALL).counts["vectors"] == 2

    def unreadable(listing: FolderListing) -> Any:
        listing.unreadable.append("sub")
        yield "000.jpg"

    monkeypatch.setattr(FolderListing, "__iter__", unreadable)
    assert embed(src, out, **SMALL).counts["gone"] == 0
    with pytest.raises(UserError, match=r"^prune=true: not all of SRC can be read"):
        embed(src, out, prune=True, **SMALL)


def test_another_source_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "out"
    embed(write(tmp_path / "in", {0: 0}), out, **SMALL)
    with pytest.raises(UserError, match=r"holds vectors of .*/in, not of .*/other; give another"):
        embed(write(tmp_path / "other", {0: 0}), out, **SMALL)


def test_an_id_with_another_url_is_another_image(tmp_path: Path) -> None:
    """What cannot be read is a failure; its version is its URL, without secrets."""
    src, out = tmp_path / "list.csv", tmp_path / "out"
    write(tmp_path / "in", {0: 0, 1: 1})
    src.write_text("id,path\na,in/000.jpg\nb,in/000.jpg\n")
    embed(src, out, **SMALL)
    src.write_text("id,path\na,in/000.jpg\nb,in/001.jpg\n")
    assert embed(src, out, **SMALL).tally.images == 1
    rows = content(out).rows
    assert rows["a"][0] != rows["b"][0]


def test_a_writer_that_comes_too_late(tmp_path: Path) -> None:
    """Of a driver that was stopped, while the source changed and another one went on."""
    src, out = write(tmp_path / "in", {at: at for at in range(8)}), tmp_path / "out"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Dataset, "commit", late := Late())
        with pytest.raises(IndexError):
            embed(src, out, **SMALL)
    write(src, {20: 20})
    assert embed(src, out, **SMALL).counts["parts"] == 5  # two are closed
    (dataset, number, part), *_ = late.held
    assert not dataset.commit(number, part)
    assert content(out) == as_new(src, tmp_path / "right")
    assert verify(out).faults == ()


class Late:
    """A commit that is held back; its process stops there."""

    def __init__(self) -> None:
        self.held: list[tuple[Dataset, int, Part]] = []

    def __get__(self, dataset: Any, _: Any) -> Callable[..., Any]:
        def commit(number: int, part: Part) -> None:
            self.held.append((dataset, number, part))
            raise IndexError

        return commit


change = st.fixed_dictionaries(
    {
        "images": st.dictionaries(st.integers(1, 12), st.integers(0, 9), max_size=5),
        "gone": st.sets(st.integers(1, 12), max_size=3),
        "makes": st.none() | st.integers(0, 3),
        "prune": st.booleans(),
    }
)


@settings(max_examples=10)
@given(changes=st.lists(change, min_size=1, max_size=4))
def test_any_changes_and_kills(
    changes: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """In the end all is as in a new dataset."""
    base = tmp_path_factory.mktemp("any")
    src, out = write(base / "in", {0: 0, 1: 1, 2: 2, 3: 1, 4: 4}), base / "out"
    for one in changes:
        write(src, one["images"])
        for at in one["gone"]:
            (src / f"{at:03}.jpg").unlink(missing_ok=True)
        with pytest.MonkeyPatch.context() as patch:
            left = [*range(99 if one["makes"] is None else one["makes"])]
            for name in ("commit", "replace"):
                patch.setattr(Dataset, name, limited(getattr(Dataset, name), left))
            try:
                embed(src, out, prune=one["prune"], **SMALL)
            except IndexError:
                continue
        names = content(out).rows.keys()
        assert names >= {path.name for path in src.iterdir()}
    embed(src, out, prune=True, **SMALL)
    assert content(out) == as_new(src, base / "right")
    assert verify(out, n=2).faults == ()
    assert str(embed(src, out, **SMALL)).startswith("complete already")


def limited(make: Callable[..., Any], left: list[int]) -> Callable[..., Any]:
    """That of a process that is killed when it has made so many parts."""

    def call(*arguments: Any) -> Any:
        left.pop()  # raises IndexError, in the place of a signal
        return make(*arguments)

    return call
