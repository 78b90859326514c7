"""The report: one file, every link resolves, every number links to its cell, equal bytes."""

import json
import re
import shutil
import subprocess
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import pytest

from experiments.onnx import cells as onnx
from experiments.serial import cells as serial
from experiments.t4 import cells as t4
from harness.drawing.format import percent
from harness.drawing.labels import SETS
from harness.table import read_table
from paper import claims, report
from paper.figures import FIGURES
from tests.paper.tables import CPU, copy_tables, edit
from wallclock.clock import STAGES

_VOID = {"meta", "link", "br", "input", "path", "use", "rect"}


class Page(HTMLParser):
    """Ids, links, tags and text of an HTML file."""

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
        """The visible text."""
        return " ".join(" ".join(self.text).split())


def page_of(path: Path) -> tuple[str, Page]:
    text = path.read_text(encoding="utf-8")
    return text, Page(text)


@pytest.fixture(params=["t4_run", "cpu_run"])
def run(request: pytest.FixtureRequest) -> tuple[Path, Path]:
    """Tables and page of a run on the paper's machine, and of the fixture run."""
    folder: Path = request.getfixturevalue(request.param)
    return folder / "data", folder / "figures" / "report.html"


def test_links_resolve_within_the_page(run: tuple[Path, Path]) -> None:
    text, page = page_of(run[1])
    assert not page.open
    assert not [name for name, count in Counter(page.ids).items() if count > 1]
    assert not {target for target in page.targets if target[1:] not in page.ids}
    assert len(page.targets) > 150
    assert page.loaded == ["data:,"]
    references = re.findall(r"url\(([^)]*)\)", text)
    assert references
    assert all(url.startswith("#f") and url[1:] in page.ids for url in references)
    assert "@import" not in text
    assert "Content-Security-Policy" in text


def test_figures_tables_and_claims_are_on_the_page(run: tuple[Path, Path]) -> None:
    data, (_, page) = run[0], page_of(run[1])
    assert page.tags["svg"] == len(list(run[1].parent.glob("*.svg"))) >= 12
    claims = read_table(data / "claims.csv")
    for name in (*FIGURES, "table-1-serialization", "table-2-end-to-end", "table-3-checklist"):
        assert name in page.ids
    assert {f"claim-{claim['id']}" for claim in claims} <= set(page.ids)
    for claim in claims:
        assert claim["statement"] in page.words
    for csv in report.collect(data).csvs.values():
        assert csv.anchor in page.ids
        assert all(csv.row_anchor(index) in page.ids for index in range(1, len(csv.rows) + 1))


def test_the_first_paragraph_says_what_the_bars_show(run: tuple[Path, Path]) -> None:
    _, page = page_of(run[1])
    for image_set, csv in serial.CSVS.items():
        (pil,) = [row for row in read_table(run[0] / csv) if row["decoder"] == "pil"]
        stage = max(STAGES, key=lambda name: pil[f"{name}_share"] or 0)
        share = percent(pil[f"{stage}_share"], 0)
        named = "the forward pass" if stage == "forward" else stage
        assert f"{SETS[image_set]} spend {share} of their time on {named}" in page.words


def test_provenance_and_inconsistencies(t4_run: Path) -> None:
    _, page = page_of(t4_run / "figures" / "report.html")
    for expected in (
        "Xeon, 16 usable cores",
        "GPU Tesla T4, 15 GiB, driver 580.1",
        "48, synthetic images",
        "median kb 7.06",
        "Where the paper is at odds with itself",
        "decode 51 %",
        f"{len(claims.load(claims.CLAIMS))} claims",
        "Baseline wall for 100K: 595 s (Table 2",
        "but 596 s (Introduction, first sentence)",
        "but 65,536× (Figure 4, caption: memory rises with the square",
        "Where: Figure 3, caption",
    ):
        assert expected in page.words, expected
    # The shorter form of a note is not repeated with the longer one.
    notes = page.words.split("Where the paper is at odds with itself")[1]
    assert notes.split("The data behind it")[0].count("does not antialias") == 1


def test_number_links_to_its_cells(t4_run: Path) -> None:
    text, _ = page_of(t4_run / "figures" / "report.html")
    row = re.search(r'<tr id="claim-serial-original-speedup".*?</tr>', text, re.DOTALL)
    assert row
    anchors = re.findall(r'href="#([^"]+)"', row[0])
    assert anchors == [
        "csv-t4-serial-stages-original-row-1-seconds_per_100k",
        "csv-t4-serial-stages-original-row-3-seconds_per_100k",
    ]
    cells = [re.search(rf'<td id="{anchor}">([^<]*)</td>', text) for anchor in anchors]
    assert [cell[1] for cell in cells if cell] == ["5021", "1466"]
    assert f'<a class="n" href="#{anchors[0]}">3.42×</a>' in row[0]


