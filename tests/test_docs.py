"""The documents: commands run, links resolve, marked numbers match their files."""

import ast
import csv
import re
import shlex
import statistics
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from harness import provenance
from paper import settings
from paper.__main__ import main as paper
from tests import making
from wallclock.__main__ import COMMANDS

ROOT = provenance.ROOT
DOCUMENTS = tuple(
    path.relative_to(ROOT).as_posix()
    for pattern in ("*.md", "docs/*.md", "data/reference/*/README.md")
    for path in sorted(ROOT.glob(pattern))
)
#: `<!--=expression-->1,234.5`, and `<!--=expression-->3.0 %` for a fraction of 0.03.
MARKED = re.compile(r"<!--=(.+?)-->([+-]?\d(?:[\d,]*\d)?(?:\.\d+)?)(\s%)?")
TERM = re.compile(r"(?:(max|median|count) )?(\w+)\[(.*?)\]\.(\w+)")


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


def run(*command: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, check=False, timeout=100
    )


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
    done = run("make", "--dry-run", *shlex.split(command)[1:])
    assert done.returncode == 0, done.stderr


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


@pytest.mark.slow
def test_python_examples_run(tmp_path: Path) -> None:
    texts = text_of("README.md") + text_of("docs/profiler.md")
    examples = re.findall(r"```python\n(.*?)```", texts, flags=re.DOTALL)
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "a.jpg").write_bytes(making.jpeg(640, 480))
    printed = []
    for example in examples:
        (tmp_path / "example.py").write_text(example, encoding="utf-8")
        done = run(sys.executable, "-W", "error", "example.py", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        printed.append(done.stdout)
    loaded, profiled = printed
    assert loaded == "['a.jpg'] (1, 224, 224, 3)\n"
    seconds = ast.literal_eval(profiled)
    assert list(seconds) == ["decode", "resize"]
    assert min(seconds.values()) > 0


@pytest.mark.slow
def test_the_examples_of_the_loaders_page(tmp_path: Path) -> None:
    for name in ("photos", "images"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.jpg").write_bytes(making.jpeg(64, 48))
    printed = []
    for example in re.findall(r"```python\n(.*?)```", text_of("docs/loader.md"), flags=re.DOTALL):
        done = run(sys.executable, "-W", "error", "-c", example, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        printed.append(done.stdout)
    assert printed[0] == ""
    assert "1 tensor([3])\n" in printed


def test_the_worked_example_of_the_tables() -> None:
    (example,) = re.findall(r"```python\n(.*?)```", text_of("docs/results.md"), flags=re.DOTALL)
    done = run(sys.executable, "-W", "error", "-c", example)
    assert done.returncode == 0, done.stderr
    decoders, judged = done.stdout.split("id ", 1)
    assert re.search(r"\nturbojpeg +[\d.]+ +[\d.]+\n", decoders)
    assert "held" in judged
    assert "not run" not in judged


# --- numbers ------------------------------------------------------------------------------------


@cache
def sources() -> dict[str, str]:
    """docs/numbers.txt: names of files and of expressions."""
    text = re.sub(r"^#.*\n", "", text_of("docs/numbers.txt"), flags=re.MULTILINE)
    lines = [line.partition(" = ") for line in text.splitlines() if line]
    named = {name: value for name, _, value in lines}
    assert len(named) == len(lines), "a name is defined twice"
    return named


@cache
def table(name: str) -> list[dict[str, str]]:
    with (ROOT / sources()[name]).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def meets(row: dict[str, str], conditions: str) -> bool:
    for condition in filter(None, conditions.split("; ")):
        column, negated, value = re.fullmatch(r"(\w+)(!?)=(.*)", condition).groups()  # type: ignore[union-attr]
        if (row[column] == value) == bool(negated):
            return False
    return True


def value_of(term: str) -> float:
    match = TERM.fullmatch(term)
    assert match, f"cannot read {term!r}"
    function, name, conditions, column = match.groups()
    cells = [row[column] for row in table(name) if meets(row, conditions)]
    if function == "count":
        return len(cells)
    # A row without a measurement has no value to compare.
    values = [abs(float(cell)) if function else float(cell) for cell in cells if cell]
    if not function:
        assert len(values) == 1, f"{len(values)} rows match {term!r}"
        return values[0]
    return statistics.median(values) if function == "median" else max(values)


def format_value(body: str, text: str, percent: str) -> str:
    """The value of a marker's expression, as precise as `text`."""
    first, *rest = [value_of(term) for term in sources().get(body, body).split(" / ")]
    value = first / rest[0] if rest else first
    digits = len(text.partition(".")[2])
    sign = "+" if text[:1] in "+-" else ""
    return f"{value * (100 if percent else 1):{sign},.{digits}f}"


@pytest.mark.parametrize("name", DOCUMENTS)
def test_marked_numbers(name: str) -> None:
    markers = MARKED.findall(text_of(name))
    assert len(markers) == text_of(name).count("<!--="), "a marker without a number"
    assert not re.findall(r"^\s*<!--=.*", text_of(name), flags=re.M), "it begins an HTML block"
    wrong = {
        body: text for body, text, percent in markers if format_value(body, text, percent) != text
    }
    assert not wrong, {body: format_value(body, text, "") for body, text in wrong.items()}


def test_documents_mark_their_numbers() -> None:
    used = [body for name in DOCUMENTS for body, *_ in MARKED.findall(text_of(name))]
    assert len(used) > 40
    files = {name for name, value in sources().items() if value.endswith(".csv")}
    assert set(sources()) - files <= set(used), "a source that no document uses"


def test_expressions() -> None:
    rate, share = "claims[id=baseline-rate].paper_value", "claims[id=cpu-forward-share].paper_value"
    assert format_value(rate, "169", "") == "168"
    assert format_value(share, "99.4", " %") == "99.5"
    assert format_value(f"{rate} / claims[id=cpu-rate].paper_value", "129", "") == "129"
    assert value_of("count claims[experiment=cpu; unit!=fraction].id") == 4
    with pytest.raises(AssertionError, match="rows match"):
        value_of("claims[experiment=cpu].paper_value")
