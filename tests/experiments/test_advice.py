"""The fixes of a diagnosis, for this box and for others, and how good predictions were."""

from dataclasses import asdict, replace
from math import prod
from pathlib import Path
from typing import Any

import pytest

from experiments.diagnose import accelerators, fixes
from experiments.diagnose import cells as diagnose
from experiments.diagnose.fixes import Folder, Scenario
from experiments.predict.accuracy import Outcome
from experiments.predict.accuracy import rows as accuracy_rows
from experiments.predict.costs import NoCostsError
from harness.corpora.manifest import Item
from harness.protocols.costs import step
from harness.protocols.protocol import no_progress
from harness.records import Record
from harness.spec import Cell, Recipe
from harness.table import read_table
from paper import accuracy, diagnosis
from tests.experiments import made
from tests.experiments.made import MS
from wallclock.errors import UserError
from wallclock.predict.intervals import GAIN_ERROR, RATE_ERROR
from wallclock.recipe import ModelSpec

# --- fixes ----------------------------------------------------------------------------------------


#: A folder of JPEGs.
JPEGS = Folder(has_jpegs=True)


def rated(**rates: float) -> Any:
    """A rate by what a scenario's recipe changes; of several changes, the product."""

    def rate(scenario: Scenario) -> float:
        recipe = scenario.recipe
        choices = {
            "decode": recipe.decoder != "pil",
            "threads": recipe.engine == "threads",
            "workers": recipe.engine == "dataloader" and recipe.workers == 16,
            "batch": recipe.batch_size != 32,
            "dtype": recipe.dtype == "bf16",
        }
        return prod(rates.get(name, 1.0) for name, changed in choices.items() if changed)

    return rate


def stack_of(options: dict[str, Any], **rates: float) -> list[str]:
    planned = fixes.scenarios(options, options["recipe"], 16, JPEGS)
    return [scenario.recipe.name for scenario in fixes.stacked(planned, rated(**rates))]


def test_what_gains_most_is_stacked_first_and_what_gains_nothing_never(
    options: dict[str, Any],
) -> None:
    stack = stack_of(options, decode=2.0, batch=1.2, workers=1.04, dtype=0.4, threads=0.5)
    assert stack[0].startswith("stacked-1-")
    assert stack[1] == "stacked-2-batch"
    assert len(stack) == 2
    assert stack_of(options, dtype=0.3) == []
    assert stack_of(options, batch=1.2) == [], "one fix is no stack"


