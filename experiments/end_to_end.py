"""What the end-to-end experiments share: their cells and the rows of their tables."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from experiments import common
from experiments.common import Cell, Options, Plan, Recipe, Record, Records, Row, Tables, cell
from harness.spec import Slice
from wallclock.clock import STAGES

_SINK_COLUMNS = ("sink_checked", "sink_cosine_min", "sink_max_abs_diff")
COLUMNS = common.columns(
    "recipe decoder resizer interpolation engine workers start_method batch_size dtype",
    "runtime dct_scale dct_margin normalize_on compile sink",
    "image_set corpus weights service_ms device device_kind n_images n_unique steady repeats",
    common.STAGE_COLUMNS,
    "wait_s wait_share startup_s",
    common.with_limits("model_load_s wall_s img_per_s seconds_per_100k"),
    "seconds_per_100k_origin batch_p50_ms batch_p95_ms batch_p99_ms",
    common.LATENCY_COLUMNS,
    common.with_limits("peak_gpu_mem_gib gpu_util_mean"),
    "peak_gpu_reserved_gib gpu_power_w sm_clock_mhz",
    "throttle_reasons cpu_cores_used limited_by usd_per_million",
    common.FIDELITY_COLUMNS,
    _SINK_COLUMNS,
    "n_failed median_kb median_megapixels origin status reason",
)
TIMELINE_COLUMNS = common.columns(
    "lane stage batch start_ms duration_ms corpus image_set weights service_ms",
    "device device_kind n_images workers batch_size",
)
#: Values of a record that are columns as they are.
_VALUES = ("startup_s", "model_load_s", "n_unique", "steady", "limited_by", "peak_gpu_reserved_gib")
#: Columns of one pass that have limits.
_LIMITED = common.columns("model_load_s img_per_s seconds_per_100k peak_gpu_mem_gib gpu_util_mean")
#: Column → series of the record's telemetry, whose mean it shows.
_TELEMETRY = {
    "gpu_util_mean": "gpu_util",
    "gpu_power_w": "gpu_power_w",
    "sm_clock_mhz": "sm_mhz",
    "cpu_cores_used": "cpu_cores",
}

#: dtype → the least cosine of a vector that a pass wrote with the FP32 vector of the same pixels.
#: Under random weights, another image's vector reaches 0.998.
SINK_MIN_COSINE = {"fp32": 0.99999, "fp16": 0.9999, "bf16": 0.999, "int8": 0.98}
#: Share of the best rate of a sweep that counts as reaching it.
NEAR_BEST = 0.98
WRONG_VECTORS = "the vectors that the pass wrote are wrong"

Cells = Callable[[Plan, Options], list[Cell]]


def one_recipe(experiment: str) -> Cells:
    """The `cells` of an experiment with a single recipe."""

    def grid(plan: Plan, options: Options) -> list[Cell]:
        return cells(plan, experiment, [options["recipe"]], options)

    return grid


def sweep(experiment: str, field: str, option: str) -> Cells:
    """The `cells` of an experiment with a recipe for each value of `option` in its `field`."""

    def grid(plan: Plan, options: Options) -> list[Cell]:
        names = {f"{experiment}-{value}": value for value in options[option]}
        base: Recipe = options["recipe"]
        recipes = [replace(base, **{"name": name, field: value}) for name, value in names.items()]
        return cells(plan, experiment, recipes, options)

    return grid


def tables(csv: str, timeline_csv: str = "") -> Callable[[Records], Tables]:
    """The `tables` of an experiment: a row per recipe and, with a name for it, the timeline."""

    def fill(records: Records) -> Tables:
        repeats = common.groups(records, "throughput").values()
        filled: Tables = {csv: [row(same_recipe, records) for same_recipe in repeats]}
        if timeline_csv:
            filled[timeline_csv] = timeline(records)
        return filled

    return fill


def cells(plan: Plan, experiment: str, recipes: Sequence[Recipe], options: Options) -> list[Cell]:
    """On each image set fidelity once, where the options ask for it; then every recipe, repeated.

    Fidelity is the untimed comparison of these recipes' pixels, and with pretrained weights of
    their vectors, with Pillow's in FP32. The set that the paper's claims are about comes first. The
    others (`also`) need no range to be judged by: they have the profile's common repeats at most.
    """
    compared = [_choices(recipe) for recipe in recipes if not _is_reference(recipe)]
    reference = Recipe("reference", batch_size=32, device=plan.settings.device)
    untimed: list[Cell] = []
    timed: list[Cell] = []
    for place, corpus in enumerate(_corpora(plan, options)):
        if "fidelity" in options:
            sample = plan.slice(corpus.image_set, min(options["fidelity"]["images"], corpus.n))
            new = partial(cell, plan, experiment, "fidelity", "fidelity", reference, sample)
            untimed.append(new(params={**options["fidelity"], "recipes": compared}))
        timed += [
            cell(plan, experiment, "throughput", recipe.name, recipe, corpus, repeat=repeat)
            for repeat in plan.repeats(experiment)
            if not place or repeat < plan.settings.repeats
            for recipe in recipes
        ]
    return [*untimed, *timed, *_mock_cells(plan, experiment, recipes, options)]


def _mock_cells(
    plan: Plan, experiment: str, recipes: Sequence[Recipe], options: Options
) -> list[Cell]:
    """Where a CPU runs the network: what the timeline shows, a mock model with a GPU's times.

    On the largest images. The network itself takes seconds a batch, so that nothing starves.
    """
    is_mock = plan.settings.model.weights == "none"
    if "mock" not in options or is_mock or plan.settings.device != "cpu":
        return []
    model = common.mock_model(plan, **options["mock"])
    corpus = _corpora(plan, options)[-1]
    named = [replace(recipe, name=recipe.name + common.MOCK) for recipe in recipes]
    new = partial(cell, plan, experiment, "throughput", model=model)
    return [new(recipe.name, recipe, corpus) for recipe in named]


def _corpora(plan: Plan, options: Options) -> list[Slice]:
    """The first of the image sets that the corpus has, then those of `also` beside it."""
    first = plan.first_slice(options["images"]).image_set
    sizes = {first: options["images"][first]}
    return list(plan.slices({**sizes, **options.get("also", {}), **sizes}).values())


def _choices(recipe: Recipe) -> dict[str, object]:
    names = ["name", "decoder", "resizer", "interpolation", "dtype"]
    if recipe.dct_scale != "full":
        names += ["dct_scale", "dct_margin"]
    return {name: getattr(recipe, name) for name in names}


def _is_reference(recipe: Recipe) -> bool:
    choices = (recipe.decoder, recipe.resizer, recipe.dtype, recipe.dct_scale)
    return choices == ("pil", "pil", "fp32", "full")


def row(repeats: Records, records: Records) -> Row:
    """What the repeats of one recipe measured, or why they did not."""
    recipe = repeats[0].cell.recipe
    row = common.new_row(repeats, COLUMNS)
    compared = not _is_reference(recipe)
    row |= common.fidelity_gate(records, repeats[0].cell) if compared else {"gate": "reference"}
    if recipe.dct_scale == "full":
        row["dct_margin"] = None
    row |= _service_time(repeats[0].cell)
    wrong = "too far from the reference's pixels or vectors" if row["gate"] == "failed" else ""
    passes = common.measured(repeats)
    row |= _sink_columns(passes)
    if faults := list(filter(None, map(judge_sink, passes))):
        row["gate"] = "failed"
        wrong = f"{WRONG_VECTORS} ({faults[0]})"
    return common.complete(row, repeats, _measured, wrong)


def _service_time(timed: Cell) -> Row:
    """Of a mock model, milliseconds of a batch."""
    model = timed.model
    if model.weights != "none":
        return {}
    return {"service_ms": model.service_ms + model.service_ms_per_image * timed.recipe.batch_size}


def judge_sink(record: Record) -> str:
    """What is wrong with the vectors that a pass wrote; empty for nothing, or without a check."""
    faults = [*record.values.get("sink_faults", ())]
    lowest = record.values.get("sink_cosine_min", 1.0)
    least = SINK_MIN_COSINE[record.cell.recipe.dtype]
    if lowest < least:
        faults.append(f"cosine {lowest:.6f} with the serial FP32 vectors, not {least}")
    return ", ".join(faults)


def _sink_columns(passes: Records) -> Row:
    """Of all repeats: how many vectors were compared, and the worst of them."""
    checked = [record.values for record in passes if "sink_checked" in record.values]
    if not checked:
        return {}
    return {
        "sink_checked": sum(values["sink_checked"] for values in checked),
        "sink_cosine_min": min(values["sink_cosine_min"] for values in checked),
        "sink_max_abs_diff": max(values["sink_max_abs_diff"] for values in checked),
    }


def timeline(records: Records) -> list[Row]:
    """Spans in ms from the start of the steady state: of the mock's pass, else of the first."""
    for record in sorted(records, key=common.is_for_timeline, reverse=True):
        if record.cell.protocol == "throughput" and record.spans:
            shared = common.new_row([record], TIMELINE_COLUMNS) | _service_time(record.cell)
            shared["n_images"] = record.values["n_embedded"]
            return [
                shared
                | {"lane": lane, "stage": stage, "batch": batch}
                | {"start_ms": start_ns / 1e6, "duration_ms": duration_ns / 1e6}
                for lane, stage, batch, start_ns, duration_ns in record.spans
            ]
    return []


