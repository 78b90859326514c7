"""What another machine would bring: predicted from the committed run's tables, every assumption said."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from wallclock import provenance
from wallclock.errors import UserError
from wallclock.paper import whatif
from wallclock.paper.check import references
from wallclock.paper.csvfile import number, read_table
from wallclock.paper.whatif import Case, Changes

OUT = references(provenance.ROOT / "data" / "reference")[0]
SET, PIL = "original", "pil"


def answers(own: Changes | None = None, image_set: str = SET) -> dict[str, Case]:
    return {case.name: case for case in whatif.cases(OUT, image_set, PIL, own or Changes())}


def test_in_turn_it_is_what_the_serial_pass_measured() -> None:
    row = read_table(OUT / whatif.TABLES[SET])[0]
    said = answers(Changes(workers=0))["yours"].answer()
    assert said.img_per_s == pytest.approx(number(row["img_per_s"]), rel=0.02)


def test_the_scenarios_go_the_way_they_must() -> None:
    rates = {name: case.answer().img_per_s for name, case in answers().items()}
    # The forward pass halves; a loader still holds all of its threads up.
    assert 1.2 * rates["as it is"] < rates["twice the cores"] <= 2 * rates["as it is"]
    assert rates["an H100"] > rates["as it is"]
    assert rates["images of 5 MB"] < rates["as it is"]
    assert rates["H100, 1 Gbit/s"] <= rates["an H100"]
    assert answers()["an H100"].answer().bottleneck == "transform"


def test_slow_storage_binds() -> None:
    said = answers(Changes(storage_gbit=0.01))["yours"].answer()
    assert said.bottleneck == "storage"
    assert said.img_per_s * 1e3 * (
        number(read_table(OUT / whatif.TABLES[SET])[0]["median_kb"]) or 0
    ) == pytest.approx(0.01e9 / 8)


def test_every_change_says_what_it_assumes() -> None:
    for name, case in answers(Changes(cores=8, batch=64, accelerator="3")).items():
        assert case.assumed, name


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda: whatif.cases(OUT, "none", PIL, Changes()), "one of small_256, original"),
        (lambda: whatif.cases(OUT, SET, "none", Changes()), r"there: pil, .* --experiment serial"),
        (lambda: whatif.cases(OUT / "none", SET, PIL, Changes()), "--experiment serial"),
        (lambda: answers(Changes(cores=0)), "cores=0"),
        (lambda: answers(Changes(storage_gbit=0)), "storage_bytes_per_s"),
        (lambda: answers(Changes(image_mb=-1)), "finite number"),
        (lambda: answers(Changes(batch=0)), "a batch"),
        (lambda: answers(Changes(workers=-1)), "workers from 0"),
        (lambda: answers(Changes(accelerator="A99")), "T4, H100, or a factor"),
        (lambda: answers(Changes(accelerator="0")), "above 0"),
        (lambda: answers(Changes(accelerator="nan")), "above 0"),
    ],
)
def test_what_cannot_be_asked_is_one_line(ask: Callable[[], object], words: str) -> None:
    with pytest.raises(UserError, match=words) as caught:
        ask()
    assert "\n" not in str(caught.value)


def test_the_command_prints_answers_and_assumptions(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "wallclock.paper",
        "whatif",
        "--out",
        str(OUT),
        "--image-mb",
        "2",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for words in (
        "predicted, not measured",
        "twice the cores",
        "an H100",
        "1 Gbit/s",
        "5 MB",
        "yours",
        "Assumed",
    ):
        assert words in done.stdout, words
    assert re.search(r"- yours: read, decode and resize cost [\d.]+ times as much", done.stdout)
    failed = subprocess.run(
        [*command[:5], str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert (failed.returncode, failed.stderr.count("\n")) == (1, 1)
