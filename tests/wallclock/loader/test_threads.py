"""Engine `threads`: whatever is slow or fails, nothing is lost, shifted or stuck."""

import random
import threading
import time
import traceback
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.corpora.manifest import Manifest
from harness.engines.loaders import open_threads
from harness.engines.writer import QUEUE_DEPTH, open_writer
from harness.spec import Recipe
from tests.harness.engines.conftest import MODEL, loaded_one_by_one
from tests.running import run_python
from tests.wallclock.loader.test_processes import sources_in, split, while_decoding
from wallclock.check import Image
from wallclock.errors import ImageError
from wallclock.loader.batch import Batch
from wallclock.loader.loading import Loading
from wallclock.loader.opener import LoaderOptions, open_loader
from wallclock.loader.prepare import BuildInPlace, in_place_stages
from wallclock.loader.ring import buffers_for
from wallclock.loader.threads import JoinableThread
from wallclock.recipe import FAST

SIZE = MODEL.input_px
FAILED = st.sets(st.integers(0, 29))
RECIPE = Recipe(
    "test", "simplejpeg", "opencv", "area", workers=3, normalize_on="device", batch_size=8
)


def disturbed(seed: int, failures: set[str], crash: str = "") -> BuildInPlace:
    """Workers with random delays, that fail on the images named, and crash at one."""

    def build(loading: Loading, reader: Any) -> Any:
        loader, rng = in_place_stages(loading, reader), random.Random(seed)

        def decode(item: Any, data: bytes) -> Any:
            time.sleep(rng.choice([0, 0, 0, 0.0005, 0.003]))
            if item.id in failures:
                raise ImageError("decode", "made to fail")
            if item.id == crash:
                raise RuntimeError("made to crash")
            return loader.decode(item, data)

        return replace(loader, decode=decode)

    return build


@settings(max_examples=15)
@given(st.integers(0, 999), st.integers(1, 70), st.integers(1, 20), st.integers(1, 6), FAILED)
def test_order_and_ids_under_delays_and_failures(
    tiny: Manifest, seed: int, n: int, size: int, workers: int, failed: set[int]
) -> None:
    truth, bad = loaded_one_by_one(tiny, RECIPE), {tiny.items[index].id for index in failed}
    recipe = replace(RECIPE, workers=workers)
    seen: list[str] = []
    lost: list[str] = []
    with open_threads(tiny, recipe, MODEL, split(n, size), disturbed(seed, bad)) as loader:
        for batch in loader:
            check(batch, truth)
            seen += batch.ids
            lost += [failure["id"] for failure in batch.failures]
    names = [tiny.items[position % 30].id for position in range(n)]
    assert seen == [name for name in names if name not in bad]
    assert lost == [name for name in names if name in bad]


def check(batch: Batch, truth: dict[str, Any]) -> None:
    for name, picture in zip(batch.ids, batch.images, strict=True):
        np.testing.assert_array_equal(picture, truth[name])


def test_a_crash_keeps_its_traceback(tiny: Manifest) -> None:
    build = disturbed(0, set(), crash="image 17")
    with (
        pytest.raises(RuntimeError, match="made to crash") as caught,
        open_threads(tiny, RECIPE, MODEL, split(30, 8), build) as loader,
    ):
        list(loader)
    names = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert names[-2:] == ["_load", "decode"]


def test_one_large_picture_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of several threads, also where there is one process."""
    monkeypatch.setattr("wallclock.loader.threads.LARGE_PIXELS", 0)
    inside = threading.Lock()
    overlapped = []

    def overlap(image: Image) -> None:
        if not inside.acquire(blocking=False):
            overlapped.append(image.id)
            return
        time.sleep(0.01)
        inside.release()

    while_decoding(monkeypatch, overlap)
    options = LoaderOptions.of(SIZE, replace(FAST, workers=4))
    with open_loader(sources_in(tmp_path, 8), split(8, 2), options) as loader:
        assert len(list(loader)) == 4
    assert not overlapped


def test_small_pictures_do_not_wait_for_a_large_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = threading.Barrier(2, timeout=10)
    while_decoding(monkeypatch, lambda image: both.wait())
    options = LoaderOptions.of(SIZE, replace(FAST, workers=2))
    with open_loader(sources_in(tmp_path, 2), [[0], [1]], options) as loader:
        assert len(list(loader)) == 2


def test_memory_is_bounded_by_the_ring(tiny: Manifest) -> None:
    decoded: list[str] = []

    def build(loading: Loading, reader: Any) -> Any:
        stages = in_place_stages(loading, reader)

        def decode(item: Any, data: bytes) -> Any:
            decoded.append(item.id)
            return stages.decode(item, data)

        return replace(stages, decode=decode)

    with open_threads(tiny, RECIPE, MODEL, split(4000, 8), build) as loader:
        next(loader)
        time.sleep(0.2)
        assert loader.prefetched == buffers_for(3, 8)
        assert len(decoded) <= buffers_for(3, 8) * 8


def test_a_slow_sink_blocks_put() -> None:
    release, put = threading.Event(), list[int]()

    def write(ids: Sequence[str], vectors: Any) -> None:
        release.wait(30)

    with open_writer(write, lambda: None, in_thread=True) as sink:

        def put_batches() -> None:
            for number in range(20):
                sink.put(["a"], np.zeros((1, 4), np.float32), 0)
                put.append(number)

        feeder = threading.Thread(target=put_batches)
        feeder.start()
        time.sleep(0.1)
        n_put = len(put)
        release.set()
        feeder.join()
        assert n_put == QUEUE_DEPTH
        sink.finish()
        assert len(sink.written) == 21, "20 batches and the end of the file"
        assert sink.wait_ns > 0


#: Loads a folder again and again; after so many seconds it gets a SIGINT.
INTERRUPTED = """
import os, random, signal, sys, threading
from wallclock import open_images

signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job of a script ignores it
folder, seed, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
rng = random.Random(seed)
list(open_images(folder, 8))  # libraries, of which cv2 swallows an interrupt of its import
try:
    threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT)).start()
    batch, workers = rng.choice([1, 3, 8, 20]), rng.choice([1, 2, 5])
    with open_images(folder, 8, batch, workers=workers, epochs=10**6) as batches:
        for _ in batches:
            pass
except KeyboardInterrupt:
    alive = [thread.name for thread in threading.enumerate() if thread.name.startswith("loader")]
    print("still alive:" if alive else "interrupted", *alive)
"""


def interrupt(folder: Path, seed: int, seconds: float) -> None:
    """It must end, and leave no thread."""
    done = run_python("-c", INTERRUPTED, folder, seed, seconds)
    outcome = done.returncode, done.stdout
    assert outcome == (0, "interrupted\n"), (seed, seconds, done.stdout, done.stderr)


def test_an_interrupt_ends_the_pass(tiny: Manifest) -> None:
    interrupt(tiny.root, 0, 0.2)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_interrupts_at_random_moments(tiny: Manifest) -> None:
    rng = random.Random(0)
    for seed in range(60):
        interrupt(tiny.root, seed, rng.choice([rng.uniform(0, 0.02), rng.uniform(0, 0.4)]))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("n_passes", [20, pytest.param(400, marks=pytest.mark.slow)])
def test_random_faults_end_every_pass(n_passes: int, tiny: Manifest) -> None:
    """A crash, a consumer that leaves, a sink that fails: each pass ends."""
    for seed in range(n_passes):
        rng = random.Random(seed)
        n, size = rng.randint(1, 120), rng.randint(1, 20)
        recipe = replace(RECIPE, workers=rng.randint(1, 6))
        trouble = rng.choice(["crash", "leave", "sink", "none"])
        crash = f"image {rng.randrange(30)}" if trouble == "crash" else ""
        build = disturbed(seed, {f"image {rng.randrange(30)}"}, crash)
        arguments = (tiny, recipe, split(n, size), build, trouble, rng)
        trial = threading.Thread(target=run_pass, args=arguments)
        trial.start()
        trial.join(30)
        assert not trial.is_alive(), f"seed {seed} hangs"


def run_pass(
    tiny: Manifest,
    recipe: Recipe,
    positions: Sequence[Sequence[int]],
    build: BuildInPlace,
    trouble: str,
    rng: random.Random,
) -> None:
    stop = rng.randrange(len(positions))

    def write(ids: Sequence[str], vectors: Any) -> None:
        if trouble == "sink" and rng.random() < 0.3:
            raise OSError(28, "No space left on device")

    try:
        with (
            open_threads(tiny, recipe, MODEL, positions, build) as loader,
            open_writer(write, lambda: None, in_thread=True) as sink,
        ):
            for number, batch in enumerate(loader):
                sink.put(batch.ids, np.zeros((len(batch.ids), 4), np.float32), 0)
                if trouble == "leave" and number == stop:
                    return
            sink.finish()
    except (RuntimeError, OSError):
        assert trouble in ("crash", "sink")


def test_an_interrupted_start_leaves_no_thread_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    done = []

    def work() -> None:
        time.sleep(0.2)
        done.append(True)

    def interrupt(timeout: float | None = None) -> bool:
        raise KeyboardInterrupt

    hand = JoinableThread(work, "test")
    # `Thread.start` has begun the thread by then, and waits to hear from it.
    monkeypatch.setattr(hand._started, "wait", interrupt)  # type: ignore[attr-defined]
    with pytest.raises(KeyboardInterrupt):
        hand.start()
    monkeypatch.undo()
    hand.join()
    assert done == [True]
