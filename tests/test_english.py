"""Sentences that can be read: short, and without phrases that are not English.

Of README.md, REPRODUCE.md, ARCHITECTURE.md, CONTRIBUTING.md, docs/ and the docstrings of public
names. Code, headings of tables and numbers' markers are no prose. A sentence begins with a capital
letter or a number, or is about a field (`name`: …): any other name in code letters goes on with the
sentence before.
"""

import inspect
import re
import statistics
from collections.abc import Iterator
from types import FunctionType
from typing import Any

import pytest

import wallclock.predict
from tests.conftest import ROOT
from tests.test_api_page import ALIASES, SECTIONS, comment_of, resolve

MOST_WORDS = 30
MEDIAN_WORDS = 15
DOCUMENTS = {
    "the root": ["README.md", "REPRODUCE.md", "ARCHITECTURE.md", "CONTRIBUTING.md"],
    "docs": sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("docs/*.md")),
}
_COUNTED = "images?|requests?|ms|µs|ns|seconds|bytes|[kKMG]i?B|one|once|threads?|times?|cores?|USD"
_PER = "second|image|core|batch|line|request|message|byte|row|vector|hour|key|call|pixel|side|day"
#: Phrase → what to write instead.
PHRASES = {
    r"the post\b": "the paper",
    rf"(?:{_COUNTED}) an? (?:{_PER})\b": "per",
    "whose pixels pass": "that pass the pixel check",
    r"brings? \d": "gives a speed-up of",
    "there ours": "there, wallclock",
    "again and again": "repeatedly",
    "reach(?:es)? across": "on both sides of",
    "cannot tell": "inconclusive",
    "binds? on": "applies to",
    r"off by [^.]{0,40}in the median": "median error",
    "the same command goes on": "run the same command to continue",
    "whole or not at all": "atomically",
    "byte by byte": "byte for byte",
    "takes over what": "reuses",
    "of equal bytes": "identical files",
    "Of progressive JPEGs the": "a subject first",
    "Where 1 % have": "if 1 % have",
    "from the line": "than extrapolated",
    "own ways": "documented methods",
    "in the place of": "instead of",
    "each other's Python": "compete for the GIL",
    r"(?:is|are|was|were) not here\b": "another machine",
    "own slips": "inconsistencies",
    r"\bslept\b": "simulated by sleeping",
}
_WRONG = {re.compile(rf"\b{phrase}", re.IGNORECASE): better for phrase, better in PHRASES.items()}
_END = re.compile(r"(?<=[.!?])\)?\s+(?=[A-Z\d\"(“]|code:)")
_ABBREVIATION = re.compile(r"\b(e\.g|i\.e|vs|cf|No|al)\.\s", re.IGNORECASE)
_ITEM = re.compile(r"\s*(?:[-*]|\d+\.)\s+(.*)")
_ARGUMENT = re.compile(r"\s*`?\w+`?: (.*)")
_WORD = re.compile(r"[\w'’.,×–-]*\w[\w'’]*")


def plain(text: str) -> str:
    """Markdown without code, headings, links' targets and emphasis."""
    text = re.sub(r"^```.*?^```\n", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r"^(#+ .*|\[\w+\]: .*)$", "", text, flags=re.MULTILINE)
    text = re.sub(r"^\|.*\n(?=\|[-:| ]+\|$)", "", text, flags=re.MULTILINE)
    text = re.sub(r"!?\[([^\]]*)\](?:\([^)]*\)|\[\w+\])", r"\1", text)
    text = re.sub(r"`[^`]*`", "code", text)
    # A list of names is read as a name is.
    text = re.sub(r"code(?:,\s+code)+", "code", text)
    return text.replace("*", "")


def blocks(text: str) -> Iterator[tuple[str, bool]]:
    """Paragraphs, items, arguments of a docstring and cells; whether it is a cell."""
    for paragraph in re.split(r"\n\s*\n", text):
        current: list[str] = []
        for line in paragraph.splitlines():
            start = _ITEM.match(line) or _ARGUMENT.match(line)
            if start or line.startswith("|"):
                yield " ".join(current), False
                current = []
            if line.startswith("|"):
                yield from ((cell, True) for cell in line.split("|"))
            else:
                current.append(start[1] if start else line)
        yield " ".join(current), False


