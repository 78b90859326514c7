"""Do loaders and the job gain from each further core what was predicted?

Method. The frontier's fastest loaders alone, as `loading` measures them on the host, and `wallclock
embed` with the mock model at 0 ms, by threads of one process and by one process per core. Each runs
on 1, 2, 4, 8 and 16 cores, as many of these as the machine has, by the affinity of its process: of
cores with two hardware threads, first one of each. A loader has as many workers per core as where
it was predicted. Files are in memory, few distinct ones repeat, and nothing is deduplicated.

`img_per_s` of a job is without its start. `predicted_img_per_s` is what `wallclock.predict` makes
of the same system on the fewest cores of this run. `committed_speedup` was predicted from another
machine, before (`_core_predictions`), and is compared with `speedup_vs_one_core`. A row of
`origin=predicted` is of a number of cores that this machine lacks; its rate is that prediction.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from experiments import _common, _core_predictions, _many_cores, frontier
from experiments._common import Cell, Options, Plan, Recipe, Record, Records, Row, Tables, cell
from experiments._diagnosis import BUSY_CORES
from experiments._sentences import MeasuredRows, rate
from experiments._words import digits, factor
from harness import provenance
from harness.engines import third_party
from harness.spec import Slice
from wallclock.errors import check_name

ON_REQUEST = True
CSV = "cores-sweep.csv"
COLUMNS = _common.columns(
    "what system variant settings image_set corpus device device_kind threads_per_core",
    "cores workers batch_size n_images n_unique repeats wall_s wall_s_min wall_s_max",
    "img_per_s img_per_s_min img_per_s_max speedup_vs_one_core",
    "predicted_img_per_s predicted_img_per_s_low predicted_img_per_s_high error within_interval",
    "limited_by committed_speedup committed_speedup_low committed_speedup_high committed_error",
    "committed_within_interval",
    "main_ms_per_image startup_s other_cores peak_memory_mib median_kb median_megapixels",
    "origin status reason",
)
TABLES = {CSV: COLUMNS}

#: Values of a record that are columns as they are.
_VALUES = ("settings", "n_unique", "startup_s", "other_cores", "peak_memory_mib")
#: Of a measured row: what is also true of the same system on other cores.
_KEPT = _common.columns(
    "what system variant image_set corpus device device_kind threads_per_core batch_size",
    "n_unique median_kb median_megapixels",
)
_RECIPES = ("ours", "paper", "baseline")
#: Error of a prediction, and whether its interval has what was measured.
_ERRORS = ("error", "within_interval")
_COMMITTED_ERRORS = ("committed_error", "committed_within_interval")


def cells(plan: Plan, options: Options) -> list[Cell]:
    """Every number of cores, of each system that was predicted, repeated."""
    on_host = {name: replace(options[name], device="cpu", dtype="fp32") for name in _RECIPES}
    options = {**options, **on_host}
    systems = _systems(options)
    counts = _counts(options["cores"], int(provenance.machine()["cores"]))
    grid = []
    for repeat in plan.repeats("cores"):
        for image_set, corpus in plan.slices(options["images"]).items():
            for cores in counts:
                for row in systems.get(image_set, ()):
                    make = _job if row["system"] in _core_predictions.EMBED else _loader
                    planned = make(plan, options, corpus, row, cores)
                    grid.append(replace(planned, repeat=repeat))
    return grid


def _counts(wanted: Sequence[int], cores: int) -> list[int]:
    """Those of the wanted numbers that a machine has; else all of its cores, too."""
    counts = {n for n in wanted if n <= cores}
    return sorted(counts | ({cores} if cores < max(wanted) else set()))


def _systems(options: Options) -> Mapping[str, Sequence[Mapping[str, str]]]:
    """Image set → what was predicted of it, one row for each system."""
    rows = _core_predictions.load()
    valid = list(dict.fromkeys(row["system"] for row in rows))
    chosen = [check_name(name, valid, "system") for name in options["systems"]] or valid
    by_set: dict[str, list[Mapping[str, str]]] = {}
    for row in rows:
        if row["cores"] == "1" and row["system"] in chosen:
            by_set.setdefault(row["image_set"], []).append(row)
    return by_set


def _loader(
    plan: Plan, options: Options, corpus: Slice, row: Mapping[str, str], cores: int
) -> Cell:
    """A loader alone, in the setup in which it was predicted."""
    name, workers = row["system"], cores * int(row["workers_per_core"])
    recipe: Recipe = frontier.recipe_of(plan, options, name, workers)
    recipe = replace(recipe, batch_size=options["batch_size"][corpus.image_set])
    params = {
        **plan.params,
        "what": "loader",
        "system": name,
        "variant": row["variant"],
        "allocator": row["allocator"],
        "installed": third_party.installed(name),
        "seconds": plan.settings.loader_seconds,
        "pinned_cores": cores,
    }
    return cell(plan, "cores", "loading", f"{name}-{cores}", recipe, corpus, params=params)


def _job(plan: Plan, options: Options, corpus: Slice, row: Mapping[str, str], cores: int) -> Cell:
    """`wallclock embed` of as many images for each core."""
    name, embed = row["system"], options["embed"]
    each = embed["images_per_core"][corpus.image_set]
    n = cores * min(each, plan.settings.n or each)
    processes = 1 if _core_predictions.EMBED[name] else cores
    params = {
        **plan.params,
        "what": "job",
        "system": name,
        "variant": "",
        "n": n,
        "files": "repeated",
        "settings": {"shard": embed["shard"], "device": "cpu", "processes": processes},
        "pinned_cores": cores,
    }
    recipe = replace(options["ours"], name=name, batch_size=options["batch_size"][corpus.image_set])
    model = _common.mock_model(plan)
    label = f"{name}-{cores}"
    return cell(plan, "cores", "job", label, recipe, corpus, model=model, params=params)


def tables(records: Records) -> Tables:
    """A row for each system and number of cores; after each system those that are predicted."""
    series: dict[tuple[object, object], list[Row]] = {}
    for repeats in _common.groups(records).values():
        params = repeats[0].cell.params
        row = _common.new_row(repeats, COLUMNS)
        row |= {name: params[name] for name in ("what", "system", "variant")}
        row |= {"cores": params["pinned_cores"], "threads_per_core": _threads_per_core(repeats[0])}
        row = _common.complete(row, repeats, _measured)
        series.setdefault((row["image_set"], row["system"]), []).append(row)
    predictions = _core_predictions.load()
    rows: list[Row] = []
    for of_system in series.values():
        of_system.sort(key=lambda row: _number(row, "cores"))
        rows += [*of_system, *_compare(of_system, predictions)]
    return {CSV: rows}


def _threads_per_core(record: Record) -> object:
    return record.environment["machine"].get("topology", {}).get("threads_per_core")


def _measured(repeats: Records) -> Row:
    counted = [_without_start(record) for record in repeats]
    middle = _common.median_repeat(counted, _common.seconds_an_image)
    row = _common.value_columns(middle, *_VALUES)
    row |= _common.wall_columns(counted) | _common.spread_columns(counted)
    row |= {"n_images": _common.count(middle), "wall_s": _common.wall_s(middle)}
    row["workers"] = middle.cell.recipe.workers or middle.cell.params["pinned_cores"]
    if middle.cell.protocol == "job":
        spent_s = middle.values["main_cpu_s"] + middle.values["commit_cpu_s"]
        row["main_ms_per_image"] = spent_s / _common.count(middle) * 1e3
    return row


def _without_start(record: Record) -> Record:
    """A job's record with the rate of its loop; a loader's as it is, measured in steady state."""
    if record.cell.protocol != "job" or not record.ok:
        return record
    loop_s = _common.wall_s(record) - record.values["startup_s"]
    return replace(record, values={**record.values, "img_per_s": _common.count(record) / loop_s})


def _compare(rows: Sequence[Row], predictions: Sequence[Mapping[str, str]]) -> Iterator[Row]:
    """Add what was predicted to a system's rows; yield one for each number of cores that lacks."""
    measured = [row for row in rows if row["status"] == "ok"]
    if not measured:
        return
    base = measured[0]
    for row in measured:
        if row is not base:
            row |= _predicted(base, int(_number(row, "cores")))
            row |= _judged(row, "img_per_s", "predicted_img_per_s", _ERRORS)
            if base["cores"] == 1:
                gain = _number(row, "img_per_s") / _number(base, "img_per_s")
                row["speedup_vs_one_core"] = gain
        row |= _committed(row, predictions)
        row |= _judged(row, "speedup_vs_one_core", "committed_speedup", _COMMITTED_ERRORS)
    present = {row["cores"] for row in rows}
    for cores in _core_predictions.CORES:
        if cores > _number(base, "cores") and cores not in present:
            row = dict.fromkeys(COLUMNS) | {name: base[name] for name in _KEPT}
            row |= {"cores": cores, "origin": "predicted", "status": "ok"}
            row |= _predicted(base, cores)
            row["img_per_s"] = row["predicted_img_per_s"]
            yield row | _committed(row, predictions)


