"""Engine `threads`: whatever is slow or fails, nothing is lost, shifted or stuck."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import making
from wallclock.corpus.manifest import Item
from wallclock.engines import pipeline as pipelines
from wallclock.engines import threads
from wallclock.engines.ring import buffers_for
from wallclock.engines.threads import Batch, loading
from wallclock.engines.writer import DEPTH, WriterThread, open_writer
from wallclock.errors import ImageError
from wallclock.spec import Recipe

SIZE = 8
RECIPE = Recipe(
    "test",
    decoder="simplejpeg",
    resizer="opencv",
    interpolation="area",
    workers=3,
    normalize_on="device",
    batch_size=8,
)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Item]]:
    folder = tmp_path_factory.mktemp("images")
    return folder, items_in(folder, 30)


@pytest.fixture(autouse=True)
def watchdog() -> Iterator[None]:
    """No thread of a loader or a sink outlives its block."""
    yield
    left = [
        thread.name
        for thread in threading.enumerate()
        if thread.name.startswith(("loader", "sink"))
    ]
    assert not left


def items_in(folder: Path, n: int) -> list[Item]:
    items = []
    for index in range(n):
        data = making.jpeg(16, 12, seed=index)
        (folder / f"{index}.jpg").write_bytes(data)
        items.append(
            Item(f"image {index}", f"{index}.jpg", len(data), 16, 12, "", "jpeg", "baseline", 3, 0)
        )
    return items


def expected(root: Path, items: Sequence[Item]) -> dict[str, Any]:
    """Each image's pixels, made on its own."""
    loader = pipelines.build_loader(RECIPE, SIZE, root)
    return {item.id: loader.resize(item, loader.decode(item, loader.read(item))) for item in items}


def split(n: int, size: int) -> list[list[int]]:
    return [list(range(start, min(start + size, n))) for start in range(0, n, size)]


def disturb(patch: pytest.MonkeyPatch, seed: int, failures: set[str], crash: str = "") -> None:
    """Workers that dawdle at random, fail on the images named, and crash at one."""
    build = pipelines.build_rows

    def rows(recipe: Recipe, input_px: int, reader: Any, *statistics: Any) -> Any:
        loader, rng = build(recipe, input_px, reader, *statistics), random.Random(seed)

        def decode(item: Item, data: bytes) -> Any:
            time.sleep(rng.choice([0, 0, 0, 0.0005, 0.003]))
            if item.id in failures:
                raise ImageError("decode", "made to fail")
            if item.id == crash:
                raise RuntimeError("made to crash")
            return loader.decode(item, data)

        return replace(loader, decode=decode)

    patch.setattr(pipelines, "build_rows", rows)


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(1, 70),
    size=st.integers(1, 20),
    workers=st.integers(1, 6),
    failed=st.sets(st.integers(0, 29)),
)
def test_order_and_ids_under_random_delays_and_failures(
    corpus: tuple[Path, list[Item]], seed: int, n: int, size: int, workers: int, failed: set[int]
) -> None:
    root, items = corpus
    truth, bad = expected(root, items), {items[index].id for index in failed}
    with pytest.MonkeyPatch.context() as patch:
        disturb(patch, seed, bad)
        seen: list[str] = []
        lost: list[str] = []
        with loading(items, root, replace(RECIPE, workers=workers), SIZE, split(n, size)) as loader:
            for batch in loader:
                check(batch, truth)
                seen += batch.ids
                lost += [failure["id"] for failure in batch.failures]
    names = [items[position % 30].id for position in range(n)]
    assert seen == [name for name in names if name not in bad]
    assert lost == [name for name in names if name in bad]


def check(batch: Batch, truth: dict[str, Any]) -> None:
    assert batch.images.shape == (len(batch.ids), SIZE, SIZE, 3)
    for name, picture in zip(batch.ids, batch.images, strict=True):
        np.testing.assert_array_equal(picture, truth[name])


