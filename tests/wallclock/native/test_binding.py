"""What Python sees of the native module: files, plans, rows, and what does not fit."""

import errno
import os
import shutil
import sysconfig
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import simplejpeg

from tests import making
from tests.wallclock.native.conftest import Guarded
from wallclock import native

MOST = 1 << 30


def can_compile() -> bool:
    headers = Path(sysconfig.get_path("include"), "Python.h")
    return shutil.which("gcc") is not None and headers.is_file()


@pytest.mark.skipif(not can_compile(), reason="nothing here compiles it")
def test_it_was_compiled() -> None:
    """Or all its tests would be skipped: `make native` says what is wrong."""
    assert native.find() is not None, native.described()


def plan_of(module: Any, data: bytes, denominator: int = 1) -> Any:
    height, width = simplejpeg.decode_jpeg_header(data)[:2]
    size = -(-height // denominator), -(-width // denominator)
    return module.Plan((height, width), size, denominator=denominator)


def empty_row(data: bytes) -> np.ndarray:
    return np.empty((*simplejpeg.decode_jpeg_header(data)[:2], 3), np.uint8)


def test_files_and_bytes(module: Any, tmp_path: Path) -> None:
    """Each item has its header; what is filled has the decoder's pixels."""
    datas = [making.jpeg(70, 50, seed=1), making.jpeg(33, 99, seed=2), making.jpeg(8, 8, seed=3)]
    (tmp_path / "ä.jpg").write_bytes(datas[0])
    chunk = module.open([str(tmp_path / "ä.jpg"), datas[1], memoryview(datas[2])], MOST)
    rows = [empty_row(data) for data in datas]
    filled = chunk.fill([plan_of(module, data) for data in datas], rows)
    for i, data in enumerate(datas):
        status, n_bytes, _, width, height, sof, components, *_ = chunk.headers[i]
        assert (status, n_bytes, sof, components) == (0, len(data), 0xC0, 3)
        assert chunk.bytes(i) == data
        assert rows[i].shape == (height, width, 3)
        assert np.array_equal(rows[i], simplejpeg.decode_jpeg(data))
        assert filled[i][0] == 0
        assert min(filled[i][1:]) >= 0


def test_what_cannot_be_read(module: Any, tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(making.jpeg())
    os.mkfifo(tmp_path / "pipe")
    names = ["missing", "", "pipe", "large"]
    chunk = module.open([str(tmp_path / name) for name in names], 100)
    numbers = [errno.ENOENT, errno.EINVAL, errno.EINVAL, errno.EFBIG]
    assert [header[0] for header in chunk.headers] == [-number for number in numbers]
    for i, number in enumerate(numbers):
        with pytest.raises(OSError, match=os.strerror(number)):
            chunk.bytes(i)
    with pytest.raises(ValueError, match="null"):
        module.open(["a\0b"], 100)
    with pytest.raises(TypeError):
        module.open([making.jpeg(), 3], 100)


def test_what_falls_back(module: Any) -> None:
    """The bytes are there for another decoder; other images of the chunk are decoded."""
    whole, cmyk = making.jpeg(40, 30, seed=4), making.jpeg(40, 30, seed=5, mode="CMYK")
    cut = whole[:-40]
    chunk = module.open([b"no image", cmyk, cut, whole], MOST)
    said = [module.STATUSES[header[0]] for header in chunk.headers]
    assert said[:2] == ["neither JPEG nor PNG", "another kind of image"]
    assert chunk.bytes(1) is cmyk
    row = empty_row(whole)
    assert chunk.fill([None] * 3 + [plan_of(module, whole)], [None] * 3 + [row])[3][0] == 0
    assert np.array_equal(row, simplejpeg.decode_jpeg(whole))
    if chunk.headers[2][0] == 0:
        filled = chunk.fill([None, None, plan_of(module, whole), None], [row] * 4)
        assert module.STATUSES[filled[2][0]] == "irregular"


def test_plans_and_rows_that_do_not_fit(module: Any) -> None:
    data = making.jpeg(40, 30, seed=6)
    chunk = module.open([data], MOST)
    plan, row = plan_of(module, data), empty_row(data)
    half = plan_of(module, data, 2)
    others: list[Any] = [
        row[1:],
        row[:, ::2],
        row[..., :2],
        row.astype(np.float32),
        row.astype(np.int8),
        row[None],
        row.transpose(1, 0, 2),
    ]
    for other in others:
        with pytest.raises(ValueError, match="px"):
            chunk.fill([plan], [other])
    with pytest.raises(ValueError, match="px"):
        chunk.fill([half], [row])
    with pytest.raises(ValueError, match="another size"):
        chunk.fill([module.Plan((30, 41), (30, 40))], [row])
    for plans, rows in (([], []), ([plan], []), ([plan, plan], [row, row])):
        with pytest.raises(ValueError, match="1 plans and rows"):
            chunk.fill(plans, rows)
    values = module.Normalization(np.zeros((3, 256), np.float32), (0, 0, 0), (1, 1, 1))
    unaligned = np.zeros(3 * 30 * 40 * 4 + 1, np.uint8)[1:].view(np.float32).reshape(3, 30, 40)
    for other in (row, unaligned, np.zeros((3, 30, 40), np.float16), np.zeros((30, 40, 3), "f")):
        with pytest.raises(ValueError, match="px"):
            chunk.fill([plan], [other], values)
    with pytest.raises(ValueError, match="Capsule"):
        chunk.fill([plan], [row], 3)
    with pytest.raises(ValueError, match="Capsule"):
        chunk.fill([values], [row])
    row.flags.writeable = False
    with pytest.raises((ValueError, BufferError), match="read-only"):
        chunk.fill([plan], [row])
    with pytest.raises(IndexError):
        chunk.bytes(1)


@pytest.mark.parametrize(
    "arguments",
    [
        {"crop": (0, 0, 31, 40)},
        {"crop": (-1, 0, 10, 10)},
        {"crop": (0, 30, 10, 11)},
        {"crop": (2**31 - 1, 0, 10, 10)},
        {"window": (0, 0, 0, 1)},
        {"window": (5, 0, 6, 10)},
        {"extent": (29.0, 40.0)},
        {"extent": (30.5, 40.0)},
        {"extent": (float("nan"), 40.0)},
        {"denominator": 3},
    ],
)
def test_plans_of_no_image(module: Any, arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="40 x 30"):
        module.Plan((30, 40), (10, 10), **arguments)
    for size, resized in (((0, 40), (10, 10)), ((30, -1), (10, 10)), ((30, 40), (0, 10))):
        with pytest.raises(ValueError, match="no such part"):
            module.Plan(size, resized)


@pytest.mark.parametrize("progressive", [False, True])
def test_reads_end_at_the_file(module: Any, guarded: Guarded, progressive: bool) -> None:
    for seed, (width, height) in enumerate([(1, 1), (17, 9), (64, 64), (200, 131)]):
        data = making.jpeg(width, height, seed=seed, progressive=progressive)
        memory = guarded(len(data))
        memory[:] = np.frombuffer(data, np.uint8)
        for n in range(0, len(data), 1 + len(data) // 50):
            module.open([memory[n:], memory[len(data) - n :]], MOST)
        row = empty_row(data)
        assert module.open([memory], MOST).fill([plan_of(module, data)], [row])[0][0] == 0
        assert np.array_equal(row, simplejpeg.decode_jpeg(data))


def test_threads_have_memory_of_their_own(module: Any) -> None:
    """And give it back: threads that end do not add up."""
    datas = [making.jpeg(300 + i, 200, seed=i) for i in range(4)]
    expected = [simplejpeg.decode_jpeg(data) for data in datas]
    wrong: list[int] = []

    def decode(i: int) -> None:
        row = empty_row(datas[i])
        for _ in range(10):
            module.open([datas[i]], MOST).fill([plan_of(module, datas[i])], [row])
            if not np.array_equal(row, expected[i]):
                wrong.append(i)

    def run() -> int:
        threads = [threading.Thread(target=decode, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    run()
    before = run()
    for _ in range(20):
        after = run()
    assert not wrong
    assert after - before < 8 << 20