def _predicted(base: Row, cores: int) -> Row:
    """What the system does on more cores, from its cost on the fewest."""
    main_s = float(str(base["main_ms_per_image"] or 0)) / 1e3
    load_s = max(0.0, _number(base, "cores") / _number(base, "img_per_s") - main_s)
    workers_per_core = max(1, int(_number(base, "workers") / _number(base, "cores")))
    case = _many_cores.pipeline(
        load_s,
        main_s,
        cores,
        int(_number(base, "batch_size")),
        workers=cores * workers_per_core,
        one_process=_core_predictions.shares_a_lock(str(base["system"])),
    )
    expected = case.predict()
    return {
        "predicted_img_per_s": expected.img_per_s,
        "predicted_img_per_s_low": expected.low,
        "predicted_img_per_s_high": expected.high,
        "limited_by": expected.bottleneck,
    }


def _committed(row: Row, predictions: Sequence[Mapping[str, str]]) -> Row:
    """The committed prediction of a row's gain over one core."""
    cells = (row[name] for name in ("system", "image_set", "cores"))
    prediction = _core_predictions.committed(predictions, *cells)
    if prediction is None or not prediction["speedup_vs_one_core"]:
        return {}
    return {
        "committed_speedup": float(prediction["speedup_vs_one_core"]),
        "committed_speedup_low": float(prediction["speedup_low"]),
        "committed_speedup_high": float(prediction["speedup_high"]),
    }


