"""What a message's body may be, and the settings of the service and of a user's module."""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Annotated, Any
from urllib.parse import quote_plus, unquote, urlsplit

import numpy as np
import pytest
from botocore.credentials import Credentials
from hypothesis import given
from hypothesis import strategies as st

from wallclock.__main__ import main
from wallclock.constraints import Help, Setting
from wallclock.errors import UserError
from wallclock.service.envelopes import Envelopes
from wallclock.service.module import ItemError, Module, Request, takes_parameters
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


def opened(body: str, **values: Any) -> Request:
    return Request.parse("m", Envelopes(**values).open(body))


def test_request() -> None:
    body = '{"id": "7", "url": "u", "callback_url": "c", "parameters": {"k": 1}, "more": 2}'
    assert opened(body) == Request("7", "u", "c", {"k": 1})
    assert opened('{"url": "u", "callback_url": "c"}') == Request("m", "u", "c", {})
    assert opened('{"url": "u"}', callback_url="d") == Request("m", "u", "d", {})


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
        opened(body)
    assert (caught.value.stage, caught.value.permanent) == ("parse", True)


@given(st.text())
def test_a_reason_is_a_line_that_a_queue_takes(text: str) -> None:
    assert ItemError("process", f"{text}\0\x1b[31m\udcff").reason.isprintable()


KEYS = Credentials("key", "secret")
S3 = {"callback_url": "https://to.example", "credentials": KEYS, "region": "eu-west-1"}


def event(key: str, name: str = "ObjectCreated:Put", n: int = 1) -> str:
    """As S3 sends it."""
    s3 = {"bucket": {"name": "a.b"}, "object": {"key": quote_plus(key)}}
    return json.dumps({"Records": [{"eventName": name, "s3": s3}] * n})


def notification(message: str) -> str:
    return json.dumps({"Type": "Notification", "TopicArn": "arn", "Message": message})


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=30))
def test_an_upload_is_a_request_for_its_object(key: str) -> None:
    """However the key is spelled; the event may come by SNS."""
    request = opened(event(key), **S3)
    assert (request.id, request.callback_url) == (f"s3://a.b/{key}", "https://to.example")
    target = urlsplit(request.url)
    assert target.netloc == "s3.eu-west-1.amazonaws.com"
    assert "X-Amz-Expires=43200&" in target.query
    assert unquote(target.path) == f"/a.b/{key}"
    assert opened(notification(event(key)), **S3).id == request.id


NAMES = ("Records", "Type", "Event", "Message", "url", "s3", "bucket", "object", "key", "eventName")
_JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=5),
    lambda of: st.lists(of, max_size=3) | st.dictionaries(st.sampled_from(NAMES), of, max_size=4),
    max_leaves=12,
)


def outcome(body: str) -> Request | tuple[str, bool, int]:
    try:
        return opened(body, **S3)
    except ItemError as error:
        return error.stage, error.permanent, len(str(error).splitlines())


@given(st.text(max_size=20) | _JSON.map(json.dumps))
def test_any_body_is_a_request_or_refused_in_one_line(body: str) -> None:
    """So is one in a notification of SNS, which is the request in it."""
    alone, record = outcome(body), outcome(f'{{"Records": [{body}]}}')
    assert isinstance(alone, Request) or alone == ("parse", True, 1)
    assert isinstance(record, Request) or record == ("parse", True, 1)
    assert outcome(notification(body)) == alone


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (event("k"), "an event of S3 names no callback: set callback_url=URL"),
        (event("k", n=2), "Records is not one event of S3 about one object"),
        (event("k", "ObjectRemoved:Delete"), "ObjectRemoved:Delete is no upload: have S3 send"),
        (notification("hello"), "the Message of the SNS notification is not JSON"),
        ('{"Event": "s3:TestEvent", "Bucket": "b"}', "s3:TestEvent of S3 is no request"),
        ('{"Type": "SubscriptionConfirmation", "Message": "You"}', "of SNS is no request"),
    ],
)
def test_envelopes_that_are_refused(body: str, reason: str) -> None:
    with pytest.raises(ItemError, match=reason):
        opened(body, **(S3 if "callback" not in reason else {}))


def test_settings_of_a_command_and_a_module() -> None:
    words = [TOY, "batch=16", "name=x", "private_callbacks=true", "--read_s=3"]
    service, make_module = read(words)
    assert (service.batch, service.private_callbacks, service.read_s) == (16, True, 3)
    assert make_module().values == (16, 1, "x")  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["bach=1"], "no setting is called 'bach'; did you mean batch"),
        (["batch"], "batch: give it a value, batch=…"),
        (["batch=0"], "batch=0: give a whole number from 1 to 65536"),
        (["ports=http"], "ports=http: give numbers, as in 80,443"),
        (["module=nowhere:It"], "module=nowhere:It: No module named 'nowhere'; give package"),
        (["module=json:loads"], "derive it from wallclock.service.module.Module"),
        (["module=json"], "give package.module:Class"),
    ],
)
def test_mistakes_are_one_line(words: list[str], reason: str) -> None:
    with pytest.raises(UserError, match=reason) as caught:
        read(words if words[0].startswith("module") else [TOY, *words])
    assert "\n" not in str(caught.value)


def test_settings_of_a_module_are_described() -> None:
    """`batch` is the service's."""
    expected = [Setting("scale", "1", "of the values", ""), Setting("name", "", "", "")]
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
