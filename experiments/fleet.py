"""How long do 20 million images take on many cloud machines, for how much, and what limits it?

Method. A seeded simulation (`wallclock.predict.fleet`) of the job that `cluster=` runs, on nodes of
types that are not here. Measured: what an image and a GET cost a core (`predict`, `storage`); all
other inputs are cited or assumed, each with its source in `fleet-inputs.csv`. Nothing was run on
AWS. `arrangement=bucket` is `s3://…` as SRC: the driver lists it, boto3 GETs, and shards are open
in the order of the keys. `list` is a list of https URLs in random order (of public or presigned
objects), which the job takes, too: no listing, urllib3 GETs, all prefixes at once. With `feeders`
CPU nodes prepare pixels and send them to the GPU nodes as uint8, which is not built: as many as
make an image cheapest.

`fleet.csv`: on-demand nodes are not lost, spot nodes are. Hours are from the launch of the nodes,
dollars those hours of nodes and head; GETs are apart. `nodes_until_*`: from how many nodes on that
limits. `fleet-check.csv`: runs of the experiment `cluster`, from their actors' own rates.
"""

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from typing import Any

from experiments import _accelerators, _common
from experiments._common import Cell, Options, Plan, Record, Records, Row, Tables, cell, mock_model
from wallclock import provenance
from wallclock.predict import fleet
from wallclock.predict.fleet import Feeders, Fleet, Images, Instance, Run, Store, Timing
from wallclock.summary import median, quantile

RANK = 162
ALSO_READS = ("predict", "storage", "cluster")
CSV, INPUTS_CSV, CHECK_CSV = "fleet.csv", "fleet-inputs.csv", "fleet-check.csv"
TABLES = {
    CSV: _common.columns(
        "arrangement image_set instance accelerator nodes actors feeders feeder n_images runs",
        "hours_p5 hours_p50 hours_p95 hours_spot_p50 hours_spot_p95 losses_spot",
        "usd_on_demand usd_spot usd_gets usd_per_million img_per_s img_per_s_work bound_by",
        "nodes_until_s3 nodes_until_driver device origin status reason",
    ),
    INPUTS_CSV: _common.columns("input value unit origin source assumption status reason"),
    CHECK_CSV: _common.columns(
        "image_set actors shard n_images repeat actor_img_per_s measured_s simulated_s",
        "simulated_low_s simulated_high_s error is_within device origin status reason",
    ),
}
IMAGE_SETS = ("small_256", "original")
NODES = (1, 2, 4, 8, 16, 32, 64)
BUCKET, LIST = "bucket", "list"
#: GPU nodes that CPU nodes feed, and those; the most of them beside one.
_FED, _FEEDER, _MOST = ("g6.xlarge", "p5.48xlarge"), "c7i.4xlarge", 256
#: What a record of `cluster` says of a run on a cluster that was up; `actor_img_per_s`: of one
#: actor while it worked.
CHECKED = ("actors", "shard", "actor_img_per_s", "actor_start_s")

_Inputs = dict[str, Row]


@dataclass(frozen=True)
class _Machine:
    """A line of `instances.csv`: what is simulated, and dollars an hour on demand and spot."""

    instance: Instance
    accelerator: str
    usd: float
    usd_spot: float


def cells(plan: Plan, options: Options) -> list[Cell]:
    """What `predict` and `storage` measure, where they are not part of the run."""
    grid: list[Cell] = []
    recipe = replace(options["recipe"], device="cpu", dtype="fp32", normalize_on="device")
    for name, corpus in plan.slices(options["images"]).items():
        params = {**plan.params, "seconds": options["loading"]["seconds"]}
        size = options["loading"]["batch_sizes"].get(name, 8)
        loads = cell(
            plan, "fleet", "contention", f"loading-{name}", replace(recipe, batch_size=size), corpus
        )
        measured = [("predict", loads, params)]
        for form in options["forms"]:
            gets = cell(plan, "fleet", "forms", f"{form}-{name}", recipe, corpus)
            stored = {**plan.params, "allocator": "keep", "form": form, **options["get"]}
            measured.append(("storage", gets, stored))
        grid += [
            replace(new, params=with_, model=mock_model(plan))
            for other, new, with_ in measured
            if other not in plan.settings.experiments
        ]
    return grid


