"""What another machine would bring: predicted from the reference run, assumptions included."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from experiments import serial
from tests.paper.tables import REFERENCE
from wallclock.errors import UserError
from wallclock.paper import whatif
from wallclock.paper.__main__ import main
from wallclock.paper.csvfile import number, read_table
from wallclock.paper.whatif import Case, Changes

SET, PIL = "original", "pil"
ROW = read_table(REFERENCE / serial.CSVS[SET])[0]


def cases(changes: Changes | None = None) -> dict[str, Case]:
    answers = whatif.cases(REFERENCE, SET, PIL, changes or Changes())
    return {case.name: case for case in answers}


def test_without_workers_it_is_the_serial_pass() -> None:
    predicted = cases(Changes(workers=0))["yours"].predict()
    assert predicted.img_per_s == pytest.approx(number(ROW["img_per_s"]), rel=0.02)


def test_scenarios_are_ordered() -> None:
    rates = {name: case.predict().img_per_s for name, case in cases().items()}
    # The forward pass halves; a loader still blocks on all of its threads.
    assert 1.2 * rates["as it is"] < rates["twice the cores"] <= 2 * rates["as it is"]
    assert rates["an H100"] > rates["as it is"]
    assert rates["images of 5 MB"] < rates["as it is"]
    assert rates["H100, 1 Gbit/s"] <= rates["an H100"]
    assert cases()["an H100"].predict().bottleneck == "transform"


def test_slow_storage_is_the_bottleneck() -> None:
    predicted = cases(Changes(storage_gbit=0.01))["yours"].predict()
    assert predicted.bottleneck == "storage"
    bytes_per_s = predicted.img_per_s * 1e3 * (number(ROW["median_kb"]) or 0)
    assert bytes_per_s == pytest.approx(0.01e9 / 8)


def test_every_change_states_its_assumption() -> None:
    for name, case in cases(Changes(cores=8, batch=64, accelerator="3")).items():
        assert case.assumed, name


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda: whatif.cases(REFERENCE, "x", PIL, Changes()), "one of small_256, original"),
        (
            lambda: whatif.cases(REFERENCE, SET, "x", Changes()),
            r"present: pil, opencv, turbojpeg\); .* --experiment serial",
        ),
        (lambda: whatif.cases(REFERENCE / "x", SET, PIL, Changes()), "--experiment serial"),
        (lambda: cases(Changes(cores=0)), "cores=0"),
        (lambda: cases(Changes(storage_gbit=0)), "storage_bytes_per_s"),
        (lambda: cases(Changes(image_mb=-1)), "finite number"),
        (lambda: cases(Changes(batch=0)), "a batch"),
        (lambda: cases(Changes(workers=-1)), "workers from 0"),
        (lambda: cases(Changes(accelerator="A99")), "T4, H100, or a factor above 0"),
        (lambda: cases(Changes(accelerator="0")), "above 0"),
        (lambda: cases(Changes(accelerator="nan")), "above 0"),
        (lambda: cases(Changes(accelerator="1.2.3")), "above 0"),
    ],
)
def test_invalid_changes_are_one_line(ask: Callable[[], object], words: str) -> None:
    with pytest.raises(UserError, match=words) as caught:
        ask()
    assert "\n" not in str(caught.value)


def test_command_prints_assumptions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["whatif", "--out", str(REFERENCE), "--image-mb", "2"]) == 0
    printed = capsys.readouterr().out
    for words in ("predicted, not measured", "twice the cores", "an H100", "1 Gbit/s", "Assumed"):
        assert words in printed, words
    assert re.search(r"- yours: read, decode and resize cost [\d.]+ times as much", printed)
    assert main(["whatif", "--out", str(tmp_path)]) == 1
    assert capsys.readouterr().err.count("\n") == 1