def test_a_crash_comes_out_with_the_workers_traceback(
    corpus: tuple[Path, list[Item]], monkeypatch: pytest.MonkeyPatch
) -> None:
    root, items = corpus
    disturb(monkeypatch, 0, set(), crash="image 17")
    with (
        pytest.raises(RuntimeError, match="made to crash") as caught,
        loading(items, root, RECIPE, SIZE, split(30, 8)) as loader,
    ):
        list(loader)
    names = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert names[-2:] == ["_fill", "decode"]


def test_a_corrupt_image_in_every_hundred_is_listed_and_shifts_nothing(tmp_path: Path) -> None:
    items = items_in(tmp_path, 10)
    many = [
        replace(items[index % 10], id=f"{index}", path=f"{index % 10}.jpg") for index in range(1000)
    ]
    (tmp_path / "bad.jpg").write_bytes(making.jpeg(16, 12)[:-60])
    size = (tmp_path / "bad.jpg").stat().st_size
    many[50::100] = [replace(item, path="bad.jpg", bytes=size) for item in many[50::100]]
    truth = {
        str(index): picture for index, picture in enumerate(expected(tmp_path, items).values())
    }
    failures, embedded = [], 0
    with loading(many, tmp_path, RECIPE, SIZE, split(1000, 64)) as loader:
        for batch in loader:
            check(batch, {name: truth[str(int(name) % 10)] for name in batch.ids})
            failures += batch.failures
            embedded += len(batch.ids)
    assert [failure["id"] for failure in failures] == [str(index) for index in range(50, 1000, 100)]
    assert {failure["stage"] for failure in failures} == {"decode"}
    assert embedded == 990


@pytest.mark.parametrize("place", ["device", "host"])
def test_both_kinds_of_batch(corpus: tuple[Path, list[Item]], place: str) -> None:
    root, items = corpus
    recipe = replace(RECIPE, normalize_on=place)
    single = pipelines.build_loader(recipe, SIZE, root)
    with loading(items, root, recipe, SIZE, split(30, 8)) as loader:
        for batch in loader:
            for name, image in zip(batch.ids, batch.images, strict=True):
                item = next(item for item in items if item.id == name)
                alone = single.normalize(
                    single.resize(item, single.decode(item, single.read(item)))
                )
                np.testing.assert_array_equal(image, alone)


def test_every_worker_says_where_its_time_went(corpus: tuple[Path, list[Item]]) -> None:
    root, items = corpus
    with loading(items, root, RECIPE, SIZE, split(300, 8)) as loader:
        for _ in loader:
            time.sleep(0.002)
        busy = loader.busy()
        assert len(busy) == 3
        assert sum(each.images for each in busy) == 300
        assert all(set(each.stage_ns) == {"read", "decode", "resize"} for each in busy)
        # A consumer that is slower than its workers keeps them waiting for a buffer.
        assert sum(each.wait_ns for each in busy) > sum(
            sum(each.stage_ns.values()) for each in busy
        )


def test_memory_is_the_ring_whatever_the_consumer_does(corpus: tuple[Path, list[Item]]) -> None:
    root, items = corpus
    with loading(items, root, RECIPE, SIZE, split(4000, 8)) as loader:
        next(loader)
        time.sleep(0.2)
        assert loader.ring_size == buffers_for(3, 8)
        assert sum(each.images for each in loader.busy()) <= loader.ring_size * 8
        assert loader.ring_bytes == loader.ring_size * 8 * SIZE * SIZE * 3


def test_a_sink_that_fails_says_so_where_it_is_fed(corpus: tuple[Path, list[Item]]) -> None:
    def write(ids: Sequence[str], vectors: Any) -> None:
        if "image 9" in ids:
            raise OSError(28, "No space left on device")

    root, items = corpus
    with (
        pytest.raises(OSError, match="No space left") as caught,
        loading(items, root, RECIPE, SIZE, split(10**5, 8)) as loader,
        open_writer(write, lambda: None) as sink,
    ):
        feed(loader, sink)
    assert traceback.extract_tb(caught.value.__traceback__)[-1].name == "write"


