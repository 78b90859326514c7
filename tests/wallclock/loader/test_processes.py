"""The threads engine in several processes: the same batches, and no process is left behind."""

import io
import mmap
import multiprocessing
import os
import pickle
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil
import pytest

from tests import making
from tests.running import start_python
from wallclock.check import Image
from wallclock.errors import ImageError, NotReachedError, UserError
from wallclock.fetch.sources import Source
from wallclock.loader.batch import Batch
from wallclock.loader.images import open_images
from wallclock.loader.opener import LoaderOptions, open_loader
from wallclock.loader.output import Output, Workers
from wallclock.loader.prepare import DecodeImage
from wallclock.loader.processes import ForkedLoader
from wallclock.loader.ring import Chunk
from wallclock.recipe import FAST

SIZE = 24
OPTIONS = LoaderOptions.of(SIZE)

#: A loader in a process that is killed; it prints the numbers of those that it has started.
SCRIPT = """
import multiprocessing, sys, time
from dataclasses import replace
from wallclock.fetch.sources import Source
from wallclock.loader.opener import LoaderOptions, open_loader
from wallclock.recipe import FAST

sources = [Source(path, path) for path in sys.argv[1:]]
batches = [range(len(sources))] * 100_000
recipe = replace(FAST, resizer="pil")  # torch takes seconds to import
with open_loader(sources, batches, LoaderOptions.of(24, recipe), 3) as loader:
    for _ in range(5):
        next(loader)
    print(*(child.pid for child in multiprocessing.active_children()), flush=True)
    time.sleep(60)
"""


def sources_in(folder: Path, n: int, damaged: int = -1) -> list[Source]:
    sources = []
    for i in range(n):
        data = making.jpeg(30 + i, 40, seed=i)
        path = folder / f"{i}.jpg"
        path.write_bytes(data[:200] if i == damaged else data)
        sources.append(Source(f"id-{i}", str(path)))
    return sources


def split(n: int, size: int) -> list[range]:
    return [range(start, min(start + size, n)) for start in range(0, n, size)]


def while_decoding(monkeypatch: pytest.MonkeyPatch, call: Callable[[Image], object]) -> None:
    """Have workers, also forked ones, call it with each image; none is loaded at once."""
    monkeypatch.setattr("wallclock.loader.at_once.LARGE_PIXELS", 0)
    decode = DecodeImage.__call__

    def decode_and_call(stage: DecodeImage, image: Image, data: Any) -> Any:
        call(image)
        return decode(stage, image, data)

    monkeypatch.setattr(DecodeImage, "__call__", decode_and_call)


class Copy(NamedTuple):
    """What a batch held before the next one took its place."""

    ids: list[str]
    positions: list[int]
    failures: list[Any]
    infos: list[Any]
    pixels: bytes


def load(sources: Sequence[Source], batches: Any, processes: int = 1, **options: Any) -> list[Copy]:
    with open_loader(sources, batches, LoaderOptions.of(SIZE, **options), processes) as loader:
        return [copy_of(batch) for batch in loader]


def copy_of(batch: Batch) -> Copy:
    return Copy(
        ids=[*batch.ids],
        positions=[*batch.positions],
        failures=[*batch.failures],
        infos=[*batch.extras.infos],
        pixels=batch.images.tobytes(),
    )


def test_one_large_picture_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wallclock.loader.threads.LARGE_PIXELS", 0)
    inside, overlapped = 0, 1
    shared = mmap.mmap(-1, 2)
    both = multiprocessing.get_context("fork").Barrier(2, timeout=30)
    began: list[bool] = []

    def read(path: Path) -> bytes:
        if not began:  # each process is now in front of its first picture
            began.append(True)
            both.wait()
        return path.read_bytes()

    def overlap(image: Image) -> None:
        shared[overlapped] |= shared[inside]
        shared[inside] = 1
        time.sleep(0.05)
        shared[inside] = 0

    while_decoding(monkeypatch, overlap)
    sources = [Source(x.id, partial(read, Path(str(x.where)))) for x in sources_in(tmp_path, 4)]
    assert len(load(sources, split(4, 2), 2, recipe=replace(FAST, workers=2))) == 2
    assert not shared[overlapped]


