"""`frontier`, `limits` and `scaling`: their grids, and their tables from made records."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from experiments import frontier, limits, scaling
from tests import making
from tests.experiments import made
from wallclock.records import Record
from wallclock.spec import ModelSpec, Recipe

S = 1_000_000_000
CLOSE = {
    "psnr_db": 43.0,
    "psnr_db_min": 40.0,
    "max_abs_diff": 9,
    "psnr_loss_vs_area_db": 0.4,
    "psnr_gain_vs_paper_db": 3.0,
    "cosine": 1.0,
}
LIMITS = {"min_psnr_db": 25.0, "min_cosine": 0.9, "max_loss_db": 1.0, "not_below_paper": True}


def loaded(
    system: str, rate: float, repeat: int = 0, variant: str = "", fidelity: object = None
) -> Record:
    """A loader that took ten seconds."""
    values = {
        "n_loaded": round(rate * 10),
        "n_unique": 4,
        "library": "x 1",
        "settings": "as told",
        "startup_s": 0.1,
    }
    values |= {"cores": 2, "progressive_share": 0.0, **({"fidelity": fidelity} if fidelity else {})}
    params = {"system": system, "variant": variant, "subset": "all", "fidelity": LIMITS}
    recipe = Recipe(system, engine=system)
    samples = {"wall": [10 * S]}
    return made.record(
        "frontier",
        "loading",
        f"{system}-{variant}",
        recipe,
        repeat,
        "original",
        samples,
        values,
        params,
    )


def test_the_frontiers_grid_takes_a_folder_apart_by_process(tmp_path: Path) -> None:
    base = tmp_path / "base"
    base.mkdir()
    mine = tmp_path / "mine"
    mine.mkdir()
    for seed in range(4):
        (mine / f"{seed}.jpg").write_bytes(making.jpeg(seed=seed, progressive=seed % 2 == 0))
    plan = made.plan(
        base, "experiment=[frontier]", "repeats=2", f"experiment.frontier.folder='{mine}'"
    )
    cells = frontier.cells(plan, plan.settings.experiments["frontier"])
    wanted = {(cell.corpus.n, cell.params["subset"]) for cell in cells if cell.corpus}
    assert wanted == {(3, "all"), (4, "all"), (4, "baseline"), (4, "progressive")}
    assert len({(cell.label, cell.corpus, cell.repeat) for cell in cells}) == len(cells)
    engines = {cell.params["system"]: cell.recipe.engine for cell in cells if cell.recipe}
    assert engines["ours"] == "threads"
    assert engines["paper"] == "dataloader"
    assert engines["baseline"] == "dataloader"
    assert engines["dali"] == "dali"
    workers = {
        cell.params["variant"]: cell.recipe.workers
        for cell in cells
        if cell.recipe and cell.recipe.name == "paper"
    }
    assert workers["8"] == 8


def test_ratios_are_of_medians_and_the_faster_variant_counts() -> None:
    records = [
        loaded("pil", rate, i, fidelity=CLOSE if i == 0 else None)
        for i, rate in enumerate((50.0, 40.0, 60.0))
    ]
    records += [loaded("paper", 150.0, variant="8"), loaded("paper", 200.0, variant="cores")]
    records.append(loaded("ours", 500.0, fidelity=CLOSE | {"psnr_loss_vs_area_db": 1.5}))
    pil, paper, ours = frontier.tables(records)[frontier.CSV]
    assert tuple(pil) == frontier.COLUMNS
    assert (pil["img_per_s"], pil["img_per_s_min"], pil["img_per_s_max"], pil["repeats"]) == (
        50.0,
        40.0,
        60.0,
        3,
    )
    assert (pil["gate"], pil["psnr_db"]) == ("passed", 43.0)
    assert (paper["variant"], paper["other_variants"], paper["gate"]) == (
        "cores",
        "8: 150 img/s",
        "not checked",
    )
    assert (ours["speedup_vs_pil"], ours["speedup_vs_paper"]) == (10.0, 2.5)
    assert (ours["gate"], ours["status"], ours["img_per_s"]) == ("failed", "ok", 500.0), (
        "no time is withheld"
    )


def test_a_peer_that_is_not_here_is_a_row_with_the_fix() -> None:
    reason = "spdl is not installed: make setup-peers"
    gone = replace(loaded("spdl", 1.0), status="unavailable", reason=reason, samples={}, values={})
    (row,) = frontier.tables([gone])[frontier.CSV]
    assert (row["status"], row["reason"], row["img_per_s"], row["speedup_vs_pil"]) == (
        "unavailable",
        reason,
        None,
        None,
    )


def limit(what: str, rate: float, ms: float = 0.0) -> Record:
    recipe = Recipe("fast", engine="threads")
    values = {"n_loaded": round(rate * 10), "n_unique": 4}
    label = f"{what}-{ms}"
    record = made.record(
        "limits",
        "ceiling",
        label,
        recipe,
        0,
        "original",
        {"wall": [10 * S]},
        values,
        {"what": what},
    )
    return replace(
        record, cell=replace(record.cell, model=ModelSpec("null", "none", service_ms_per_image=ms))
    )


@pytest.mark.parametrize(
    ("memory", "ms", "rate", "stage", "efficiency"),
    [
        (500, 10.0, 98.0, "forward", 0.98),
        (500, 0.2, 440.0, "decode and resize", 0.88),
        (900, 0.2, 440.0, "read", 0.88),
    ],
)
def test_efficiency_is_over_the_lowest_ceiling_which_has_a_name(
    memory: float, ms: float, rate: float, stage: str, efficiency: float
) -> None:
    records = [limit("decode_files", 500), limit("decode_memory", memory), limit("loader", 450)]
    records += [
        limit("forward", 100, 10.0),
        limit("forward", 5000, 0.2),
        limit("end_to_end", rate, ms),
    ]
    rows = {row["what"]: row for row in limits.tables(records)[limits.CSV]}
    assert tuple(rows["loader"]) == limits.COLUMNS
    assert rows["loader"]["efficiency"] == pytest.approx(0.9)
    assert rows["end_to_end"]["efficiency"] == pytest.approx(efficiency)
    assert rows["end_to_end"]["limited_by"] == stage
    assert rows["decode_files"]["efficiency"] is None


def test_the_grid_of_limits_has_stand_ins_where_there_is_no_gpu(tmp_path: Path) -> None:
    plan = made.plan(tmp_path, "experiment=[limits]", "repeats=1")
    cells = limits.cells(plan, plan.settings.experiments["limits"])
    assert len({cell.label for cell in cells}) == len(cells)
    whole = [
        (cell.recipe.name, cell.model.service_ms_per_image)
        for cell in cells
        if cell.recipe and cell.model and cell.params["what"] == "end_to_end"
    ]
    assert whole == [("fast", 10.0), ("fast", 0.2), ("optimized", 0.2)]
    assert {cell.params["allocator"] for cell in cells} == {"keep"}
    rounds = [
        cell.params["batches"] / cell.recipe.workers
        for cell in cells
        if cell.recipe and cell.recipe.workers > 1 and "batches" in cell.params
    ]
    assert rounds
    assert min(rounds) >= 10, "what workers have half done at either end must be little"


def complete(what: str, n: int, seconds: float, threads: int) -> Record:
    values = {"n_loaded": n, "n_unique": 4, "settings": "", "cores": 2, "peak_memory_mib": 300.0}
    recipe = Recipe("fast", engine="threads", workers=threads)
    samples = {"wall": [round(seconds * S)]}
    return made.record(
        "scaling",
        "load_n",
        f"{what}-{threads}-{n}",
        recipe,
        0,
        "original",
        samples,
        values,
        {"what": what},
    )


def test_the_line_through_the_counts_and_the_gain_of_threads() -> None:
    records = [complete("images", n, 0.5 + 0.002 * n, 0) for n in (100, 1000, 10_000)]
    records += [complete("threads", 1000, 4.0, 1), complete("threads", 1000, 2.1, 2)]
    rows = scaling.tables(records)[scaling.CSV]
    assert tuple(rows[0]) == scaling.COLUMNS
    for row in rows[:3]:
        assert row["fit_startup_s"] == pytest.approx(0.5)
        assert row["fit_ms_per_image"] == pytest.approx(2.0)
        assert row["fit_r2"] == pytest.approx(1.0)
    assert rows[3]["fit_r2"] is None
    assert rows[4]["over_one_thread"] == pytest.approx(4.0 / 2.1)


def test_the_grid_of_scaling_stops_at_the_longest_run(tmp_path: Path) -> None:
    plan = made.plan(tmp_path, "experiment=[scaling]", "repeats=1", "longest=1000")
    cells = scaling.cells(plan, plan.settings.experiments["scaling"])
    assert [cell.params["n"] for cell in cells if cell.params["what"] == "images"] == [
        250,
        500,
        1000,
    ]
    assert {
        cell.recipe.workers for cell in cells if cell.recipe and cell.params["what"] == "threads"
    } >= {1}
