"""How long do 20 million images take on many cloud machines, for how much, and what limits it?

Method. A seeded simulation (`harness.predict.fleet`) of the job that `cluster=` runs, on machines
that are not here; nothing was run on AWS. Measured: what an image and a GET cost a core (`predict`,
`storage`). All else is cited or assumed: `fleet-inputs.csv` has every input with its source.

`arrangement=bucket` is `s3://…` as SRC: the driver lists it, boto3 GETs, and shards are open in the
order of the keys. `list` is a list of https URLs in random order (of public or presigned objects),
which the job takes, too: no listing, GETs by urllib3 (as http.client measured), all prefixes at
once. With `feeders` CPU nodes
prepare pixels and send them to the GPU nodes as uint8, which is not built: as many as make an image
cheapest. On-demand nodes are not lost, spot nodes are. Hours are from the launch of the nodes,
dollars those hours of nodes and head, `usd_per_million` on demand and with GETs; `nodes_until_*`:
from how many nodes on that limits.

`fleet-check.csv`: runs of the experiment `cluster` on several nodes, simulated from an actor's rate
on one node and from when their own first shard began.
"""

import csv
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache, partial
from itertools import product

from experiments import _accelerators, _common
from experiments._common import Cell, Options, Plan, Record, Records, Row, Tables, cell, mock_model
from experiments._sentences import MeasuredRows
from experiments._words import SHORT_SETS, digits, factor
from harness import provenance
from harness.predict import fleet
from harness.predict.fleet import Feeders, Fleet, ImageSet, Instance, Store, Timing
from wallclock.summary import median, quantile

RANK = 162
ALSO_READS = ("predict", "storage", "cluster")
CSV = "fleet.csv"
INPUTS_CSV = "fleet-inputs.csv"
CHECK_CSV = "fleet-check.csv"
TABLES = {
    CSV: _common.columns(
        "arrangement image_set instance nodes feeders feeder n_images runs",
        "hours_p5 hours_p50 hours_p95 hours_spot_p50 hours_spot_p95 losses_spot",
        "usd_on_demand usd_spot usd_gets usd_per_million img_per_s img_per_s_work bound_by",
        "nodes_until_s3 nodes_until_driver device origin status reason",
    ),
    INPUTS_CSV: _common.columns("input value unit origin source assumption status reason"),
    CHECK_CSV: _common.columns(
        "image_set actors shard n_images repeat actor_img_per_s measured_s simulated_s",
        "low_s high_s error is_within device origin status reason",
    ),
}
NODES = (1, 2, 4, 8, 16, 32, 64)
#: Arrangements.
BUCKET = "bucket"
LIST = "list"
_SETS = ("small_256", "original")
#: Instance → its GPU.
_INSTANCES = {
    "g4dn.xlarge": "T4",
    "g4dn.2xlarge": "T4",
    "g4dn.4xlarge": "T4",
    "g6.xlarge": "L4",
    "g6.2xlarge": "L4",
    "p5.48xlarge": "H100",
}
#: What CPU nodes feed, with what, and how many of them for a GPU node at most.
_FED = ("g6.xlarge", "p5.48xlarge")
_FEEDER = "c7i.4xlarge"
_MAX_FEEDERS = 256
#: Arrangement → its client of the store, and the form of `storage` that measures it.
_CLIENTS = {BUCKET: ("s3", "files_s3"), LIST: ("http", "files")}

#: The value of each input by its name.
_Inputs = Mapping[str, float]


def cells(plan: Plan, options: Options) -> list[Cell]:
    """What `predict` and `storage` measure, where they are not part of the run."""
    grid: list[Cell] = []
    recipe = replace(options["recipe"], device="cpu", dtype="fp32", normalize_on="device")
    new = partial(cell, plan, "fleet", model=mock_model(plan))
    for name, corpus in plan.slices(options["images"]).items():
        if "predict" not in plan.settings.experiments:
            sized = replace(recipe, batch_size=options["loading"]["batch_sizes"][name])
            params = {**plan.params, "seconds": options["loading"]["seconds"]}
            grid.append(new("contention", f"loading-{name}", sized, corpus, params=params))
        if "storage" not in plan.settings.experiments:
            for _, form in _CLIENTS.values():
                params = {**plan.params, "allocator": "keep", "form": form, **options["gets"]}
                grid.append(new("forms", f"{form}-{name}", recipe, corpus, params=params))
    return grid


