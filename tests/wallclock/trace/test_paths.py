"""Which files `--try` loads again: the paths that a program's decodes leave."""

import tarfile
from pathlib import Path

import pytest

from tests import making
from tests.wallclock.trace.programs import ENVIRONMENT, write
from wallclock.trace.collect import collect, read
from wallclock.trace.inside import layout
from wallclock.trace.inside.tracer import Tracer
from wallclock.trace.run import Ended, run

PRELUDE = """
import io, os, sys
from pathlib import Path
from PIL import Image
"""
#: A way to open `a.jpg` → whether its path is kept.
OPENINGS = {
    "Image.open('a.jpg').load()": True,
    "Image.open(Path('a.jpg')).convert('RGB')": True,
    "Image.open(open('a.jpg', 'rb')).load()": True,
    "Image.open(open(Path('a.jpg'), 'rb')).load()": True,
    "Image.open(io.BytesIO(open('a.jpg', 'rb').read())).load()": True,
    "Image.open(io.BytesIO(Path('a.jpg').read_bytes())).load()": True,
    "os.chdir('folder'); Image.open('../a.jpg').load()": True,
    "import cv2; cv2.imread('a.jpg')": True,
    "import cv2, numpy; cv2.imdecode(numpy.frombuffer(open('a.jpg','rb').read(), 'u1'), 1)": True,
    "import simplejpeg; simplejpeg.decode_jpeg(Path('a.jpg').read_bytes())": True,
    "import tvision; tvision.decode_jpeg(tvision.read_file('a.jpg'))": True,
    # Of no image file.
    "Image.open(io.BytesIO(DATA)).load()": False,
    "import tarfile; Image.open(tarfile.open('t.tar').extractfile('a.jpg')).load()": False,
    "Image.open(open(os.open('a.jpg', os.O_RDONLY), 'rb')).load()": False,
}
#: Stands in for torchvision's reader: a module of its name among the program's files.
READER = """
import numpy, simplejpeg

def read_file(path):
    return numpy.fromfile(path, numpy.uint8)

def decode_jpeg(data):
    return simplejpeg.decode_jpeg(data.tobytes())
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two photos of different lengths, a tar with one of them, and a folder."""
    (tmp_path / "a.jpg").write_bytes(making.jpeg(64, 48))
    (tmp_path / "b.jpg").write_bytes(making.jpeg(128, 96, seed=1))
    with tarfile.open(tmp_path / "t.tar", "w") as tar:
        tar.add(tmp_path / "a.jpg", "a.jpg")
    (tmp_path / "folder").mkdir()
    return tmp_path


def paths_of(
    folder: Path, source: str, monkeypatch: pytest.MonkeyPatch, *, records: bool = True
) -> list[str]:
    """What a program leaves that runs in this folder."""
    counters = folder / "counters"
    counters.mkdir(exist_ok=True)
    monkeypatch.chdir(folder)
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    program = write(folder, PRELUDE + source)
    ended = run([str(program)], counters, records_paths=records)
    assert ended.status == 0
    return list(collect(counters, ended).paths)


def paths_in(folder: Path) -> tuple[str, ...]:
    return collect(folder, Ended(("program.py",), 1, 0, 0, 100)).paths


def test_each_way_to_open_an_image(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each in a process of its own, forked from one program: a way in a process, by its number."""
    vision = folder / "torchvision" / "io"
    vision.mkdir(parents=True)
    (vision / "__init__.py").write_text("")
    (vision.parent / "__init__.py").write_text("")
    (vision / "image.py").write_text(READER)
    source = [
        "import cv2, numpy, simplejpeg, torchvision.io.image as tvision",
        "sys.modules['tvision'] = tvision",
        f"DATA = {making.jpeg(64, 48)!r}",
        f"for number, way in enumerate({list(OPENINGS)!r}):",
        "    child = os.fork()",
        "    if not child:",
        "        exec(way)",
        "        Path(f'{os.environ[\"HERE\"]}/pid-{os.getpid()}').write_text(str(number))",
        "        os._exit(0)",
        "    assert os.waitpid(child, 0)[1] == 0, way",
    ]
    monkeypatch.setenv("HERE", str(folder))
    assert paths_of(folder, "\n".join(source), monkeypatch) == [str(folder / "a.jpg")]
    kept = {}
    for number in folder.glob("pid-*"):
        pid = number.name.removeprefix("pid-")
        (counters,) = (folder / "counters").glob(f"{pid}-*{layout.COUNTERS}")
        of_child = read(counters)
        assert of_child is not None
        kept[int(number.read_text())] = bool(of_child.paths)
    assert {way: kept[number] for number, way in enumerate(OPENINGS)} == OPENINGS


def test_nothing_is_kept_unless_asked(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = "Image.open('a.jpg').load()"
    assert paths_of(folder, source, monkeypatch, records=False) == []


def test_the_first_ones_each_once(tmp_path: Path) -> None:
    """What cannot be a line of text is left out."""
    for pid in range(2):
        tracer = Tracer(str(tmp_path), clock=iter(range(pid, 100)).__next__, tries=True)
        for number in (-1, *range(layout.N_PATHS + 10), 0):
            tracer.write_path(f"/photos/{pid}{number}.jpg")
        tracer.write_path("/a\tb.jpg")
        tracer.write_path(b"/c\xff.jpg")
        tracer.write_path(7)
    kept = paths_in(tmp_path)
    assert len(kept) == len(set(kept)) == 2 * layout.N_PATHS
    assert kept[:3] == ("/photos/0-1.jpg", "/photos/00.jpg", "/photos/01.jpg")
