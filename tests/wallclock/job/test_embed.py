"""The job from end to end, in this process: what is written, what is refused."""

import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from tests.conftest import ROOT
from tests.test_disk_full import fill, small_disk  # noqa: F401 - a fixture
from tests.wallclock.job.conftest import APART, DAMAGED, QUICK, TWINS, Content, N, content
from wallclock.errors import UserError
from wallclock.files import sha256_file
from wallclock.infer.inference import HostInference
from wallclock.job import dataset as datasets
from wallclock.job import embed, estimate
from wallclock.job.dataset import open_existing
from wallclock.job.plan import Plan, parts_of
from wallclock.job.stores.folder import Folder
from wallclock.job.verify import verify

Run = Callable[..., Any]


def test_every_image_once_as_a_vector_or_a_failure(
    run: Run, reference: Content, images: Path, tmp_path: Path
) -> None:
    outcome = run()
    out = tmp_path / "out"
    assert (len(reference.rows), len(reference.failures)) == (N - DAMAGED, DAMAGED)
    counts = {"vectors": N - DAMAGED, "failures": DAMAGED, "skipped": 0, "parts": 3}
    counts |= {"unreached": 0, "gone": 0}
    assert outcome.counts == counts
    assert outcome.tally.copied == TWINS - APART
    rows = reference.rows
    assert rows["30-twin.jpg"][0] == rows["02.jpg"][0] != rows["03.jpg"][0]
    for name, (_, _, digest, width, height, version) in rows.items():
        status = (images / name).stat()
        assert digest == sha256_file(images / name)
        assert version == f"{status.st_size}-{status.st_mtime_ns}"
        with Image.open(images / name) as image:
            assert (width, height) == image.size
    about = json.loads((out / "_dataset.json").read_text(encoding="utf-8"))
    assert (about["complete"], about["counts"]) == (True, outcome.counts)
    assert about["identity"]["weights"] == "none"
    assert str(run()).startswith("complete already: 39 vectors, 2 failed, 0 skipped in 3")


@pytest.mark.parametrize("settings", [{"workers": 1}, {"workers": 5}])
def test_neither_timing_nor_workers_change_a_byte(
    settings: dict[str, Any], run: Run, reference: Content, tmp_path: Path
) -> None:
    run(**settings)
    assert content(tmp_path / "out") == reference


class Killed(BaseException):
    """The process ends here."""


def test_killed_before_every_change_of_the_folder(
    run: Run, reference: Content, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each start gets one rename further than the one before."""
    calls, replace = 0, os.replace

    def limited(source: Any, target: Any) -> None:
        nonlocal calls
        calls -= 1
        if calls < 0:
            raise Killed
        replace(source, target)

    monkeypatch.setattr(os, "replace", limited)
    starts = 0
    while True:
        starts += 1
        calls = starts
        try:
            run()
        except Killed:
            continue
        break
    assert starts > 3
    assert content(tmp_path / "out") == reference
    assert not list((tmp_path / "out").rglob("*.tmp"))


@pytest.mark.parametrize("batch", [1, 6])
def test_a_kill_loses_the_unfinished_part_only(
    batch: int, run: Run, reference: Content, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed after so many batches; finished parts are not touched again."""
    submit, calls = HostInference.submit, 0

    def limited(*arguments: Any) -> None:
        nonlocal calls
        calls += 1
        if calls > batch:
            raise Killed
        submit(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(HostInference, "submit", limited)
        with pytest.raises(Killed):
            run()
    out = tmp_path / "out"
    before = {path: path.stat().st_mtime_ns for path in out.glob("part-*.parquet")}
    assert batch // 4 - 1 <= len(before) <= batch // 4  # four batches a part; one may be unwritten
    dataset = open_existing(out)
    assert dataset is not None
    kept = dataset.counts()["vectors"]
    assert run().tally.images == N - DAMAGED - kept
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert content(out) == reference


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"recipe": "fast"}, "recipe.decoder was pil, is simplejpeg"),
        (
            {"model": "facebook/dinov2-small", "weights": "random"},
            "holds vectors of null, not of facebook/dinov2-small; give another OUT",
        ),
        ({"limit": 9}, "limit was none, is 9"),
        ({"batch": 8}, "recipe.batch_size was 4, is 8"),
        ({"sink": "npy"}, "no setting is called 'sink'"),
        ({"batches": 8}, "no setting is called 'batches'; did you mean batch"),
        ({"shard": 0}, "shard=0: give a whole number from 1"),
        ({"service_ms": -1}, "service_ms=-1: give a number from 0"),
        ({"model": "a/b/c"}, "give a hub id (owner/name), a folder, or null"),
        ({"model": "facebook/dinov2-small", "service_ms": 5}, "needs model=null"),
        ({"limit": 50, "prune": True}, "prune=true: with limit= it is not known"),
    ],
)
@pytest.mark.usefixtures("out")
def test_refused_in_one_line(changed: dict[str, Any], reason: str, run: Run) -> None:
    with pytest.raises(UserError, match=re.escape(reason)) as caught:
        run(**changed)
    assert "\n" not in str(caught.value)


