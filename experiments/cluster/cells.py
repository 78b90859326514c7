"""The same job on this suite, Ray Data and Daft: how fast, how right, and what is lost?

Method. Whole jobs (`measure.py`), each a process on all of this machine's cores, written as the
system's own documentation has it (`systems/`): a list of images to Parquet files of ids and
vectors. The model takes no time, so that what is compared is the loading. A rate is that of the
steady part, `pass_s`. It lasts `least_s` for every system: a shorter pass is run again with as
many images as that takes, so that faster systems get more of them (`n_images`). `startup_s` is
what comes before, `job_s` all. `share_of_ours`: of `wallclock embed` on Ray.
`cost_over_one_process`: what that loses of the rate of one process without Ray. Both are by pairs
of repeats.

`stored_kb_per_image`: what Ray kept in its object store; others have none. `psnr_db`, level and
gate are those of `frontier`, of each system's own pictures. In a second pass one file in a hundred
is cut in half: `rows_lost` are good images without a vector, `damaged_delivered` damaged ones with
one; a job that ends at the first of them is `aborted`, and Ray runs once more with any number of
failed blocks allowed (`errored_`).
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from experiments import common
from experiments.cluster.systems import SYSTEMS
from experiments.common import (
    Cell,
    Options,
    Plan,
    Recipe,
    Record,
    Records,
    Row,
    Tables,
    cell,
    mock_model,
)
from experiments.frontier import levels, pairs
from experiments.sentences import MeasuredRows
from harness.drawing.format import percent
from harness.drawing.labels import SHORT_SETS
from harness.measures import median
from harness.spec import Slice
from wallclock.errors import check_name

ON_REQUEST = True
CSV = "cluster.csv"
COLUMNS = common.columns(
    "system image_set corpus device device_kind cores batch_size n_images pass_s repeats",
    "img_per_s img_per_s_min img_per_s_max img_per_s_per_core",
    "share_of_ours share_of_ours_min share_of_ours_max",
    "cost_over_one_process cost_over_one_process_min cost_over_one_process_max",
    "startup_s job_s stored_kb_per_image",
    "peak_memory_mib",
    common.FIDELITY_COLUMNS,
    "level damaged rows_lost damaged_delivered aborted errored_rows_lost errored_aborted",
    "median_kb median_megapixels library settings origin status reason",
)
TABLES = {CSV: COLUMNS}
MEANINGS = """
system | | setting | the system that ran the job
pass_s | s | measured | steady part of the pass, without starts
cost_over_one_process | 0 to 1 | measured | what Ray costs of the rate of one process without it
img_per_s | images/s | measured | rate between the first batch in the model and the last; the
  median repeat
img_per_s_per_core | images/s | measured | that rate per core
share_of_ours | x | measured | rate over that of wallclock embed on Ray
share_of_ours_min | x | measured | least of the pairs of repeats
share_of_ours_max | x | measured | greatest of the pairs of repeats
startup_s | s | measured | time before the first batch is in the model
job_s | s | measured | the complete job
stored_kb_per_image | kB | measured | kept in Ray's object store, per image
damaged | images | fact | files cut in half in a second pass
rows_lost | images | measured | good images without a vector in that pass
damaged_delivered | images | measured | damaged images with a vector
aborted | | status | no, or how the job ended at a damaged file
errored_rows_lost | images | measured | good images without a vector, with any number of failed
  blocks allowed
