"""`--try`: `open_images` on the program's own files, and the gain that follows."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests import making
from tests.wallclock.trace import traces
from tests.wallclock.trace.programs import write
from tests.wallclock.trace.test_command import finish, start
from wallclock.errors import UserError
from wallclock.loader.images import open_images
from wallclock.predict.pictures import Target
from wallclock.trace import trial
from wallclock.trace.record import Trace
from wallclock.trace.shares import Shares
from wallclock.trace.trial import Measured, Trial, conclude, geometry_of, measure, try_loader
from wallclock.trace.work import job_of

N = 80


def program(**seconds: float) -> Trace:
    """Of one thread, ten images a second for eight seconds after start-up, on eight cores."""
    images = [traces.decoded(N), traces.resized(N)]
    device = "GPU" if "forward" in seconds else ""
    return traces.trace([traces.process([traces.thread(seconds, N)])], images, device=device)


def measured(*rates: float) -> Measured:
    """Passes of a second each, in which the loader used all of eight cores."""
    return Measured(sorted(rates), 8.0, N, 0)


def concluded(trace: Trace, passes: Measured) -> Trial:
    shares = Shares(trace)
    job = job_of(shares)
    assert job is not None
    return conclude(shares, job, passes)


# --- what follows -------------------------------------------------------------------------------


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
    done = concluded(program(**seconds), measured(rate, rate, rate)).numbers
    assert done["measured_gain"] == pytest.approx(gain, rel=1e-3)
    assert done["measured_gain_low"] < done["measured_gain"] < done["measured_gain_high"]


def test_the_interval_has_the_passes() -> None:
    trace = program(read=0.1, decode=7.9)
    narrow = concluded(trace, measured(100, 100, 100)).numbers
    wide = concluded(trace, measured(200, 50, 100)).numbers
    assert (wide["rates"], wide["img_per_s"]) == ([50, 100, 200], 100)
    assert wide["measured_gain"] == narrow["measured_gain"]
    assert wide["measured_gain_low"] < narrow["measured_gain_low"]
    assert wide["measured_gain_high"] > narrow["measured_gain_high"]
    assert wide["predicted_gain"] == narrow["predicted_gain"]


def test_sentences() -> None:
    done = concluded(program(read=0.1, decode=7.9), measured(200, 190, 210))
    first, second = done.sentences
    assert "80 files of the program, in memory, with 8 cores: 200 images per second" in first
    assert "190 to 210 in 3 passes." in first
    assert "20 × (" in second
    assert done.numbers["busy_cores"] == done.numbers["cores"] == 8


def test_cores_that_others_used_and_failures_are_named() -> None:
    done = concluded(program(read=0.1, decode=7.9), Measured([100, 100, 100], 4.0, 10, 1))
    assert "8 cores, 50 % of them used:" in done.sentences[0]
    assert "3 passes; 1 file could not be loaded." in done.sentences[0]


# --- what is asked for --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "options"),
    [
        (Target((224, 224), "squash"), {"size": (224, 224)}),
        (Target((640, 480), "squash"), {"size": (480, 640)}),
        (Target((256, 256), "shortest"), {"preprocess": "shortest:256,crop:256x256"}),
        (Target((224, 224), "crop"), {"size": 224, "augment": {"flip": 0.0, "jitter": 0.0}}),
    ],
)
def test_the_size_is_the_programs(target: Target, options: dict[str, Any]) -> None:
    assert geometry_of(target) == options


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, Any]]:
    """Paths and options that would be measured."""
    made: list[tuple[Any, Any]] = []

    def measure_files(paths: Any, options: Any) -> Measured:
        made.append((paths, options))
        return measured(200, 200, 200)

    monkeypatch.setattr(trial, "measure_files", measure_files)
    return made


def test_files_that_exist_in_order_and_not_too_many(
    tmp_path: Path, requests: list[tuple[Any, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial, "_MOST_FILES", 3)
    paths = [str(tmp_path / f"{name}.jpg") for name in "fbdac"]
    for path in paths:
        Path(path).touch()
    made = replace(program(read=0.1, decode=7.9), paths=(str(tmp_path / "gone.jpg"), *paths))
    done = try_loader(made)
    assert done.numbers["img_per_s"] == 200
    assert requests == [(paths[:3], {"size": (224, 224), "batch": 32, "workers": 8})]


@pytest.mark.parametrize(
    ("trace", "says"),
    [
        (program(decode=7.9), "no file of the program's images is known here"),
        (traces.trace([traces.process([traces.thread({"decode": 5}, N)])], []), "no size"),
        (traces.trace([traces.process([traces.thread({"decode": 5})])], []), "no image"),
        (program(wait=8.0), "no image"),
    ],
)
def test_nothing_to_try(trace: Trace, says: str, requests: list[tuple[Any, Any]]) -> None:
    done = try_loader(replace(trace, paths=("/absent/a.jpg",)))
    assert says in done.numbers["reason"]
    assert done.sentences == [done.numbers["reason"]]
    assert not requests


# --- the measurement ----------------------------------------------------------------------------


@dataclass
class FakeLoader:
    """Batches of two, each of which takes so many seconds of a clock; `opened`: what was asked."""

    batch_s: float
    now: float = 0.0
    opened: list[tuple[list[str], int]] = field(default_factory=list)

    def clock(self) -> float:
        return self.now

    @contextmanager
    def open(self, paths: Sequence[str], epochs: int = 1) -> Iterator[Any]:
        self.opened.append((list(paths), epochs))
        yield self.batches(list(paths) * epochs)

    def batches(self, paths: list[str]) -> Iterator[Any]:
        for at in range(0, len(paths), 2):
            self.now += self.batch_s
            yield SimpleNamespace(ids=paths[at : at + 2], failures=[])


@pytest.mark.parametrize(
    ("batch_s", "epochs"),
    [(1.5, 1), (0.01, 7), (0.001, 70)],  # 0.1 s for all: seven times in a pass
)
def test_how_often(batch_s: float, epochs: int) -> None:
    loader = FakeLoader(batch_s)
    paths = [f"{number}.jpg" for number in range(20)]
    done = measure(paths, loader.open, loader.clock, lambda: 2 * loader.now)
    assert done.n_files == 20
    assert loader.opened == [(paths, 1), (paths, 1), *[(paths, epochs)] * 3]
    assert done.rates == pytest.approx([2 / batch_s] * 3)
    assert done.busy_cores == pytest.approx(2)


def test_the_loader_itself(tmp_path: Path) -> None:
    """Real files, on a clock of a second a look; a damaged one is counted, and left out."""
    for number in range(5):
        (tmp_path / f"{number}.jpg").write_bytes(making.jpeg(64, 48, seed=number))
    (tmp_path / "2.jpg").write_bytes(b"no image")
    paths = [str(tmp_path / f"{number}.jpg") for number in range(5)]
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += 1.0
        return now

    open_batches = partial(open_images, size=(8, 8), batch=5, workers=2)
    done = measure(paths, open_batches, clock, clock)
    assert (done.n_files, done.failures) == (4, 1)
    assert len(done.rates) == 3
    with pytest.raises(UserError, match="none of 1 images could be read"):
        measure(paths[2:3], open_batches, clock, clock)


def test_a_mistake_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(making.jpeg())
    with pytest.raises(UserError, match=r"^Tried open_images: .*size"):
        trial.measure_files([str(tmp_path / "a.jpg")], {"size": 0})


def test_no_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sentence: the report that is printed already stays."""

    def interrupted(*words: Any) -> Measured:
        raise KeyboardInterrupt

    monkeypatch.setattr(trial, "measure", interrupted)
    with pytest.raises(UserError, match=r"^Tried open_images: interrupted, no measurement"):
        trial.measure_files(["a.jpg"], {"size": 8})


