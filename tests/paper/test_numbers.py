"""Numbers as they are read, counted and written."""

import math
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments import contents
from experiments.analytic import cells as analytic
from harness.spec import Settings
from harness.table import read_columns, read_table, write_table
from paper.__main__ import main
from paper.settings import load, translate
from tests.conftest import ON_PATH, run_command
from tests.experiments.made import AboPlan
from wallclock.errors import UserError

# --- tables ---------------------------------------------------------------------------------------


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tables") / "table.csv"


def test_form_of_a_value(path: Path) -> None:
    forms: dict[str, list[object]] = {
        "": [None, math.nan, np.float64("nan")],
        "yes": [True, np.bool_(True)],
        "no": [False],
        "100000000": [100_000_000],
        "7": [np.int64(7)],
        "0.333333": [1 / 3],
        "2": [2.0],
        "0.5": [np.float32(0.5)],
        "1.23457e+06": [1_234_567.0],
        "inf": [math.inf],
        "pil": ["pil"],
    }
    for cell, values in forms.items():
        for value in values:
            write_table(path, ["value", "last"], [{"value": value, "last": 1}])
            assert path.read_bytes() == f"value,last\n{cell},1\n".encode()


@given(st.lists(st.lists(TEXT, min_size=3, max_size=3), max_size=5))
def test_text_round_trips_on_one_line(path: Path, cells: list[list[str]]) -> None:
    rows = [dict(zip("abc", line, strict=True)) for line in cells]
    write_table(path, "abc", rows)
    first = path.read_bytes()
    assert first.count(b"\n") == len(rows) + 1
    assert read_table(path) == [
        {key: " ".join(cell.splitlines()) for key, cell in row.items()} for row in rows
    ]
    write_table(path, "abc", read_table(path))
    assert path.read_bytes() == first


@given(st.floats(allow_nan=False, allow_infinity=False, allow_subnormal=False))
def test_float_round_trips_to_six_digits(path: Path, value: float) -> None:
    write_table(path, ["mean_ms", "last"], [{"mean_ms": value, "last": 0}])
    assert read_table(path)[0]["mean_ms"] == pytest.approx(value, rel=1e-5, abs=0)


BAD = [{"a": 1}, {"a": 1, "b": 2, "c": 3}, {"a": 1, "c": 2}, {"a": 1, "b": [1]}]


@pytest.mark.parametrize("row", BAD)
def test_refused_row_keeps_the_old_table(path: Path, row: dict[str, object]) -> None:
    write_table(path, ["a", "b"], [{"a": 1, "b": 2}])
    with pytest.raises(ValueError, match=r"row 1|list"):
        write_table(path, ["a", "b"], [row])
    with pytest.raises(ValueError, match="twice"):
        write_table(path, ["a", "a"], [])
    assert path.read_text() == "a,b\n1,2\n"


@pytest.mark.parametrize("text", ["", "a,b\n1\n", "a,b\n1,2,3\n"])
def test_damaged_table_is_a_user_error(path: Path, text: str) -> None:
    path.write_text(text)
    with pytest.raises(UserError, match="run its experiment again"):
        read_table(path)


def test_a_cell_is_what_its_column_holds(path: Path) -> None:
    """Numbers, yes or no, and text, which may look like either."""
    path.write_text("mean_ms,n_images,steady,format,toy\n1e+06,64,yes,5,no\n,,,,\nnan,0,no,,1\n")
    assert [tuple(row.values()) for row in read_table(path)] == [
        (1_000_000.0, 64, True, "5", "no"),
        (None, None, None, "", ""),
        (None, 0, False, "", "1"),
    ]
    first = path.read_bytes()
    write_table(path, read_columns(path), read_table(path))
    assert path.read_bytes() == first.replace(b"nan", b"")


@pytest.mark.parametrize("cell", ["mean_ms\npil", "steady\ntrue", "mean_ms\n1,5"])
def test_a_cell_that_its_column_cannot_hold_is_named(path: Path, cell: str) -> None:
    path.write_text(f"last,{cell}\n".replace("\n", "\n1,", 1))
    with pytest.raises(UserError, match="row 1"):
        read_table(path)


# --- counts ---------------------------------------------------------------------------------------


#: The paper's passes; `also` brings others beside them.
PASSES = ("serial", "cpu", "t4", "opt", "fast", "steps", "workers", "batch")
ABO = "device=cpu model=null corpus=abo"


def loaded(words: str) -> Settings:
    return load(translate(words.split()))


def planned(settings: Settings, name: str) -> set[int]:
    """Images of an experiment's timed passes over the small images."""
    plan = AboPlan(settings, lambda done, total, what: None)
    cells = contents.load(name).cells(plan, settings.experiments[name])
    return {
        cell.images.n
        for cell in cells
        if cell.protocol in ("serial", "throughput") and cell.images.image_set == "small_256"
    }


def listed(note: str) -> dict[str, int]:
    """Experiment → images, as the line names them."""
    before = note.partition("; type")[0]
    return {name: int(n.replace(",", "")) for name, n in re.findall(r"(\w+) (\d[\d,]*)", before)}


