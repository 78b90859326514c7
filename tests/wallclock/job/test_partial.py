"""What is saved of a shard in progress: taken up after a kill, left out where it does not hold."""

import functools
import io
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tests.wallclock.job.conftest import DAMAGED, QUICK, Content, N, content
from tests.wallclock.job.test_s3_out import names
from tests.wallclock.job.test_s3_out import out as bucket  # noqa: F401 - a fixture
from tests.wallclock.job.test_s3_out import server as server
from wallclock.infer.inference import HostInference
from wallclock.job import embed, partial, start
from wallclock.job.partial import Checkpoints
from wallclock.job.stores.s3 import S3

Run = Callable[..., Any]


class Killed(BaseException):
    """The process ends here."""


class Clock:
    """A minute passes at each batch."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock, submit = Clock(), HostInference.submit

    def slow(self: HostInference, *arguments: Any) -> None:
        clock.now += 60
        submit(self, *arguments)

    monkeypatch.setattr(HostInference, "submit", slow)
    monkeypatch.setattr(start, "Checkpoints", functools.partial(Checkpoints, clock=clock))
    return clock


@pytest.fixture
def killed_at(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Kill the next starts when batch so-and-so of theirs is embedded; 0: do not."""

    def set_limit(most: int) -> None:
        monkeypatch.setattr(HostInference, "left", most, raising=False)

    submit = HostInference.submit

    def limited(self: HostInference, *arguments: Any) -> None:
        self.left -= 1  # type: ignore[attr-defined]
        if not self.left:  # type: ignore[attr-defined]
            raise Killed
        submit(self, *arguments)

    monkeypatch.setattr(HostInference, "submit", limited)
    set_limit(0)
    return set_limit


@pytest.fixture
def whole(images: Path, tmp_path: Path) -> Path:
    """What an uninterrupted job makes of one large shard, and a small one."""
    embed(images, tmp_path / "whole", **{**QUICK, "shard": 30})
    return tmp_path / "whole"


def job(run: Run, **settings: Any) -> tuple[Any, str]:
    """A start and what it printed."""
    console = Console(file=io.StringIO(), width=200)
    options = {"shard": 30, "checkpoint_minutes": 2, "workers": 1, **settings}
    outcome = run(console=console, **options)
    return outcome, console.file.getvalue()  # type: ignore[attr-defined]


def files(out: Path) -> dict[str, bytes]:
    """The bytes of all that a job made, but its description, which has another SRC or OUT."""
    parts = (path for path in out.rglob("*part-*") if path.is_file())
    return {path.relative_to(out).as_posix(): path.read_bytes() for path in parts}


def saved(out: Path) -> list[str]:
    return sorted(path.name for path in out.glob(".partial-*"))


@pytest.mark.parametrize("batch", [4, 5, 6, 7, 8, 10])
def test_a_killed_shard_goes_on(
    batch: int, run: Run, whole: Path, tmp_path: Path, clock: Clock, killed_at: Any
) -> None:
    """With images whose bytes an earlier batch had, and with failures in between."""
    killed_at(batch)
    with pytest.raises(Killed):
        job(run)
    out = tmp_path / "out"
    assert saved(out) == [f".partial-part-0000{batch // 10}"]
    killed_at(0)
    outcome, printed = job(run)
    assert "images of part " in printed
    assert files(out) == files(whole)
    all_images = len(content(whole).rows)
    assert outcome.tally.images <= all_images - 8


def test_killed_again_and_again(
    run: Run, whole: Path, tmp_path: Path, clock: Clock, killed_at: Any
) -> None:
    """Each start embeds two batches, and is killed in the third."""
    starts = 0
    while True:
        starts += 1
        killed_at(3)
        try:
            job(run)
        except Killed:
            assert starts < 20
            continue
        break
    assert starts >= 4
    assert files(tmp_path / "out") == files(whole)


@pytest.mark.parametrize("sink", ["npy", "parquet"])
def test_of_float16(
    sink: str, images: Path, run: Run, tmp_path: Path, clock: Clock, killed_at: Any
) -> None:
    options: dict[str, Any] = {"sink": sink, "vectors": "float16"}
    embed(images, tmp_path / "whole", **{**QUICK, "shard": 30}, **options)
    killed_at(5)
    with pytest.raises(Killed):
        job(run, **options)
    killed_at(0)
    job(run, **options)
    assert files(tmp_path / "out") == files(tmp_path / "whole")


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


def empty(path: Path) -> None:
    path.write_bytes(b"")


def another_job(path: Path) -> None:
    """The weights were others: its description says so, and the checkpoint is of before."""
    about = path.parent / "_dataset.json"
    values = json.loads(about.read_text(encoding="utf-8"))
    values["identity"]["more"] = "of a newer version"
    about.write_text(json.dumps(values), encoding="utf-8")


