"""The library: any source, each image once, resumed exactly, and no thread left behind."""

import gc
import io
import os
import random
import re
import socketserver
import sys
import threading
import weakref
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests import making
from tests.running import run_python
from tests.test_fuzz import mutate, seeds
from tests.threaded_server import FileHandler, ThreadedServer
from wallclock.check import validate
from wallclock.errors import ImageError, UserError, install_hint
from wallclock.fetch.sources import Source
from wallclock.loader.images import open_images
from wallclock.loader.opener import LoaderOptions, open_loader
from wallclock.loader.output import Workers
from wallclock.recipe import FAST, Limits
from wallclock.stages.augment import Augment

#: An answer of which half has come.
KEPT_ALIVE = b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nhalf"
FILES = [making.jpeg(48, 40, seed) for seed in range(11)]


def positions_of(**options: Any) -> list[list[int]]:
    with open_images(FILES, 8, **options) as batches:
        return [list(batch.positions) for batch in batches]


def test_the_public_surface_is_lazy() -> None:
    """`import wallclock` loads nothing heavy, and the loader nothing of the suite's."""
    program = (
        "import sys, wallclock\n"
        "heavy = 'torch PIL numpy pyarrow hydra transformers'.split()\n"
        "assert not [name for name in heavy if name in sys.modules]\n"
        "public = [getattr(wallclock, name) for name in wallclock.__all__ if name != 'embed']\n"
        "theirs = 'torch cv2 pyarrow hydra lmdb orjson psutil pynvml boto3 pycurl'.split()\n"
        "assert not [name for name in theirs if name in sys.modules]\n"
    )
    assert run_python("-c", program).returncode == 0


def test_every_kind_of_source(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(FILES[0])
    (tmp_path / "large.jpg").write_bytes(making.jpeg(400, 300))
    os.mkfifo(tmp_path / "pipe.jpg")
    png = making.encode(making.picture(60, 50), "PNG")
    items: list[Any] = [
        str(tmp_path / "a.jpg"),
        tmp_path / "a.jpg",
        FILES[0],
        bytearray(FILES[0]),
        io.BytesIO(FILES[0]),
        ("mine", FILES[0]),
        png,
        tmp_path / "none.jpg",
        tmp_path / "pipe.jpg",
        tmp_path,
        tmp_path / "large.jpg",
        b"",
    ]
    limits = Limits(max_bytes=len(png) + 1)
    with open_images(items, 16, 20, epochs=2, workers=Workers(2, limits=limits)) as batches:
        first, second = batches
    assert first.ids == [str(items[0]), str(items[1]), "2", "3", "4", "mine", "6"]
    np.testing.assert_array_equal(first.images[1:6], np.stack([first.images[0]] * 5))
    np.testing.assert_array_equal(first.images, second.images)
    failures = {Path(row["id"]).name: (row["stage"], row["reason"]) for row in first.failures}
    assert failures["none.jpg"] == ("read", "No such file or directory")
    assert failures["pipe.jpg"] == ("read", "not a regular file")
    assert failures[tmp_path.name] == ("read", "not a regular file")
    assert "over the limit of" in failures["large.jpg"][1]
    assert failures["11"] == ("read", "empty file")


def test_a_folder_by_content(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "no-extension").write_bytes(FILES[0])
    (tmp_path / "b.jpg").write_bytes(FILES[1][:-40])
    (tmp_path / "notes.txt").write_text("no image")
    with open_images(tmp_path, 8) as batches:
        (batch,) = batches
    assert (batch.ids, batch.positions) == (["sub/no-extension"], [1])
    assert [row["id"] for row in batch.failures] == ["b.jpg"]


@pytest.mark.parametrize("workers", [Workers(2), Workers(2, processes=2)])
def test_urls(workers: Workers) -> None:
    """Many more are asked for at a time than a few small batches have."""
    all_asked, asked = threading.Barrier(48, timeout=60), list[str]()

    class Handler(FileHandler):
        def answer(self) -> None:
            asked.append(self.path)
            all_asked.wait()
            data = b"" if "none" in self.path else FILES[0]
            self.reply(200 if data else 404, {"Content-Length": str(len(data))}, data)

    with ThreadedServer(Handler) as server:
        urls = [f"{server.endpoint}/{at}" for at in range(95)] + [f"{server.endpoint}/none"]
        with open_images(urls, 8, 2, workers=workers) as images:
            batches = [(batch.ids, [row["reason"] for row in batch.failures]) for batch in images]
    assert [name for ids, _ in batches for name in ids] == urls[:-1]
    assert batches[-1][1] == ["HTTP 404"]
    assert len(asked) == len(urls)


@pytest.mark.timeout(8)  # below the read's time limit
@pytest.mark.parametrize("sent", [b"", b"HTTP/1.0 200 OK\r\n\r\nhalf", KEPT_ALIVE])
def test_closing_does_not_wait_for_a_silent_server(sent: bytes) -> None:
    """The server, which never answers or never ends, sees its connection end."""
    asked, ended = threading.Event(), threading.Event()

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            while self.rfile.readline().strip():
                pass
            self.wfile.write(sent)
            asked.set()
            with suppress(ConnectionResetError):
                assert self.rfile.read(1) == b""
            ended.set()

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,)).start()
        try:
            url = f"http://127.0.0.1:{server.server_address[1]}/a.jpg"
            with open_loader(
                [Source("a", url)], [[0]], LoaderOptions.of(8, replace(FAST, workers=1))
            ):
                assert asked.wait(5)
            assert ended.wait(5)
        finally:
            server.shutdown()


