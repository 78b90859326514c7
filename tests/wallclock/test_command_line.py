"""The command `wallclock`: its help, its version, its mistakes, and what a missing extra says."""

import os
import subprocess
import sys
from typing import Any

import pytest

from tests.conftest import ROOT
from wallclock import __version__, native
from wallclock.__main__ import COMMANDS, main
from wallclock.constraints import describe
from wallclock.job.settings import JobSettings, VerifySettings
from wallclock.service.modules import Embedding
from wallclock.service.settings import ServiceSettings, describe_module

Capture = pytest.CaptureFixture[str]

#: Command → the classes whose fields are its settings.
CLASSES: dict[str, tuple[Any, ...]] = {
    "embed": (JobSettings,),
    "verify": (VerifySettings,),
    "serve": (ServiceSettings,),
    # Its options are covered in trace/test_command.py.
    "trace": (),
}
#: Libraries that are not among the wheel's own dependencies.
OF_EXTRAS = (
    "rich",
    "pyarrow",
    "psutil",
    "pynvml",
    "transformers",
    "prometheus_client",
    "cv2",
    "boto3",
    "aiohttp",
    "yarl",
    "orjson",
    "uvloop",
    "yaml",
    "hydra",
    "omegaconf",
    "ray",
)


def help_of(command: str, capsys: Capture, *words: str) -> list[str]:
    assert main([command, *words, "--help"]) == 0
    printed = capsys.readouterr()
    assert not printed.err
    return printed.out.splitlines()


def test_every_command_is_covered() -> None:
    assert CLASSES.keys() == COMMANDS.keys()


@pytest.mark.parametrize("command", COMMANDS)
def test_help_explains_every_setting(command: str, capsys: Capture) -> None:
    lines = help_of(command, capsys)
    assert max(map(len, lines)) <= 80
    flat = " ".join(" ".join(lines).split())
    for cls in CLASSES[command]:
        for setting in describe(cls):
            assert 0 < len(setting.meaning) <= 60, setting
            allowed = f" ({setting.allowed})" if setting.allowed else ""
            entry = f" {setting.name}={setting.default} {setting.meaning}{allowed} "
            assert entry in f"{flat} ", setting


def test_help_of_serve_lists_the_modules_settings(capsys: Capture) -> None:
    default = "\n".join(help_of("serve", capsys))
    for setting in describe_module(Embedding):
        assert setting.meaning
        assert f"  {setting.name}={setting.default}" in default
    pixels = help_of("serve", capsys, "module=wallclock.service.modules:Pixels")
    assert any(line.startswith("  size=224 ") for line in pixels)
    assert not any(line.startswith("  dtype=") for line in pixels)
    nowhere = help_of("serve", capsys, "module=nowhere:It")
    assert nowhere[-1].startswith("  module=nowhere:It: No module named 'nowhere'")


@pytest.mark.parametrize("word", ["--help", "-h"])
def test_overview(word: str, capsys: Capture) -> None:
    assert main([word]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    for position, (name, command) in enumerate(COMMANDS.items()):
        assert lines[position].endswith(f"wallclock {name} {command.usage}")


def test_version(capsys: Capture) -> None:
    assert main(["--version"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line == f"wallclock {__version__} (native module: {native.described()})"
    assert f'version = "{__version__}"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")


@pytest.mark.parametrize("words", [["--help"], ["embed", "--help"]])
def test_help_into_a_closed_pipe(words: list[str]) -> None:
    """As of `wallclock embed --help | head`."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "wallclock", *words],
            stdout=writer,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(ROOT / "code")},
            check=False,
        )
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")


def test_no_command_prints_the_usage(capsys: Capture) -> None:
    assert main([]) == 2
    assert capsys.readouterr().err.startswith("usage: wallclock embed SRC OUT")


# --- without the extras -------------------------------------------------------------------------


#: Makes libraries look as if they were not installed.
BLOCK = """
import sys

class Block:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name in {libraries!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Block)
"""


def run_without(libraries: tuple[str, ...], statement: str) -> subprocess.CompletedProcess[str]:
    """Run a statement in a process in which these libraries are not installed."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", BLOCK.format(libraries=libraries) + statement],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT / "code")},
    )


def call_without(libraries: tuple[str, ...], *words: str) -> subprocess.CompletedProcess[str]:
    statement = f"from wallclock.__main__ import main; sys.exit(main({list(words)!r}))"
    return run_without(libraries, statement)


def test_help_needs_no_extra() -> None:
    statement = (
        "from wallclock.__main__ import main\n"
        "for words in (['--help'], ['--version'], ['embed', '--help'], ['verify', '--help'],\n"
        "              ['serve', '--help']):\n"
        "    assert main(words) == 0\n"
    )
    done = run_without(OF_EXTRAS, statement)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("usage: wallclock") == 4


@pytest.mark.parametrize(
    ("libraries", "words", "line"),
    [
        (OF_EXTRAS, ["embed", "a", "b"], "wallclock embed needs pyarrow, {}[embed]'"),
        (("rich",), ["embed", "a", "b"], "wallclock embed needs rich, {}[embed]'"),
        (("rich",), ["trace", __file__], "wallclock trace needs rich, {}[trace]'"),
        (("aiohttp",), ["serve", "u"], "wallclock serve needs aiohttp, {}[queue]'"),
    ],
)
def test_a_missing_extra_is_one_line(
    libraries: tuple[str, ...], words: list[str], line: str
) -> None:
    done = call_without(libraries, *words)
    expected = line.format("which is not installed: pip install 'wallclock-images")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-1] == f"wallclock: {expected}"


@pytest.mark.parametrize(
    ("statement", "library", "extra"),
    [
        ("import wallclock; wallclock.embed", "pyarrow", "embed"),
        ("from wallclock.service import Pixels", "orjson", "queue"),
    ],
)
def test_a_missing_extra_in_python(statement: str, library: str, extra: str) -> None:
    done = run_without((library,), statement)
    last = done.stderr.splitlines()[-1]
    assert last.startswith("wallclock.errors.UserError: ")
    assert f"needs {library}, which is not installed" in last
    assert last.endswith(f"pip install 'wallclock-images[{extra}]'")