def test_mock_model_is_named(tmp_path: Path) -> None:
    data = copy_tables(tmp_path / "data")
    for csv in (*serial.CSVS.values(), t4.CSV):
        edit(data / csv, weights="none")
    _, page = page_of(report.render(data, tmp_path / "figures").paths[0])
    assert page.words.count(f"{CPU}; forward is a mock model of fixed time") == 2
    assert "The forward pass is a mock model of fixed time. Gains:" in page.words


def test_same_files_give_the_same_bytes_anywhere(t4_run: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(t4_run, tmp_path / "elsewhere")
    (path,) = report.render(copy / "data", copy / "figures").paths
    assert path.read_bytes() == (t4_run / "figures" / "report.html").read_bytes()
    assert str(tmp_path) not in path.read_text(encoding="utf-8")


def test_one_table_is_enough(tmp_path: Path) -> None:
    """And a benchmark's beside it, whose provenance has no corpus, changes nothing."""
    data = copy_tables(tmp_path / "data", "decoder-comparison.csv")
    about = {"machine": {}, "versions": {}, "code": "", "command": []}
    (data / "job.meta.json").write_text(json.dumps(about), encoding="utf-8")
    _, page = page_of(report.render(data, tmp_path / "figures").paths[0])
    assert not {target for target in page.targets if target[1:] not in page.ids}
    assert page.tags["svg"] == 0
    assert page.words.count("Not drawn: this run has not measured what it shows.") == len(FIGURES)
    assert "Not built: no serialization-comparison.csv." in page.words
    assert "0 claims" in page.words


def test_markup_in_a_table_is_escaped(tmp_path: Path) -> None:
    data = copy_tables(tmp_path / "data", onnx.CSV)
    script = "<script>alert(1)</script>"
    edit(data / onnx.CSV, "runtime=onnxruntime-tensorrt dtype=fp16", reason=script)
    text, _ = page_of(report.render(data, tmp_path / "figures").paths[0])
    assert "&lt;script&gt;alert(1)" in text
    assert text.count("<script>") == 1


# --- in a browser -------------------------------------------------------------------------------


def in_chromium(url: str, profile: Path) -> tuple[str, str]:
    """The page after its script ran, and the browser's console."""
    names = ("chromium", "chromium-browser", "google-chrome")
    browser = next(filter(None, map(shutil.which, names)), None)
    if browser is None:
        pytest.skip("no chromium here")
    options = "headless no-sandbox disable-gpu disable-quic no-first-run disable-sync "
    options += "disable-background-networking disable-component-update enable-logging=stderr "
    options += f"virtual-time-budget=3000 user-data-dir={profile} dump-dom"
    command = [browser, *(f"--{option}" for option in options.split()), url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout, "\n".join(line for line in done.stderr.split("\n") if "CONSOLE" in line)


@pytest.mark.slow
def test_browser_filters_without_console_errors(t4_run: Path, tmp_path: Path) -> None:
    url = (t4_run / "figures" / "report.html").as_uri()
    claims = read_table(t4_run / "data" / "claims.csv")

    def visible(fragment: str) -> set[str]:
        profile = tmp_path / f"profile{len(list(tmp_path.iterdir()))}"
        dom, console = in_chromium(url + fragment, profile)
        assert console == ""
        rows = re.findall(r'<tr id="claim-([^"]+)"([^>]*)>', dom)
        assert len(rows) == len(claims)
        return {name for name, attributes in rows if "hidden" not in attributes}

    assert visible("") == {claim["id"] for claim in claims}
    confirmed = {claim["id"] for claim in claims if claim["verdict"] == "held"}
    assert 0 < len(confirmed) < len(claims)
    assert visible("#verdict=held") == confirmed
    filtered = visible("#experiment=serial&text=box+decode")
    assert filtered == {"serial-original-pil-decode-share", "checklist-decode"}


@pytest.mark.slow
def test_browser_link_opens_table_and_marks_row(t4_run: Path, tmp_path: Path) -> None:
    url = (t4_run / "figures" / "report.html").as_uri()
    dom, console = in_chromium(f"{url}#csv-t4-serial-stages-row-2", tmp_path / "profile")
    assert console == ""
    opened = re.findall(r'<details class="csv" id="([^"]+)" open="">', dom)
    assert opened == ["csv-t4-serial-stages"]
    assert '<td class="aimed">opencv</td>' in dom


@pytest.mark.slow
def test_browser_console_errors_are_seen(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("<!doctype html><script>nothing.here()</script>", encoding="utf-8")
    assert "nothing is not defined" in in_chromium(page.as_uri(), tmp_path / "profile")[1]