def _judged(row: Row, measured: str, predicted: str, names: tuple[str, str]) -> Row:
    """How far a prediction was off, and whether its interval has what was measured."""
    if row[measured] is None or row[predicted] is None:
        return {}
    actual = _number(row, measured)
    inside = _number(row, f"{predicted}_low") <= actual <= _number(row, f"{predicted}_high")
    return dict(zip(names, (_number(row, predicted) / actual - 1, inside), strict=True))


def _number(row: Mapping[str, Any], column: str) -> float:
    return float(str(row[column]))


def sentence(rows: MeasuredRows) -> str:
    """Our loader on the most cores versus one, beside what was predicted; not if others ran."""
    ours = [row for row in rows[CSV] if row["system"] == "ours" and row["origin"] == "measured"]
    gains = [row for row in ours if row["speedup_vs_one_core"]]
    if not gains:
        return ""
    most = max(gains, key=lambda row: int(row["cores"]))
    others = max(float(row["other_cores"] or 0) for row in ours)
    if others >= BUSY_CORES:
        return f"other programs kept up to {digits(others)} cores busy, so that no gain counts"
    text = f"on {most['cores']} cores ours loads {rate(most)}, "
    text += f"{factor(most['speedup_vs_one_core'])} one core"
    predicted = most["committed_speedup"]
    return f"{text} ({factor(predicted)} was predicted)" if predicted else text