def tables(records: Records) -> Tables:
    """The simulation where loading was measured, its inputs; the check where a cluster ran."""
    filled: Tables = {}
    loading = [record for record in records if record.cell.protocol == "contention"]
    if loading:
        inputs = _inputs(records)
        device = _common.new_row(loading[:1], ("device",))
        values = tuple((str(row["input"]), float(str(row["value"]))) for row in inputs)
        filled = {CSV: [row | device for row in _simulated(values)], INPUTS_CSV: inputs}
    scaled = [record for record in records if record.ok and record.cell.protocol == "scaled"]
    alone = [record for record in scaled if record.values["actors"] == 1]
    several = [record for record in scaled if record.values["actors"] > 1]
    if alone and several:
        filled[CHECK_CSV] = [_checked(record, alone[0]) for record in several]
    return filled


def _checked(record: Record, alone: Record) -> Row:
    """A measured run against its simulation by an actor's rate on one node, and its own start.

    Nodes of one machine start on the same cores, and so later than one alone; machines do not.
    """
    values = record.values
    # Before the first shard a node's actor starts twice, as a probe sizes the pool.
    timing = Timing(
        actor_start_s=values["begin_s"] / 2,
        shard_variation=float(_defaults()["shard_variation"]["value"]),
    )
    images = ImageSet(_common.count(record), values["shard"])
    wall_s = _common.wall_s(record)
    actor_rate = alone.values["actor_img_per_s"]
    compared = fleet.compare(wall_s, actor_rate, images, values["actors"], timing)
    return {
        **_common.new_row([record], TABLES[CHECK_CSV]),
        "actors": values["actors"],
        "shard": values["shard"],
        "n_images": images.count,
        "repeat": record.cell.repeat,
        "actor_img_per_s": actor_rate,
        "measured_s": wall_s,
        **compared._asdict(),
        "origin": "predicted",
    }


def _inputs(records: Records) -> list[Row]:
    """Every input: as this run's records have it where they measured it, else as the file says."""
    measured: dict[str, tuple[float, Record]] = {}
    for image_set in _SETS:
        same_set = [r for r in records if r.ok and _common.image_set_of(r) == image_set]
        measured |= _measured_inputs(image_set, same_set)
    rows: list[Row] = []
    for name, line in _defaults().items():
        row: Row = {**line, "value": float(line["value"]), "status": "ok", "reason": ""}
        if name in measured:
            value, record = measured[name]
            where = f"experiment {record.cell.experiment}, {record.cell.label}"
            row |= {"value": value, "origin": "measured", "source": where}
        rows.append(row)
    for name in dict.fromkeys(_INSTANCES.values()):
        rows += _gpu_inputs(name)
    return rows


def _measured_inputs(image_set: str, records: Records) -> dict[str, tuple[float, Record]]:
    """What the records of an image set measured, each with the record that it is from."""
    measured = {}
    for record in records:
        if record.cell.protocol == "contention" and record.cell.recipe.name == "fast":
            cpu_s = record.values["cpu_s"]
            all_cores = str(record.environment["machine"]["cores"])
            load_s = cpu_s.get(all_cores, cpu_s["1"])
            measured[f"load_ms_{image_set}"] = 1e3 * load_s, record
            measured[f"kb_{image_set}"] = record.values["mean_bytes"] / 1e3, record
    for client, form in _CLIENTS.values():
        gets = [record for record in records if record.cell.params.get("form") == form]
        if gets:
            passes = [record.values["passes"]["http-0/1/bytes"] for record in gets]
            cpu_ms = median([values["cpu_ms"] for values in passes])
            rate = median([_gets_per_s(record) for record in gets])
            measured[f"{client}_get_ms_{image_set}"] = cpu_ms, gets[0]
            measured[f"{client}_gets_per_s_{image_set}"] = rate, gets[0]
    return measured


