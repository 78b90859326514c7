"""`profiler`: its cells, and its table."""

from dataclasses import replace

from experiments import profiler
from harness.records import Record
from tests.experiments.conftest import Grid
from tests.fixture_run import fixture_records


def measured(stage: int, torch: float = 0.01, c: float = 0.002) -> Record:
    """Two rounds of 100 calls; a bare loop costs 10 ns a call, a stage call `stage` ns more."""
    per_call = {"bare_loop": 0, "stage_calls": stage}
    samples = {name: [1_000 + 100 * ns, 3_000 + 100 * ns] for name, ns in per_call.items()}
    differences = {"torch.profiler": {"decode": torch, "resize": torch / 2}}
    differences["cProfile"] = {"decode": c, "forward": 0.0}
    values = {"calls_per_round": 100, "differences": differences}
    return replace(fixture_records("profiler")[0], samples=samples, values=values)


def test_one_cell_per_repeat(grid: Grid) -> None:
    cells = grid("profiler", "repeats=3", "corpus.image_set=small_256")
    assert [(cell.protocol, cell.repeat) for cell in cells] == [("profiler", n) for n in range(3)]
    assert {cell.images.image_set for cell in cells} == {"small_256"}


def test_cost_is_per_call_without_the_bare_loop() -> None:
    records = [measured(200), measured(100), measured(300)]
    stage, *agreement = profiler.tables(records)[profiler.CSV]
    both = "torch.profiler and cProfile"
    assert [row["what"] for row in agreement] == ["torch.profiler", "cProfile", both]
    cost = (stage["ns_per_call"], stage["ns_per_call_min"], stage["ns_per_call_max"])
    assert (stage["what"], cost) == ("stage call", (200, 100, 300))
    assert (stage["n_calls"], stage["repeats"]) == (600, 3)


def test_agreement_is_the_worst_stage_of_the_median_repeat() -> None:
    differences = ((0.5, 0.002), (0.01, 0.03), (0.02, 0.001))
    rows = profiler.tables([measured(1, *pair) for pair in differences])[profiler.CSV]
    printed = [
        tuple(row[f"max_relative_difference{end}"] for end in ("", "_min", "_max"))
        for row in rows[1:]
    ]
    assert printed == [(0.02, 0.01, 0.5), (0.002, 0.001, 0.03), (0.03, 0.02, 0.5)]


def test_no_records_no_table() -> None:
    assert profiler.tables([]) == {}
