"""What a message's body may be, and the settings of the service and of a user's module."""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Annotated, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wallclock.__main__ import main
from wallclock.constraints import Help, Setting
from wallclock.errors import UserError
from wallclock.service.interface import ItemError, Module, Request, takes_parameters
from wallclock.service.settings import describe_module, read


class Toy(Module):
    def __init__(
        self, batch: int = 1, scale: Annotated[float, Help("of the values")] = 1.0, name: str = ""
    ) -> None:
        self.values = (batch, scale, name)

    def preprocess(self, image: bytes, request: Request) -> np.ndarray:
        return np.frombuffer(image, np.uint8)

    def process(self, batch: np.ndarray) -> list[int]:
        return [0] * len(batch)


TOY = f"module={__name__}:Toy"


def test_request() -> None:
    body = '{"id": "7", "url": "u", "callback_url": "c", "parameters": {"k": 1}, "more": 2}'
    assert Request.parse("m", body) == Request("7", "u", "c", {"k": 1})
    assert Request.parse("m", '{"url": "u", "callback_url": "c"}') == Request("m", "u", "c", {})


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("{", "the body is not JSON: "),
        ("[1]", "the body is not a JSON object"),
        ('{"url": "u"}', "'callback_url' is missing or not a text"),
        ('{"url": "", "callback_url": "c"}', "'url' is missing or not a text"),
        ('{"url": "u", "callback_url": "c", "id": 7}', "'id' is missing or not a text"),
        ('{"url": "u", "callback_url": "c", "parameters": []}', "'parameters' is missing or not"),
    ],
)
def test_no_request(body: str, reason: str) -> None:
    with pytest.raises(ItemError, match=reason) as caught:
        Request.parse("m", body)
    assert (caught.value.stage, caught.value.permanent) == ("parse", True)


@given(st.text())
def test_a_reason_is_a_line_that_a_queue_takes(text: str) -> None:
    assert ItemError("process", f"{text}\0\x1b[31m\udcff").reason.isprintable()


_JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=5),
    lambda of: (
        st.lists(of, max_size=3)
        | st.dictionaries(st.sampled_from(("id", "url", "callback_url")), of, max_size=4)
    ),
    max_leaves=12,
)


def outcome(body: str) -> tuple[str, bool, int] | None:
    try:
        Request.parse("m", body)
    except ItemError as error:
        return error.stage, error.permanent, len(str(error).splitlines())
    return None


@given(st.text(max_size=20) | _JSON.map(json.dumps))
def test_any_body_is_a_request_or_refused_in_one_line(body: str) -> None:
    assert outcome(body) in (None, ("parse", True, 1))


def test_settings_of_a_command_and_a_module() -> None:
    words = [TOY, "batch=16", "queue", "--name", "x", "--private-callbacks", "--read_s=3"]
    url, service, make_module = read(words)
    assert url == "queue"
    assert (service.batch, service.private_callbacks, service.read_s) == (16, True, 3)
    assert make_module().values == (16, 1, "x")  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["bach=1"], "no setting is called 'bach'; did you mean batch"),
        (["batch"], "batch: write --batch X"),
        (["batch=0"], "batch=0: give a whole number from 1 to 65536"),
        (["ports=http"], "ports=http: give numbers, as in 80,443"),
        (["module=nowhere:It"], "module=nowhere:It: No module named 'nowhere'; give package"),
        (["module=json:loads"], "derive it from wallclock.service.Module"),
        (["module=json"], "give package.module:Class"),
    ],
)
def test_mistakes_are_one_line(words: list[str], reason: str) -> None:
    with pytest.raises(UserError, match=reason) as caught:
        read(["queue", *(words if words[0].startswith("module") else [TOY, *words])])
    assert "\n" not in str(caught.value)


def test_settings_of_a_module_are_described() -> None:
    """`batch` is the service's."""
    expected = [Setting("scale", 1.0, "of the values", ""), Setting("name", "", "", "")]
    assert describe_module(Toy) == expected


class Unloadable(Toy):
    def __init__(self) -> None:
        raise AssertionError("loaded")


def test_a_queue_that_is_no_url_is_told_before_the_module_is_loaded(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.setattr("sys.path", [*sys.path])
    assert main(["serve", "notaurl", f"module={__name__}:Unloadable"]) == 2
    assert capsys.readouterr().err.startswith(
        "wallclock: notaurl: give a queue's URL, https://sqs."
    )


def with_process(function: Any) -> Module:
    """A module whose `process` is this."""
    return type("Odd", (Toy,), {"process": function})()  # type: ignore[no-any-return]


def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        return function(*arguments, **named)

    return call


def with_sequence(self: Module, batch: Any, parameters: Sequence[Mapping[str, Any]] = ()) -> Any:
    return [*parameters]


def with_another(self: Module, batch: Any, options: Any) -> Any:
    return []


@pytest.mark.parametrize(
    ("function", "takes"),
    [
        (Toy.process, False),
        (with_sequence, True),
        (decorated(with_sequence), True),
        (lambda self, batch, *, parameters: [], True),
        (lambda self, batch, top=5: [], False),
        (lambda self, *rows, **options: [], False),
        (staticmethod(lambda batch: []), False),
        (staticmethod(lambda batch, parameters: []), True),
    ],
)
def test_whether_process_takes_parameters(function: Any, takes: bool) -> None:
    assert takes_parameters(with_process(function)) is takes


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (with_another, "missing a required argument: 'options'; its arguments are batch and"),
        (lambda self: [], "too many positional arguments; its arguments are batch and"),
        (lambda self, parameters: [], "multiple values for argument 'parameters'; its arguments"),
    ],
)
def test_process_that_cannot_be_called(function: Any, reason: str) -> None:
    with pytest.raises(UserError, match=f"Odd.process: {reason}"):
        takes_parameters(with_process(function))
