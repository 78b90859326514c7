"""What the experiments share: the types of their interface, their cells, and their tables' rows."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from typing import Any

from harness.measures import median, quantile
from harness.plan import Plan
from harness.records import Record
from harness.spec import Cell, Recipe, Slice
from wallclock.clock import LOADING_STAGES, STAGES
from wallclock.recipe import ModelSpec

__all__ = ["Cell", "Plan", "Recipe", "Record"]

#: An experiment's part of the configuration.
Options = Mapping[str, Any]
Records = Sequence[Record]
Row = dict[str, Any]
#: CSV → its rows.
Tables = dict[str, list[Row]]

_PER_100K = 100_000
_RECIPE_FIELDS = frozenset(field.name for field in fields(Recipe)) - {"name", "device"}


def cell(
    plan: Plan,
    experiment: str,
    protocol: str,
    label: str,
    recipe: Recipe,
    corpus: Slice | None,
    *,
    repeat: int = 0,
    model: ModelSpec | None = None,
    params: Options | None = None,
) -> Cell:
    """One measurement; by default of the configured model, with the common parameters."""
    model = model or plan.settings.model
    params = plan.params if params is None else params
    return Cell(experiment, protocol, label, repeat, recipe, corpus, model, params)


def mock_model(plan: Plan, service_ms: float = 0.0, image_ms: float = 0.0) -> ModelSpec:
    """A mock model with the configured model's input and output, and this service time."""
    mock = ModelSpec("null", weights="none", service_ms=service_ms, service_ms_per_image=image_ms)
    model = plan.settings.model
    return replace(mock, input_px=model.input_px, dim=model.dim)


def columns(*parts: str | Sequence[str]) -> tuple[str, ...]:
    """Column names: the words of each text, and tuples of names as they are."""
    return tuple(
        name for part in parts for name in (part.split() if isinstance(part, str) else part)
    )


def with_limits(*parts: str | Sequence[str]) -> tuple[str, ...]:
    """Column names, each followed by those of its lowest and its highest repeat."""
    return tuple(f"{name}{end}" for name in columns(*parts) for end in ("", "_min", "_max"))


#: How the recipe ends that a mock model runs beside the network.
MOCK = "-mock"

#: Columns of every table whose rows are serial or end-to-end passes.
STAGE_COLUMNS = tuple(column for name in STAGES for column in (f"{name}_s", f"{name}_share"))

#: Of every table whose recipes pass a fidelity gate.
FIDELITY_COLUMNS = columns(
    "n_compared psnr_db psnr_db_p5 psnr_db_min psnr_db_bicubic max_abs_diff",
    "psnr_loss_vs_area_db psnr_gain_vs_paper_db cosine gate",
)
#: Of every end-to-end table: from the start of an image's `read` to its batch's vectors on the
#: host. Empty where the loader does not mark its images, and in a pass that is not steady.
LATENCY_COLUMNS = columns("latency_p50_ms latency_p95_ms latency_p99_ms")
SIZE_COLUMNS = columns("median_kb median_megapixels")


def groups(records: Records, protocol: str = "") -> dict[tuple[str, str], list[Record]]:
    """Repeats together, by (image set, label), in plan order: of one protocol, or of all.

    Without a mock model's beside the network, which only the timeline shows.
    """
    grouped: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        if protocol in ("", record.cell.protocol) and not is_for_timeline(record):
            grouped.setdefault((image_set_of(record), record.cell.label), []).append(record)
    return grouped


def is_for_timeline(record: Record) -> bool:
    """Whether it is a mock model's beside the network."""
    return record.cell.label.endswith(MOCK)


def image_set_of(record: Record) -> str:
    """The image set that a record was measured on; empty for none."""
    return record.cell.corpus.image_set if record.cell.corpus else ""


def measured(repeats: Records) -> list[Record]:
    """The repeats that have a measurement."""
    return [record for record in repeats if record.ok]