def test_other_files_are_not_touched(run: Run, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.txt").write_text("mine")
    with pytest.raises(UserError, match=r"has no _dataset.json and is not empty \(thesis.txt\)"):
        run()


def test_one_job_at_a_time(run: Run, tmp_path: Path) -> None:
    with (
        Folder(tmp_path / "out").locked(),
        pytest.raises(UserError, match="another job is writing to"),
    ):
        run()
    assert run().counts["parts"] == 3


def test_max_failures(run: Run, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"more than max_failures=1 .* zero.jpg, in read: empty"):
        run(max_failures=1)
    assert run(max_failures=2).counts["failures"] == 2


def test_full_disk_for_real(images: Path, reference: Content, small_disk: Path) -> None:  # noqa: F811
    filler = fill(small_disk, 40 << 10)
    with pytest.raises(UserError, match="no space left while writing"):
        embed(images, small_disk / "out", **QUICK)
    filler.unlink()
    embed(images, small_disk / "out", **QUICK)
    assert content(small_disk / "out") == reference


#: The command, with a limit on the size of its files, in KiB.
LIMITED = """
import resource, sys
limit = int(sys.argv.pop(1)) << 10
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
from wallclock.__main__ import main
sys.exit(main())
"""


def test_file_size_limit(images: Path, reference: Content, tmp_path: Path) -> None:
    """One line, no file in part, and the same command goes on where the limit is gone."""
    words = [f"{name}={value}" for name, value in QUICK.items()]
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, "8", "embed", images, tmp_path / "out", *words],
        env={**os.environ, "PYTHONPATH": str(ROOT / "code")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    (line,) = done.stderr.splitlines()
    assert "a file reached its size limit while writing" in line
    assert "raise ulimit -f and run the same command again" in line
    embed(images, tmp_path / "out", **QUICK)
    assert content(tmp_path / "out") == reference


def test_the_estimate_is_of_what_limits(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(estimate, "LEAST", 1)
    console = Console(file=io.StringIO(), width=200)
    outcome = run(service_ms=80, console=console)
    line = console.file.getvalue()  # type: ignore[attr-defined]
    assert "41 images to read" in line
    limit = r"bottleneck: model \(the loader alone: [\d,]+ images/s\); 0 MB of vectors"
    assert re.search(f"images/s; {limit}", line)
    assert 30 < outcome.expected < 50
    assert re.search(r"images/s \(estimated: \d+ images/s\), bottleneck: forward", str(outcome))


def test_the_estimates_sample_is_from_everywhere_in_what_is_to_be_read() -> None:
    parts = parts_of(0, 100_000, 10_000)
    del parts[4]
    batches = estimate._sample(Plan(parts, 64), 64)
    chosen = np.concatenate(batches)
    assert {len(batch) for batch in batches} == {8}
    assert set(chosen // 10_000) == {0, 1, 2, 3, 5, 6, 7, 8, 9}
    assert len(set(chosen)) > 250
    half = len(chosen) // 2
    assert abs(chosen[:half].mean() - chosen[half:].mean()) < 10_000


# --- verify -------------------------------------------------------------------------------------


def test_verify(out: Path, tmp_path: Path) -> None:
    verdict = verify(out, n=20)
    assert (verdict.compared, verdict.faults) == (20, ())
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="holds no complete dataset"):
        verify(tmp_path / "empty")


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_verify_a_network(dtype: str, run: Run, tmp_path: Path) -> None:
    random = {"model": "facebook/dinov2-small", "weights": "random"}
    run(**random, recipe="fast", dtype=dtype, device="cpu")
    verdict = verify(tmp_path / "out", n=20)
    assert (verdict.compared, verdict.faults) == (20, ())


@pytest.mark.parametrize("fault", ["swapped", "zeros", "missing"])
def test_verify_finds(fault: str, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if fault == "missing":
        (out / "part-00001.parquet").unlink()
    else:
        dataset = open_existing(out)
        assert dataset is not None
        vectors = dataset.vectors(0)
        wrong = vectors[::-1] if fault == "swapped" else 0 * vectors
        monkeypatch.setattr(datasets.Dataset, "vectors", lambda *_: wrong)
    assert verify(out, n=10).faults