def _measured(repeats: Records) -> Row:
    """The median pass, and the limits of all: each quantity is computed in every repeat."""
    passes = [_of_pass(record) for record in common.measured(repeats)]
    row = _of_pass(common.median_repeat(repeats))
    row |= common.limits(passes, _LIMITED)
    return row | common.wall_columns(repeats)


def _of_pass(record: Record) -> Row:
    wall = common.wall_s(record)
    n_images = common.count(record)
    busy = {name: record.seconds_in(name) for name in STAGES}
    wait = record.seconds_in("wait")
    row: Row = {f"{name}_s": seconds for name, seconds in busy.items()}
    row |= {f"{name}_share": seconds / sum(busy.values()) for name, seconds in busy.items()}
    row |= {"wait_s": wait, "wait_share": wait / wall}
    row |= common.rate_columns(n_images, wall)
    row |= _telemetry(record)
    row |= common.percentile_columns(record, "batch")
    row |= common.percentile_columns(record, "latency")
    row |= common.value_columns(record, *_VALUES)
    row["peak_gpu_mem_gib"] = record.values.get("peak_gpu_allocated_gib")
    row["n_failed"] = len(record.failures)
    price = common.usd_per_hour(record)
    if price is not None:
        row["usd_per_million"] = 1e6 / n_images * wall / 3600 * price
    return row


def _telemetry(record: Record) -> Row:
    series = record.values["telemetry"]
    samples = {column: series.get(name) for column, name in _TELEMETRY.items()}
    row: Row = {name: sum(taken) / len(taken) for name, taken in samples.items() if taken}
    return row | {"throttle_reasons": "; ".join(series["throttle_reasons"])}
