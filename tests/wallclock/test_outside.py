"""Text from outside: what a person sees of it, and what of a URL is nobody's business."""

import json
import logging
import string
from urllib.parse import quote

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.running import run_python
from wallclock.errors import ImageError, UserError
from wallclock.job.texts import public
from wallclock.outside import printable, without_secrets
from wallclock.service.logs import _Lines

SECRET = "S3CRET"
#: Whole parameters of a URL; and what only means the same beside a signature.
SIGNATURES = [
    *("X-Amz-Signature", "X-Amz-Credential", "X-Amz-Security-Token", "x-goog-signature"),
    *("x-oss-signature", "q-signature", "Signature", "sig", "sign", "token", "access_token"),
    *("AWSAccessKeyId", "GoogleAccessId", "Key-Pair-Id", "Policy", "api_key", "password"),
    *("client_secret", "auth_key", "temp_url_sig", "__token__"),
]
TERMS = ["Expires", "se", "sp", "sv", "sr", "st", "skoid", "Hash-Algorithm"]
PLAIN = st.tuples(
    st.sampled_from(["w", "key", "design", "assign", "tokens", "page", "x-oss-process"]),
    st.text(string.ascii_letters + "%/.,:@!;()*+'", max_size=6),
)
VALUE = st.text(string.ascii_letters + string.digits + "-_~%!$(*+=", max_size=8)


@st.composite
def urls(draw: st.DrawFn) -> tuple[str, str]:
    """A URL with secrets anywhere, and the same URL without them."""
    signed = draw(st.lists(st.sampled_from(SIGNATURES), min_size=1, max_size=3))
    terms = draw(st.lists(st.sampled_from(TERMS), max_size=3))
    plain = [(f"{name}={value}", True) for name, value in draw(st.lists(PLAIN, max_size=3))]
    secrets = [(f"{name}={SECRET}{draw(VALUE)}", False) for name in [*signed, *terms]]
    order = draw(st.permutations([*plain, *secrets]))
    users = ["", f"{SECRET}@", f"a:{SECRET}@", f"{SECRET}:@", f"a:{SECRET}/#b@", f"a:b@{SECRET}@"]
    user = draw(st.sampled_from(users))
    scheme, host = draw(st.sampled_from(["http", "s3", "sftp"])), "h.example:81/p/a@2x.jpg"
    kept = "&".join(text for text, keeps in order if keeps)
    whole = "&".join(text for text, _ in order)
    return f"{scheme}://{user}{host}?{whole}", f"{scheme}://{host}" + (f"?{kept}" if kept else "")


@given(urls())
@example(("http://h/x.jpg?token=S3CRET%23S3CRET&w=1", "http://h/x.jpg?w=1"))
def test_a_url_loses_its_secrets_and_nothing_else(pair: tuple[str, str]) -> None:
    whole, without = pair
    assert without_secrets(whole) == without
    assert without_secrets(without) == without
    said = "HTTP 403: {} (see {}): give another".format
    assert without_secrets(said(whole, whole)) == said(without, without)
    column = {whole: without, said(whole, ""): said(without, "")}
    if "/#b@" not in whole:
        outer = "http://proxy/?u={}&w=1"
        for safe in ("", "/"):
            column[outer.format(quote(whole, safe))] = outer.format(quote(without, safe))
        column[outer.format(quote(quote(whole)))] = outer.format(quote(quote(without)))
    assert [*map(without_secrets, column)] == [*column.values()]
    assert public(pa.chunked_array([[*column]])).to_pylist() == [*column.values()]


@given(st.text())
def test_text_without_a_url_is_as_it_was(text: str) -> None:
    if not {"@", "=", "%"} & {*text}:
        assert without_secrets(text) is text
    assert without_secrets(without_secrets(text)) == without_secrets(text)


