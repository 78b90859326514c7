"""The page on the terminal, as JSON and as HTML."""

import io
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given, settings
from rich.console import Console

from tests.wallclock.trace import traces
from tests.wallclock.trace.traces import decoded, function, process, resized, thread, trace
from wallclock.trace.page import Findings, report, write_html, write_json
from wallclock.trace.record import Spent, Thread, Trace, Use

NBSP = "\N{NO-BREAK SPACE}"
EVERY = [getattr(traces, name) for name in dir(traces) if isinstance(getattr(traces, name), Trace)]
#: What a program may be called, and what would be markup.
NASTY = "<script>alert(1)</script>&\"'[red]\x1b[31m\udcff\u202e.py"


def printed(made: Trace, width: int = 100) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    report(made, console)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    return "\n".join(line.rstrip() for line in text.replace(NBSP, " ").splitlines())


def nasty() -> Trace:
    """A program all of whose names are markup, control characters and bad bytes."""
    spent = {function("decode", NASTY): Spent(6.0, 10, 10), function("resize", NASTY): Spent(1.0)}
    main = Thread(True, 0.0, 10.0, spent)
    return trace(
        [process([main])],
        [decoded(10, NASTY, name=NASTY), resized(10, name=NASTY)],
        command=(NASTY, "--name", NASTY),
        uses=[Use(NASTY, {NASTY: NASTY})],
        device=NASTY,
        device_busy_s=1.0,
    )


def crowded() -> Trace:
    """All stages, many kinds of images, all notes: as long as a page gets."""
    stages = dict.fromkeys(traces.NAMES, 0.5)
    kinds = [decoded(9, form) for form in ("JPEG", "progressive JPEG", "PNG", "WEBP", "AVIF")]
    main = process([thread(stages, 45)], cpu_s=2.0)
    worker = process([thread(stages, 45, started_s=2.0)], "worker", cpu_s=1.0)
    return trace([main, worker], [*kinds, resized(45)], exit_code=137, first_image_s=6.0, device="")


ROWS = """\
10 s in all; 400 images, 50 per second; 8 cores, 49 % of them used; NVIDIA T4, busy 1.6 s.
start-up            2.0                           before the first image
main process        8.0  100 %                    after start-up
  wait              5.7   71 %     400        14  DataLoader wait
  other Python      0.5    6 %
4 workers            32  100 %                    after start-up, added up
  decode             25   78 %     400        62  PIL.ImageFile.load
JPEG        400  2560 × 1920  in full        900
resized     400  2560 × 1920  224 × 224"""


def test_a_starving_gpu_on_the_terminal() -> None:
    text = printed(traces.STARVING_DECODE)
    lines = text.splitlines()
    assert [line for line in lines if line in ROWS.splitlines()] == ROWS.splitlines()
    gain = r"^[\d.]+ × \([\d.]+ to [\d.]+ ×\) +wallclock\.open_images, a loader with threads$"
    assert re.search(gain, text, re.M)


@pytest.mark.parametrize("width", [60, 80, 100, 200])
@pytest.mark.parametrize("made", [*EVERY, nasty(), crowded()])
def test_the_terminal_page_is_short_and_narrow(made: Trace, width: int) -> None:
    lines = printed(made, width).splitlines()
    assert len(lines) <= 45 + (width < 80) * 10
    code = [line for fix in Findings(made).verdict.fixes for line in fix.code.splitlines()]
    assert set(code) <= set(lines), "whole, so that it can be pasted"
    assert max(map(len, set(lines) - set(code))) <= min(width, 100)


def test_names_are_cut_in_the_middle_and_no_seconds_are_left_out() -> None:
    names = [f"torchvision.transforms.functional.{name}" for name in ("bicubic", "pad")]
    spent = {
        function("resize", name): Spent(seconds)
        for name, seconds in zip(names, (2, 1), strict=True)
    }
    stages = ("read", "decode", "transform", "normalize", "serialize", "forward")
    spent |= {function(stage): Spent(0.5 + 0.01 * i) for i, stage in enumerate(stages)}
    text = printed(trace([process([Thread(True, 0.0, 10.0, spent)])], [decoded(10)]), 80)
    assert re.search(r"^  resize .* torch\S*…\S*bicubic$", text, re.M)
    assert re.search(r"^  other stages +1\.5 +19 % +read, decode, transform$", text, re.M)


