"""A dataset whose files are called as older versions called them: it stays one of that kind."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.wallclock.job.conftest import DAMAGED, QUICK, Content, N, content
from wallclock.__main__ import main
from wallclock.errors import UserError
from wallclock.job import embed
from wallclock.job.dataset import CONFIG, LAYOUT, OLDER_LAYOUT, open_existing

Run = Callable[..., Any]
#: What the identity of an older dataset does not have.
NEW = ("carries", "carried_values")


def make_older(out: Path) -> None:
    """Call a dataset's files as an older version did, and forget what it did not know."""
    for new, old in zip(vars(LAYOUT).values(), vars(OLDER_LAYOUT).values(), strict=True):
        if (out / new).exists():
            (out / new).rename(out / old)
    (out / CONFIG).unlink()
    shutil.rmtree(out / OLDER_LAYOUT.checksums)
    path = out / "dataset.json"
    about = json.loads(path.read_text(encoding="utf-8"))
    for name in NEW:
        del about["identity"][name]
    path.write_text(json.dumps(about), encoding="utf-8")


@pytest.fixture
def older(run: Run, tmp_path: Path) -> Path:
    run(keep="thumbnails")
    make_older(tmp_path / "out")
    return tmp_path / "out"


def names(out: Path) -> list[str]:
    return sorted(path.name for path in out.iterdir() if path.name[0] != ".")


def test_it_is_read_and_verified(
    older: Path, run: Run, reference: Content, capsys: pytest.CaptureFixture[str]
) -> None:
    assert content(older) == reference
    assert str(run(keep="thumbnails")).startswith("complete already: 39 vectors, 2 failed")
    assert main(["verify", str(older), "n=9"]) == 0
    assert "no fault; parts of an older version, without checksums: 3" in capsys.readouterr().out


def test_it_is_resumed_in_its_own_layout(older: Path, run: Run, reference: Content) -> None:
    before = names(older)
    tars = {path.name: path.read_bytes() for path in (older / "thumbnails").iterdir()}
    (older / "part-00001.parquet").unlink()
    (older / "thumbnails" / "part-00009.tar").write_bytes(b"left by a kill")
    assert run(keep="thumbnails").tally.images > 0
    assert content(older) == reference
    assert names(older) == sorted([*before, "checksums"])
    assert [path.name for path in (older / "checksums").iterdir()] == ["part-00001.json"]
    assert {path.name: path.read_bytes() for path in (older / "thumbnails").iterdir()} == tars
    assert not (older / CONFIG).exists()
    assert main(["verify", str(older), "n=9"]) == 0


def test_it_is_reused_into_one_of_the_present_layout(
    older: Path, images: Path, reference: Content, tmp_path: Path
) -> None:
    options = {**QUICK, "keep": "thumbnails", "reuse": str(older)}
    again = embed(images, tmp_path / "new", **options)
    assert (again.tally.unread, again.tally.images) == (N - DAMAGED, 0)
    assert content(tmp_path / "new") == reference
    parts = [f"part-{number:05d}.parquet" for number in range(3)]
    folders = ["_checksums", "_dataset.json", "_failures", "_thumbnails"]
    assert names(tmp_path / "new") == [*folders, *parts]


@pytest.mark.parametrize("folder", ["thumbnails", "_thumbnails"])
def test_thumbnails_are_a_source(folder: str, run: Run, tmp_path: Path) -> None:
    run(keep="thumbnails")
    if folder == "thumbnails":
        make_older(tmp_path / "out")
    embed(tmp_path / "out" / folder, tmp_path / "next", **QUICK)
    assert content(tmp_path / "next").rows.keys() == content(tmp_path / "out").rows.keys()


def test_leftovers_of_both_layouts_are_removed(run: Run, tmp_path: Path) -> None:
    run()
    left = [tmp_path / "out" / folder for folder in ("_failures", "failures", "_thumbnails")]
    for folder in left:
        folder.mkdir(exist_ok=True)
        (folder / "part-00042.x").write_bytes(b"x")
    dataset = open_existing(tmp_path / "out")
    assert dataset is not None
    dataset.remove_leftovers()
    assert not any((folder / "part-00042.x").exists() for folder in left)


def test_both_layouts_at_once_are_refused(run: Run, tmp_path: Path) -> None:
    run()
    os.link(tmp_path / "out" / "_dataset.json", tmp_path / "out" / "dataset.json")
    with pytest.raises(UserError, match=r"has _dataset.json and dataset.json: remove") as caught:
        run()
    assert "\n" not in str(caught.value)
