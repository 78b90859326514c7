"""The documents: commands run, links resolve, marked numbers match their files."""

import re
import shlex
import sys
from pathlib import Path

import pytest

from paper import claims, quoted, settings
from paper.__main__ import main as paper
from paper.quoted import MARKED
from tests import making
from tests.conftest import ROOT, run_command
from wallclock.__main__ import COMMANDS
from wallclock.errors import UserError

DOCUMENTS = tuple(
    path.relative_to(ROOT).as_posix()
    for pattern in ("*.md", "docs/*.md", "data/reference/*/README.md")
    for path in sorted(ROOT.glob(pattern))
)


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def commands(name: str) -> list[str]:
    """The lines of a document's shell blocks, without comments."""
    blocks = re.findall(r"```sh\n(.*?)```", text_of(name), flags=re.DOTALL)
    lines = [line.split("#", 1)[0].strip() for block in blocks for line in block.splitlines()]
    return [line for line in lines if line]


ALL = sorted({command for name in DOCUMENTS for command in commands(name)})
MAIN = [command for command in ALL if "code/main.py" in command]
MAKE = [command for command in ALL if command.startswith("make ")]
PAPER = [command for command in ALL if "-m paper" in command]
WALLCLOCK = [command for command in ALL if command.startswith("wallclock ")]


def test_every_command_is_tested() -> None:
    assert not set(ALL) - {*MAIN, *MAKE, *PAPER, *WALLCLOCK}
    assert min(len(MAIN), len(MAKE)) >= 6


@pytest.mark.parametrize("command", MAIN)
def test_main_commands_compose(command: str) -> None:
    words = shlex.split(command.removesuffix(" --cfg job"))
    arguments = words[words.index("code/main.py") + 1 :]
    assert settings.load(settings.translate(arguments)).experiments


@pytest.mark.parametrize("command", MAKE)
def test_make_commands_have_targets(command: str) -> None:
    run_command("make", "--dry-run", *shlex.split(command)[1:])


@pytest.mark.parametrize("command", PAPER)
def test_paper_commands_parse(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = shlex.split(command)
    with pytest.raises(SystemExit, match=r"^0$"):
        paper([*words[words.index("paper") + 1 :], "--help"])
    options = {word for word in words if word.startswith("--")}
    assert options <= set(re.findall(r"--[\w-]+", capsys.readouterr().out))


@pytest.mark.parametrize("command", WALLCLOCK)
def test_wallclock_commands_parse(command: str) -> None:
    _, name, *words = shlex.split(command)
    COMMANDS[name].parser(words).parse_args(words)


def anchors(path: Path) -> set[str]:
    """The fragments of a document's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w-]", "", heading.lower().replace(" ", "-")) for heading in headings}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_links_resolve(name: str) -> None:
    links = re.findall(r"(?:\]\(|^\[\w+\]: )([^)\s]+)", text_of(name), flags=re.MULTILINE)
    for link in links:
        path, _, anchor = link.partition("#")
        if "://" in path:
            continue
        target = (ROOT / name).parent / path if path else ROOT / name
        assert target.exists(), f"{name} links to {link}"
        assert not anchor or anchor in anchors(target), f"{name} links to {link}"


def printed_by(name: str, folder: Path) -> list[str]:
    """What each Python block of a document prints, beside two folders with a picture."""
    blocks = re.findall(r"```python\n(.*?)```", text_of(name), flags=re.DOTALL)
    for images in ("photos", "images"):
        (folder / images).mkdir(exist_ok=True)
        (folder / images / "a.jpg").write_bytes(making.jpeg(640, 480))
    command = (sys.executable, "-W", "error", "-c")
    return [run_command(*command, block, cwd=folder).stdout for block in blocks]


@pytest.mark.slow
def test_python_examples_run(tmp_path: Path) -> None:
    assert printed_by("README.md", tmp_path) == ["['a.jpg'] (1, 224, 224, 3)\n"]
    loaded = printed_by("docs/loader.md", tmp_path)
    assert loaded[0] == ""
    assert "1 tensor([3])\n" in loaded


def test_the_worked_example_of_the_tables() -> None:
    (example,) = re.findall(r"```python\n(.*?)```", text_of("docs/results.md"), flags=re.DOTALL)
    printed = run_command(sys.executable, "-W", "error", "-c", example).stdout
    decoders, judged = printed.split("id ", 1)
    assert re.search(r"\nturbojpeg +[\d.]+ +[\d.]+\n", decoders)
    assert "held" in judged
    assert "not run" not in judged


# --- numbers ------------------------------------------------------------------------------------


def test_every_marker_has_a_number_and_begins_no_line() -> None:
    for name in DOCUMENTS:
        assert len(MARKED.findall(text_of(name))) == text_of(name).count("<!--="), name
        assert not re.findall(r"^\s*<!--=.*", text_of(name), flags=re.M), "it begins an HTML block"


def test_documents_mark_their_numbers() -> None:
    used = [body for name in DOCUMENTS for _, body, *_ in MARKED.findall(text_of(name))]
    assert len(used) > 40
    named = set(quoted.sources()) - set(quoted.files())
    assert named <= set(used), "a source that no document uses"


def test_expressions() -> None:
    rate, share = "claims[id=baseline-rate].paper_value", "claims[id=cpu-forward-share].paper_value"
    text = (
        f"<!--={rate}-->1, <!--={share}-->0.0 %, <!--={rate} / claims[id=cpu-rate].paper_value-->0"
    )
    assert re.findall(r">([\d. %]+)", quoted.rewritten(text)) == ["168", "99.5 %", "129"]
    assert quoted.value_of("count claims[id=cpu-rate; unit!=fraction].id") == 1
    for wrong in ("claims[experiment=cpu].paper_value", "nothing[].x", "claims[toy=1].id"):
        with pytest.raises(UserError, match=r"rows match|cannot read"):
            quoted.value_of(wrong)


def test_a_number_twice_is_counted_once() -> None:
    """What arithmetic settles and what the paper says again are in no count of verdicts."""
    every = [claim for claim in claims.load(claims.CLAIMS) if claim.source == claims.PAPER]
    left_out = {claim.id for claim in every} - claims.counting(every)
    assert {"decode-twice-original", "decode-twice-small", "serialize-npy-size"} <= left_out
    assert "decode-original-speedup" not in left_out