def feed(loader: Iterable[Batch], sink: WriterThread) -> None:
    for batch in loader:
        sink.put(batch.ids, batch.images.reshape(len(batch.ids), -1).astype(np.float32), 0)
    sink.finish()


def test_the_last_write_and_the_end_of_the_file_can_fail_too() -> None:
    def fail(*arguments: Any) -> None:
        raise OSError(28, "No space left on device")

    batch = Batch(["a"], np.zeros((1, 4), np.uint8), [], [], 0)
    for write, finish in ((fail, lambda: None), (lambda ids, vectors: None, fail)):
        with pytest.raises(OSError, match="No space left"), open_writer(write, finish) as sink:
            feed([batch], sink)


def test_a_slow_sink_holds_the_one_who_feeds_it() -> None:
    release = threading.Event()
    put = 0
    with ExitStack() as stack:
        sink = stack.enter_context(
            open_writer(lambda ids, vectors: void(release.wait(30)), lambda: None)
        )
        stack.callback(release.set)

        def feeding() -> None:
            nonlocal put
            for _ in range(20):
                sink.put(["a"], np.zeros((1, 4), np.float32), 0)
                put += 1

        feeder = threading.Thread(target=feeding)
        feeder.start()
        time.sleep(0.1)
        assert put == DEPTH
        release.set()
        feeder.join()
        sink.finish()
        assert len(sink.written) == 21, "20 batches and the end of the file"
        assert sink.wait_ns > 0


def void(value: object) -> None:
    """Drop a value."""


def interrupted(folder: Path, seed: int, seconds: float) -> None:
    script = Path(__file__).with_name("threads_script.py")
    arguments = [sys.executable, str(script), str(folder), str(seed), f"{seconds}"]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout.split("\n")[1]) == (0, "interrupted"), (
        seed,
        seconds,
        done.stdout,
        done.stderr,
    )


def test_an_interrupt_ends_it(corpus: tuple[Path, list[Item]]) -> None:
    interrupted(corpus[0], 0, 0.2)


@pytest.mark.slow
def test_an_interrupt_at_any_moment_ends_it(corpus: tuple[Path, list[Item]]) -> None:
    rng = random.Random(0)
    for seed in range(60):
        interrupted(corpus[0], seed, rng.choice([rng.uniform(0, 0.02), rng.uniform(0, 0.4)]))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_hundreds_of_passes_that_go_wrong_somewhere(corpus: tuple[Path, list[Item]]) -> None:
    """A crash, a consumer that leaves, a sink that fails: each ends within the watchdog's time."""
    root, items = corpus
    for seed in range(400):
        rng = random.Random(seed)
        n, size = rng.randint(1, 120), rng.randint(1, 20)
        recipe = replace(RECIPE, workers=rng.randint(1, 6))
        trouble = rng.choice(["crash", "leave", "sink", "none"])
        with pytest.MonkeyPatch.context() as patch:
            disturb(
                patch,
                seed,
                {f"image {rng.randrange(30)}"},
                f"image {rng.randrange(30)}" * (trouble == "crash"),
            )
            trial = threading.Thread(
                target=one_pass, args=(root, items, recipe, split(n, size), trouble, rng)
            )
            trial.start()
            trial.join(30)
            assert not trial.is_alive(), f"seed {seed} hangs"


def one_pass(
    root: Path,
    items: Sequence[Item],
    recipe: Recipe,
    positions: list[list[int]],
    trouble: str,
    rng: random.Random,
) -> None:
    stop = rng.randrange(len(positions))

    def write(ids: Sequence[str], vectors: Any) -> None:
        if trouble == "sink" and rng.random() < 0.3:
            raise OSError(28, "No space left on device")

    try:
        with (
            threads.loading(items, root, recipe, SIZE, positions) as loader,
            open_writer(write, lambda: None) as sink,
        ):
            for number, batch in enumerate(loader):
                sink.put(batch.ids, np.zeros((len(batch.ids), 4), np.float32), 0)
                if trouble == "leave" and number == stop:
                    return
            sink.finish()
    except (RuntimeError, OSError):
        assert trouble in ("crash", "sink")