@pytest.mark.parametrize(
    ("harm", "why"),
    [
        (truncate, "it is not complete"),
        (flip, "it is not complete"),
        (empty, "it is not complete"),
        (another_job, "it is another job's"),
    ],
)
def test_what_does_not_hold_is_left_out(
    harm: Callable[[Path], None],
    why: str,
    run: Run,
    whole: Path,
    tmp_path: Path,
    clock: Clock,
    killed_at: Any,
) -> None:
    killed_at(6)
    with pytest.raises(Killed):
        job(run)
    harm(tmp_path / "out" / ".partial-part-00000")
    killed_at(0)
    outcome, printed = job(run)
    line = f".partial-part-00000 is left out: {why}; its images are embedded again"
    assert printed.count(line) == 1
    assert outcome.tally.images == len(content(whole).rows)
    assert files(tmp_path / "out") == files(whole)


def test_after_the_loss_of_an_earlier_part(
    run: Run, reference: Content, tmp_path: Path, clock: Clock, killed_at: Any
) -> None:
    """Its rows may be copies of that part's, which are counted anew."""
    killed_at(8)
    with pytest.raises(Killed):
        job(run, shard=16)
    assert saved(tmp_path / "out") == [".partial-part-00001"]
    (tmp_path / "out" / "part-00000.parquet").unlink()
    killed_at(0)
    _, printed = job(run, shard=16)
    assert "is left out: an earlier part is gone" in printed
    assert content(tmp_path / "out") == reference


def test_with_reuse(
    images: Path, run: Run, whole: Path, tmp_path: Path, clock: Clock, killed_at: Any
) -> None:
    """Half of the images are of an earlier dataset; another `rehash` has other batches."""
    embed(images, tmp_path / "first", limit=17, **QUICK)
    options: dict[str, Any] = {"reuse": str(tmp_path / "first"), "checkpoint_minutes": 1}
    for rehash in (False, True):
        out = tmp_path / f"out-{rehash}"
        killed_at(3)
        with pytest.raises(Killed):
            embed(images, out, **{**QUICK, "shard": 30}, **options)
        assert saved(out) == [".partial-part-00000"]
        killed_at(0)
        console = Console(file=io.StringIO(), width=200)
        options["rehash"] = rehash
        embed(images, out, console=console, **{**QUICK, "shard": 30}, **options)
        printed = console.file.getvalue()  # type: ignore[attr-defined]
        assert ("is left out: it is another job's" in printed) == rehash
        assert content(out) == content(whole)
        del options["rehash"]


@pytest.mark.parametrize("settings", [{"checkpoint_minutes": 0}, {"keep": "thumbnails"}])
def test_none_is_written(
    settings: dict[str, Any], run: Run, tmp_path: Path, clock: Clock, killed_at: Any
) -> None:
    killed_at(6)
    with pytest.raises(Killed):
        job(run, **settings)
    assert not saved(tmp_path / "out")


def test_a_large_shard_is_not_saved(
    run: Run, tmp_path: Path, clock: Clock, killed_at: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partial, "MOST", 1000)
    killed_at(6)
    with pytest.raises(Killed):
        job(run)
    assert not saved(tmp_path / "out")


def test_one_that_its_part_has_overtaken_is_removed(
    run: Run, whole: Path, tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed between the commit and the removal."""
    with monkeypatch.context() as patch:
        patch.setattr(partial.Checkpoints, "committed", lambda *_: None)
        job(run)
    assert saved(tmp_path / "out") == [".partial-part-00000", ".partial-part-00001"]
    (tmp_path / "out" / "part-00000.parquet").unlink()
    _, printed = job(run)
    assert "of part 0 are there" in printed
    assert files(tmp_path / "out") == files(whole)


def test_in_a_bucket(
    bucket: str,  # noqa: F811
    images: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What was saved of it is one object, and gone with the commit."""
    options = {**QUICK, "shard": 30, "checkpoint_minutes": 1}
    embed(images, tmp_path / "whole", **options)
    seconds, submit = itertools.count(step=60), HostInference.submit
    clocked = functools.partial(Checkpoints, clock=seconds.__next__)
    monkeypatch.setattr(start, "Checkpoints", clocked)

    def limited(self: HostInference, batch: Any, requested: int) -> None:
        if batch.positions[0] >= 12:
            raise Killed
        submit(self, batch, requested)

    with monkeypatch.context() as patch:
        patch.setattr(HostInference, "submit", limited)
        with pytest.raises(Killed):
            embed(images, bucket, **options)
    assert names(bucket)[-1] == "_dataset.json"
    assert ".partial-part-00000" in names(bucket)
    assert embed(images, bucket, **options).tally.images < N - DAMAGED - 8
    assert not [name for name in names(bucket) if name.startswith(".partial")]
    for number in range(2):
        name = f"part-{number:05d}.parquet"
        assert S3.named(bucket).read(name) == (tmp_path / "whole" / name).read_bytes()
