"""Constraints of fields: what is allowed, how words become values, how settings are described."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import pytest

from wallclock.constraints import Help, OneOf, Range, Setting, build, describe, text_of
from wallclock.errors import UserError
from wallclock.options import Parser


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


def test_settings_are_described() -> None:
    assert describe(Settings) == [
        Setting("n", 8, "images", "1 to 65536"),
        Setting("seconds", 0.5, "to wait", ""),
        Setting("color", "", "of the light", "red, green"),
        Setting("strict", False, "stop at the first failure", ""),
        Setting("most", None, "empty: all", "0 to 9"),
        Setting("plain", "x", "", ""),
    ]


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
    ("words", "line"),
    [
        (["m=3"], "no setting is called 'm'; valid: color, most, n, plain, seconds, strict"),
        (["colour=red"], "no setting is called 'colour'; did you mean color?"),
        (["n"], "n: write --n X; usage: wallclock toy PLACE [options]; --help lists the options"),
        (["--n"], "argument --n: expected one argument; usage: wallclock toy PLACE [options]"),
        (["--n", "plain=3"], "argument --n: expected one argument"),
        (["--nn", "5"], "no setting is called 'nn'; did you mean n"),
        (["strict=yes"], "strict=yes: give true or false"),
        (["there"], "there: unknown; usage: wallclock toy PLACE [options]"),
    ],
)
def test_mistaken_words_are_one_line(words: Sequence[str], line: str) -> None:
    with pytest.raises(UserError) as caught:
        read(["here", *words])
    assert str(caught.value).startswith(line)


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ({"n": 0}, "n=0: give a whole number from 1 to 65536"),
        ({"n": True}, "n=True: give a whole number"),
        ({"n": "x"}, "n=x: give a whole number"),
        ({"seconds": float("nan")}, "seconds=nan: give a number of at least 0"),
        ({"color": "blue"}, "no color is called 'blue'; valid: green, red, or empty"),
        ({"color": "gren"}, "no color is called 'gren'; did you mean green or red? (all:"),
        ({"strict": "yes"}, "strict=yes: give true or false"),
        ({"most": 10}, "most=10: give a whole number from 0 to 9"),
    ],
)
def test_mistaken_values_are_one_line(values: dict[str, Any], line: str) -> None:
    with pytest.raises(UserError) as caught:
        build(Settings, values, "")
    assert str(caught.value).startswith(line)