def _gpu_inputs(name: str) -> list[Row]:
    """The lower and the higher rate of a GPU."""
    gpu = _accelerators.load()[name]
    shared: Row = {
        "unit": "images/s",
        "origin": "cited" if name == "T4" else "assumed",
        "source": gpu.source,
        "assumption": "DINOv2-small, FP16, batch 64: the paper's T4, times a ratio of peaks",
        "status": "ok",
        "reason": "",
    }
    low, high = gpu.rates("fp16")
    return [
        {**shared, "input": f"{name} low", "value": low},
        {**shared, "input": f"{name} high", "value": high},
    ]


def _gets_per_s(record: Record) -> float:
    """Of one process without latency, by one thread or by several, whichever are faster."""
    passes = record.values["passes"]
    names = [f"http-0/{n}/bytes" for n in (1, record.cell.params["in_flight"])]
    return max(int(passes[name]["n"]) / record.seconds_in(name) for name in names)


@cache
def _simulated(values: tuple[tuple[str, float], ...]) -> list[Row]:
    """The rows of fleet.csv that follow from the inputs."""
    inputs = dict(values)
    rows: list[Row] = []
    for name, instance in product(_SETS, _INSTANCES):
        for arrangement in (BUCKET, LIST):
            case = _fleet(inputs, name, instance, arrangement)
            about: Row = {"arrangement": arrangement, "image_set": name, "instance": instance}
            rows += _rows(inputs, case, about)
        if instance in _FED:
            rows += _rows(inputs, _fed(inputs, case, instance), about)
    return rows


def _instance(inputs: _Inputs, name: str) -> Instance:
    gpu = _INSTANCES.get(name)
    return Instance(
        cores=int(inputs[f"{name} vcpus"] * inputs["cores_per_vcpu"]),
        gpus=int(inputs[f"{name} gpus"]),
        gpu_rates=(inputs[f"{gpu} low"], inputs[f"{gpu} high"]) if gpu else (0.0, 0.0),
        network_bytes_per_s=inputs[f"{name} network_gbit_per_s"] * 1e9 / 8,
    )


def _fleet(inputs: _Inputs, image_set: str, instance: str, arrangement: str) -> Fleet:
    """One node of it."""
    client, _ = _CLIENTS[arrangement]
    in_order = arrangement == BUCKET
    images = ImageSet(
        count=int(inputs["images"]),
        shard=int(inputs["shard"]),
        image_bytes=1e3 * inputs[f"kb_{image_set}"],
        load_s=inputs[f"load_ms_{image_set}"] / 1e3,
        get_s=inputs[f"{client}_get_ms_{image_set}"] / 1e3,
    )
    store = Store(
        gets_per_prefix=inputs["gets_per_s_prefix"],
        prefixes=int(inputs["prefixes"]),
        latency_s=inputs["get_latency_ms"] / 1e3,
        in_flight=int(inputs["gets_in_flight"]),
        gets_per_s=inputs[f"{client}_gets_per_s_{image_set}"],
        spread=not in_order,
    )
    timing = Timing(
        boot_s=inputs["boot_s"] + inputs["environment_s"],
        boot_variation=inputs["boot_variation"],
        list_s=1 / inputs["list_keys_per_s"] if in_order else 0.0,
        hop_s=8e-9 * inputs["list_bytes"] / inputs["head_gbit_per_s"],
        actor_start_s=inputs["actor_start_s"],
        dispatch_per_s=inputs["dispatch_per_s"],
        shard_variation=inputs["shard_variation"],
        cost_spread=inputs["cost_spread"],
    )
    return Fleet(images, _instance(inputs, instance), 1, store, timing)


