"""What `benchmarks.trace` compares: programs without their marks, shares by hand and by trace."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import trace as benchmark
from benchmarks.traced import unmarked
from tests import making
from tests.conftest import ROOT

SOURCES = sorted({program.source for program in benchmark.PROGRAMS})


@pytest.mark.parametrize("source", SOURCES)
def test_the_marks_go_and_the_blocks_stay(source: str) -> None:
    marked = (ROOT / "benchmarks" / "traced" / f"{source}.py").read_text(encoding="utf-8")
    plain = unmarked(marked)
    assert "stage" not in plain
    assert plain.count("if True:") == marked.count("with stage(") > 0
    ast.parse(plain)


def test_links_to_a_relative_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    photos, linked = tmp_path / "photos", tmp_path / "elsewhere" / "linked"
    photos.mkdir()
    (photos / "a.jpg").write_bytes(b"a")
    monkeypatch.chdir(tmp_path)
    benchmark.link_images(Path("photos"), 2, linked)
    assert [path.read_bytes() for path in sorted(linked.iterdir())] == [b"a", b"a"]


def test_stages_by_hand_are_written_per_thread(tmp_path: Path) -> None:
    for index in range(3):
        (tmp_path / f"{index}.jpg").write_bytes(making.jpeg(300, 200, index))
    totals = tmp_path / "totals"
    totals.mkdir()
    paths = os.pathsep.join((str(ROOT / "code"), str(ROOT)))
    subprocess.run(
        [sys.executable, "-m", "benchmarks.traced.thread_pool", str(tmp_path)],
        env={**os.environ, "PYTHONPATH": paths, "BY_HAND": str(totals)},
        check=True,
        capture_output=True,
        timeout=60,
    )
    (written,) = totals.iterdir()
    threads = json.loads(written.read_text(encoding="utf-8"))
    assert not any(thread["is_main"] for thread in threads)
    assert sum(thread["images"]["read+decode"] for thread in threads) == 3
    assert all(thread["seconds"]["resize"] > 0 for thread in threads)


def test_a_mark_of_two_stages_is_their_sum_in_the_trace() -> None:
    traced = {"main": {"wait": 3.0}, "workers": {"read": 1.0, "decode": 2.0, "idle": 9.0}}
    seconds = benchmark._as_by_hand(traced, {"read+decode", "wait", "resize"})
    assert seconds == {("main", "wait"): 3.0, ("workers", "read+decode"): 3.0}
    assert benchmark._share(seconds, "workers", "read+decode") == 1
    assert benchmark._share(seconds, "workers", "resize") == 0