@pytest.mark.parametrize(
    "text",
    [
        "abfss://container@account.dfs.core.windows.net/a.jpg",
        "github://org:repo@main/a.jpg",
        "http://h:8080/a@2x.png",
        "http://h/?se=1&Expires=2",
        '{"a":"http://h","b":"x@y","c":"http://h:8080","d":"x@y"}',
        "is it a whole tar?",
    ],
)
def test_what_is_no_secret(text: str) -> None:
    assert without_secrets(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (
            "with url: /a.jpg?X-Amz-Date=1&X-Amz-Signature=S (Caused by",
            "with url: /a.jpg (Caused by",
        ),
        ("http://h/a?w=1&amp;token=2&amp;h=3", "http://h/a?w=1&amp;h=3"),
        ("http://h/a#access_token=2", "http://h/a"),
        (r"http://h/a?w=1\u0026token=2\u0026h=3", r"http://h/a?w=1\u0026h=3"),
        ('"http://u:p@h/","http://v:q@i/"', '"http://h/","http://i/"'),
        (r'"http:\/\/u:p@h:80\/a@2x"', r'"http:\/\/h:80\/a@2x"'),
        ("//u:p@h/a@2x.jpg", "//h/a@2x.jpg"),
        ("http://h/?X%2dAmz%2DDate=1&w%41=1&si%67=2#%74oken=3", "http://h/?w%41=1"),
    ],
)
def test_texts_of_libraries(text: str, shown: str) -> None:
    assert without_secrets(text) == shown


@given(st.text(), st.integers(8, 60))
def test_printable_is_one_short_line(text: str, most: int) -> None:
    shown = printable(text, most)
    assert len(shown) <= most
    assert shown.isprintable()
    assert printable(shown, most) == shown


def test_a_long_text_keeps_both_ends() -> None:
    shown = printable(f"http://a:{SECRET}@h/{'x' * 5000}; give another")
    assert (len(shown), shown[:9], shown[-15:]) == (200, "http://h/", "x; give another")
    assert printable("a\x1b[31m\n\udcff\x9b\u202eé") == r"a\x1b[31m\n\xff\x9b\u202eé"


SCREAM = """
import logging, sys
from wallclock.outside import guard_screen
guard_screen()
logging.warning("retrying http://a:S3CRET@h/?w=1&X-Amz-Signature=S3CRET")
print("http://h/?token=S3CRET", "é\\udcff")
raise OSError("http://a:S3CRET@h/")
"""
ASCII = {"PYTHONIOENCODING": "ascii"}


def test_what_any_library_writes_has_no_secrets() -> None:
    """Also to a terminal in ASCII."""
    done = run_python("-c", SCREAM, env=ASCII, text=False)
    assert done.stdout == b"http://h/ \\xe9\\xff\n"
    assert b"retrying http://h/?w=1\n" in done.stderr
    assert done.stderr.endswith(b"OSError: http://h/\n")


def test_a_full_disk_changes_no_exit_status() -> None:
    with open("/dev/full", "wb") as full:
        words = "-c", SCREAM.partition("raise")[0]
        done = run_python(*words, env=ASCII, capture_output=False, stdout=full, stderr=full)
    assert done.returncode == 0


def test_a_log_of_the_service_has_no_secrets() -> None:
    """Of its own fields, and of what other libraries log."""
    said = "at http://u:%s@h/"
    record = logging.LogRecord("aiohttp", logging.ERROR, "", 0, said, (SECRET,), None)
    record.fields = {"reason": f"\x9b ?sig={SECRET}", "traceback": f"a\nb ?token={SECRET}"}
    line = json.loads(_Lines().format(record))
    assert (line["event"], line["reason"], line["traceback"]) == ("at http://h/", r"\x9b ", "a\nb ")


def test_an_error_is_a_line_of_bounded_length_without_secrets() -> None:
    assert str(UserError("http://u:p@h/?token=1 is gone")) == "http://h/ is gone"
    error = UserError(f"{'x' * 9000}\n\x1b; give another OUT")
    assert len(str(error)) <= 380
    assert str(error).endswith(r"\n\x1b; give another OUT")
    assert str(ImageError("decode", "at http://u:p@h/\n")) == r"decode: at http://h/\n"
