"""The command `wallclock`: its help, its version, its mistakes, and what a missing extra says."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from tests.conftest import ROOT
from wallclock import __version__, errors
from wallclock.__main__ import COMMANDS, main
from wallclock.constraints import describe, text_of
from wallclock.errors import install_hint
from wallclock.job import EmbedOptions
from wallclock.job.settings import JobSettings, VerifySettings
from wallclock.service.modules import Embedding
from wallclock.service.settings import ServiceSettings, describe_module

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


def test_usual_settings_are_listed_first(capsys: Capture) -> None:
    text = "\n".join(help_of("embed", capsys))
    usual, more = text.split("\nmore:\n")
    assert "--model X" in usual
    assert "--shard N" in more


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
    done = call_without(libraries, *words)
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