def tables(records: Records) -> Tables:
    """The simulation, its inputs, and the check where a cluster ran."""
    own = [record for record in records if record.cell.experiment != "cluster"]
    inputs = _inputs(own)
    device = next((_common.new_row([one], ("device",))["device"] for one in own), "")
    values = tuple((name, float(str(row["value"]))) for name, row in inputs.items())
    rows = [{**row, "device": device} for row in _simulated(values)] if own else []
    filled: Tables = {CSV: rows, INPUTS_CSV: [*inputs.values(), *_instance_rows()]} if own else {}
    checked = [row for record in records if (row := check_row(record))]
    return filled | ({CHECK_CSV: checked} if checked else {})


def check_row(record: Record) -> Row | None:
    """A measured run against its simulation; None where the record is of something else."""
    values = record.values
    if not (record.ok and record.cell.experiment == "cluster" and values.keys() >= {*CHECKED}):
        return None
    n, wall_s, rate = _common.count(record), _common.wall_s(record), values["actor_img_per_s"]
    known = {name: float(str(line["value"])) for name, line in _read("fleet.csv", "input").items()}
    timing = Timing(actor_start_s=values["actor_start_s"], shard_variation=known["shard_variation"])
    images = Images(n, values["shard"], 0.0, 0.0)
    found = fleet.compare(wall_s, rate, images, values["actors"], timing)
    row = _common.new_row([record], TABLES[CHECK_CSV])
    row |= {name: values[name] for name in ("actors", "shard", "actor_img_per_s")}
    row |= {"n_images": n, "repeat": record.cell.repeat, "measured_s": wall_s, "origin": "predicted"}
    row |= {"simulated_s": found.simulated_s, "simulated_low_s": found.low_s}
    return row | {
        "simulated_high_s": found.high_s,
        "error": found.error,
        "is_within": found.is_within,
    }


def _inputs(records: Records) -> _Inputs:
    """The named inputs: of this run's records where it measured them, else as the file says."""
    lines = _read("fleet.csv", "input")
    inputs: _Inputs = {
        name: {"status": "ok", "reason": "", **line} | {"value": float(line["value"])}
        for name, line in lines.items()
    }
    for image_set in IMAGE_SETS:
        for name, (value, record) in _measured(records, image_set).items():
            where = f"experiment {record.cell.experiment}, {record.cell.label}"
            inputs[f"{name}_{image_set}"] |= {"value": value, "source": where, "origin": "measured"}
    return inputs


def _measured(records: Records, image_set: str) -> dict[str, tuple[float, Record]]:
    """Input → its value and the first record that has it."""
    found: dict[str, tuple[float, Record]] = {}
    of = [record for record in records if record.ok and _common.image_set_of(record) == image_set]
    loading = [one for one in of if one.cell.protocol == "contention"]
    loading = [one for one in loading if one.cell.recipe.name == "fast"]
    for one in sorted(loading, key=lambda one: -one.cell.recipe.batch_size)[:1]:
        spent = one.values["cpu_s"]
        busy = str(one.environment["machine"]["cores"])
        found["load_ms"] = 1e3 * spent.get(busy, spent["1"]), one
        found["kb"] = one.values["mean_bytes"] / 1e3, one
    for client, form in (("s3", "files_s3"), ("http", "files")):
        gets = [one for one in of if one.cell.params.get("form") == form]
        if gets:
            costs = median([_passes(one)[1]["cpu_ms"] for one in gets])
            rates = median([max(_rates(one)) for one in gets])
            found |= {f"{client}_get_ms": (costs, gets[0]), f"{client}_gets_per_s": (rates, gets[0])}
    return found


