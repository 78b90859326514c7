"""A commit survives a power cut: each file is flushed before its rename, each folder after it."""

import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.wallclock.job.conftest import part
from wallclock.files import write_bytes
from wallclock.job.dataset import Dataset
from wallclock.job.stores.folder import PUBLISHING, Folder


class Event(NamedTuple):
    """A change of the file system, or a flush. `locked`: whether another process could publish."""

    call: str
    path: Path
    locked: bool


def is_locked(out: Path) -> bool:
    """Whether the lock of those who publish parts is held."""
    path = out / PUBLISHING
    if not path.exists():
        return False
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


@pytest.fixture
def out(tmp_path: Path) -> Path:
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


@pytest.fixture
def events(out: Path, monkeypatch: pytest.MonkeyPatch) -> list[Event]:
    """What happens to the files of `out`, in order. A rename counts at its target."""
    seen: list[Event] = []

    def record(name: str, where: Callable[..., Any]) -> None:
        call = getattr(os, name)

        def recorded(*arguments: Any, **options: Any) -> Any:
            path = Path(where(*arguments))
            if path.is_relative_to(out):
                seen.append(Event(name, path, is_locked(out)))
            return call(*arguments, **options)

        monkeypatch.setattr(os, name, recorded)

    record("fsync", lambda descriptor: os.readlink(f"/proc/self/fd/{descriptor}"))
    record("replace", lambda source, target: target)
    record("mkdir", lambda path, *_: path)
    record("unlink", lambda path, **_: path)
    return seen


def index(events: list[Event], call: str, path: Path, after: int = -1) -> int:
    """Where the first such event behind `after` is."""
    return next(
        at
        for at, event in enumerate(events)
        if at > after and (event.call, event.path) == (call, path)
    )


def staged(events: list[Event], target: Path, out: Path) -> int:
    """Where the file that is later renamed to `target` was flushed below its temporary name."""
    name = target.relative_to(out)
    return next(
        at
        for at, event in enumerate(events)
        if event.call == "fsync"
        and event.path.name == name.name
        and ".tmp" in str(event.path.relative_to(out))
    )


def test_flushed_before_and_after_the_rename(out: Path, events: list[Event]) -> None:
    dataset = Dataset(Folder(out))
    dataset.commit(0, part())
    renames = [event for event in events if event.call == "replace"]
    targets = [event.path for event in renames]
    rows = out / dataset.row_file(0)
    assert targets[-1] == rows, "its presence is the commit"
    names = {path.relative_to(out).as_posix() for path in targets}
    assert {"_failures/part-00000.jsonl", "_checksums/part-00000.json"} < names
    committed = index(events, "replace", rows)
    for target in targets:
        renamed = index(events, "replace", target)
        assert staged(events, target, out) < renamed
        synced = index(events, "fsync", target.parent, after=renamed)
        assert target == rows or synced < committed
    assert all(event.locked for event in renames)
    for at, event in enumerate(events):
        if event.call == "mkdir" and event.path.parent == out and event.path.suffix != ".tmp":
            index(events, "fsync", out, after=at)


def test_leftovers_are_removed_under_the_lock(out: Path, events: list[Event]) -> None:
    """Of what another process is about to publish, nothing is taken away in between."""
    dataset = Dataset(Folder(out))
    dataset.commit(0, part())
    leftovers = ["part-00001.tmp", "_failures/part-00001.jsonl", "_checksums/part-00012.json"]
    for name in leftovers:
        (out / name).write_bytes(b"x")
    (out / ".part-00001-0.tmp" / "_failures").mkdir(parents=True)
    (out / ".dataset.json.0.tmp").write_bytes(b"x")
    kept = set(out.rglob("*part-00000*"))
    events.clear()
    dataset.store.remove_leftovers()
    left = {path for path in out.rglob("*") if path.is_file() and path.name != PUBLISHING}
    assert left == kept
    removed = [event for event in events if event.call == "unlink"]
    assert {out / name for name in leftovers} <= {event.path for event in removed}
    assert all(event.locked for event in removed)


def test_a_process_whose_folder_is_taken_away_publishes_nothing(out: Path) -> None:
    """Its files are renamed away before they are removed one by one."""
    store = Folder(out)
    with store.staging("part-00000") as work:
        work.mkdir()
        for name in ("part-00000.x", "part-00000.parquet"):
            (work / name).write_bytes(b"x")
        with pytest.MonkeyPatch.context() as patch:  # killed before it has removed them
            patch.setattr(shutil, "rmtree", lambda *_, **__: None)
            store.remove_leftovers()
        with pytest.raises((OSError, ValueError)):
            store.commit(work, "part-00000.parquet")
        work.mkdir(exist_ok=True)
    assert not list(out.glob("part-*"))


@pytest.mark.parametrize("sync", [True, False])
def test_a_file_is_flushed_before_it_replaces_another(
    sync: bool, out: Path, events: list[Event]
) -> None:
    write_bytes(out / "a", b"data", sync=sync)
    calls = [event.call for event in events if event.call in ("fsync", "replace")]
    assert calls == (["fsync", "replace"] if sync else ["replace"])


def test_the_first_commit_of_a_part_counts(out: Path) -> None:
    """A lost actor that comes late neither replaces a part nor its failures."""
    dataset = Dataset(Folder(out))
    dataset.commit(0, part(2, failed=0))
    dataset.commit(0, part(1))
    assert (dataset.counts()["vectors"], dataset.failures(0)) == (2, [])
    assert not list(out.glob(".*.tmp"))


def test_a_commit_that_was_cleaned_up_is_none(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The actor of a killed driver writes on while the next driver removes what it left."""
    dataset, publishing = Dataset(Folder(out)), Folder._publishing

    def late(self: Folder) -> Any:
        monkeypatch.setattr(Folder, "_publishing", publishing)
        dataset.store.remove_leftovers()
        return publishing(self)

    monkeypatch.setattr(Folder, "_publishing", late)
    with pytest.raises(FileNotFoundError):
        dataset.commit(0, part(1))
    assert (dataset.committed(), list(out.rglob("part-*"))) == ([], [])