errored_aborted | | status | no, or how that job ended
"""
#: A job of ours runs `wallclock embed`.
TIMED = (
    "experiments.cluster.systems",
    "harness.jobs",
    "wallclock.job",
    "wallclock.predict",
    "wallclock.progress",
)
#: What the others are compared with, and the same job without Ray.
OURS, ONE_PROCESS = "ours-ray", "ours"


def cells(plan: Plan, options: Options) -> list[Cell]:
    """Every system on every image set; then with damaged files."""
    names = [check_name(name, SYSTEMS, "system") for name in options["systems"] or SYSTEMS]
    sizes = options["corpus"]
    wanted = [check_name(name, sizes, "image set") for name in options["images"]]
    corpora = plan.slices({name: sizes[name] for name in wanted})
    grid = [
        _cell(plan, options, name, corpus, repeat=repeat)
        for repeat in plan.repeats("cluster")
        for corpus in corpora.values()
        for name in names
    ]
    damaged = {"damaged": options["damaged"], "fidelity": {}}
    if mixed := corpora.get(options["damaged_set"]):
        grid += [_cell(plan, options, name, mixed, "damaged", damaged) for name in names]
    return grid


def _cell(
    plan: Plan,
    options: Options,
    name: str,
    corpus: Slice,
    what: str = "job",
    changes: Mapping[str, Any] | None = None,
    repeat: int = 0,
) -> Cell:
    system = SYSTEMS[name]
    lasting = {name: options[name] for name in ("least_s", "most_images")}
    params = {
        **plan.params,
        "system": name,
        "n": options["images"][corpus.image_set],
        "damaged": 0,
        "fidelity": dict(options["fidelity"]),
        "installed": system.installed(),
        "object_store_mib": options["object_store_mib"],
        **(lasting if what == "job" else {}),
        **(changes or {}),
    }
    recipe = Recipe(name, batch_size=options["batch_size"][corpus.image_set])
    label = f"{name}-{what}"
    new = cell(plan, "cluster", "cluster", label, recipe, corpus, repeat=repeat, params=params)
    return replace(new, model=mock_model(plan))


def tables(records: Records) -> Tables:
    """A row for each system and image set."""
    jobs: dict[tuple[str, str], list[Record]] = {}
    mixed: dict[tuple[str, str], Record] = {}
    for repeats in common.groups(records).values():
        timed = repeats[0].cell
        key = timed.images.image_set, timed.params["system"]
        if timed.params["damaged"]:
            mixed[key] = repeats[0]
        else:
            jobs[key] = repeats
    rows = []
    for (image_set, system), repeats in jobs.items():
        row = common.new_row(repeats, COLUMNS) | {"system": system}
        row = common.complete(row | {"gate": "not checked"}, repeats, _measured)
        second = mixed.get((image_set, system))
        if second is not None and second.ok:
            row |= _mixed_columns(second.values)
        row |= pairs.ratio_columns("share_of_ours", repeats, jobs.get((image_set, OURS), []))
        if system == OURS:
            row |= _cost(repeats, jobs.get((image_set, ONE_PROCESS), []))
        rows.append(row)
    return {CSV: rows}


def _measured(repeats: Records) -> Row:
    median_repeat = common.median_repeat(repeats, common.seconds_an_image)
    values = median_repeat.values
    measured = common.measured(repeats)
    rate = median([common.rate(record) for record in measured])
    row = common.value_columns(median_repeat, "library", "settings", "cores", "n_images", "job_s")
    row |= common.spread_columns(repeats)
    row |= {"img_per_s_per_core": rate / values["cores"], "pass_s": common.wall_s(median_repeat)}
    row["startup_s"] = median([record.values["startup_s"] for record in measured])
    row["peak_memory_mib"] = max(record.values["peak_memory_mib"] for record in measured)
    if "stored_bytes" in values:
        row["stored_kb_per_image"] = values["stored_bytes"] / values["n_images"] / 1e3
    for record in measured:
        if "fidelity" in record.values:
            row |= levels.judge(record.values["fidelity"], "none")
    return row


def _mixed_columns(values: Mapping[str, Any]) -> Row:
    """What the pass with damaged files left; of an aborted job, no vectors count."""
    row: Row = {"damaged": values["damaged"], "aborted": values["aborted"] or "no"}
    if not values["aborted"]:
        row |= {"rows_lost": values["lost"], "damaged_delivered": values["delivered"]}
    if errored := values.get("errored"):
        row |= {"errored_rows_lost": errored["lost"], "damaged_delivered": errored["delivered"]}
        row["errored_aborted"] = errored["aborted"] or "no"
    return row


def _cost(repeats: Records, base: Records) -> Row:
    """What Ray costs our job over one process."""
    share = pairs.ratio_columns("", repeats, base)
    if not share:
        return {}
    least, greatest = share["_min"], share["_max"]
    cost: Row = {"cost_over_one_process": 1 - share[""]}
    if least is not None and greatest is not None:
        # The least that it costs is of the greatest share.
        cost["cost_over_one_process_min"] = 1 - greatest
        cost["cost_over_one_process_max"] = 1 - least
    return cost


def sentence(rows: MeasuredRows) -> str:
    """What Ray Data prepares by its guide, as a share of ours on Ray; and what Ray costs ours."""
    parts = []
    if row := rows.first(CSV, system="ray-images"):
        parts.append(
            f"Ray Data as its guide has it prepares {percent(row['share_of_ours'])} of what "
            f"wallclock does on Ray Data, on {SHORT_SETS[row['image_set']]}"
        )
    ours = rows.first(CSV, system=OURS)
    if ours and ours["cost_over_one_process"]:
        least, cost, most = (
            percent(ours[f"cost_over_one_process{end}"]) for end in ("_min", "", "_max")
        )
        parts.append(f"Ray costs wallclock {cost} of one process's rate [{least}, {most}]")
    return "; ".join(parts)
