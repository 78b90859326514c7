"""Decoders, resizers, readers and writers under the trace: their names, images and sizes."""

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import making
from tests.wallclock.trace.programs import Done, trace, write
from wallclock import native
from wallclock.trace.inside import notes
from wallclock.trace.inside.notes import size_of

HAS_NATIVE = native.find() is not None
PROGRAM = """
import functools, http.server, io, json, os, sys, threading, urllib.request
import cv2, numpy, simplejpeg

data = open("photo.jpg", "rb").read()
array = cv2.imdecode(numpy.frombuffer(data, numpy.uint8), cv2.IMREAD_COLOR)
cv2.resize(array, (10, 20))
assert cv2.imread("photo.jpg", cv2.IMREAD_REDUCED_COLOR_2).shape == (150, 200, 3)
assert cv2.imread(os.devnull) is None
simplejpeg.decode_jpeg(data, min_width=100, min_height=75, min_factor=1)

class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *words):
        pass

server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet)
threading.Thread(target=server.serve_forever, daemon=True).start()
assert urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/photo.jpg").read() == data
server.shutdown()

numpy.save("vectors.npy", numpy.zeros(3))
json.dump({}, io.StringIO())
import wallclock
with wallclock.open_images("images", size=32, batch=2) as batches:
    assert sum(len(batch.ids) for batch in batches) == 3
"""


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Done:
    folder = tmp_path_factory.mktemp("libraries")
    (folder / "photo.jpg").write_bytes(making.jpeg(400, 300))
    (folder / "images").mkdir()
    for number in range(3):
        (folder / "images" / f"{number}.jpg").write_bytes(making.jpeg(64, 48, seed=number))
    done = trace(write(folder, PROGRAM), cwd=folder)
    assert done.trace.exit_code == 0, done.stderr
    return done


@pytest.mark.parametrize(
    ("stage", "name", "calls", "images"),
    [
        ("decode", "cv2.imdecode", 1, 1),
        ("decode", "cv2.imread", 2, 1),
        ("decode", "simplejpeg.decode_jpeg", 1 if HAS_NATIVE else 4, 1 if HAS_NATIVE else 4),
        ("decode", "wallclock decode", 3 if HAS_NATIVE else 0, 3 if HAS_NATIVE else 0),
        ("resize", "cv2.resize", 1, 1),
        ("read", "http.client.HTTPResponse.read", 1, 1),
        ("read", "wallclock read", 3, 3),
        ("serialize", "numpy.save", 1, 0),
        ("serialize", "json.dump", 1, 0),
    ],
)
def test_calls_and_images(stage: str, name: str, calls: int, images: int, libraries: Done) -> None:
    assert libraries.calls(stage, name) == calls
    threads = [thread for process in libraries.trace.processes for thread in process.threads]
    spent = [
        entry
        for thread in threads
        for function, entry in thread.spent.items()
        if (function.stage, function.name) == (stage, name)
    ]
    assert sum(entry.images for entry in spent) == images


def test_sizes(libraries: Done) -> None:
    sizes = {
        (kind.function.name, kind.format, kind.source, kind.made): (kind.count, kind.n_bytes)
        for kind in libraries.trace.images
    }
    n_bytes = len(making.jpeg(400, 300))
    full = (400, 300)
    assert sizes["cv2.imdecode", "JPEG", full, full] == (1, n_bytes)
    assert sizes["cv2.imread", "JPEG", full, (200, 150)] == (1, n_bytes)
    assert sizes["simplejpeg.decode_jpeg", "JPEG", full, (100, 75)] == (1, n_bytes)
    assert sizes["cv2.resize", "", full, (10, 20)] == (1, 0)


def test_the_loaders_threads_are_workers(libraries: Done) -> None:
    assert len(libraries.trace.threads(of_workers=True)) >= 1
    assert libraries.calls("wait", "wallclock.Images") == 3  # two batches, and the end


@pytest.mark.parametrize(
    ("data", "header"),
    [
        (making.jpeg(40, 30), ("JPEG", (40, 30))),
        (making.jpeg(40, 30, progressive=True), ("progressive JPEG", (40, 30))),
        (making.encode(making.picture(40, 30), "PNG"), ("PNG", None)),
        (making.encode(making.picture(40, 30), "WEBP"), ("WEBP", None)),
        (making.encode(making.picture(40, 30), "GIF"), ("GIF", None)),
        (making.encode(making.picture(40, 30), "AVIF"), ("AVIF", None)),
        (b"\xff\xd8\xff\xe0" + struct.pack(">H", 50) + b"\0" * 9, ("JPEG", None)),
        (b"text of a file", ("", None)),
        (b"", ("", None)),
    ],
)
def test_headers(data: bytes, header: tuple[str, tuple[int, int] | None]) -> None:
    assert notes.read_header(data) == header
    assert notes.read_header(memoryview(data)) == header


@given(st.binary(max_size=60), st.integers(0, 200))
def test_no_header_raises(junk: bytes, cut: int) -> None:
    """Nor does one that goes on for ever."""
    notes.read_header(junk)
    notes.read_header(b"\xff\xd8\xff" + junk)
    notes.read_header(making.jpeg(16, 16)[:cut] + junk)


def test_formats_by_the_names_of_files() -> None:
    assert notes.format_by_name(Path("a/b.JPG")) == "JPEG"
    assert notes.format_by_name("a.tiff") == "TIFF"
    assert notes.format_by_name("jpg") == "JPEG"
    assert notes.format_by_name("a.txt") == ""


@pytest.mark.parametrize(
    "shape", [(30, 40), (30, 40, 3), (3, 30, 40), (1, 30, 40), (30, 40, 1), (8, 3, 30, 40)]
)
def test_width_and_height_of_arrays(shape: tuple[int, ...]) -> None:
    assert size_of(shape) == (40, 30)