def test_a_process_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wallclock.loader.processes._END_S", 0.2)
    began = mmap.mmap(-1, 1)

    def hang(image: Image) -> None:
        began[0] = 1
        time.sleep(5)

    while_decoding(monkeypatch, hang)
    with open_loader(sources_in(tmp_path, 2), [[0], [1]], OPTIONS, 2):
        children = multiprocessing.active_children()
        while not began[0]:
            time.sleep(0.01)
    assert -signal.SIGKILL in [child.exitcode for child in children]


def test_what_a_process_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(image: Image) -> None:
        raise UserError(f"not in process {os.getpid()}")

    while_decoding(monkeypatch, refuse)
    with (
        pytest.raises(UserError, match=r"not in process \d+") as caught,
        open_loader(sources_in(tmp_path, 8), split(8, 2), OPTIONS, 2) as loader,
    ):
        next(loader)
    assert str(os.getpid()) not in str(caught.value)


def test_a_process_is_killed(tmp_path: Path) -> None:
    sources = sources_in(tmp_path, 4)
    batches = [range(4)] * 1000
    with open_loader(sources, batches, OPTIONS, 2) as loader:
        next(loader)
        os.kill(multiprocessing.active_children()[0].pid or 0, signal.SIGKILL)
        with pytest.raises(UserError, match=r"process ended with -9: .* set processes=1"):
            list(loader)