def new_row(repeats: Records, names: Sequence[str]) -> Row:
    """A row with all that its cell says before any time is read.

    Filled where the table has the column: environment, image set, the recipe's choices, origin, and
    the status: `ok` if every repeat measured, `k of n` if only k did, which claims and figures take
    for no result. If none did, the first one's.
    """
    cell = repeats[0].cell
    machine = repeats[0].environment["machine"]
    on_gpu = _is_on_gpu(repeats) and bool(machine["gpus"])
    failed = [record for record in repeats if not record.ok]
    n_measured = len(repeats) - len(failed)
    if not failed:
        status = "ok"
    elif n_measured:
        status = f"{n_measured} of {len(repeats)}"
    else:
        status = failed[0].status
    cells = {name: getattr(cell.recipe, name) for name in _RECIPE_FIELDS}
    cells |= {
        "recipe": cell.recipe.name,
        "image_set": image_set_of(repeats[0]),
        "corpus": cell.corpus.kind if cell.corpus else "",
        "model": cell.model.name,
        "weights": cell.model.weights,
        "device": machine["gpus"][0]["name"] if on_gpu else _cpu_name(machine),
        "device_kind": "cuda" if on_gpu else "cpu",
        "origin": "measured",
        "status": status,
        "reason": failed[0].reason if failed else "",
        **_ran(repeats),
    }
    return {name: cells.get(name) for name in names}


def _is_on_gpu(repeats: Records) -> bool:
    """Whether the device that was asked for is one; a mock model stays on the host all the same."""
    ran_on = next((r.values["embedded_on"] for r in repeats if "embedded_on" in r.values), None)
    return repeats[0].cell.recipe.device == "cuda" and ran_on in (None, "cuda")


def _cpu_name(machine: Mapping[str, Any]) -> str:
    # With its GPU: some absolute CPU figures bind on one box only.
    gpu = f", with {machine['gpus'][0]['name']}" if machine["gpus"] else ""
    return f"{machine['cpu']} ({machine['cores']} cores{gpu})"


def _ran(repeats: Records) -> Row:
    """What really ran, as the loader, its stages and the network reported it."""
    for record in repeats:
        ran = dict(record.values.get("ran", {}))
        layout = ran.pop("layout", "files")
        if ran and record.cell.corpus and layout != "files":
            ran["corpus"] = f"{record.cell.corpus.kind} ({layout})"
        if ran:
            return ran
    return {}


def table_rows(
    records: Records,
    names: Sequence[str],
    measure: Callable[[Records], Row],
    *,
    protocol: str = "",
    about: Callable[[Cell], Row] = lambda timed: {},
) -> list[Row]:
    """A row for each cell: what it says of itself, `about` it, and what its repeats measured."""
    return [
        complete(new_row(repeats, names) | about(repeats[0].cell), repeats, measure)
        for repeats in groups(records, protocol).values()
    ]


def part_of(record: Record, name: str, samples: str = "") -> Record:
    """The record as one of its part `name` alone, whose samples get the name `samples` if given.

    A part that could not be measured is unavailable, with its reason.
    """
    if reason := record.values.get("unavailable", {}).get(name):
        return replace(record, status="unavailable", reason=reason)
    return replace(record, samples={samples: record.samples.get(name, [])}) if samples else record


def complete(row: Row, repeats: Records, measure: Callable[[Records], Row], wrong: str = "") -> Row:
    """The row with what was measured, if anything was; without a time if the output is `wrong`."""
    if not measured(repeats):
        return row
    if wrong:
        return row | {"status": "gate failed", "reason": f"{wrong}: no time counts"}
    return row | measure(repeats)


def wall_s(record: Record) -> float:
    """Wall time of the pass in seconds."""
    return record.seconds_in("wall")


def mean_ms(record: Record, samples: str) -> float:
    """The mean of a record's samples in milliseconds."""
    durations = record.samples[samples]
    return sum(durations) / len(durations) / 1e6


def count(record: Record) -> int:
    """Images of the pass."""
    values = record.values
    return int(values["n_loaded"] if "n_loaded" in values else values["n_embedded"])


