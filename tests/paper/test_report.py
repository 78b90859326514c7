"""The report: whole in one file, every link resolves, every number points at its cell, the same bytes each time."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import pytest

from wallclock.paper import evidence, report, svg
from wallclock.paper.csvfile import read_table
from wallclock.paper.figures import FIGURES
from wallclock.paper.tables.table import Source

_VOID = {"meta", "link", "br", "input", "path", "use", "rect"}


class Page(HTMLParser):
    """What a test wants to know of an HTML file."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.targets: list[str] = []
        self.loaded: list[str] = []
        self.tags: Counter[str] = Counter()
        self.open: list[str] = []
        self.text: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        if tag not in _VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            elif name.endswith("href") or name == "src":
                (self.targets if (value or "").startswith("#") else self.loaded).append(value or "")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in _VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        if tag not in _VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "script" not in self.open and "style" not in self.open:
            self.text.append(data)

    @property
    def words(self) -> str:
        """What a reader reads."""
        return " ".join(" ".join(self.text).split())


def page_of(run: Path) -> tuple[str, Page]:
    text = (run / "figures" / "report.html").read_text(encoding="utf-8")
    return text, Page(text)


@pytest.fixture
def run(request: pytest.FixtureRequest) -> Path:
    """The folder of the run that the test names."""
    folder: Path = request.getfixturevalue(request.param)
    return folder


ANY_RUN = pytest.mark.parametrize("run", ["t4_run", "cpu_run"], indirect=True)


@ANY_RUN
def test_every_link_resolves_and_nothing_comes_from_elsewhere(run: Path) -> None:
    text, page = page_of(run)
    assert not page.open
    twice = [name for name, count in Counter(page.ids).items() if count > 1]
    assert not twice
    dangling = {target for target in page.targets if target[1:] not in page.ids}
    assert not dangling
    assert len(page.targets) > 150
    assert page.loaded == ["data:,"]
    references = re.findall(r"url\(([^)]*)\)", text)
    assert references
    assert all(found.startswith("#f") and found[1:] in page.ids for found in references)
    assert "@import" not in text
    assert "Content-Security-Policy" in text


@ANY_RUN
def test_all_figures_tables_and_claims_are_in_it(run: Path) -> None:
    _, page = page_of(run)
    assert page.tags["svg"] == len(FIGURES)
    claims = read_table(run / "data" / "claims.csv")
    for name in (*FIGURES, "table-1-serialization", "table-2-end-to-end", "table-3-checklist"):
        assert name in page.ids
    assert {f"claim-{claim['id']}" for claim in claims} <= set(page.ids)
    for claim in claims:
        assert claim["statement"] in page.words
    for csv in evidence.collect(run / "data").csvs:
        assert csv.anchor in page.ids
        assert all(csv.row_anchor(index) in page.ids for index in range(1, len(csv.rows) + 1))


def test_it_says_what_the_run_was_made_on_and_where_the_paper_is_inconsistent(t4_run: Path) -> None:
    _, page = page_of(t4_run)
    for expected in (
        *(
            "Intel Xeon Platinum 8259CL, 16 usable cores",
            "Tesla T4, 15 GiB, driver 560.35.03",
            "ef" * 32,
            "ab" * 32,
        ),
        *(
            "10,000, Amazon Berkeley Objects; median kb 7.4",
            "libjpeg-turbo in pillow 3.1.2",
            "5 ok",
        ),
        *(
            "python code/main.py --n 100000 --experiment serial",
            "Where the paper is at odds with itself",
        ),
        *(
            "roughly linear",
            "The write-up's opening says 596 s, its tables 595 s.",
            "decode 51 %",
            "50 claims",
        ),
    ):
        assert expected in page.words, expected
    # the shorter form of a note is not said beside the longer one
    assert page.words.count("part of the resize win is work left out (from 2000 px") >= 1
    notes = page.words.split("Where the paper is at odds with itself")[1].split(
        "The data behind it"
    )[0]
    assert notes.count("does not antialias") == 1


def test_a_number_points_at_the_cell_it_comes_from(t4_run: Path) -> None:
    text, _ = page_of(t4_run)
    row = re.search(r'<tr id="claim-serial-original-speedup".*?</tr>', text, re.DOTALL)
    assert row
    anchors = re.findall(r'href="#([^"]+)"', row[0])
    assert anchors == [
        "csv-t4-serial-stages-original-row-1-seconds_per_100k",
        "csv-t4-serial-stages-original-row-3-seconds_per_100k",
    ]
    cells = [re.search(rf'<td id="{anchor}">([^<]*)</td>', text) for anchor in anchors]
    assert [cell[1] for cell in cells if cell] == ["5021", "1466"]
    assert (
        '<a class="n" href="#csv-t4-serial-stages-original-row-1-seconds_per_100k">3.42×</a>'
        in row[0]
    )


def test_a_stand_in_is_said_to_be_one(cpu_run: Path) -> None:
    _, page = page_of(cpu_run)
    assert "forward: mock model of 40 ms a batch" in page.words
    assert page.words.count("(2 cores); forward is a mock model of fixed time") == 2
    assert "The forward pass is a mock model of fixed time. Gains:" in page.words


