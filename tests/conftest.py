"""Fixtures that all tests share: real photos, the command line, one small run from end to end."""

import csv
import gc
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pytest
from hypothesis import HealthCheck, settings
from PIL import Image

from wallclock import machine

if TYPE_CHECKING:
    from harness.spec import Slice
    from tests.devices import Device

ROOT = Path(__file__).resolve().parent.parent
SHARED_IMAGES = ROOT.parent / "shared" / "images"
#: Where a program finds the checkout.
ON_PATH = {"PYTHONPATH": os.pathsep.join([str(ROOT / "code"), str(ROOT)])}
#: Python 3.12 warns at every fork of a process with threads; here the start method is a setting.
FORKS = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


# On a busy machine an example may take any time.
settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")


def pytest_configure() -> None:
    """Let SIGINT interrupt the tests and their children.

    A background job of a script (`make test &`) ignores SIGINT, and so would the children that it
    starts. A signal that this process handles is reset to its default in a child.
    """
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # Where there is a process of tests for each core, the threads of torch would wait for a core,
    # and spin meanwhile: three times the CPU time. torch reads this when it is imported.
    if "PYTEST_XDIST_WORKER" in os.environ:
        os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests marked `cuda` skip where there is no GPU."""
    if not machine.gpus():
        for item in items:
            if item.get_closest_marker("cuda"):
                item.add_marker(pytest.mark.skip(reason="no NVIDIA GPU is here"))


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> "Slice":
    """Eighteen synthetic images of 256 px, half of them progressive."""
    from harness.corpora import synthetic
    from harness.spec import CorpusSpec

    spec = CorpusSpec("synthetic", progressive_share=0.5)
    folder = tmp_path_factory.mktemp("corpus")
    return synthetic.prepare(spec, "small_256", 18, folder, lambda done, total, what: None)


def run_command(
    *words: str, cwd: Path = ROOT, env: Mapping[str, str] | None = None, status: int = 0
) -> subprocess.CompletedProcess[str]:
    """Run a command that must end with this status; what it prints is in the failure, too."""
    done = subprocess.run(words, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == status, f"{words}\n{done.stdout}\n{done.stderr}"
    return done


class RunMain(Protocol):
    """`python code/main.py …` in a process of its own."""

    def __call__(
        self, *arguments: str, env: Mapping[str, str] | None = None, timeout: float = 100
    ) -> subprocess.CompletedProcess[str]: ...


@dataclass(frozen=True)
class Run:
    """One finished run: where it wrote, what it printed, the arguments that repeat it."""

    out: Path
    figures: Path
    arguments: tuple[str, ...]
    done: subprocess.CompletedProcess[str]


@pytest.fixture(params=["fake", pytest.param("cuda", marks=pytest.mark.cuda)])
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> "Device":
    """A GPU's stand-in, and a GPU where there is one."""
    from tests import devices  # which imports torch

    return devices.open_device(request.param, monkeypatch)


@pytest.fixture(scope="session")
def run_main() -> RunMain:
    """Run code/main.py as a user does."""

    def run(
        *arguments: str, env: Mapping[str, str] | None = None, timeout: float = 100
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, str(ROOT / "code" / "main.py"), *arguments],
            cwd=ROOT,
            env={**os.environ, **(env or {})},
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    return run


def short_run(folder: Path) -> tuple[str, ...]:
    """Settings of a run that is soon over, needs no network and writes to a folder."""
    folders = (f"out={folder / 'data'}", f"figures={folder / 'figures'}")
    return ("repeats=1", "model=null", "device=cpu", *folders)


@pytest.fixture(scope="session")
def tiny_run(run_main: RunMain, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Two experiments, once, on two generated images of each set, without a network."""
    base = tmp_path_factory.mktemp("tiny")
    arguments = (
        *("--n", "2", "--experiment", "serial,cpu", *short_run(base)),
        "experiment.serial.recipes=[{name: pil, decoder: pil, resizer: pil}]",
    )
    done = run_main(*arguments, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return Run(base / "data", base / "figures", arguments, done)


@pytest.fixture(scope="session")
def shared_images() -> Path:
    """The real photos and the torture files outside the checkout."""
    if not SHARED_IMAGES.is_dir():
        pytest.skip(f"no real photos here: {SHARED_IMAGES} is absent")
    return SHARED_IMAGES


@pytest.fixture(scope="session")
def torture(shared_images: Path) -> list[tuple[Path, str]]:
    """Every torture file with what MANIFEST.csv expects of it."""
    folder = shared_images / "torture"
    with (folder / "MANIFEST.csv").open(encoding="utf-8", newline="") as handle:
        return [(folder / row["file"], row["expected"]) for row in csv.DictReader(handle)]


@pytest.fixture(scope="session")
def photos(shared_images: Path) -> list[Path]:
    """Every ninth of the valid photos."""
    return sorted((shared_images / "photos").glob("*.jpg"))[::9]


@pytest.fixture(autouse=True, scope="session")
def _cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Leave the user's own cache alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(autouse=True, scope="module")
def _frozen() -> None:
    """Take what was imported out of the collector's sight: every timed pass collects first."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _signal_handlers() -> Iterator[None]:
    """A command that runs in this process takes SIGINT and SIGTERM: give them back."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in handlers.items():
        if threading.current_thread() is threading.main_thread():
            signal.signal(number, handler)


@pytest.fixture(autouse=True)
def _pillow_limit() -> Iterator[None]:
    """The decoders lift Pillow's own pixel limit, for the whole process: put it back."""
    limit = Image.MAX_IMAGE_PIXELS
    yield
    Image.MAX_IMAGE_PIXELS = limit