# --- the command --------------------------------------------------------------------------------

PROGRAM = """
import glob
from PIL import Image

for path in sorted(glob.glob("*.jpg")):
    Image.open(path).convert("RGB").resize((32, 32))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path, PROGRAM)
    (tmp_path / "temporary").mkdir()
    for number in range(24):
        (tmp_path / f"{number:02}.jpg").write_bytes(making.jpeg(320, 240, seed=number))
    return tmp_path


def test_a_program_is_tried(folder: Path) -> None:
    words = ("--try", "--json", "t.json", "--html", "t.html", "program.py")
    status, stdout, stderr = finish(start(folder, *words))
    assert (status, stdout) == (0, "")
    assert "Tried wallclock.open_images on 24 files of the program" in stderr
    assert " ".join(stderr.split()).count("The program was not run again") == 1
    given = json.loads((folder / "t.json").read_text(encoding="utf-8"))
    tried = given["try"]
    assert (tried["n_files"], tried["failures"]) == (24, 0)
    assert len(tried["rates"]) >= 3
    assert 0 < min(tried["rates"]) <= tried["img_per_s"] <= max(tried["rates"])
    assert 0 < tried["predicted_gain_low"] < tried["predicted_gain"] < tried["predicted_gain_high"]
    assert tried["measured_gain_low"] < tried["measured_gain"] < tried["measured_gain_high"]
    page = (folder / "t.html").read_text(encoding="utf-8")
    assert page.count('id="try"') == 1
    assert not list((folder / "temporary").iterdir())
