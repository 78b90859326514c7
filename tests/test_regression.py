"""The gate on speed: ratios of the same round, what was recorded, and what it says of a run."""

from pathlib import Path
from typing import Any

import pytest

from benchmarks import regression
from benchmarks.regression import RATIOS, Interval, intervals, judge, ratios_of
from harness import provenance
from harness.protocols import protocol
from paper.csvfile import read_table

#: Images a second in three rounds, the second on a machine that is half as fast.
RATES = {
    "ours": [400.0, 200.0, 400.0],
    "pillow": [50.0, 25.0, 40.0],
    "crop": [300.0, 150.0, 300.0],
    "ours_256": [5000.0, 2500.0, 5000.0],
    "same": [2500.0, 1250.0, 2500.0],
    "bare": [6250.0, 3125.0, 6250.0],
    "embed": [4500.0, 2250.0, 4500.0],
    "parts": [3600.0, 1800.0, 3600.0],
}
MEDIANS = {
    "loader_over_pillow": 8.0,
    "loader_over_same": 2.0,
    "loader_over_bare": 0.8,
    "embed_over_loader": 0.9,
    "parts_over_one": 0.8,
    "crop_over_squash": 0.75,
}


@pytest.fixture
def gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run the command on those rates; others keep so many cores busy."""
    monkeypatch.setattr(regression, "PATH", tmp_path / "regression.csv")

    def run(*arguments: str, rates: dict[str, list[float]] = RATES, busy: float = 0.0) -> int:
        class Competing:
            def __init__(self, values: dict[str, float]) -> None:
                values["other_cores"] = busy

            def __enter__(self) -> None: ...

            def __exit__(self, *error: object) -> None: ...

        monkeypatch.setattr(protocol, "competing", Competing)
        monkeypatch.setattr(regression, "measure", lambda work, rounds, seconds: rates)
        return regression.main(arguments)

    return run


def test_a_ratio_is_of_the_same_round() -> None:
    ratios = ratios_of(RATES)
    assert [*ratios] == [ratio.name for ratio in RATIOS] == [*MEDIANS]
    assert ratios["loader_over_pillow"] == [8, 8, 10]
    assert ratios["embed_over_loader"] == pytest.approx([0.9] * 3)


def test_an_interval_reaches_beyond_the_recorded_runs() -> None:
    rows = [{"ratio": "a", "value": value} for value in ("1.2", "1", "1.1")]
    allowed = intervals([*rows, {"ratio": "b", "value": "2"}])
    assert (allowed["a"].low, allowed["a"].high) == pytest.approx((1 / 1.1, 1.32))
    assert (allowed["b"].low, allowed["b"].high) == pytest.approx((2 / 1.1, 2.2))
    assert (allowed["a"].runs, allowed["b"].runs) == (3, 1)


@pytest.mark.parametrize(
    ("values", "status", "line"),
    [
        ([1.0, 1.0, 9.0], 0, ""),
        ([0.5, 0.8, 1.0], 1, "a is 0.800, outside 0.900 to 1.300, by 5 runs"),
        ([1.4], 1, "a is 1.400, outside 0.900 to 1.300, by 5 runs"),
    ],
)
def test_one_line_for_each_ratio_outside(
    values: list[float], status: int, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    allowed = {"a": Interval(0.9, 1.3, 5), "b": Interval(0.9, 1.3, 5)}
    assert judge({"a": values, "b": [1.0]}, allowed) == status
    assert capsys.readouterr().err == (f"regression: {line}\n" if line else "")


def test_what_is_not_recorded_is_no_pass(capsys: pytest.CaptureFixture[str]) -> None:
    allowed = {"a": Interval(0.9, 1.3, 5)}
    assert judge({"a": [1.0], "b": [1.0]}, allowed) == 2
    assert capsys.readouterr().err == "regression: b is not recorded: run it with --record\n"
    assert judge({"a": [9.0], "b": [1.0]}, allowed) == 1, "outside is worse"


def test_the_command_records_and_compares(gate: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert gate() == 2, "nothing is recorded yet"
    assert gate("--record", busy=0.5) == 2
    assert not regression.PATH.exists()
    assert "not recorded: a run counts on a quiet machine" in capsys.readouterr().err
    assert gate("--record") == gate("--record") == gate() == 0
    rows = read_table(regression.PATH)
    assert len(rows) == 2 * len(RATIOS)
    assert {row["ratio"]: float(row["value"]) for row in rows} == pytest.approx(MEDIANS)
    assert {row["rounds"] for row in rows} == {"3"}
    slower = RATES | {"ours": [rate * 0.8 for rate in RATES["ours"]]}
    capsys.readouterr()
    assert gate(rates=slower) == 1
    printed = capsys.readouterr()
    assert [line.split()[1] for line in printed.err.splitlines()] == [
        "loader_over_pillow",
        "crop_over_squash",
    ]
    assert "6.400  (6.400 to 8.000; 7.273 to 8.800)" in printed.out


@pytest.mark.slow
def test_the_parts_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A round of short passes over few images."""
    monkeypatch.setattr(regression, "_FILES", {"original": 4, "small_256": 64})
    monkeypatch.setattr(provenance, "ROOT", tmp_path)
    rates = regression.measure(tmp_path, rounds=1, seconds=0.1)
    assert {name: len(values) for name, values in rates.items()} == dict.fromkeys(RATES, 1)
    assert min(value for values in rates.values() for value in values) > 0
