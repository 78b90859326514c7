"""A folder of small images with everything that a job meets, and what is in a dataset."""

import shutil
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import making
from tests.fake_ray import FakeRay
from wallclock.errors import NotReachedError, UserError
from wallclock.fetch.sources import SourceReader
from wallclock.job import embed
from wallclock.job.dataset import Dataset, open_existing
from wallclock.job.part import Part
from wallclock.job.runner import cluster

#: Images of the folder.
N = 41
#: Of them damaged.
DAMAGED = 2
#: Of them with the bytes of an earlier one.
TWINS = 3
#: Of them, those whose original is in another part.
APART = 1
#: Without torch, and two shards of several batches.
QUICK: dict[str, Any] = {"model": "null", "recipe": "pillow", "batch": 4, "shard": 16}


@dataclass(frozen=True)
class Content:
    """Of all parts: id → bytes of the vector and the other columns; failures."""

    rows: dict[str, tuple[Any, ...]]
    failures: tuple[tuple[str, str], ...]


def opened(out: Path | str) -> Dataset:
    dataset = open_existing(out)
    assert dataset is not None
    return dataset


def content(out: Path | str) -> Content:
    """What a dataset holds; every id must be there once."""
    dataset = opened(out)
    rows: dict[str, tuple[Any, ...]] = {}
    failures: list[tuple[str, str]] = []
    for number in dataset.committed():
        vectors = dataset.vectors(number)
        for row, vector in zip(dataset.rows(number).to_pylist(), vectors, strict=True):
            assert row["id"] not in rows
            rows[row["id"]] = (vector.tobytes(), *row.values())
        failures += [(row["id"], row["reason"]) for row in dataset.failures(number)]
    assert len({*rows, *(name for name, _ in failures)}) == len(rows) + len(failures)
    return Content(rows, tuple(failures))


def part(n: int = 3, value: float = 0.0, failed: int = 1) -> Part:
    """n rows with this value, and failures that name it."""
    rows: dict[str, Any] = {name: [f"{value:g}"] * n for name in ("id", "sha256", "version")}
    failures = [{"id": "f", "stage": "read", "reason": f"{value:g}"}] * failed
    rows |= {"width": [1] * n, "height": [1] * n}
    return Part(rows, np.full((n, 4), value, "f4"), failures)


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """41 files: two are damaged, three have the bytes of an earlier one, one has an odd name."""
    folder = tmp_path_factory.mktemp("images")
    for seed in range(N - DAMAGED - TWINS - 1):
        (folder / f"{seed:02}.jpg").write_bytes(making.jpeg(320, 240, seed))
    (folder / "sub").mkdir()
    (folder / "sub" / "ä b, 'c'.png").write_bytes(making.encode(making.picture(seed=99), "PNG"))
    for name, seed in (("05-twin.jpg", 5), ("30-twin.jpg", 2), ("31-twin.jpg", 31)):
        (folder / name).write_bytes(making.jpeg(320, 240, seed))
    (folder / "07-cut.jpg").write_bytes(making.jpeg()[:-40])
    (folder / "zero.jpg").write_bytes(b"")
    return folder


@pytest.fixture
def run(images: Path, tmp_path: Path) -> Callable[..., Any]:
    """`embed` of the folder into `out` of the test's own, with quick settings."""
    return partial(embed, images, tmp_path / "out", **QUICK)


@pytest.fixture(scope="session")
def finished(images: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The dataset that an uninterrupted job makes; no test changes it."""
    out = tmp_path_factory.mktemp("reference") / "out"
    embed(images, out, **QUICK)
    return out


@pytest.fixture(scope="session")
def reference(finished: Path) -> Content:
    """What is in it."""
    return content(finished)


@pytest.fixture
def out(finished: Path, tmp_path: Path) -> Path:
    """A copy of it where `run` writes, for a test to change."""
    return shutil.copytree(finished, tmp_path / "out")


@dataclass
class World:
    """What a reader meets: `away` has the names of images that it does not reach.

    `untried` has those that it does not ask for, as it has given up their host, which had answered.
    It gives up once it has read so many: None for never. `asked`: how often it was asked since.
    """

    away: set[str] = field(default_factory=set)
    untried: set[str] = field(default_factory=set)
    gives_up_after: int | None = None
    refuses: bool = False
    read: list[str] = field(default_factory=list)
    asked: int = 0

    def change(self, *away: str, gives_up_after: int | None = None) -> None:
        """Of the next run."""
        self.away, self.gives_up_after, self.read = {*away}, gives_up_after, []
        self.untried = set()

    def surround(self, patch: pytest.MonkeyPatch) -> None:
        """Put it between readers and their images."""
        lock, read = threading.Lock(), SourceReader.__call__

        def call(reader: SourceReader, item: Any) -> bytes:
            if item.id in self.untried:
                raise NotReachedError("read", "its host was not reached: HTTP 503", "untried")
            with lock:
                if self.gives_up_after is not None and len(self.read) >= self.gives_up_after:
                    self.asked += 1
                    raise NotReachedError("read", "no route", "all")
                self.read.append(item.id)
            if self.refuses:
                raise UserError("the credentials have expired; renew them")
            if item.id in self.away:
                raise NotReachedError("read", "HTTP 503")
            data: bytes = read(reader, item)
            return data

        patch.setattr(SourceReader, "__call__", call)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """One that is as it should be, until a test changes it."""
    world = World()
    world.surround(monkeypatch)
    return world


Ray = Callable[..., FakeRay]


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> Ray:
    """A cluster of such nodes, in which this process is."""

    def start(**cpus: int) -> FakeRay:
        fake = FakeRay(**cpus)
        monkeypatch.setitem(sys.modules, "ray", fake)
        monkeypatch.setattr(cluster, "find_spec", lambda name: name)
        return fake

    return start


@pytest.fixture
def bucket(s3: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A new prefix, and a folder for what is temporary."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    return f"s3://bucket/{tmp_path.name}"