@pytest.mark.parametrize(
    ("url", "library"), [("https://a.example/b.jpg", "pycurl"), ("s3://bucket/b.jpg", "boto3")]
)
def test_a_missing_library_is_one_line(
    url: str, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with (
        pytest.raises(UserError, match=f"{library}.*{re.escape(install_hint('s3'))}"),
        open_images([url]) as batches,
    ):
        next(batches)


@pytest.mark.filterwarnings("ignore::UserWarning")  # Pillow's, of damaged metadata
def test_what_validation_refuses_is_refused_here() -> None:
    """200 mutated files: but for what Pillow alone cannot identify, the same verdict."""
    rng = random.Random(3)
    files = seeds()
    limits = Limits(max_pixels=4_000_000)
    mutated = [mutate(rng.choice(files), rng, files) for _ in range(200)]
    with open_loader(
        [Source("", data) for data in mutated], [[*range(200)]], LoaderOptions.of(8)
    ) as loader:
        (batch,) = loader
    reasons = [reason_to_refuse(data, limits) for data in mutated]
    assert {at for at, reason in enumerate(reasons) if not reason} <= set(batch.positions) != set()
    assert all("cannot identify" in reasons[at] for at in batch.positions if reasons[at])


def reason_to_refuse(data: bytes, limits: Limits) -> str:
    try:
        validate(data, limits)
    except ImageError as error:
        return error.reason
    return ""


def test_each_iteration_is_the_next_epoch() -> None:
    with open_images(FILES, 8, shuffle=True) as batches:
        epochs = [[at for batch in batches for at in batch.positions] for _ in range(3)]
        assert batches.epoch == 2
        first = list(next(iter(batches)).positions)
        assert first + [at for batch in batches for at in batch.positions] not in epochs
    assert epochs == [positions_of(shuffle=True, epochs=3)[epoch] for epoch in range(3)]
    assert len({tuple(epoch) for epoch in epochs}) == 3
    assert positions_of(shuffle=True, seed=1) != positions_of(shuffle=True)


def test_an_epoch_that_is_set_is_in_the_state() -> None:
    state = open_images(FILES, 8, 2, shuffle=True)
    everything = positions_of(shuffle=True, batch=2, epochs=4)
    n, resumed = len(state), open_images(FILES, 8, 2, shuffle=True)
    with state as batches, resumed:
        batches.set_epoch(2)
        resumed.load_state_dict(batches.state_dict())
        assert resumed.epoch == 2
        assert list(next(resumed).positions) == everything[2 * n]
        resumed.load_state_dict(resumed.state_dict())
        resumed.set_epoch(2)  # as a loop over epochs does: the rest of it
        assert [list(batch.positions) for batch in resumed] == everything[2 * n + 1 : 3 * n]
        resumed.load_state_dict(batches.state_dict())
        resumed.set_epoch(3)
        assert [list(batch.positions) for batch in resumed] == everything[3 * n :]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"batch": 0}, "batch=0: give a whole number from 1 to 65536"),
        ({"size": 0}, "size=0: give a height and a width of 1 to 8192 pixels"),
        ({"size": "224"}, "size='224': give a height and a width"),
        ({"size": (1, 2, 3)}, r"size=\(1, 2, 3\): give a height and a width"),
        ({"epochs": float("inf")}, "epochs=inf: give a whole number"),
        ({"shard": (2, 2)}, r"shard\[0\]=2: give a whole number from 0 to 1"),
        ({"shard": 2}, "shard=2: give rank and world size"),
        ({"output": "flaot32"}, "did you mean float32"),
        ({"output": "bfloat16"}, "use output=torch,bfloat16"),
        ({"augment": Augment(scale=(0.5, 0.6)), "preprocess": "none,crop:8"}, "augment"),
        ({"items": "/none/such"}, "is not a folder"),
        ({"items": ""}, "'' is not a folder"),
        ({"items": b"abc"}, "a bytes is one item"),
        ({"items": 3}, "int: give a folder"),
        ({"items": [3]}, "item 0 is a int"),
        ({"items": [{"picture": 3}]}, "item 0 has picture: give the image under the key image"),
        ({"items": iter(FILES), "epochs": 2}, "an iterator has one"),
        ({"items": iter(FILES), "workers": Workers(processes=2)}, "a stream needs processes=1"),
    ],
)
def test_mistakes_are_one_line(options: dict[str, Any], words: str) -> None:
    arguments: dict[str, Any] = {"items": FILES} | options
    with pytest.raises(UserError, match=words):
        next(open_images(**arguments))


