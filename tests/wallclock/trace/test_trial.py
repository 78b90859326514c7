"""`--try`: `open_images` on the files that a program decodes, and the gain that follows."""

import json
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests import making
from tests.wallclock.trace import traces
from tests.wallclock.trace.programs import ENVIRONMENT, write
from tests.wallclock.trace.test_command import finish, start
from wallclock.errors import UserError
from wallclock.trace import trial
from wallclock.trace.collect import collect, read
from wallclock.trace.inside import layout
from wallclock.trace.inside.tracer import Tracer
from wallclock.trace.record import Trace
from wallclock.trace.run import Ended, run
from wallclock.trace.shares import Shares
from wallclock.trace.trial import Trial, conclude, measure, try_loader
from wallclock.trace.work import job_of

N = 80


def program(**seconds: float) -> Trace:
    """Of one thread, ten images a second for eight seconds after start-up, on eight cores."""
    images = [traces.decoded(N), traces.resized(N)]
    device = "GPU" if "forward" in seconds else ""
    return traces.trace([traces.process([traces.thread(seconds, N)])], images, device=device)


def concluded(trace: Trace, *rates: float) -> Trial:
    shares = Shares(trace)
    job = job_of(shares)
    assert job is not None
    return conclude(shares, job, N, sorted(rates))


@pytest.mark.parametrize(
    ("seconds", "rate", "gain"),
    [
        ({"read": 0.1, "decode": 7.9}, 200, 20.0),
        ({"read": 0.1, "decode": 7.9}, 50, 5.0),
        ({"read": 0.1, "decode": 3.9, "forward": 4.0}, 200, 2.0),
        ({"read": 0.1, "decode": 3.9, "forward": 4.0}, 15, 1.5),
        ({"read": 0.1, "decode": 5.9, "serialize": 2.0}, 200, 4.0),
        ({"read": 0.1, "decode": 7.9}, 5, 0.5),
    ],
)
def test_the_gain_that_follows(seconds: dict[str, float], rate: float, gain: float) -> None:
    """Ten images a second become the loader's rate, or that of what is left of the program."""
    done = concluded(program(**seconds), rate, rate, rate).numbers["measured_gain"]
    assert done["speedup"] == pytest.approx(gain, rel=1e-3)
    assert done["low"] < done["speedup"] < done["high"]


def test_the_interval_has_the_passes() -> None:
    trace = program(read=0.1, decode=7.9)
    narrow, wide = concluded(trace, 100, 100, 100).numbers, concluded(trace, 200, 50, 100).numbers
    assert (wide["rates"], wide["img_per_s"]) == ([50, 100, 200], 100)
    assert wide["measured_gain"]["speedup"] == narrow["measured_gain"]["speedup"]
    assert wide["measured_gain"]["low"] < narrow["measured_gain"]["low"]
    assert wide["measured_gain"]["high"] > narrow["measured_gain"]["high"]
    assert wide["predicted_gain"] == narrow["predicted_gain"]


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, Any]]:
    """Paths and options that would be measured."""
    made: list[tuple[Any, Any]] = []

    def record(paths: Any, options: Any) -> list[float]:
        made.append((paths, options))
        return [200, 200, 200]

    monkeypatch.setattr(trial, "measure", record)
    return made


def test_files_that_exist_in_order_and_not_too_many(
    tmp_path: Path, requests: list[tuple[Any, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial, "_MOST_FILES", 3)
    paths = [str(tmp_path / f"{name}.jpg") for name in "fbdac"]
    for path in paths:
        Path(path).touch()
    made = replace(program(read=0.1, decode=7.9), paths=(str(tmp_path / "gone.jpg"), *paths))
    assert try_loader(made).numbers["img_per_s"] == 200
    assert requests == [(paths[:3], {"size": 224, "batch": 32})]


@pytest.mark.parametrize(
    ("trace", "says"),
    [
        (program(decode=7.9), "no file of the program's images is known here"),
        (replace(program(decode=7.9), images=(traces.decoded(N),)), "no size"),
        (traces.trace([traces.process([traces.thread({"decode": 5})])], []), "no image"),
        (program(wait=8.0), "no image"),
    ],
)
def test_nothing_to_try(trace: Trace, says: str, requests: list[tuple[Any, Any]]) -> None:
    done = try_loader(replace(trace, paths=("/absent/a.jpg",)))
    assert says in done.numbers["reason"]
    assert done.text == f"open_images was not tried: {done.numbers['reason']}."
    assert not requests


def ticking(step_s: float) -> Callable[[], float]:
    """A clock that goes on by so much at every look."""
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += step_s
        return now

    return clock


@pytest.fixture
def paths(tmp_path: Path) -> list[str]:
    """Five files, one of them damaged."""
    made = [tmp_path / f"{number}.jpg" for number in range(5)]
    for number, path in enumerate(made):
        path.write_bytes(making.jpeg(64, 48, seed=number))
    made[2].write_bytes(b"no image")
    return list(map(str, made))


@pytest.mark.parametrize("options", [{"size": 8}, {"size": 8, "augment": True, "shuffle": True}])
def test_the_loader_itself(options: dict[str, Any], paths: list[str]) -> None:
    """The rate is of the images that could be loaded; a short pass takes them several times."""
    assert measure(paths, {**options, "batch": 5}, ticking(1.0)) == [4.0] * 3
    short = measure(paths, {**options, "batch": 5}, ticking(0.125))
    assert short == [4 * 6 / 0.125] * len(short)
    assert len(short) > 3
    with pytest.raises(UserError, match="none of 1 images could be read"):
        measure(paths[2:3], options, ticking(1.0))


@pytest.mark.parametrize(
    ("error", "says"),
    [(KeyboardInterrupt(), "it was interrupted"), (ImportError("No module 'numpy'"), "'numpy'")],
)
def test_the_report_is_not_lost_with_the_measurement(
    error: BaseException, says: str, paths: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise error

    monkeypatch.setattr(trial, "measure", fail)
    done = try_loader(replace(program(decode=7.9), paths=tuple(paths)))
    assert says in done.text


PROGRAM = """
import glob
from PIL import Image

for path in sorted(glob.glob("*.jpg")):
    Image.open(path).convert("RGB").resize((32, 32))
"""


def test_a_program_is_tried(tmp_path: Path) -> None:
    write(tmp_path, PROGRAM)
    (tmp_path / "temporary").mkdir()
    for number in range(24):
        (tmp_path / f"{number:02}.jpg").write_bytes(making.jpeg(320, 240, seed=number))
    words = ("--try", "--json", "t.json", "--html", "t.html", "program.py")
    status, stdout, stderr = finish(start(tmp_path, *words))
    assert (status, stdout) == (0, "")
    assert "Tried wallclock.open_images on 24 files of the program" in stderr
    tried = json.loads((tmp_path / "t.json").read_text(encoding="utf-8"))["try"]
    assert tried["n_files"] == 24
    assert len(tried["rates"]) >= 3
    assert 0 < min(tried["rates"]) <= tried["img_per_s"] <= max(tried["rates"])
    for gain in (tried["predicted_gain"], tried["measured_gain"]):
        assert 0 < gain["low"] < gain["speedup"] < gain["high"]
    page = (tmp_path / "t.html").read_text(encoding="utf-8")
    assert page.count('id="try"') == 1
    assert not list((tmp_path / "temporary").iterdir())


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
