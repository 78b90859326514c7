"""The command `wallclock`: settings and their constraints, help, mistakes, missing extras."""

import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import pytest

from tests.conftest import ROOT
from tests.running import run_python
from wallclock import __version__, errors
from wallclock.__main__ import COMMANDS, main
from wallclock.constraints import Help, OneOf, Range, build, describe, text_of
from wallclock.errors import UserError, install_hint
from wallclock.job import EmbedOptions
from wallclock.job.settings import JobSettings, VerifySettings
from wallclock.options import Parser
from wallclock.service.modules import Embedding
from wallclock.service.settings import ServiceSettings, describe_module


@dataclass(frozen=True)
class Settings:
    n: Annotated[int, Range(1, 65_536), Help("images")] = 8
    seconds: Annotated[float, Range(0), Help("to wait")] = 0.5
    color: Annotated[str, Help("of the light"), OneOf(("", "red", "green"))] = ""
    strict: Annotated[bool, Help("stop at the first failure")] = False
    most: Annotated[Annotated[int, Range(0, 9)] | None, Help("empty: all")] = None
    plain: str = "x"


def read(words: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """The argument and the settings that the words of a command give."""
    parser = Parser("toy", "PLACE [options]")
    parser.add_argument("place", metavar="PLACE")
    parser.add_settings(describe(Settings), ("n",))
    given, values = parser.read(words)
    return given.place, values


def test_described_defaults_can_be_typed() -> None:
    """What `--help` prints, given as words, is what is there without words."""
    words = [f"{setting.name}={text_of(setting.default)}" for setting in describe(Settings)]
    assert build(Settings, read(["here", *words])[1], "") == Settings()


@pytest.mark.parametrize(
    ("words", "values"),
    [
        (["n=3", "--strict=TRUE"], {"n": 3, "strict": True}),
        (["--n", "3", "--strict"], {"n": 3, "strict": True}),
        (["--no-strict", "--seconds=2"], {"strict": False, "seconds": 2}),
        (["n=3", "n=4"], {"n": 4}),
        (["--n", "-3"], {"n": -3}),
        (["most=", "plain="], {"most": None, "plain": ""}),
        (["most=7"], {"most": 7}),
        (["seconds=1e2", "color=a=b"], {"seconds": 100.0, "color": "a=b"}),
        (["plain=3"], {"plain": "3"}),
    ],
)
def test_words_are_values(words: Sequence[str], values: dict[str, Any]) -> None:
    assert read(["here", *words]) == read([*words, "here"]) == ("here", values)


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ({"n": 0}, "n=0: give a whole number from 1 to 65536"),
        ({"n": True}, "n=True: give a whole number"),
        ({"seconds": float("nan")}, "seconds=nan: give a number of at least 0"),
        ({"color": "gren"}, "no color is called 'gren'; did you mean green or red? (all:"),
        ({"strict": "yes"}, "strict=yes: give true or false"),
    ],
)
def test_mistaken_values_are_one_line(values: dict[str, Any], line: str) -> None:
    with pytest.raises(UserError) as caught:
        build(Settings, values, "")
    assert str(caught.value).startswith(line)


Capture = pytest.CaptureFixture[str]