@pytest.mark.parametrize("items", [FILES, iter(FILES)])
def test_a_closed_loader_is_freed_at_once(items: Any) -> None:
    """Its buffers do not wait for the garbage collector, epoch after epoch."""
    with open_images(items, 8, workers=2) as batches:
        next(batches)
        loader: Any = batches._loader
        buffers = [weakref.ref(buffer) for buffer in loader._ring.buffers]
        del loader
        gc.collect()
        gc.disable()
    try:
        assert [buffer() for buffer in buffers] == [None] * len(buffers)
    finally:
        gc.enable()


def test_a_leaked_loader_warns_and_its_threads_end() -> None:
    leaked = [open_images(FILES, 8, batch=1)]
    next(leaked[0])
    threads = [thread for thread in threading.enumerate() if thread.name.startswith("loader")]
    assert threads
    with pytest.warns(ResourceWarning, match="neither finished nor closed"):
        leaked.clear()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()


@torch.inference_mode()
def test_a_finished_iteration_needs_no_close_in_inference_mode_too() -> None:
    assert sum(len(batch.ids) for batch in open_images(FILES, 8)) == 11


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_children_open_their_own(method: str, tmp_path: Path) -> None:
    """Also beside a parent whose own threads run."""
    program = (
        "import multiprocessing, sys\n"
        "from wallclock.loader.images import open_images\n"
        "from tests import making\n"
        "FILES = [making.jpeg(seed=seed) for seed in range(11)]\n"
        "def count(_):\n"
        "    with open_images(FILES, 8, 2) as batches:\n"
        "        return sum(len(batch.ids) for batch in batches)\n"
        "if __name__ == '__main__':\n"
        "    with open_images(FILES, 8, 2) as batches:\n"
        "        next(batches)\n"
        f"        with multiprocessing.get_context({method!r}).Pool(2) as pool:\n"
        "            print(pool.map(count, range(2)), sum(len(batch.ids) for batch in batches))\n"
    )
    (tmp_path / "children.py").write_text(program)
    done = run_python(tmp_path / "children.py")
    assert done.stdout.strip() == "[11, 11] 9", done.stderr


def test_training_images_are_augmented_anew_each_epoch() -> None:
    def images(seed: int) -> list[Any]:
        options: dict[str, Any] = {"seed": seed, "epochs": 2, "augment": True}
        with open_images(FILES, 24, 11, output="torch", **options) as batches:
            return [batch.images for batch in batches]

    first = images(1)
    again = images(1)
    other = images(2)
    assert first[0].shape == (11, 24, 24, 3)
    assert not first[0].equal(first[1])
    assert not first[0].equal(other[0])
    assert all(batch.equal(same) for batch, same in zip(first, again, strict=True))
