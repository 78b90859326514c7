"""A diagnosis for a box that is not here: the paper's T4, and accelerators by their cited peaks."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from experiments import _accelerators, _fixes, diagnose
from experiments._costs import NoCostsError
from experiments._fixes import Folder
from harness.protocols.costs import step
from harness.protocols.protocol import no_progress
from harness.records import Record
from harness.spec import Cell
from paper import diagnosis
from tests.experiments import made
from tests.experiments.made import MS
from wallclock.errors import UserError
from wallclock.recipe import ModelSpec, Recipe

Row = dict[str, Any]


def diagnosed(cores: int = 16, usd: float | None = 3.6, **model: Any) -> list[Record]:
    """Loading takes 10 ms an image here, beside four cores; serializing 1 ms."""
    options = made.resolved("experiment=[diagnose]", "device=cpu").experiments["diagnose"]
    recipe = replace(options["recipe"], device="cuda")
    folder = Folder(has_jpegs=True)
    planned = _fixes.scenarios(options, recipe, cores, folder)
    there = {"accelerator": "T4", "cores": cores, "usd_per_hour": usd}
    params = {"setups": [asdict(scenario) for scenario in planned], "elsewhere": there}
    loading = {"mean_bytes": 2e4, "n_embedded": 1, "page_cache": "warm"}
    loading |= {"cpu_s": {"1": 0.010, "4": 0.020, "8": 0.020}}
    sizes = {"batch_sizes": [8], "seconds": 1}
    step = {f"{stage}-8": [8 * MS] for stage in ("forward", "h2d", "d2h", "serialize")}
    flops = {"flops_per_image": _accelerators.DINOV2_SMALL_FLOPS * model.pop("times", 1)}
    transfer = {f"{end}-8": [0] for end in ("assemble", "worker", "main")}
    here = replace(recipe, device="cpu", dtype="fp32")
    decode = {"decode": [10 * MS]}
    return [
        made.record("diagnose", "image_stats", "images", made.IMAGE_STATS, params, recipe=here),
        made.record("diagnose", "contention", "now", loading, {}, decode, here),
        made.record("diagnose", "batch_transfer", "batch", {}, sizes, transfer, here),
        made.record("diagnose", "step", "step", flops, sizes, step, here),
    ]


def rows(records: list[Record]) -> dict[str, Row]:
    table = diagnose.tables(records)[diagnose.PREDICTIONS_CSV]
    return {str(row["fix"]): row for row in table if row["kind"] != "stacked"}


def test_the_forward_pass_is_the_papers_and_loading_this_machines() -> None:
    """Four workers of sixteen cores, all of which are as slowed down as one of four here."""
    predicted = rows(diagnosed())
    now, more = predicted["your recipe as it is"], predicted["16 workers"]
    assert now["device"] == "T4 beside 16 cores, not here"
    assert (now["device_kind"], now["origin"]) == ("cuda", "predicted")
    # A worker's 10 ms: 400 a second, over the network's 264; receiving and serializing take 1 ms.
    assert now["accelerator_utilization"] < 1
    assert now["predicted_img_per_s"] == pytest.approx(1 / (1 / 264 + 0.001), rel=0.05)
    assert more["predicted_img_per_s"] >= now["predicted_img_per_s"]
    assert now["usd_per_million"] == pytest.approx(1e3 / now["predicted_img_per_s"])


def test_a_larger_network_takes_its_share_of_operations() -> None:
    now = rows(diagnosed(times=10, usd=None))["your recipe as it is"]
    assert now["predicted_img_per_s"] == pytest.approx(1 / (10 / 264 + 0.001), rel=0.05)
    assert now["usd_per_million"] is None


def test_other_accelerators_have_two_rates_and_no_rate_in_an_uncited_dtype() -> None:
    t4, a100 = (_accelerators.load()[name] for name in ("T4", "A100"))
    assert t4.rates("fp16") == (1006, 1006)
    assert a100.rates("fp32") == pytest.approx((264 * 19.5 / 8.1, 264 * 2039 / 320))
    with pytest.raises(NoCostsError, match="no rate of the A100 in int8"):
        a100.rates("int8")


@pytest.mark.slow
def test_operations_of_dinov2_small_are_counted(tmp_path: Path) -> None:
    cell = Cell("diagnose", "step", "step", 0, Recipe("x"), None, made.MODEL)
    params = {"batch_sizes": [1], "batches": 1, "seconds": 0.01, "count_flops": True}
    values = step(replace(cell, params=params), tmp_path, no_progress).values
    assert values["flops_per_image"] == _accelerators.DINOV2_SMALL_FLOPS


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"accelerator": "T5"}, "did you mean T4"),
        ({"accelerator": "T4", "prove": True}, "a proof runs on this machine"),
        ({"accelerator": "T4"}, "a mock model has a time of its own"),
    ],
)
def test_what_cannot_be_predicted_is_one_line(tmp_path: Path, options: Row, words: str) -> None:
    plan = made.plan(tmp_path, "experiment=[diagnose]")
    with pytest.raises(UserError, match=words):
        diagnose.cells(plan, {**plan.settings.experiments["diagnose"], **options})


def test_cells_for_a_box_elsewhere_run_here(tmp_path: Path) -> None:
    plan = made.plan(tmp_path, "experiment=[diagnose]")
    plan.settings = replace(plan.settings, model=ModelSpec("dinov2-small"))
    options = {**plan.settings.experiments["diagnose"], "accelerator": "A100"}
    grid = diagnose.cells(plan, options)
    assert {cell.recipe.device for cell in grid} == {"cpu"}
    there = grid[0].params["elsewhere"]
    assert there == {"accelerator": "A100", "cores": 12, "usd_per_hour": None}
    setups = grid[0].params["setups"]
    assert {scenario["recipe"]["device"] for scenario in setups} == {"cuda"}
    assert not any(cell.protocol == "throughput" for cell in grid)


def test_the_page_says_for_which_box_and_at_what_price(tmp_path: Path) -> None:
    from paper.csvfile import write_table

    for name, table in diagnose.tables(diagnosed()).items():
        write_table(tmp_path / name, diagnose.TABLES[name], table)
    loaded = diagnosis.load(tmp_path)
    assert loaded is not None
    assert (loaded.elsewhere, loaded.device, loaded.on_cpu) == (True, "T4", False)
    verdict = " ".join(diagnosis.words_of(loaded)[1])
    assert "For a T4 beside 16 cores, not here: loading was measured on this machine" in verdict
    assert "A million images: " in verdict
    assert "$" in verdict
