"""A user's folder: valid images, broken files, and files that only claim to be images."""

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from harness import sinks
from harness.plan import Plan
from harness.spec import CorpusSpec
from harness.table import read_table
from tests import making
from tests.conftest import RunMain, short_run
from tests.experiments.made import resolved
from wallclock.errors import UserError

BROKEN = {
    "b truncated.jpg": ("decode", making.jpeg(300, 200)[:2500]),
    "d text.jpg": ("decode", b"hello, this is no image"),
    "e empty.jpg": ("read", b""),
    "g 60000x60000.jpg": ("decode", making.claiming(making.jpeg(), 60_000, 60_000)),
    "j scan bomb.jpg": ("decode", making.scan_bomb(1_000, b"\xff\xfe\x00\x04\xff\xd9")),
}
VALID = {
    "a.jpg": making.jpeg(seed=1),
    "c rotated.jpg": making.oriented(6, seed=2),
    "f png-named.jpg": making.encode(making.picture(seed=3), "PNG", "RGBA"),
    "h cmyk.jpg": making.jpeg(seed=4, mode="CMYK"),
    'i/ü 写真, "x".JPG': making.jpeg(seed=5, progressive=True),
    "k gray.jpg": making.jpeg(seed=6, mode="L"),
    "l 16 bit.png": making.png_16_bit(40, 30),
    "m junk behind.jpg": making.jpeg(seed=7) + bytes(999),
}


@pytest.fixture
def images(tmp_path: Path) -> Path:
    folder = tmp_path / "Käse, (1)"
    files = VALID | {name: data for name, (_, data) in BROKEN.items()}
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    (folder / "n dangling.jpg").symlink_to("nowhere")
    os.mkfifo(folder / "o fifo.jpg")
    return folder


def run_folder(
    run_main: RunMain, experiments: str, images: Path, out: Path, *settings: str
) -> subprocess.CompletedProcess[str]:
    corpus = ("corpus=folder", f"corpus.path={images}")
    arguments = ("--experiment", experiments, *corpus, *short_run(out), *settings)
    return run_main(*arguments, timeout=600)


@pytest.mark.slow
def test_valid_are_embedded_others_listed(images: Path, run_main: RunMain, tmp_path: Path) -> None:
    done = run_folder(run_main, "serial", images, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "7 images could not be used" in done.stdout
    out = tmp_path / "data"
    failures = {row["id"]: row for row in read_table(out / "failures.csv")}
    stages = {name: stage for name, (stage, _) in BROKEN.items()}
    stages |= {"n dangling.jpg": "read", "o fifo.jpg": "read"}
    assert {name: row["stage"] for name, row in failures.items()} == stages
    assert list(failures) == sorted(failures, key=os.fsencode)
    assert all(row["reason"] for row in failures.values())
    kept = sorted(out.rglob("vectors.parquet"))
    assert len(kept) == 3
    for path in kept:
        ids, vectors = sinks.read(path)
        assert ids == list(VALID)
        assert len({vector.tobytes() for vector in vectors}) == len(VALID)
    rows = read_table(out / "t4-serial-stages-original.csv")
    assert [row["recipe"] for row in rows] == ["pil", "opencv", "turbojpeg", "floor"]
    assert {(row["n_images"], row["n_failed"]) for row in rows} == {(8, 7)}


def test_max_failures_stops_before_measuring(images: Path, tmp_path: Path) -> None:
    corpus = CorpusSpec("folder", path=str(images))
    settings = replace(resolved("experiment=[cpu]"), out=tmp_path, max_failures=6, corpus=corpus)
    plan = Plan(settings, lambda done, total, step: None)
    line = "7 of 15 images cannot be used, over max_failures=6; the first, b truncated.jpg"
    with pytest.raises(UserError, match=line):
        plan.slice("original", 20)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_torture_folder(shared_images: Path, run_main: RunMain, tmp_path: Path) -> None:
    torture = shared_images / "torture"
    done = run_folder(run_main, "serial,decoders", torture, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    out = tmp_path / "data"
    failed = {row["id"] for row in read_table(out / "failures.csv")}
    listed = {path.name for path in torture.iterdir()} - {"MANIFEST.csv"}
    for path in out.rglob("vectors.parquet"):
        assert set(sinks.read(path)[0]) == listed - failed
