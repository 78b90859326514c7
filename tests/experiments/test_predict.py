"""`predict`: its cells, its table, and the paper's own numbers."""

from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import pytest

from experiments.predict import cells as predict
from experiments.predict.accuracy import measured_bottleneck
from experiments.predict.costs import Costs, step_recipes
from harness.records import Record
from harness.spec import Recipe
from tests.experiments import made
from tests.experiments.made import MS, S
from wallclock.clock import STAGES
from wallclock.recipe import ModelSpec

MOCK = ModelSpec("null", weights="none", service_ms=1.0)
FLOATS = ("fp32", "fp16")
LOADER = Recipe("pil", engine="dataloader", batch_size=32)
#: Milliseconds of an image, 1 in all.
LOADING = {"read": 0.1, "decode": 0.5, "resize": 0.2, "normalize": 0.1, "assemble": 0.1}


def costs(**changes: Any) -> list[Record]:
    """Of the three protocols; loading costs 1 ms in one process, 1.25 ms in two."""
    values: dict[str, Any] = {"n_embedded": 10, "page_cache": "warm", "mean_bytes": 7000.0}
    values |= {"rates": {"1": 1000.0, "2": 1600.0}, "cpu_s": {"1": 1e-3, "2": 1.25e-3}} | changes
    loading = {name: [round(ms * MS)] * 10 for name, ms in LOADING.items()}
    free = {f"{name}-{n}": [0] for n in (1, 32) for name in ("worker", "h2d", "d2h", "serialize")}
    transfer = {"main-1": [MS // 10], "main-32": [MS // 10], "assemble-1": [MS // 10]}
    transfer["assemble-32"] = [32 * MS // 10]
    step = {"forward-1": [MS], "forward-32": [MS]}
    params, cost = {"batch_sizes": [1, 32]}, partial(made.record, "predict", model=MOCK)
    return [
        cost("contention", "", values, {}, loading, LOADER),
        cost("batch_transfer", "", {}, params, free | transfer, LOADER),
        cost("step", "", {}, params, free | step, LOADER),
    ]


def end_to_end(
    experiment: str, rate: float = 1, wait: float = 0.9, model: Any = None, **choices: Any
) -> Record:
    recipe = replace(LOADER, **choices)
    samples = {name: [10 * MS] for name in STAGES} | {"batch": [S], "wall": [S]}
    samples |= {"wait": [int(wait * S)], "forward": [int((1 - wait) * S)]}
    values: dict[str, Any] = {"n_embedded": rate, "n_unique": 10, "steady": True, "startup_s": 1.0}
    values["telemetry"] = {"throttle_reasons": []}
    model = replace(MOCK, **(model or {}))
    return made.record(experiment, "throughput", recipe.name, values, {}, samples, recipe, model)


def rows_of(*records: Record) -> list[dict[str, object]]:
    return predict.tables(records)[predict.CSV]


def rates(column: str, *records: Record) -> list[float]:
    return [float(str(row[column])) for row in rows_of(*records)]


def test_a_gpus_step_is_measured_and_taken_as_the_batch_crosses_the_bus() -> None:
    cuda = replace(LOADER, device="cuda")
    timed = step_recipes(cuda, ["fp32", "fp16"])
    assert len({recipe.name for recipe in timed}) == 4
    assert {(r.normalize_on, r.dtype) for r in timed} == {*product(("host", "device"), FLOATS)}
    assert {recipe.normalize_on for recipe in step_recipes(LOADER, FLOATS)} == {"host"}
    loading, transfer, step = costs()
    uint8 = {**step.samples, **{f"h2d-{n}": [8 * MS] for n in (1, 32)}}
    float32 = {**step.samples, **{f"h2d-{n}": [32 * MS] for n in (1, 32)}}
    network = replace(MOCK, weights="random")
    steps = [
        made.record("predict", "step", "", {}, step.cell.params, samples, recipe, network)
        for recipe, samples in zip(step_recipes(cuda, ["fp32"]), (float32, uint8), strict=True)
    ]
    for place, ms in (("host", 1.0), ("device", 0.25)):
        recipe = replace(cuda, normalize_on=place, workers=2, engine="threads")
        loaded = replace(loading, cell=replace(loading.cell, recipe=recipe))
        job = end_to_end("t4", model={"weights": "random"})
        pipeline = Costs([loaded, transfer, *steps]).pipeline(replace(job.cell, recipe=recipe))
        assert pipeline.costs.h2d_s == pytest.approx(ms / 1e3)
        assert pipeline.machine.gpu
        assert not pipeline.machine.shares_cores


def test_a_cell_is_predicted_from_costs_alone() -> None:
    """Two workers at 1.25 ms an image, on four cores: 1600 img/s; the main process is faster."""
    (row,) = rows_of(*costs(), end_to_end("predict", 1500, workers=2))
    assert (row["img_per_s"], row["measured_img_per_s"]) == pytest.approx((1600, 1500))
    assert row["error"] == pytest.approx(1600 / 1500 - 1)
    assert (row["bottleneck"], row["measured_bottleneck"]) == ("transform", "transform")
    assert (row["origin"], row["status"]) == ("predicted", "ok")
    assert float(str(row["img_per_s_low"])) < 1600 < float(str(row["img_per_s_high"]))
    (slower,) = rows_of(*costs(), end_to_end("predict", 750, workers=2))
    assert slower["img_per_s"] == row["img_per_s"], "no end-to-end time enters a prediction"


def test_a_cell_that_decodes_at_another_scale_takes_no_cost_of_this_one() -> None:
    reduced = end_to_end("predict", 1500, workers=2, dct_scale="auto")
    loading, *others = costs()
    (row,) = rows_of(loading, *others, reduced)
    assert row["status"] == "not predicted"
    assert "pil/pil/bilinear/auto" in str(row["reason"])
    loading = replace(loading, cell=replace(loading.cell, recipe=reduced.cell.recipe))
    assert rows_of(loading, *others, reduced)[0]["status"] == "ok"


def test_costs_of_another_allocator_are_none_of_this_one() -> None:
    kept = end_to_end("predict", 1500, workers=2)
    kept = replace(kept, cell=replace(kept.cell, params={"allocator": "keep"}))
    loading, *others = costs()
    loading = replace(loading, cell=replace(loading.cell, params={"allocator": "default"}))
    (row,) = rows_of(loading, *others, kept)
    assert (row["status"], row["error"]) == ("not predicted", None)
    assert str(row["reason"]).endswith("was measured, allocator=keep")


def test_a_pass_whose_vectors_are_wrong_judges_no_prediction() -> None:
    job = end_to_end("predict", 1500, workers=2)
    wrong = replace(job, values={**job.values, "sink_faults": ["3 missing"]})
    (row,) = rows_of(*costs(), wrong)
    assert (row["status"], row["measured_img_per_s"], row["error"]) == ("gate failed", None, None)


def test_a_slow_device_is_the_bottleneck() -> None:
    job = end_to_end("t4", 100, wait=0.1, model={"service_ms_per_image": 10.0}, workers=2)
    (row,) = rows_of(*costs(), job)
    assert row["img_per_s"] == pytest.approx(32 / (0.32 + 1e-3 + 1e-4))
    assert (row["experiment"], row["bottleneck"]) == ("t4", "accelerator")
    assert row["measured_bottleneck"] == "accelerator"


@pytest.mark.parametrize(("cache", "seconds"), [("warm", 0.82e-3), ("cold", 1e-3)])
def test_loading_costs_cpu_time_unless_the_cache_is_cold(cache: str, seconds: float) -> None:
    """1 ms of wall time an image, 0.8 of it CPU time; assembling was measured in CPU time."""
    measured = costs(cpu_s={"1": 0.8e-3}, page_cache=cache)
    job = end_to_end("predict", 1000, workers=1)
    assert rates("img_per_s", *measured, job) == pytest.approx([1 / seconds])


def test_a_cost_that_was_not_measured_is_named() -> None:
    other = end_to_end("opt", name="fast", decoder="turbojpeg", workers=2)
    network = end_to_end("t4", name="net", workers=2, model={"weights": "random"})
    lost = replace(end_to_end("batch", name="big"), status="oom", reason="out of memory")
    rows = rows_of(*costs(), other, network, lost)
    statuses = {row["recipe"]: row["status"] for row in rows}
    assert statuses == {"fast": "not predicted", "net": "not predicted", "big": "oom"}
    reasons = " ".join(str(row["reason"]) for row in rows)
    assert "small_256 with turbojpeg/pil/bilinear" in reasons
    assert "no step time of null in fp32 on cpu" in reasons
    assert {row["error"] for row in rows} == {None}
    failed = [replace(record, status="unavailable", reason="no torch") for record in costs()]
    assert [row["reason"] for row in rows_of(*failed, network)] == ["no torch"]


def test_a_networks_step_is_the_one_measured_at_the_batch() -> None:
    """1 + 1 ms an image up to 8; a cache that overflows makes 32 images take 64 ms, not 33."""
    loading, transfer, step = costs()
    model, ms = replace(MOCK, weights="random"), {1: 2, 8: 9, 32: 64}
    samples = {f"{name}-{size}": [0] for name in ("h2d", "d2h", "serialize") for size in ms}
    samples |= {f"forward-{size}": [time * MS] for size, time in ms.items()}
    cell = replace(step.cell, model=model, params={"batch_sizes": list(ms)})
    network = replace(step, cell=cell, samples=samples, values={"torch_threads": 1})
    new = partial(end_to_end, "t4", model={"weights": "random"})
    jobs = [new(name=f"{n}", batch_size=n) for n in (8, 20, 32)]
    accelerator = rates("accelerator_img_per_s", loading, transfer, network, *jobs)
    assert accelerator == pytest.approx([8 / 9e-3, 20 / 36.5e-3, 32 / 64e-3])


@pytest.mark.parametrize(
    ("workers", "wait", "read_ms", "expected"),
    [
        (2, 0.3, 10, "transform"),
        (2, 0.1, 10, "accelerator"),
        (0, 0.3, 10, "accelerator"),
        (0, 0.6, 10, "transform"),
        (2, 0.9, 90, "storage"),
    ],
)
def test_measured_bottleneck(workers: int, wait: float, read_ms: int, expected: str) -> None:
    record = end_to_end("t4", 100, wait=wait, workers=workers)
    record = replace(record, samples={**record.samples, "read": [read_ms * MS]})
    assert measured_bottleneck(record) == expected


def test_without_costs_or_cells_there_is_no_table() -> None:
    assert predict.tables([end_to_end("t4", 100)]) == {}
    assert predict.tables(costs()) == {}
