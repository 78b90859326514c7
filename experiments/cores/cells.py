"""What do loaders and the job gain from each further core?

Method. The frontier's fastest loaders alone, as `loading` measures them on the host, and `wallclock
embed` with the mock model at 0 ms, by threads of one process and by one process per core. Each runs
on 1, 2, 4, 8 and 16 cores, as many of these as the machine has, by the affinity of its process: of
cores with two hardware threads, first one of each. A loader has the same number of workers per core
throughout. Files are in memory, few distinct ones repeat, and nothing is deduplicated. `img_per_s`
of a job is without its start.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from experiments import common
from experiments.common import Cell, Options, Plan, Recipe, Record, Records, Row, Tables, cell
from experiments.frontier import cells as frontier
from harness import provenance
from harness.engines import third_party
from harness.spec import Slice

ON_REQUEST = True
CSV = "cores-sweep.csv"
COLUMNS = common.columns(
    "what system variant settings image_set corpus device device_kind",
    "cores workers batch_size n_images n_unique repeats wall_s wall_s_min wall_s_max",
    "img_per_s img_per_s_min img_per_s_max speedup_vs_one_core",
    "main_ms_per_image startup_s other_cores peak_memory_mib median_kb median_megapixels",
    "origin status reason",
)
TABLES = {CSV: COLUMNS}
MEANINGS = """
system | | setting | the loader, or the job by threads or by processes
variant | | setting | the loader's variant and setup
speedup_vs_one_core | x | measured | rate over that of one core
main_ms_per_image | ms | measured | time of the main process per image
"""

#: `wallclock embed` → whether its loaders are threads of one process.
EMBED: Mapping[str, bool] = {"embed-threads": True, "embed-processes": False}
#: Values of a record that are columns as they are.
_VALUES = ("settings", "n_unique", "startup_s", "other_cores", "peak_memory_mib")
_RECIPES = ("ours", "paper", "baseline")


def cells(plan: Plan, options: Options) -> list[Cell]:
    """Every number of cores of each loader and of the job, repeated."""
    on_host = {name: replace(options[name], device="cpu", dtype="fp32") for name in _RECIPES}
    options = {**options, **on_host}
    counts = _counts(options["cores"], int(provenance.machine()["cores"]))
    grid = []
    for repeat in plan.repeats("cores"):
        for corpus in plan.slices(options["images"]).values():
            for cores in counts:
                planned = [
                    _loader(plan, options, corpus, name, cores) for name in options["systems"]
                ]
                planned += [_job(plan, options, corpus, name, cores) for name in EMBED]
                grid += [replace(each, repeat=repeat) for each in planned]
    return grid


def _counts(wanted: Sequence[int], cores: int) -> list[int]:
    """Those of the wanted numbers that a machine has; else all of its cores, too."""
    counts = {n for n in wanted if n <= cores}
    return sorted(counts | ({cores} if cores < max(wanted) else set()))


def _loader(plan: Plan, options: Options, corpus: Slice, name: str, cores: int) -> Cell:
    """A loader alone, with as many workers for each core as its setup says."""
    setup = options["systems"][name]
    workers = cores * int(setup["workers_per_core"])
    recipe: Recipe = frontier.recipe_of(plan, options, name, workers)
    recipe = replace(recipe, batch_size=options["batch_size"][corpus.image_set])
    params = {
        **plan.params,
        "what": "loader",
        "system": name,
        "variant": setup["variant"],
        "allocator": setup["allocator"],
        "installed": third_party.installed(name),
        "seconds": plan.settings.loader_seconds,
        "pinned_cores": cores,
    }
    return cell(plan, "cores", "loading", f"{name}-{cores}", recipe, corpus, params=params)


def _job(plan: Plan, options: Options, corpus: Slice, name: str, cores: int) -> Cell:
    """`wallclock embed` of as many images for each core."""
    embed = options["embed"]
    each = embed["images_per_core"][corpus.image_set]
    n = cores * min(each, plan.settings.n or each)
    processes = 1 if EMBED[name] else cores
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
    model = common.mock_model(plan)
    label = f"{name}-{cores}"
    return cell(plan, "cores", "job", label, recipe, corpus, model=model, params=params)


def tables(records: Records) -> Tables:
    """A row for each system and number of cores, the fewest first."""
    series: dict[tuple[object, object], list[Row]] = {}
    for repeats in common.groups(records).values():
        params = repeats[0].cell.params
        row = common.new_row(repeats, COLUMNS)
        row |= {name: params[name] for name in ("what", "system", "variant")}
        row = common.complete(row | {"cores": params["pinned_cores"]}, repeats, _measured)
        series.setdefault((row["image_set"], row["system"]), []).append(row)
    rows: list[Row] = []
    for of_system in series.values():
        of_system.sort(key=lambda row: row["cores"])
        rows += of_system
        ok = [row for row in of_system if row["status"] == "ok"]
        if ok and ok[0]["cores"] == 1:
            for row in ok[1:]:
                row["speedup_vs_one_core"] = row["img_per_s"] / ok[0]["img_per_s"]
    return {CSV: rows}


def _measured(repeats: Records) -> Row:
    counted = [_without_start(record) for record in repeats]
    middle = common.median_repeat(counted, common.seconds_an_image)
    row = common.loader_columns(counted, *_VALUES)
    row["workers"] = middle.cell.recipe.workers or middle.cell.params["pinned_cores"]
    if middle.cell.protocol == "job":
        spent_s = middle.values["main_cpu_s"] + middle.values["commit_cpu_s"]
        row["main_ms_per_image"] = spent_s / common.count(middle) * 1e3
    return row


def _without_start(record: Record) -> Record:
    """A job's record with the rate of its loop; a loader's as it is, measured in steady state."""
    if record.cell.protocol != "job" or not record.ok:
        return record
    loop_s = common.wall_s(record) - record.values["startup_s"]
    return replace(record, values={**record.values, "img_per_s": common.count(record) / loop_s})