def test_the_same_files_give_the_same_bytes_wherever_they_lie(t4_run: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(t4_run, tmp_path / "elsewhere")
    (path,) = report.render(copy / "data", copy / "figures").paths
    assert path.read_bytes() == (t4_run / "figures" / "report.html").read_bytes()
    assert str(tmp_path) not in path.read_text(encoding="utf-8")


def test_a_run_of_one_experiment_is_a_report_too(t4_run: Path, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    shutil.copy(t4_run / "data" / "decoder-comparison.csv", tmp_path / "data")
    (path,) = report.render(tmp_path / "data", tmp_path / "figures").paths
    page = Page(path.read_text(encoding="utf-8"))
    assert not {target for target in page.targets if target[1:] not in page.ids}
    assert page.tags["svg"] == 0
    assert page.words.count("Not drawn: this run has not measured what it shows.") == len(FIGURES)
    assert "Not built: no serialization-comparison.csv." in page.words
    assert "0 claims" in page.words


def test_only_the_first_spans_are_shown(t4_run: Path) -> None:
    found = evidence.collect(t4_run / "data")
    (timeline,) = [csv for csv in found.csvs if csv.name == "timeline-baseline.csv"]
    assert len(timeline.rows) == 40 < timeline.n_rows
    assert found.href(Source(timeline.name, 2000, "start_ms")) == "#csv-timeline-baseline"
    assert (
        found.href(Source(timeline.name, 40, "start_ms"))
        == "#csv-timeline-baseline-row-40-start_ms"
    )
    assert found.href(Source(timeline.name, 40, "no_such_column")) == ""
    assert found.href(Source("no-such.csv", 1, "x")) == ""


def test_markup_in_a_table_is_text_on_the_page(t4_run: Path, tmp_path: Path) -> None:
    data = shutil.copytree(t4_run / "data", tmp_path / "data")
    path = data / "onnx-vs-pytorch.csv"
    path.write_text(
        path.read_text(encoding="utf-8").replace("cannot open", "<script>alert(1)</script>"),
        encoding="utf-8",
    )
    (made,) = report.render(data, tmp_path / "figures").paths
    text = made.read_text(encoding="utf-8")
    assert "&lt;script&gt;alert(1)" in text
    assert text.count("<script>") == 1


def test_a_drawing_loses_what_would_clash() -> None:
    source = (
        '<?xml version="1.0"?>\n<!DOCTYPE svg>\n<svg xmlns:xlink="x" width="10pt" height="20pt" viewBox="0 0 10 20">'
        "<metadata>http://elsewhere</metadata><defs>\n<style>*{}</style>\n</defs><!-- a -->"
        '<g id="a" clip-path="url(#p)"><use xlink:href="#b"/></g></svg>\n'
    )
    assert svg.inline(source, "f1", 'so "it" is') == (
        '<svg viewBox="0 0 10 20" role="img" aria-label="so &#34;it&#34; is">'
        '<g id="f1-a" clip-path="url(#f1-p)"><use href="#f1-b"/></g></svg>'
    )


# --- in a browser -------------------------------------------------------------------------------


def in_chromium(url: str, profile: Path) -> tuple[str, str]:
    """The page as it is after its script ran, and what the browser had to say."""
    chromium = (
        shutil.which("chromium")
        or shutil.which("chromium-browser")
        or shutil.which("google-chrome")
    )
    if chromium is None:
        pytest.skip("no chromium here")
    command = [
        *(
            chromium,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
        ),
        *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
        *(
            "--enable-logging=stderr",
            "--virtual-time-budget=3000",
            f"--user-data-dir={profile}",
            "--dump-dom",
            url,
        ),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout, "\n".join(line for line in done.stderr.split("\n") if "CONSOLE" in line)


@pytest.mark.slow
def test_in_a_browser_the_filter_works_and_the_console_is_silent(
    t4_run: Path, tmp_path: Path
) -> None:
    url = (t4_run / "figures" / "report.html").as_uri()
    claims = read_table(t4_run / "data" / "claims.csv")

    def visible(fragment: str) -> set[str]:
        dom, console = in_chromium(
            url + fragment, tmp_path / f"profile{len(list(tmp_path.iterdir()))}"
        )
        assert console == ""
        rows = re.findall(r'<tr id="claim-([^"]+)"([^>]*)>', dom)
        assert len(rows) == len(claims)
        return {name for name, attributes in rows if "hidden" not in attributes}

    assert visible("") == {claim["id"] for claim in claims}
    assert visible("#verdict=not-run") == {
        claim["id"] for claim in claims if claim["verdict"] == "not run"
    }
    assert visible("#experiment=serial&text=decode+original") == {
        claim["id"]
        for claim in claims
        if claim["experiment"] == "serial" and claim["id"] == "serial-original-pil-decode-share"
    }


@pytest.mark.slow
def test_in_a_browser_a_link_opens_the_table_and_marks_the_row(
    t4_run: Path, tmp_path: Path
) -> None:
    url = (t4_run / "figures" / "report.html").as_uri()
    dom, console = in_chromium(f"{url}#csv-t4-serial-stages-row-2", tmp_path / "profile")
    assert console == ""
    assert re.findall(r'<details class="csv" id="([^"]+)" open="">', dom) == [
        "csv-t4-serial-stages"
    ]
    assert '<td class="aimed">opencv</td>' in dom


@pytest.mark.slow
def test_an_error_on_the_console_would_be_seen(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("<!doctype html><script>nothing.here()</script>", encoding="utf-8")
    assert "nothing is not defined" in in_chromium(page.as_uri(), tmp_path / "profile")[1]