def test_a_terminal_sees_no_control_characters_and_no_markup() -> None:
    text = printed(nasty())
    assert "\x1b" not in text
    assert r"\x1b[31m" in text
    assert "[red]" in text


def test_json_has_the_numbers(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    write_json(traces.STARVING_DECODE, path)
    numbers = json.loads(path.read_text(encoding="utf-8"))
    assert numbers["schema"] == 3
    assert (numbers["wall_s"], numbers["start_up_s"]) == (10.0, 2.0)
    assert numbers["main"]["wait"] == pytest.approx(5.7)
    assert sum(numbers["main"].values()) == pytest.approx(8.0)
    assert numbers["workers"]["decode"] == pytest.approx(24.8)
    assert numbers["images"]["number"] == 400
    assert numbers["images"]["kinds"][0]["source"] == [2560, 1920]
    assert numbers["verdict"].startswith("The GPU waits for data 71 % of the time;")
    assert (numbers["cause"], numbers["line"]) == ("waiting", "")
    assert numbers["program"] == {
        "command": ["embed.py", "photos"],
        "exit_code": 0,
        "uses": [{"name": "torch.utils.data.DataLoader", "batch_size": "32", "num_workers": "4"}],
    }
    assert numbers["device_busy_s"] == 1.6
    first = numbers["fixes"][0]
    assert first["name"] == "open_images"
    assert 1 < first["gain"]["low"] <= first["gain"]["speedup"] <= first["gain"]["high"]
    assert "wallclock.open_images(" in first["code"]


def test_json_holds_a_path_that_is_no_utf8(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    write_json(nasty(), path)
    assert json.loads(path.read_text(encoding="utf-8"))["program"]["command"][0] == NASTY


class Checker(HTMLParser):
    """Tags in balance, what the page would load, and its text."""

    VOID = frozenset({"meta", "link", "br", "hr", "img"})

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.loaded: list[str] = []
        self.ids: list[str] = []
        self.targets: list[str] = []
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        assert len(values) == len(attrs), "an attribute twice"
        assert not any(name.startswith("on") for name in values)
        self.ids += filter(None, [values.get("id")])
        target = values.get("href") or ""
        if target.startswith("#"):
            self.targets.append(target[1:])
        elif target or values.get("src"):
            self.loaded.append(f"{target}{values.get('src') or ''}")
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("style", "title"):
            self.words.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.words)).replace(NBSP, " ")


def page_of(made: Trace, folder: Path) -> Checker:
    path = folder / "trace.html"
    write_html(made, path)
    checker = Checker()
    checker.feed(path.read_text(encoding="utf-8"))
    checker.close()
    assert checker.open == []
    assert checker.loaded == ["data:,"], "it opens offline"
    assert len(checker.ids) == len(set(checker.ids))
    assert set(checker.targets) <= set(checker.ids)
    return checker


@pytest.mark.parametrize("made", [*EVERY, crowded()])
def test_html_is_whole(made: Trace, tmp_path: Path) -> None:
    assert "script" not in page_of(made, tmp_path).text


def test_html_says_what_the_terminal_says(tmp_path: Path) -> None:
    text = page_of(traces.STARVING_DECODE, tmp_path).text
    assert "decoding takes 78 % of the workers' time: full-size 2560 × 1920 JPEGs" in text
    assert "Start-up, before the first image: 2.0 s" in text
    assert "PIL.ImageFile.load 25 s" in text
    assert 'image.draft("RGB", (280, 280))' in text
    assert "num_workers=4" in text


def test_html_escapes_what_the_program_is_called(tmp_path: Path) -> None:
    checker = page_of(nasty(), tmp_path)
    source = (tmp_path / "trace.html").read_text(encoding="utf-8")
    assert "<script" not in source
    assert "\x1b" not in source
    assert "\u202e" not in source, "text that turns what follows around"
    assert checker.text.count("<script>alert(1)</script>") >= 7


@settings(max_examples=25)
@given(traces.any_traces())
def test_any_trace_has_a_page(tmp_path_factory: pytest.TempPathFactory, made: Trace) -> None:
    folder = tmp_path_factory.mktemp("page")
    page_of(made, folder)
    write_json(made, folder / "trace.json")
    lines = printed(made).splitlines()
    assert len(lines) <= 60
    assert max(map(len, lines)) <= 100
