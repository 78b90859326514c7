"""A folder of small images with everything that a job meets, and what is in a dataset."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests import making
from wallclock.job import embed
from wallclock.job.dataset import open_existing

#: Images of the folder.
N = 41
#: Of them damaged.
DAMAGED = 2
#: Of them with the bytes of an earlier one.
TWINS = 3
#: Without torch, and two shards of several batches.
QUICK: dict[str, Any] = {"model": "null", "recipe": "pillow", "batch": 4, "shard": 16}


@dataclass(frozen=True)
class Content:
    """Of all parts: id → bytes of the vector and the other columns; failures."""

    rows: dict[str, tuple[Any, ...]]
    failures: tuple[tuple[str, str], ...]


def content(out: Path | str) -> Content:
    """What a dataset holds; every id must be there once."""
    dataset = open_existing(out)
    assert dataset is not None
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
def reference(images: Path, tmp_path_factory: pytest.TempPathFactory) -> Content:
    """What an uninterrupted job makes."""
    out = tmp_path_factory.mktemp("reference") / "out"
    embed(images, out, **QUICK)
    return content(out)
