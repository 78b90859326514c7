"""The job from end to end, in this process: what is written, what is refused."""

import io
import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from PIL import Image
from rich.console import Console

from tests.running import run_python
from tests.test_disk_full import fill, small_disk  # noqa: F401 - a fixture
from tests.wallclock.job.conftest import APART, DAMAGED, QUICK, TWINS, Content, N, content
from wallclock import native
from wallclock.errors import UserError
from wallclock.files import sha256_file
from wallclock.job import embed
from wallclock.job.identity import identity_of
from wallclock.job.runner import process
from wallclock.job.settings import JobSettings
from wallclock.job.stores.folder import Folder
from wallclock.predict.pace import Pace
from wallclock.recipe import FAST, ModelSpec

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
        ({"batches": 8}, "no setting is called 'batches'; did you mean batch"),
        ({"shard": 0}, "shard=0: give a whole number from 1"),
        ({"model": "a/b/c"}, "give a hub id (owner/name), a folder, or null"),
        ({"model": "facebook/dinov2-small", "service_ms": 5}, "needs model=null"),
        ({"limit": 50, "prune": True}, "prune=true: with limit= it is not known"),
    ],
)
@pytest.mark.usefixtures("out")
def test_refused_in_one_line(changed: dict[str, Any], reason: str, run: Run) -> None:
    with pytest.raises(UserError, match=re.escape(reason)):
        run(**changed)


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
    done = run_python("-c", LIMITED, 8, "embed", images, tmp_path / "out", *words)
    assert done.returncode == 1, done.stderr
    (line,) = done.stderr.splitlines()
    assert "a file reached its size limit while writing" in line
    assert "raise ulimit -f and run the same command again" in line
    embed(images, tmp_path / "out", **QUICK)
    assert content(tmp_path / "out") == reference


def test_the_estimate_is_of_what_limits(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "LEAST", 1)
    console = Console(file=io.StringIO(), width=200)
    outcome = run(service_ms=80, console=console)
    line = console.file.getvalue()  # type: ignore[attr-defined]
    assert "41 images to read" in line
    limit = r"bottleneck: model \(the loader alone: [\d,]+ images/s\); 0 MB of vectors"
    assert re.search(f"images/s; {limit}", line)
    assert 30 < outcome.expected < 50
    assert re.search(r"images/s \(estimated: \d+ images/s\), bottleneck: forward", str(outcome))


def forget(out: Path, names: Mapping[str, tuple[str, ...]]) -> None:
    """Take fields out of _dataset.json, and put some in, as another version wrote it."""
    path = out / "_dataset.json"
    about = json.loads(path.read_text(encoding="utf-8"))
    for part, fields in names.items():
        values = about["identity"][part] if part else about["identity"]
        for field in fields:
            del values[field]
    about["identity"].get("recipe", {}).update(engine="threads", augment="none")
    path.write_text(json.dumps(about), encoding="utf-8")


#: At their defaults in a job of the recipe `pillow`.
DEFAULTS = {"recipe": ("dct_margin",), "model": ("pruned",)}


def test_a_field_at_its_default_refuses_no_older_dataset(
    run: Run, reference: Content, tmp_path: Path
) -> None:
    run()
    forget(tmp_path / "out", DEFAULTS)
    assert str(run()).startswith("complete already")
    (tmp_path / "out" / "part-00001.parquet").unlink()
    assert run().tally.images > 0
    assert content(tmp_path / "out") == reference


def test_the_native_module_goes_on_where_the_libraries_were() -> None:
    """And they where it was: the pixels are the same."""
    settings = JobSettings()
    before = replace(FAST, decoder="simplejpeg", resizer="torch")
    identities = [identity_of(settings, recipe, ModelSpec("m")) for recipe in (FAST, before)]
    assert identities[0] == identities[1]
    assert identities[0] != identity_of(settings, replace(FAST, resizer="pil"), ModelSpec("m"))


@pytest.mark.parametrize(
    ("part", "field", "change"),
    [
        ("recipe", "batch_size", "recipe.batch_size was 32, is 4"),
        ("model", "weights", "model.weights was random, is none"),
        ("", "recipe", "recipe.decoder was None, is pil"),
    ],
)
def test_a_field_at_another_value_refuses_it(
    part: str, field: str, change: str, run: Run, tmp_path: Path
) -> None:
    run()
    forget(tmp_path / "out", {part: (field,)})
    with pytest.raises(UserError) as caught:
        run()
    assert f"holds another job's vectors: {change}" in str(caught.value)


@pytest.mark.parametrize(("processes", "workers"), [(2, 0), (3, 5)])
def test_several_processes_load(
    run: Run,
    reference: Content,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    processes: int,
    workers: int,
) -> None:
    monkeypatch.setattr("wallclock.loader.opener.open_threads", None, raising=False)
    outcome = run(processes=processes, workers=workers)
    assert content(tmp_path / "out") == reference
    assert outcome.tally.copied == TWINS - APART


@pytest.mark.parametrize("given", [0, 2])
def test_a_job_says_what_nobody_asked_for(
    given: int, images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "processes", lambda *_: 2)
    said = StringIO()
    embed(images, tmp_path / "out", processes=given, console=Console(file=said), **QUICK)
    assert ("wallclock: 2 processes load the images\n" in said.getvalue()) == (given == 0)


def pace(load_ms: float, cores: int, forward_ms: float) -> Pace:
    return Pace(load_ms / 1e3, forward_ms / 1e3, cores, workers=cores)


@pytest.mark.parametrize(
    ("load_ms", "cores", "forward_ms", "compiled", "expected"),
    [
        (0.25, 1, 0.0, False, 1),  # 4,000 a second × 75 µs: 0.3 of a second under the lock
        (0.25, 2, 0.0, False, 2),  # 0.6
        (0.25, 16, 0.0, False, 10),  # 64,000 a second: 4.8
        (0.25, 16, 1.0, False, 1),  # a model of 1,000 a second: 0.08
        (0.1, 2, 0.0, True, 1),  # 20,000 a second × 11 µs: 0.22
        (0.1, 16, 0.0, True, 4),  # 160,000 a second: 1.8
        (4.0, 2, 0.0, True, 1),  # originals, 500 a second × 89 µs: 0.04
        (4.0, 64, 0.0, True, 3),  # 16,000 a second: 1.4
        (4.0, 64, 0.5, True, 1),  # 2,000 a second: 0.2
        (0.01, 4, 0.0, True, 4),  # no more than there are threads
    ],
)
def test_processes_follow_from_the_time_under_the_lock(
    load_ms: float,
    cores: int,
    forward_ms: float,
    compiled: bool,
    expected: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(native, "find", lambda: object() if compiled else None)
    job: Any = SimpleNamespace(recipe=replace(FAST, workers=cores))
    assert process.processes(0, job, pace(load_ms, cores, forward_ms or 1e-6)) == expected


@pytest.mark.parametrize(
    ("given", "device", "expected"), [(0, "cpu", 4), (0, "cuda", 1), (2, "cuda", 2), (3, "cpu", 3)]
)
def test_a_setting_and_a_gpu_come_first(
    given: int, device: str, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "find", lambda: None)
    job: Any = SimpleNamespace(recipe=replace(FAST, workers=6, device=device))
    assert process.processes(given, job, pace(0.3, 6, 1e-6)) == expected
    assert process.processes(given, job, None) == (given or 1)
