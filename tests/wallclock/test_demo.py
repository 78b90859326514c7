"""`wallclock demo`, with a few small images in place of its hundred photos."""

from pathlib import Path

import pytest

from wallclock import demo
from wallclock.errors import UserError


@pytest.fixture(autouse=True)
def _small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(demo, "N_IMAGES", 4)
    monkeypatch.setattr(demo, "BATCH", 3)
    monkeypatch.setattr(demo, "SETS", {"thumbnails": ((32, 24), 2), "photos": ((320, 240), 1)})


def test_a_bar_is_divided_as_the_time_was() -> None:
    bar = demo.Bar("photos, toy", 2.5, {"decode": 0.25, "resize": 0.25, "forward": 0.5})
    assert f"{bar}".startswith("photos, toy ")
    assert [f"{bar}".count(mark) for mark in "░▒█"] == [8, 8, 16]


def test_both_loaders_read_both_sets(capsys: pytest.CaptureFixture[str]) -> None:
    demo.demo()
    printed, page = capsys.readouterr().out, Path(demo.PAGE).read_text("utf-8")
    for images in ("thumbnails", "photos"):
        for loader in ("DataLoader + Pillow", "open_images"):
            assert f"{images}, {loader} " in printed
            assert f"<h3>{images}, {loader}: " in page
    assert "The model works " in printed


def test_the_model_takes_every_image(monkeypatch: pytest.MonkeyPatch) -> None:
    paths = demo.make_images(Path("made"), (64, 48)) * 2
    for run in (demo.run_dataloader, demo.run_wallclock):
        pauses: list[float] = []
        monkeypatch.setattr("wallclock.demo.time.sleep", pauses.append)
        run("made", paths)
        assert sum(pauses) == pytest.approx(8 * demo.MODEL_S)


def test_a_page_that_cannot_be_written_is_one_line() -> None:
    Path(demo.PAGE).mkdir()
    with pytest.raises(UserError, match=r"Is a directory; change to a folder you can write to$"):
        demo.demo()
