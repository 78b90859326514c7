"""Tars of thumbnails as a source: only beside their dataset, and only as they were written."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests import making
from tests.wallclock.job.conftest import DAMAGED, QUICK, N, content
from wallclock.errors import UserError
from wallclock.job import embed
from wallclock.job.dataset import open_existing
from wallclock.job.listing import list_items
from wallclock.loader.shards import read_tar
from wallclock.recipe import Limits

Run = Callable[..., Any]


@pytest.fixture
def folder(run: Run, tmp_path: Path) -> Path:
    run(keep="thumbnails")
    return tmp_path / "out" / "_thumbnails"


@pytest.mark.parametrize("how", [lambda data: data[:-2048], lambda data: data[::-1]])
def test_a_damaged_tar_is_one_line(how: Callable[[bytes], bytes], folder: Path) -> None:
    path = folder / "part-00001.tar"
    path.write_bytes(how(path.read_bytes()))
    with pytest.raises(UserError, match=r"part-00001\.tar is damaged: ") as caught:
        list_items(str(folder))
    assert "\n" not in str(caught.value)


def test_a_tar_in_a_folder_of_images_is_another_file(folder: Path, tmp_path: Path) -> None:
    """Also where a file beside that folder is called as a dataset's description."""
    (tmp_path / "dataset.json").write_text('{"name": "mine"}')
    for name in ("images", "_thumbnails"):
        other = tmp_path / name
        other.mkdir()
        (other / "a.jpg").write_bytes(making.jpeg(64, 48))
        (other / "part-1.tar").write_bytes((folder / "part-00001.tar").read_bytes())
        items = list_items(str(other))
        assert (items.ids.to_pylist(), items.others) == (["a.jpg"], ("part-1.tar",))


def test_thumbnails_beside_their_dataset(folder: Path, tmp_path: Path) -> None:
    items = list_items(str(folder))
    assert len(items) == N - DAMAGED
    embed(folder, tmp_path / "next", **QUICK)
    assert content(tmp_path / "next").rows.keys() == content(tmp_path / "out").rows.keys()
    (tmp_path / "out" / "_dataset.json").write_text("[" * 70_000)
    with pytest.raises(UserError, match=r"_dataset.json cannot be read"):
        list_items(str(folder))


def test_what_a_kill_left_is_no_source(folder: Path, tmp_path: Path) -> None:
    (folder / "part-00009.tar").write_bytes(b"of a part that was not committed")
    assert len(list_items(str(folder))) == N - DAMAGED


def test_they_are_webdatasets(folder: Path) -> None:
    """The loader reads the same ids and bytes in the same order."""
    dataset = open_existing(folder.parent)
    assert dataset is not None
    hashes = dict(
        zip(*(dataset.rows(0)[name].to_pylist() for name in ("id", "sha256")), strict=True)
    )
    items = list_items(str(folder))
    samples = [*read_tar(str(folder / "part-00000.tar"), [], limits=Limits())]
    assert len(samples) == len(hashes)
    for at, sample in enumerate(samples):
        assert sample["image"] == items[at].where()
        about = sample["json"] if isinstance(sample["json"], dict) else {}
        assert not about or hashes[about["id"]] == about["sha256"]