#: Command → the classes whose fields are its settings.
CLASSES: dict[str, tuple[Any, ...]] = {
    "embed": (JobSettings,),
    "verify": (VerifySettings,),
    "serve": (ServiceSettings,),
    "doctor": (),
    # Its options are covered in trace/test_command.py.
    "trace": (),
    "demo": (),
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
    flat = "".join("".join(lines).split())  # lines end at hyphens, too
    for cls in CLASSES[command]:
        for setting in describe(cls):
            assert 0 < len(setting.meaning) <= 60, setting
            allowed = f"{setting.allowed}; " if setting.allowed else ""
            default = text_of(setting.default) or "none"
            text = f"{setting.meaning} ({allowed}default: {default})"
            assert f"--{setting.name.replace('_', '-')}" in flat
            assert "".join(text.split()) in flat, setting


def test_help_of_serve_lists_the_modules_settings(capsys: Capture) -> None:
    default = "\n".join(help_of("serve", capsys))
    for setting in describe_module(Embedding):
        assert setting.meaning
        assert f"  --{setting.name.replace('_', '-')}" in default
    pixels = help_of("serve", capsys, "--module", "wallclock.service.modules:Pixels")
    assert any(line.startswith("  --size N ") for line in pixels)
    assert not any(line.startswith("  --dtype ") for line in pixels)
    nowhere = "\n".join(help_of("serve", capsys, "module=nowhere:It"))
    assert "module=nowhere:It: No module named 'nowhere'" in nowhere


@pytest.mark.parametrize("words", [["--help"], ["-h"], []])
def test_overview(words: list[str], capsys: Capture) -> None:
    assert main(words) == (0 if words else 2)
    printed = capsys.readouterr()
    lines = (printed.out or printed.err).splitlines()
    assert len(lines) <= 8
    assert max(map(len, lines)) <= 80
    for line, name in zip(lines, COMMANDS, strict=False):
        assert line.startswith(f"wallclock {name}")


def test_completion(capsys: Capture) -> None:
    pytest.importorskip("shtab")
    assert main(["--completion", "bash"]) == 0
    script = capsys.readouterr().out
    assert all(word in script for word in (*COMMANDS, "--max-failures", "--json"))
    assert main(["--completion", "fsh"]) == 2
    assert "did you mean" in capsys.readouterr().err


def test_a_type_checker_knows_the_settings() -> None:
    typed, fields = get_type_hints(EmbedOptions), get_type_hints(JobSettings)
    assert typed == fields, "add it to EmbedOptions in wallclock/job/__init__.py"


def test_version(capsys: Capture) -> None:
    assert main(["--version"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line == f"wallclock {__version__}"


@pytest.mark.parametrize("words", [["--help"], ["embed", "--help"]])
def test_help_into_a_closed_pipe(words: list[str]) -> None:
    """As of `wallclock embed --help | head`."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = run_python(
            "-m", "wallclock", *words, capture_output=False, stdout=writer, stderr=subprocess.PIPE
        )
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")


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
    return run_python("-W", "error", "-c", BLOCK.format(libraries=libraries) + statement)


def test_help_needs_no_extra() -> None:
    statement = (
        "from wallclock.__main__ import main\n"
        "for words in (['--help'], ['--version'], ['embed', '--help'], ['verify', '--help'],\n"
        "              ['serve', '--help']):\n"
        "    assert main(words) == 0\n"
    )
    done = run_without(OF_EXTRAS, statement)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("usage: wallclock") == 3


@pytest.mark.parametrize(
    ("libraries", "words", "cause", "extras"),
    [
        (OF_EXTRAS, ["embed", "a", "b"], "embed needs pyarrow", "embed"),
        (OF_EXTRAS, ["embed", "s3://a/b", "b"], "embed needs pyarrow", "embed,s3"),
        (("rich",), ["embed", "a", "b"], "embed needs rich", "embed"),
        (("rich",), ["trace", __file__], "trace needs rich", "trace"),
        (("aiohttp",), ["serve", "u"], "serve needs aiohttp", "embed,queue"),
        (("aiohttp",), ["serve", "u", "--module", "my:Own"], "serve needs aiohttp", "queue"),
        (("torch",), ["demo"], "demo needs torch", "torch"),
    ],
)
def test_a_missing_extra_is_one_line(
    libraries: tuple[str, ...], words: list[str], cause: str, extras: str
) -> None:
    """It names all extras that the command needs."""
    statement = f"from wallclock.__main__ import main; sys.exit(main({words!r}))"
    done = run_without(libraries, statement)
    assert (done.returncode, done.stdout) == (1, "")
    expected = f"wallclock: wallclock {cause}, which is not installed: {install_hint(extras)}"
    assert done.stderr.splitlines()[-1] == expected


def test_python_looks_at_the_package_without_an_extra() -> None:
    statement = (
        "import wallclock; from wallclock import *; import pydoc\n"
        "assert hasattr(wallclock, 'embed'); pydoc.render_doc(wallclock)\n"
        "assert set(dir(wallclock)) == {*wallclock.__all__, '__version__'}\n"
    )
    done = run_without((*OF_EXTRAS, "torch"), statement)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("statement", "library", "extra"),
    [
        ("import wallclock; wallclock.embed('a', 'b')", "pyarrow", "embed"),
        ("from wallclock.service import Pixels", "orjson", "queue"),
    ],
)
def test_a_missing_extra_in_python(statement: str, library: str, extra: str) -> None:
    done = run_without((library,), statement)
    last = done.stderr.splitlines()[-1]
    assert last.startswith("wallclock.errors.UserError: ")
    assert f"needs {library}, which is not installed" in last
    assert last.endswith(install_hint(extra))


@pytest.mark.parametrize(
    ("recorded", "named"),
    [
        ({"url": "file:///a%20b/w-1.whl"}, "/a b/w-1.whl[s3]"),
        ({"url": "https://h/w-1.whl"}, "wallclock-images[s3] @ https://h/w-1.whl"),
        ({"url": "ssh://h/w", "vcs_info": {"vcs": "git"}}, "wallclock-images[s3] @ git+ssh://h/w"),
    ],
)
def test_the_hint_installs_from_where_it_came(
    recorded: dict[str, Any], named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert install_hint("s3") == f"pip install '{ROOT}[s3]'"
    folder = tmp_path / "wallclock_images-1.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: wallclock-images\n")
    (folder / "direct_url.json").write_text(json.dumps(recorded))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(errors, "__file__", str(tmp_path / "wallclock" / "errors.py"))
    assert install_hint("s3") == f"pip install '{named}'"