def test_a_signal_while_they_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is raised once all of them have started, which are then ended."""
    real = ForkedLoader._start

    def start(loader: ForkedLoader, number: int) -> None:
        real(loader, number)
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)

    monkeypatch.setattr(ForkedLoader, "_start", start)
    loader = open_loader(sources_in(tmp_path, 4), split(4, 2), OPTIONS, 2)
    with pytest.raises(KeyboardInterrupt):
        loader.__enter__()
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


@pytest.mark.parametrize("signal_number", [signal.SIGKILL, signal.SIGINT])
def test_the_consumer_is_killed(tmp_path: Path, signal_number: int) -> None:
    """Ctrl-C reaches every process of a terminal; the consumer ends the others."""
    paths = [str(source.where) for source in sources_in(tmp_path, 4)]
    with start_python("-c", SCRIPT, *paths) as consumer:
        assert consumer.stdout is not None
        children = [psutil.Process(int(pid)) for pid in consumer.stdout.readline().split()]
        assert len(children) == 3
        if signal_number == signal.SIGINT:
            os.killpg(consumer.pid, signal_number)
        else:
            consumer.kill()
        _, errors = consumer.communicate(timeout=30)
    _, alive = psutil.wait_procs(children, timeout=30)
    assert not alive
    tracebacks = 1 if signal_number == signal.SIGINT else 0
    assert errors.count("Traceback") == tracebacks, errors


def test_forked_beside_threads_in_inference_mode(tmp_path: Path) -> None:
    """As a job's main thread may be, with a pool of torch's threads."""
    torch = pytest.importorskip("torch")
    torch.ones(1000, 1000) @ torch.ones(1000, 1000)
    over = threading.Event()
    other = threading.Thread(target=over.wait)
    other.start()
    sources = sources_in(tmp_path, 6)
    expected = load(sources, split(6, 2))
    try:
        with torch.inference_mode():
            batches = load(sources, split(6, 2), processes=2)
    finally:
        over.set()
        other.join()
    assert [batch.pixels for batch in batches] == [batch.pixels for batch in expected]
    assert np.frombuffer(batches[0].pixels, np.uint8).any()


LIBRARY_OPTIONS: list[dict[str, Any]] = [
    {"epochs": 2, "shuffle": True, "seed": 3, "output": "float16"},
    {"epochs": 2, "augment": True, "seed": 4},
    {"shard": (1, 2), "drop_last": True, "epochs": 3, "preprocess": "shortest:40,crop:24x24"},
]


@pytest.mark.parametrize("options", LIBRARY_OPTIONS)
def test_images_opened_by_processes(tmp_path: Path, options: dict[str, Any]) -> None:
    """The same batches as by threads, also from the middle on."""
    sources_in(tmp_path, 11, damaged=7)
    opened = [
        open_images(tmp_path, SIZE, 2, workers=Workers(3, processes=n), **options) for n in (1, 3)
    ]
    by_threads, by_processes = ([copy_of(batch) for batch in batches] for batches in opened)
    assert by_processes == by_threads
    assert any(batch.ids for batch in by_threads)

    state = {**opened[0].state_dict(), "epoch": 0, "batches": 1}
    opened[1].load_state_dict(state)
    with opened[1]:
        assert copy_of(next(opened[1])) == by_threads[1]
        assert len(multiprocessing.active_children()) == 3


def test_abandoned_processes_end(tmp_path: Path) -> None:
    sources_in(tmp_path, 4)
    leaked = [open_images(tmp_path, SIZE, 1, workers=Workers(processes=2), epochs=1000)]
    next(leaked[0])
    children = multiprocessing.active_children()
    assert len(children) == 2
    with pytest.warns(ResourceWarning, match="neither finished nor closed"):
        leaked.clear()
    for child in children:
        child.join(10)
        assert child.exitcode == 0


def test_what_processes_cannot_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wallclock.machine.require_cuda", lambda what: None)
    two = Workers(processes=2)
    with pytest.raises(UserError, match="processes=2: output=pin needs processes=1"):
        open_images([making.jpeg()], output="pin", workers=two)
    for items in ([io.BytesIO(making.jpeg())], [("id", io.BytesIO(making.jpeg()))]):
        with pytest.raises(UserError, match=r"processes=2: an open file, .* needs processes=1"):
            open_images(items, workers=two)
    with pytest.raises(UserError, match="processes=0: give a whole number of at least 1"):
        Workers(processes=0)


def _load_in_processes(folder: Path, answers: Any) -> None:
    try:
        with open_images(folder, SIZE, 2, workers=Workers(processes=2)) as batches:
            answers.put(sum(len(batch.ids) for batch in batches))
    except UserError as error:
        answers.put(str(error))


def test_a_daemonic_process_cannot_fork(tmp_path: Path) -> None:
    """As a worker of a pool is, or of a DataLoader."""
    sources_in(tmp_path, 4)
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()
    child = context.Process(target=_load_in_processes, args=(tmp_path, answers), daemon=True)
    child.start()
    assert "processes=2: this process is daemonic" in answers.get()
    child.join(10)


@pytest.mark.parametrize("workers", [Workers(2), Workers(2, processes=2)])
def test_held_batches_stay_as_they_are(tmp_path: Path, workers: Workers) -> None:
    """Up to `hold` beside the latest, however many others come and go."""
    sources_in(tmp_path, 12)
    with open_images(tmp_path, SIZE, 1, workers=workers) as batches:
        expected = [batch.images.copy() for batch in batches]
    output = Output(hold=3)
    with open_images(tmp_path, SIZE, 1, output=output, workers=workers) as batches:
        kept = [(0, next(batches)), (1, next(batches)), (2, next(batches))]
        for number in range(3, 9):
            del kept[number % 3]
            kept.insert(number % 3, (number, next(batches)))
            for at, batch in kept:
                np.testing.assert_array_equal(batch.images, expected[at])
        kept.append((9, next(batches)))
        with pytest.raises(UserError, match="4 batches are held at a time; keep copies"):
            next(batches)
    for at, batch in kept:
        np.testing.assert_array_equal(batch.images, expected[at])


def test_a_failure_says_whether_the_image_was_reached() -> None:
    """Also when it comes from a process, pickled."""
    chunk = Chunk(0, 0, 0, [0, 1])
    unreached = NotReachedError("read", "HTTP 503", "all")
    chunk.fail("a", ImageError("read", "HTTP 404"))
    chunk.fail("b", pickle.loads(pickle.dumps(unreached)))
    assert chunk.failures == [
        {"id": "a", "stage": "read", "reason": "HTTP 404"},
        {"id": "b", "stage": "read", "reason": "HTTP 503", "unreached": "all"},
    ]
