"""What a run prints: formatted numbers, verdicts, differences, and the closing sentence."""

import io
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from experiments import contents
from experiments.frontier import cells as frontier
from experiments.opt import cells as opt
from experiments.serial import cells as serial
from experiments.t4 import cells as t4
from harness.drawing import format as formats
from harness.drawing.labels import weights
from paper.claims import CLAIMS, JUDGED, PAPER, VERDICTS, counting, judge, load
from paper.diff import Comparison, Difference
from paper.session import closing_sentence
from paper.terminal import print_comparison, print_results, print_verdicts
from tests.fixture_run import fixture_tables
from tests.paper.tables import Copy, edit


def printed(show: Callable[[Console], None], width: int = 100) -> str:
    """What `show` prints on a terminal of that width, without colour."""
    console = Console(file=io.StringIO(), width=width, color_system=None)
    show(console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_format() -> None:
    numbers = (None, 0.0, 0.0852, 16.87, 99.96, 75267.4)
    texts = [formats.digits(cell) for cell in numbers]
    assert texts == ["–", "0", "0.0852", "16.9", "100", "75,267"]
    assert [formats.percent(share) for share in (0.5131, 0.0)] == ["51.3 %", "0.0 %"]
    assert [formats.percent(share) for share in (0.0002, None)] == ["< 0.1 %", "–"]
    assert formats.percent(0.5131, 0) == "51 %"
    assert [formats.factor(x) for x in (5.881, 0.00791, 1234.5)] == ["5.88×", "0.0079×", "1,234×"]
    assert [formats.signed_percent(x) for x in (-0.031, -0.0001)] == ["-3.1 %", "+0.0 %"]
    units = {"fraction": "58.0 %", "1/s": "0.58/s", "s": "0.58 s", "ratio": "0.58×"}
    assert {unit: formats.with_unit(0.58, unit) for unit in units} == units
    assert [formats.count_noun(n, "batch") for n in (1, 1024)] == ["1 batch", "1,024 batches"]
    mocks = [{"weights": "none", "service_ms": time} for time in (9.2, 17.6, 315.2)]
    assert weights(mocks) == "forward: mock model of 9.2 to 315.2 ms per batch"


def test_results_name_rows_and_reasons(copy: Copy) -> None:
    folder = copy(serial.CSVS["original"], frontier.CSV, t4.TIMELINE_CSV)
    text = printed(lambda console: print_results(sorted(folder.glob("*.csv")), console), 200)
    assert re.search(r"t4-serial-stages-original\n +pil original +8.99 img/s +forward 64 %", text)
    assert re.search(r"frontier: \d+ rows not measured, \w+ is not installed", text)
    assert re.search(r"\n  original, img/s: .*pil [\d.]+ · ", text)
    assert "timeline-baseline: 204 spans\n" in text
    assert "floor" not in text


@pytest.mark.parametrize("width", [80, 100, 160])
def test_verdicts_fit_and_are_counted(width: int) -> None:
    verdicts = judge(load(CLAIMS), fixture_tables())
    text = printed(lambda console: print_verdicts(verdicts, console), width)
    assert max(map(len, text.splitlines())) <= width
    for verdict in verdicts:
        (line,) = [line for line in text.splitlines() if line.split()[:1] == [verdict.claim.id]]
        assert verdict.verdict in line
    counted = counting([verdict.claim for verdict in verdicts])
    of_paper = [each for each in verdicts if each.claim.source == PAPER]
    counts = " ".join(text.rpartition(f"paper, {len(of_paper)} numbers: ")[2].split())
    for word in VERDICTS:
        n = sum(each.verdict == word and each.claim.id in counted for each in of_paper)
        assert (f"{n} {word}" in counts) == (n > 0)
    assert " by construction" in counts
    assert text.count("applies only to a Tesla T4") == 1


def test_a_quick_run_fits_on_a_screen() -> None:
    """Tables and judged claims; beside them are ten lines of where everything is."""
    folder = fixture_tables()
    csvs = [csv for name in contents.QUICK for csv in contents.load(name).TABLES]
    paths = [folder / csv for csv in csvs if (folder / csv).is_file()]
    assert len(paths) > 5
    verdicts = judge(load(CLAIMS), folder)

    def show(console: Console) -> None:
        print_results(paths, console)
        print_verdicts(verdicts, console, judged_of=contents.QUICK)

    lines = printed(show, 80).splitlines()
    assert len(lines) < 50
    assert max(map(len, lines)) <= 80
    frontier_at = lines.index(next(line for line in lines if line.startswith("frontier")))
    assert re.search(r"\bours [\d,.]+", " ".join(lines[frontier_at:]))
    judged = [verdict for verdict in verdicts if verdict.verdict in JUDGED]
    for verdict in judged:
        is_listed = any(line.split()[:1] == [verdict.claim.id] for line in lines)
        assert is_listed == (verdict.claim.experiment in contents.QUICK), verdict.claim.id
    assert any(line.startswith("paper, ") for line in lines[-3:])
    assert "One repeat" not in "\n".join(lines), "reasons are in claims.csv"


def test_a_comparison_is_printed_in_full() -> None:
    difference = Difference("t.csv", "1 pil", "wall_s", "58.8", "[red]91.2")
    one_sided = ["2 tables only in A: u.csv, v.csv"]
    comparison = Comparison([], [difference], one_sided, n_tables=3, n_rows=12, n_cells=90)
    text = printed(lambda console: print_comparison(comparison, 0.25, console, "all"))
    counts = "cells in 12 rows of 3 tables that both ran: 1 differs · 89 held"
    for cell in ("t.csv", "1 pil", "wall_s", "58.8", "[red]91.2", counts):
        assert cell in text
    assert "not compared: 2 tables only in A: u.csv, v.csv\n" in text


class TestClosingSentence:
    @pytest.mark.parametrize(
        ("name", "sentence"),
        [
            (
                "frontier",
                "ours prepares 422 originals per second (median 367 KB, 5.48 megapixels) on 2 "
                "cores: 1.15× (one repeat) the next fastest loader with 40 dB in every image "
                "(DataLoader + PIL draft), 2.12× (one repeat) the paper's recipe, 5.94× (one "
                "repeat) DataLoader + PIL",
            ),
            (
                "opt",
                "on 256 px images the optimized recipe embeds 3.38 images per second, "
                "0.30× the baseline",
            ),
        ],
    )
    def test_fixture_run(self, name: str, sentence: str) -> None:
        assert closing_sentence(fixture_tables(), [name]) == sentence

    def test_only_what_was_run_is_compared(self, tmp_path: Path) -> None:
        assert closing_sentence(fixture_tables(), []) == ""
        assert closing_sentence(tmp_path, contents.ORDER) == ""
        several = closing_sentence(fixture_tables(), ["serial", "t4", "opt"])
        assert several == closing_sentence(fixture_tables(), ["opt"])

    def test_unlike_runs_are_not_compared(self, copy: Copy) -> None:
        folder = copy(t4.CSV, opt.CSV)
        edit(folder / t4.CSV, corpus="abo")
        assert closing_sentence(folder, ["opt"]).endswith("3.38 images per second")

    def test_mock_model_is_named(self, copy: Copy) -> None:
        folder = copy(opt.CSV)
        edit(folder / opt.CSV, weights="none")
        assert " images per second (mock model)" in closing_sentence(folder, ["opt"])