@pytest.mark.parametrize(
    ("profile", "n", "names"),
    [
        ("paper", 100_000, "all"),
        ("paper", 5_000, ",".join(PASSES)),
        ("long", 100_000, ",".join(PASSES)),
        ("long", 5_000, ",".join(PASSES)),
        ("quick", 5_000, ",".join(PASSES)),
    ],
)
def test_the_line_names_what_is_planned(profile: str, n: int, names: str) -> None:
    settings = loaded(f"--n {n} {ABO} --experiment {names} profile={profile}")
    (note,) = settings.notes
    assert "\n" not in note
    named = listed(note.removeprefix(f"fewer images than --n {n} allows: "))
    for name in PASSES:
        assert planned(settings, name) == {named.get(name, n)}, name
    assert named.keys() <= {*PASSES}


def test_the_papers_own_command() -> None:
    (note,) = loaded("--n 100000 --experiment serial,t4,opt device=cpu model=null").notes
    assert note == (
        "fewer images than --n 100000 allows: serial 5,000, t4 12,000, opt 20,000; type "
        "profile=long for the paper's numbers (t4, opt: 100,000), or "
        "experiment.serial.images.small_256=100000 for any other number"
    )
    settings = loaded("--n 100000 --experiment t4,opt device=cpu model=null profile=long")
    assert settings.notes == ()
    assert planned(settings, "t4") == planned(settings, "opt") == {100_000}


@pytest.mark.parametrize(
    "words",
    [
        "--experiment serial,t4,opt",
        "--n 100 --experiment all",
        "--n 100000 --experiment decoders,frontier,profiler",
        "--quick --experiment serial,t4,opt",
    ],
)
def test_no_line_without_need(words: str) -> None:
    assert loaded(f"{words} device=cpu model=null").notes == ()


# --- calculator -----------------------------------------------------------------------------------


#: The tutorial's ResNet-50 on an A100: eight workers of 250 MB/s.
STEPS = {32: "5.86", 64: "6.70", 128: "8.38", 256: "11.74", 512: "18.47", 1024: "31.93"}
WORKERS = "--workers 8 --worker-mb-per-s 250"

Capture = pytest.CaptureFixture[str]


def printed(words: str, capsys: Capture) -> list[list[str]]:
    """The lines that a case prints, each by its columns."""
    assert main(["analytic", *words.split()]) == 0
    return [re.split(r" {1,}(?=\S)", line.strip()) for line in capsys.readouterr().out.splitlines()]


def case(batch: int, rest: str = WORKERS, kb: int = 500) -> str:
    return f"--sample-kb {kb} --batch {batch} --step-ms {STEPS[batch]} {rest}"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        # Exercise 1: batch 64, predict first.
        (case(64), "64 8 16 ms 6.7 ms 41.9 % 2.39× 20 4.78 GB/s transform"),
        # Exercise 2: samples of 5 MB; how many workers batch 256 needs.
        (case(256, kb=5000), "256 8 640 ms 11.7 ms 1.8 % 54.5× 437 109 GB/s transform"),
        # Exercise 3: 50 GB/s at batch 512; and with a drive of 7 GB/s, which the source forgets.
        (
            case(512, "--transform-gb-per-s 50"),
            "512 – 5.12 ms 18.5 ms 100.0 % 1.00× – 13.9 GB/s accelerator",
        ),
        (
            case(512, "--transform-gb-per-s 50 --storage-gb-per-s 7"),
            "512 – 5.12 ms 18.5 ms 100.0 % 1.00× – 13.9 GB/s storage",
        ),
        # Self-check: 20 / 35 = 57 %.
        (
            "--sample-kb 1000 --batch 35 --step-ms 20 --transform-gb-per-s 1",
            "35 – 35 ms 20 ms 57.1 % 1.75× – 1.75 GB/s transform",
        ),
    ],
)
def test_exercises(words: str, expected: str, capsys: Capture) -> None:
    _, line = printed(words, capsys)
    assert " ".join(line) == expected


def test_the_source_table_and_its_crossover(capsys: Capture) -> None:
    batches, steps = " ".join(map(str, STEPS)), " ".join(STEPS.values())
    words = f"--sample-kb 500 --batch {batches} --step-ms {steps} --worker-mb-per-s 250"
    heading, *lines, last = printed(f"{words} --workers 8 16", capsys)
    assert heading[:2] == ["batch", "workers"]
    busy = {(line[0], line[1]): line[6] for line in lines}
    expected = {
        (str(row["batch_size"]), str(row["workers"])): f"{100 * row['utilization']:.1f}"
        for row in analytic.source_rows()
        if row["scenario"] in ("workers: 8", "workers: 16")
    }
    assert busy == expected
    assert " ".join(last) == "up to a batch of 22 the accelerator is the slower one"


def test_it_fits_80_columns_and_needs_no_images() -> None:
    """In a process of its own: neither Hydra nor pandas nor torch is loaded."""
    program = (
        "import sys; from paper.__main__ import main; main(sys.argv[1:]);"
        "print([n for n in ('hydra', 'pandas', 'torch') if n in sys.modules])"
    )
    words = ("analytic", *case(1024).split())
    env = {**ON_PATH, "COLUMNS": "80"}
    done = run_command(sys.executable, "-c", program, *words, env=env)
    *table, loaded = done.stdout.splitlines()
    assert len(table) == 2
    assert max(map(len, table)) <= 80
    assert loaded == "[]"