def _passes(record: Record) -> dict[int, dict[str, Any]]:
    """Threads → what its pass over a store without latency found, bytes alone."""
    names = {n: f"http-0/{n}/bytes" for n in (1, record.cell.params["in_flight"])}
    passes = record.values["passes"]
    return {n: {**passes[name], "s": record.seconds_in(name)} for n, name in names.items()}


def _rates(record: Record) -> list[float]:
    return [found["n"] / found["s"] for found in _passes(record).values()]


@cache
def _simulated(values: tuple[tuple[str, float], ...]) -> list[Row]:
    """The rows of fleet.csv that follow from the inputs."""
    known, rows = dict(values), list[Row]()
    machines = _machines(known["cores_per_vcpu"])
    for image_set, (name, machine) in product(IMAGE_SETS, machines.items()):
        if not machine.instance.gpus:
            continue
        for arrangement in (BUCKET, LIST):
            case = _fleet(known, image_set, machine, arrangement)
            rows += _rows(known, image_set, machine, case, arrangement)
        if name in _FED:
            fed = _fed(known, case, machine, machines[_FEEDER])
            rows += _rows(known, image_set, machine, fed, LIST, machines[_FEEDER])
    return rows


def _fleet(known: Mapping[str, float], image_set: str, machine: _Machine, arrangement: str) -> Fleet:
    is_list = arrangement == LIST
    names = ("load_ms", "get_ms", "gets_per_s", "kb")
    client = "http_" if is_list else "s3_"
    load_ms, get_ms, gets_per_s, kb = (
        known[f"{client if name.startswith('get') else ''}{name}_{image_set}"] for name in names
    )
    count, shard = int(known["images"]), int(known["shard"])
    images = Images(count, shard, 1e3 * kb, load_ms / 1e3, get_ms / 1e3, gets_per_s)
    flight = known["get_latency_ms"] / 1e3, int(known["gets_in_flight"])
    store = Store(known["gets_per_s_prefix"], int(known["prefixes"]), *flight, spread=is_list)
    timing = Timing(
        boot_s=known["boot_s"] + known["environment_s"],
        boot_variation=known["boot_variation"],
        actor_start_s=known["actor_start_s"],
        list_s=0.0 if is_list else 1 / known["list_keys_per_s"],
        hop_s=8e-9 * known["list_bytes"] / known["head_gbit_per_s"],
        dispatch_per_s=known["dispatch_per_s"],
        shard_variation=known["shard_variation"],
        cost_spread=known["cost_spread"],
    )
    return Fleet(images, machine.instance, 1, store, timing)


def _fed(known: Mapping[str, float], case: Fleet, machine: _Machine, feeder: _Machine) -> Fleet:
    """With as many feeders beside each node as make an image cheapest."""
    cores, size = int(known["feeder_cores"]), 1e3 * known["pixels_kb"]
    fed = [
        replace(case, feeders=Feeders(feeder.instance, count, cores, size))
        for count in range(1, _MOST + 1)
    ]
    hours = [machine.usd + count * feeder.usd for count in range(1, _MOST + 1)]
    return min(zip(fed, hours, strict=True), key=lambda one: one[1] / one[0].rate().img_per_s)[0]