def _fed(inputs: _Inputs, case: Fleet, instance: str) -> Fleet:
    """With as many CPU nodes beside each GPU node as make an image cheapest."""
    feeder = _instance(inputs, _FEEDER)
    cores = int(inputs["feeder_cores"])
    pixel_bytes = 1e3 * inputs["pixels_kb"]
    usd, feeder_usd = (inputs[f"{name} usd_per_hour"] for name in (instance, _FEEDER))

    def with_feeders(count: int) -> Fleet:
        return replace(case, feeders=Feeders(feeder, count, cores, pixel_bytes))

    def image_usd(count: int) -> float:
        """In proportion to the dollars of an image."""
        return (usd + count * feeder_usd) / with_feeders(count).rate().img_per_s

    return with_feeders(min(range(1, _MAX_FEEDERS + 1), key=image_usd))


def _hourly_usd(
    inputs: _Inputs, instance: object, nodes: int, feeders: int, market: str = ""
) -> float:
    """Dollars an hour of the nodes, `feeders` beside each, and of the head."""
    node = inputs[f"{instance} usd_per_hour{market}"]
    feeder = inputs[f"{_FEEDER} usd_per_hour{market}"]
    return nodes * (node + feeders * feeder) + inputs["head_usd_per_hour"]


def _rows(inputs: _Inputs, case: Fleet, about: Row) -> Iterator[Row]:
    """A row for each number of nodes."""
    feeders = case.feeders.count if case.feeders else 0
    count = int(inputs["runs"])
    n_images = case.images.count
    usd_gets = n_images * inputs["usd_per_million_gets"] / 1e6
    losses = replace(case.timing, losses_per_s=inputs["losses_per_hour"] / 3600)
    for nodes in NODES:
        on_demand = replace(case, nodes=nodes)
        runs = fleet.simulate(on_demand, count)
        spot_runs = fleet.simulate(replace(on_demand, timing=losses), count)
        hours = [run.hours for run in runs]
        spot_hours = [run.hours for run in spot_runs]
        limits = [run.limit for run in runs]
        instance = about["instance"]
        usd = _hourly_usd(inputs, instance, nodes, feeders) * median(hours)
        spot_usd = _hourly_usd(inputs, instance, nodes, feeders, "_spot") * median(spot_hours)
        yield {
            **about,
            "nodes": nodes,
            "feeders": feeders * nodes,
            "feeder": _FEEDER if feeders else "",
            "n_images": n_images,
            "runs": count,
            "hours_p5": quantile(hours, 0.05),
            "hours_p50": quantile(hours, 0.5),
            "hours_p95": quantile(hours, 0.95),
            "hours_spot_p50": quantile(spot_hours, 0.5),
            "hours_spot_p95": quantile(spot_hours, 0.95),
            "losses_spot": sum(run.losses for run in spot_runs) / count,
            "usd_on_demand": usd,
            "usd_spot": spot_usd,
            "usd_gets": usd_gets,
            "usd_per_million": (usd + usd_gets) / n_images * 1e6,
            "img_per_s": n_images / median(hours) / 3600,
            "img_per_s_work": n_images / median([run.work_s for run in runs]),
            "bound_by": max(limits, key=limits.count),
            "nodes_until_s3": case.nodes_until("S3 prefix"),
            "nodes_until_driver": case.nodes_until("driver"),
            "origin": "predicted",
            "status": "ok",
            "reason": "",
        }


@cache
def _defaults() -> dict[str, dict[str, str]]:
    path = provenance.ROOT / "data" / "paper" / "fleet.csv"
    with path.open(encoding="utf-8", newline="") as handle:
        return {line["input"]: line for line in csv.DictReader(handle)}


def sentence(rows: MeasuredRows) -> str:
    """Hours and dollars of the first machines, eight of them, on a list of originals."""
    row = rows.first(CSV, image_set="original", arrangement=LIST, nodes="8")
    if row is None:
        return ""
    spread = factor(float(row["hours_p95"]) / float(row["hours_p50"]))
    return (
        f"simulated, not run: {int(row['n_images']):,} {SHORT_SETS[row['image_set']]} on "
        f"{row['nodes']} {row['instance']} take {digits(row['hours_p50'])} h and "
        f"${digits(row['usd_on_demand'])}; the 95th percentile of the hours is {spread} that"
    )