def sentences(text: str) -> Iterator[tuple[str, bool]]:
    """The sentences of a text, and whether it is one of a table's cell."""
    for block, is_cell in blocks(plain(text)):
        joined = _ABBREVIATION.sub(lambda match: match[0].replace(".", ""), " ".join(block.split()))
        for sentence in _END.split(joined):
            if _WORD.search(sentence):
                yield sentence, is_cell


def length(sentence: str) -> int:
    return len(_WORD.findall(sentence))


def docstrings() -> Iterator[tuple[str, str]]:
    """Public names and their docstrings, methods included; code in them is indented twice."""
    names = [name for section in SECTIONS.values() for name in section]
    values: dict[str, Any] = {name: resolve(name) for name in names if name not in ALIASES}
    values |= {name: getattr(wallclock.predict, name) for name in wallclock.predict.__all__}
    for name, value in values.items():
        yield name, inspect.getdoc(value) or ""
        if inspect.isclass(value):
            for member, attribute in vars(value).items():
                function = attribute.fget if isinstance(attribute, property) else attribute
                is_public = isinstance(function, FunctionType) and not member.startswith("_")
                if is_public and function.__doc__:
                    yield f"{name}.{member}", inspect.cleandoc(function.__doc__)
    for alias in ALIASES.values():
        yield alias, comment_of(alias)


def texts(group: str) -> Iterator[tuple[str, str]]:
    if group in DOCUMENTS:
        for name in DOCUMENTS[group]:
            yield name, (ROOT / name).read_text(encoding="utf-8")
        return
    for name, text in docstrings():
        # An example behind two colons.
        yield name, re.sub(r"::\n\n(?: {4}.*\n?|\n)+", ".\n\n", text)


GROUPS = [*DOCUMENTS, "docstrings"]


@pytest.mark.parametrize("group", GROUPS)
def test_sentences_are_short(group: str) -> None:
    long = [
        f"{name}, {length(sentence)} words: {sentence}"
        for name, text in texts(group)
        for sentence, _ in sentences(text)
        if length(sentence) > MOST_WORDS
    ]
    assert not long, "\n".join(long)


@pytest.mark.parametrize("group", GROUPS)
def test_most_sentences_are_shorter(group: str) -> None:
    lengths = [
        length(sentence)
        for _, text in texts(group)
        for sentence, is_cell in sentences(text)
        if not is_cell
    ]
    assert len(lengths) > 50
    assert statistics.median(lengths) <= MEDIAN_WORDS


@pytest.mark.parametrize("group", GROUPS)
def test_phrases(group: str) -> None:
    found_in = [
        f"{name}: {match[0]!r}, rather {better!r}: {sentence}"
        for name, text in texts(group)
        for sentence, _ in sentences(text)
        for phrase, better in _WRONG.items()
        if (match := phrase.search(sentence))
    ]
    assert not found_in, "\n".join(found_in)


def test_the_reviewers_path_is_short() -> None:
    """REPRODUCE.md is read in one sitting; its reference is in docs/."""
    text = (ROOT / "REPRODUCE.md").read_text(encoding="utf-8")
    assert len(text.split()) <= 2500


def test_what_counts_as_a_sentence() -> None:
    text = "# Title\n\nOne [two](three.md), `four five`. Six!\n\n- a, e.g. b\n  c\n- d\n"
    assert [sentence for sentence, _ in sentences(text)] == [
        "One two, code.",
        "Six!",
        "a, eg b c",
        "d",
    ]
    table = "| head | er |\n|---|---|\n| cell one | two |\n"
    assert list(sentences(table)) == [("cell one", True), ("two", True)]
    assert length("26.5 images per second, isn't it") == 6


@pytest.mark.parametrize(
    "wrong",
    ["4 ms an image", "one a core", "loaders whose pixels pass", "it goes on, byte by byte"],
)
def test_phrases_are_noticed(wrong: str) -> None:
    assert any(phrase.search(wrong) for phrase in _WRONG)