def _rows(
    known: Mapping[str, float],
    image_set: str,
    machine: _Machine,
    case: Fleet,
    arrangement: str,
    feeder: _Machine | None = None,
) -> Iterator[Row]:
    """A row for each number of nodes."""
    beside = case.feeders.count if case.feeders else 0
    until = {name: case.nodes_until(limit) for name, limit in (("s3", "S3 prefix"), ("driver",) * 2)}
    for nodes in NODES:
        one, losses = replace(case, nodes=nodes), known["losses_per_hour"] / 3600
        spot_timing = replace(case.timing, losses_per_s=losses)
        runs = fleet.simulate(one, int(known["runs"]))
        spot = fleet.simulate(replace(one, timing=spot_timing), int(known["runs"]))
        hours = _quantile(runs, 0.5)
        prices = [machine.usd, machine.usd_spot]
        prices = [p + beside * f for p, f in zip(prices, _prices(feeder), strict=True)]
        on_demand, on_spot = (nodes * price + known["head_usd_per_hour"] for price in prices)
        gets = case.images.count * known["usd_per_million_gets"] / 1e6
        yield {
            "arrangement": arrangement,
            "image_set": image_set,
            "instance": machine.instance.name,
            "accelerator": machine.accelerator,
            "nodes": nodes,
            "actors": one.actors,
            "feeders": beside * nodes,
            "feeder": feeder.instance.name if feeder else "",
            "n_images": case.images.count,
            "runs": len(runs),
            **{f"hours_p{q}": _quantile(runs, q / 100) for q in (5, 50, 95)},
            **{f"hours_spot_p{q}": _quantile(spot, q / 100) for q in (50, 95)},
            "losses_spot": sum(run.losses for run in spot) / len(spot),
            "usd_on_demand": on_demand * hours,
            "usd_spot": on_spot * _quantile(spot, 0.5),
            "usd_gets": gets,
            "usd_per_million": (on_demand * hours + gets) / case.images.count * 1e6,
            "img_per_s": case.images.count / hours / 3600,
            "img_per_s_work": case.images.count / median([run.work_s for run in runs]),
            "bound_by": fleet.likely_limit(runs),
            **{f"nodes_until_{name}": at for name, at in until.items()},
            **{"device": "", "origin": "predicted", "status": "ok", "reason": ""},
        }


def _prices(machine: _Machine | None) -> tuple[float, float]:
    return (machine.usd, machine.usd_spot) if machine else (0.0, 0.0)


def _quantile(runs: list[Run], q: float) -> float:
    return quantile([run.hours for run in runs], q)


def _machines(cores_per_vcpu: float) -> dict[str, _Machine]:
    """The instances by name, the GPUs' rates by `_accelerators`: FP16, batch 64."""
    known, found = _accelerators.load(), dict[str, _Machine]()
    for name, line in _read("instances.csv", "instance").items():
        rates = known[line["accelerator"]].rates("fp16") if line["accelerator"] else (0.0, 0.0)
        cores, network = int(float(line["vcpus"]) * cores_per_vcpu), line["network_gbit_per_s"]
        one = Instance(name, cores, float(network) * 1e9 / 8, int(line["gpus"]), rates)
        usd = float(line["usd_per_hour"]), float(line["usd_per_hour_spot"])
        found[name] = _Machine(one, line["accelerator"], *usd)
    return found


def _instance_rows() -> Iterator[Row]:
    """The instances as inputs."""
    units = {"vcpus": "vCPUs", "network_gbit_per_s": "Gbit/s", "usd_per_hour": "USD"}
    units |= {"usd_per_hour_spot": "USD", "gpus": "GPUs"}
    for name, line in _read("instances.csv", "instance").items():
        for column, unit in units.items():
            origin = "assumed" if column in line["assumed"].split() else "cited"
            row = {"input": f"{name} {column}", "value": float(line[column]), "unit": unit}
            row |= {"origin": origin, "source": line["source"], "assumption": line["note"]}
            yield row | {"status": "ok", "reason": ""}
    for name, accelerator in _accelerators.load().items():
        low, high = accelerator.rates("fp16")
        assumption = "DINOv2-small, FP16, batch 64; above T4: between ratios of two peaks to it"
        row = {"unit": "images/s", "source": accelerator.source, "assumption": assumption}
        row |= {"origin": "cited" if name == "T4" else "assumed", "status": "ok", "reason": ""}
        for end, value in (("low", low), ("high", high)):
            yield {**row, "input": f"{name} {end}", "value": value}


def _read(name: str, key: str) -> dict[str, dict[str, str]]:
    path = provenance.ROOT / "data" / "paper" / name
    with path.open(encoding="utf-8", newline="") as handle:
        return {line[key]: line for line in csv.DictReader(handle)}