def rate(record: Record) -> float:
    """Images a second; of pinned processes, which do not end together, the sum of their own."""
    return float(record.values.get("img_per_s") or count(record) / wall_s(record))


def seconds_an_image(record: Record) -> float:
    """The inverse of `rate`."""
    return 1 / rate(record)


def median_repeat(repeats: Records, key: Callable[[Record], float] = wall_s) -> Record:
    """The measured repeat in the middle by the time `key`, the slower of the middle two.

    Only a failed repeat leaves an even number. A row shows one real pass: medians taken stage by
    stage would not add up to any wall time.
    """
    ordered = sorted(measured(repeats), key=key)
    return ordered[len(ordered) // 2]


def usd_per_hour(record: Record) -> float | None:
    """The price of the machine that ran, if the settings name one of its kind."""
    cost = record.environment.get("cost", {})
    price: float | None = cost.get("usd_per_hour")
    priced_device = cost.get("device", "T4")
    gpus = record.environment["machine"]["gpus"]
    is_priced = not priced_device or any(priced_device in gpu["name"] for gpu in gpus)
    return price if is_priced else None


def wall_columns(repeats: Records) -> Row:
    """How many repeats measured, and the spread of their wall times."""
    walls = [wall_s(record) for record in measured(repeats)]
    return {"repeats": len(walls), "wall_s_min": min(walls), "wall_s_max": max(walls)}


def clock_columns(repeats: Records) -> Row:
    """The mean clock of the GPU in all repeats, and why it was lowered; empty without telemetry."""
    recorded = [record.values.get("telemetry", {}) for record in measured(repeats)]
    clocks = [mhz for series in recorded for mhz in series.get("sm_mhz", ())]
    reasons = sorted({why for series in recorded for why in series.get("throttle_reasons", ())})
    mean = sum(clocks) / len(clocks) if clocks else None
    return {"sm_clock_mhz": mean, "throttle_reasons": "; ".join(reasons)}


def spread_columns(repeats: Records) -> Row:
    """How many repeats measured; the median of their rates, the lowest and the highest."""
    rates = [rate(record) for record in measured(repeats)]
    return {"repeats": len(rates), **with_spread("img_per_s", rates)}


def with_spread(name: str, values: Sequence[float]) -> Row:
    """A column of the median of these values, and those of the lowest and the highest."""
    return {name: median(values), f"{name}_min": min(values), f"{name}_max": max(values)}


def loader_columns(repeats: Records, *names: str) -> Row:
    """Images, times and rates of loaders, and these values: of the repeat with the median rate."""
    middle = median_repeat(repeats, seconds_an_image)
    return {
        **value_columns(middle, *names),
        **wall_columns(repeats),
        **spread_columns(repeats),
        "n_images": count(middle),
        "wall_s": wall_s(middle),
    }


def percentile_columns(record: Record, samples: str) -> Row:
    """`<samples>_p50_ms`, p95 and p99; no column where the record has no such samples."""
    taken = record.samples.get(samples, ())
    if not len(taken):
        return {}
    return {f"{samples}_p{q}_ms": quantile(taken, q / 100) / 1e6 for q in (50, 95, 99)}


def timing_columns(repeats: Records, samples: str, percents: Sequence[int]) -> Row:
    """Mean and percentiles of the samples of the repeat with the median mean; the means' range."""
    middle = median_repeat(repeats, partial(mean_ms, samples=samples))
    means = [mean_ms(record, samples) for record in measured(repeats)]
    return {
        **{f"p{q}_ms": quantile(middle.samples[samples], q / 100) / 1e6 for q in percents},
        "mean_ms": mean_ms(middle, samples),
        "mean_ms_min": min(means),
        "mean_ms_max": max(means),
        "repeats": len(means),
    }


def rate_columns(n_images: int, wall: float) -> Row:
    """Images, wall time and what follows from the two; scaled figures say so."""
    return {
        "n_images": n_images,
        "wall_s": wall,
        "img_per_s": n_images / wall,
        "seconds_per_100k": wall / n_images * _PER_100K,
        "seconds_per_100k_origin": "measured" if n_images == _PER_100K else "extrapolated",
    }


def value_columns(record: Record, *names: str) -> Row:
    """Values of a record, and the median size of its images; None where it has none."""
    return {name: record.values.get(name) for name in (*names, *SIZE_COLUMNS)}


def fidelity_columns(values: Mapping[str, Any], weights: str) -> Row:
    """What a comparison with Pillow's pictures measured; the gate is left to the caller.

    A cosine says something of `weights=pretrained` alone: under random ones an image upside down
    scores 0.998.
    """
    row: Row = {name: values.get(name) for name in FIDELITY_COLUMNS}
    return row if weights == "pretrained" else row | {"cosine": None}


def judge_fidelity(values: Mapping[str, Any], limits: Mapping[str, Any], weights: str) -> Row:
    """The fidelity columns of one recipe, from the values of a fidelity cell.

    The limits on a single image (`max_loss_db`, `not_below_paper`) are for recipes that claim to
    antialias; where the configuration names none, there is none.
    """
    if "psnr_db" not in values:
        return {"gate": "not checked"}
    row = fidelity_columns(values, weights)
    passed = (
        values["psnr_db"] >= limits["min_psnr_db"]
        and (row["cosine"] is None or values["cosine"] >= limits["min_cosine"])
        and ("max_loss_db" not in limits or values["psnr_loss_vs_area_db"] <= limits["max_loss_db"])
        and (not limits.get("not_below_paper") or values["psnr_gain_vs_paper_db"] >= 0)
    )
    return row | {"gate": "passed" if passed else "failed"}


def fidelity_gate(records: Records, timed: Cell) -> Row:
    """The fidelity columns of a timed cell, from the fidelity cell on the same image set."""
    image_set, name = timed.images.image_set, timed.recipe.name
    for record in records:
        judged = record.cell
        if judged.protocol == "fidelity" and judged.images.image_set == image_set:
            if judged.recipe.name == name:
                return {"gate": "reference"}
            values = record.values.get("fidelity", {}).get(name, {})
            return judge_fidelity(values, judged.params, judged.model.weights)
    return {"gate": "not checked"}


def limits(passes: Sequence[Row], names: Sequence[str]) -> Row:
    """The lowest and the highest repeat: `<name>_min` and `<name>_max` of each name.

    Args:
        passes: a row for each repeat that measured, so that a rate or a share is computed in it.
        names: columns of these rows; one that a repeat has no number in has no limits.
    """
    row: Row = {}
    for name in names:
        values = [each.get(name) for each in passes]
        numbers = [value for value in values if isinstance(value, int | float)]
        in_all = bool(numbers) and len(numbers) == len(values)
        row[f"{name}_min"] = min(numbers) if in_all else None
        row[f"{name}_max"] = max(numbers) if in_all else None
    return row


#: Columns of `stage_columns` that have limits; the wall time has them from `wall_columns`.
LIMITED = columns(STAGE_COLUMNS, "decode_resize_share img_per_s seconds_per_100k")


def stage_columns(repeats: Records) -> Row:
    """Seconds and shares of each stage, wall time and rates of the median pass; their limits."""
    row = _stages_of_pass(median_repeat(repeats))
    passes = [_stages_of_pass(record) for record in measured(repeats)]
    return {**row, **wall_columns(repeats), **limits(passes, LIMITED)}


def _stages_of_pass(record: Record) -> Row:
    wall = wall_s(record)
    stages = {name: record.seconds_in(name) for name in STAGES}
    row: Row = {f"{name}_s": seconds for name, seconds in stages.items()}
    row |= {f"{name}_share": seconds / wall for name, seconds in stages.items()}
    loads = any(stages[name] for name in LOADING_STAGES)
    decode_resize = stages["decode"] + stages["resize"]
    return row | {
        "unattributed_s": wall - sum(stages.values()),
        **rate_columns(count(record), wall),
        "decode_resize_share": decode_resize / wall if loads else None,
        "n_failed": len(record.failures),
        **value_columns(record),
    }