def test_arithmetic_that_the_cpu_emulates_is_no_fix(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for offered in (False, True):
        monkeypatch.setattr(fixes, "computes_bf16", lambda offered=offered: offered)
        assert ("alone-dtype" in names_of(options)) is offered


def fixes_of(options: dict[str, Any], folder: Folder = JPEGS, **changes: Any) -> list[Scenario]:
    return fixes.fixes(options, replace(options["recipe"], **changes), 4, folder, "random")


def names_of(options: dict[str, Any], folder: Folder = JPEGS, **changes: Any) -> list[str]:
    return [fix.recipe.name for fix in fixes_of(options, folder, **changes)]


def test_a_folder_without_jpegs_gets_no_advice_about_them(options: dict[str, Any]) -> None:
    offered = fixes_of(options, Folder(has_jpegs=False, has_large_images=True))
    assert not any("scale" in fix.title for fix in offered)
    assert offered[-1].title == "thumbnails of 256 px, kept for the next runs"
    assert "DCT" not in fixes.advice("decode", has_jpegs=False)[0]
    assert "DCT" in fixes.advice("decode", has_jpegs=True)[0]


def test_a_change_that_is_there_already_is_no_fix(options: dict[str, Any]) -> None:
    offered = names_of(options, workers=4, batch_size=64, dtype="bf16")
    assert offered == ["alone-scaled-decode", "alone-open_images"]


@pytest.mark.parametrize(
    ("n_large", "n_small", "offered"),
    [(30, 30, ["thumbnails"]), (29, 31, []), (49, 0, [])],
    ids=["half", "too few large ones", "too few images"],
)
def test_thumbnails_are_offered_where_they_replace_enough(
    options: dict[str, Any], n_large: int, n_small: int, offered: list[str]
) -> None:
    large = Item("x", "x", 1, 2000, 1000, format="jpeg", process="baseline", components=3)
    sound = [large] * n_large + [replace(large, height=384)] * n_small
    folder = diagnose._folder(options, sound)
    planned = fixes.scenarios(options, options["recipe"], 4, folder)
    with_copies = [scenario for scenario in planned if scenario.copies]
    assert [scenario.copies for scenario in with_copies] == offered
    assert {scenario.kind for scenario in with_copies} <= {"alone"}
    assert {scenario.copies for scenario in fixes.loaders(planned)} == {"", *offered}


# --- elsewhere ------------------------------------------------------------------------------------


Row = dict[str, Any]


def diagnosed() -> list[Record]:
    """Loading takes 10 ms an image here, beside four cores; serializing 1 ms."""
    options = made.resolved("experiment=[diagnose]", "device=cpu").experiments["diagnose"]
    recipe = replace(options["recipe"], device="cuda")
    folder = Folder(has_jpegs=True)
    planned = fixes.scenarios(options, recipe, 16, folder)
    there = {"accelerator": "T4", "cores": 16, "usd_per_hour": 3.6}
    params = {"setups": [asdict(scenario) for scenario in planned], "elsewhere": there}
    loading = {"mean_bytes": 2e4, "n_embedded": 1, "page_cache": "warm"}
    loading |= {"cpu_s": {"1": 0.010, "4": 0.020, "8": 0.020}}
    sizes = {"batch_sizes": [8], "seconds": 1}
    step = {f"{stage}-8": [8 * MS] for stage in ("forward", "h2d", "d2h", "serialize")}
    flops = {"flops_per_image": accelerators.DINOV2_SMALL_FLOPS}
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


def test_other_accelerators_have_two_rates_and_no_rate_in_an_uncited_dtype() -> None:
    t4, a100 = (accelerators.load()[name] for name in ("T4", "A100"))
    assert t4.rates("fp16") == (1006, 1006)
    assert a100.rates("fp32") == pytest.approx((264 * 19.5 / 8.1, 264 * 2039 / 320))
    with pytest.raises(NoCostsError, match="no rate of the A100 in int8"):
        a100.rates("int8")


@pytest.mark.slow
def test_operations_of_dinov2_small_are_counted(tmp_path: Path) -> None:
    cell = Cell("diagnose", "step", "step", 0, Recipe("x"), None, made.MODEL)
    params = {"batch_sizes": [1], "batches": 1, "seconds": 0.01, "count_flops": True}
    values = step(replace(cell, params=params), tmp_path, no_progress).values
    assert values["flops_per_image"] == accelerators.DINOV2_SMALL_FLOPS


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
    from harness.table import write_table

    for name, table in diagnose.tables(diagnosed()).items():
        write_table(tmp_path / name, diagnose.TABLES[name], table)
    loaded = diagnosis.load(tmp_path)
    assert loaded is not None
    assert (loaded.elsewhere, loaded.device, loaded.on_cpu) == (True, "T4", False)
    verdict = " ".join(diagnosis.words_of(loaded)[1])
    assert "For a T4 beside 16 cores, not here: loading was measured on this machine" in verdict
    assert "A million images: " in verdict
    assert "$" in verdict


# --- accuracy -------------------------------------------------------------------------------------


BASE = Outcome("present", 100.0, 100.0)


def change(predicted: float, measured: float, **others: Any) -> Outcome:
    return Outcome("alone", predicted, measured, base=BASE, **others)


def row_of(*outcomes: Outcome) -> dict[str, Any]:
    return accuracy_rows([BASE, *outcomes])[0]


def test_what_a_sleep_decides_is_left_out() -> None:
    asleep = change(200, 200, mock=True, bottleneck="accelerator")
    seen = change(200, 200, mock=True, bottleneck="transform", measured_bottleneck="accelerator")
    network = change(300, 200, bottleneck="accelerator", measured_bottleneck="accelerator")
    row = row_of(asleep, seen, network)
    assert (row["n_decided_by_sleep"], row["n_gains"]) == (2, 1)
    assert row["gain_error_median"] == pytest.approx(0.5)
    (everything, group) = accuracy_rows([asleep])
    assert everything["status"] == group["status"] == "not judged"


def test_intervals_are_made_from_the_reference_runs() -> None:
    """The committed table is what the reference runs' tables make; the constants cover it, and are
    not much wider.
    """
    committed = read_table(accuracy.PATH)
    assert [row["predictions"] for row in committed] == [
        row["predictions"] for row in accuracy.pooled()
    ]
    pooled = accuracy.pooled()[0]
    for name, constant in (("rate", RATE_ERROR), ("gain", GAIN_ERROR)):
        p90 = pooled[f"{name}_error_p90"]
        assert isinstance(p90, float)
        assert committed[0][f"{name}_error_p90"] == pytest.approx(p90, rel=1e-4)
        assert p90 <= constant < 2.5 * p90


def test_the_command_says_how_good_predictions_were(capsys: pytest.CaptureFixture[str]) -> None:
    assert accuracy.main([]) == 0
    assert "predicted gains were off by" in capsys.readouterr().out
