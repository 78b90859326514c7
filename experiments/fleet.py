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
from functools import cache
from itertools import product

from experiments import _accelerators, _common
from experiments._common import Cell, Options, Plan, Record, Records, Row, Tables, cell, mock_model
from harness import provenance
from harness.predict import fleet
from harness.predict.fleet import Feeders, Fleet, Images, Instance, Store, Timing
from wallclock.summary import median, quantile

RANK = 162
ALSO_READS = ("predict", "storage", "cluster")
CSV, INPUTS_CSV, CHECK_CSV = "fleet.csv", "fleet-inputs.csv", "fleet-check.csv"
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
BUCKET, LIST = "bucket", "list"
_SETS = ("small_256", "original")
_INSTANCES = {
    **dict.fromkeys(("g4dn.xlarge", "g4dn.2xlarge", "g4dn.4xlarge"), "T4"),
    **dict.fromkeys(("g6.xlarge", "g6.2xlarge"), "L4"),
    "p5.48xlarge": "H100",
}
#: What CPU nodes feed, with what, and how many of them at most.
_FED, _FEEDER, _MOST = ("g6.xlarge", "p5.48xlarge"), "c7i.4xlarge", 256
#: Arrangement → its client of the store, and the form of `storage` that measures it.
_CLIENTS = {BUCKET: ("s3", "files_s3"), LIST: ("http", "files")}

_Known = Mapping[str, float]


def cells(plan: Plan, options: Options) -> list[Cell]:
    """What `predict` and `storage` measure, where they are not part of the run."""
    grid: list[Cell] = []
    recipe = replace(options["recipe"], device="cpu", dtype="fp32", normalize_on="device")
    for name, corpus in plan.slices(options["images"]).items():
        sized = replace(recipe, batch_size=options["loading"]["batch_sizes"][name])
        loads = {"seconds": options["loading"]["seconds"]}
        new = [("predict", "contention", sized, loads)]
        for _, form in _CLIENTS.values():
            gets = {"allocator": "keep", "form": form, **options["gets"]}
            new.append(("storage", "forms", recipe, gets))
        for elsewhere, protocol, of, more in new:
            if elsewhere not in plan.settings.experiments:
                label, params = f"{more.get('form', 'loading')}-{name}", {**plan.params, **more}
                one = cell(plan, "fleet", protocol, label, of, corpus, params=params)
                grid.append(replace(one, model=mock_model(plan)))
    return grid


def tables(records: Records) -> Tables:
    """The simulation where loading was measured, its inputs; the check where a cluster ran."""
    filled: Tables = {}
    if loading := [record for record in records if record.cell.protocol == "contention"]:
        inputs = _inputs(records)
        device = _common.new_row(loading[:1], ("device",))
        values = tuple((str(row["input"]), float(str(row["value"]))) for row in inputs)
        filled = {CSV: [row | device for row in _simulated(values)], INPUTS_CSV: inputs}
    scaled = [one for one in records if one.ok and one.cell.protocol == "scaled"]
    alone = [one for one in scaled if one.values["actors"] == 1]
    others = (one for one in scaled if one.values["actors"] > 1)
    checked = [_checked(record, alone[0]) for record in others if alone]
    return filled | ({CHECK_CSV: checked} if checked else {})


def _checked(record: Record, alone: Record) -> Row:
    """A measured run against its simulation by an actor's rate on one node, and its own start.

    Nodes of one machine start on the same cores, and so later than one alone; machines do not.
    """
    values, base = record.values, alone.values
    # Before the first shard a node's actor starts twice, as a probe sizes the pool.
    timing = Timing(
        actor_start_s=values["begin_s"] / 2,
        shard_variation=float(_defaults()["shard_variation"]["value"]),
    )
    images, wall_s = Images(_common.count(record), values["shard"]), _common.wall_s(record)
    rate, actors = base["actor_img_per_s"], values["actors"]
    found = fleet.compare(wall_s, rate, images, actors, timing)._asdict()
    row = _common.new_row([record], TABLES[CHECK_CSV])
    row |= {"actors": actors, "shard": values["shard"], "actor_img_per_s": rate, **found}
    counts = {"n_images": images.count, "repeat": record.cell.repeat}
    return row | counts | {"measured_s": wall_s, "origin": "predicted"}


def _inputs(records: Records) -> list[Row]:
    """Every input: as this run's records have it where they measured it, else as the file says."""
    measured: dict[str, tuple[float, Record]] = {}
    for name in _SETS:
        of = [one for one in records if one.ok and _common.image_set_of(one) == name]
        loading = [one for one in of if one.cell.protocol == "contention"]
        for one in loading:
            if one.cell.recipe.name == "fast":
                spent, busy = one.values["cpu_s"], str(one.environment["machine"]["cores"])
                measured[f"load_ms_{name}"] = 1e3 * spent.get(busy, spent["1"]), one
                measured[f"kb_{name}"] = one.values["mean_bytes"] / 1e3, one
        for client, form in _CLIENTS.values():
            if gets := [one for one in of if one.cell.params.get("form") == form]:
                cpu_ms = median([one.values["passes"]["http-0/1/bytes"]["cpu_ms"] for one in gets])
                measured[f"{client}_get_ms_{name}"] = cpu_ms, gets[0]
                rate = median([_gets_per_s(one) for one in gets])
                measured[f"{client}_gets_per_s_{name}"] = rate, gets[0]
    rows: list[Row] = []
    for name, line in _defaults().items():
        row: Row = {**line, "value": float(line["value"]), "status": "ok", "reason": ""}
        if found := measured.get(name):
            where = f"experiment {found[1].cell.experiment}, {found[1].cell.label}"
            row |= {"value": found[0], "origin": "measured", "source": where}
        rows.append(row)
    for name in dict.fromkeys(_INSTANCES.values()):
        of_gpu = _accelerators.load()[name]
        row = {"unit": "images/s", "origin": "cited" if name == "T4" else "assumed"}
        row |= {"source": of_gpu.source, "status": "ok", "reason": ""}
        row["assumption"] = "DINOv2-small, FP16, batch 64: the paper's T4, times a ratio of peaks"
        ends = zip(("low", "high"), of_gpu.rates("fp16"), strict=True)
        rows += [{**row, "input": f"{name} {end}", "value": rate} for end, rate in ends]
    return rows


def _gets_per_s(record: Record) -> float:
    """Of one process without latency, by one thread or by several, whichever are faster."""
    names = [f"http-0/{n}/bytes" for n in (1, record.cell.params["in_flight"])]
    return max(int(record.values["passes"][one]["n"]) / record.seconds_in(one) for one in names)


@cache
def _simulated(values: tuple[tuple[str, float], ...]) -> list[Row]:
    """The rows of fleet.csv that follow from the inputs."""
    known, rows = dict(values), list[Row]()
    for name, instance in product(_SETS, _INSTANCES):
        for arrangement in (BUCKET, LIST):
            case = _fleet(known, name, instance, arrangement)
            about: Row = {"arrangement": arrangement, "image_set": name, "instance": instance}
            rows += _rows(known, case, about)
        if instance in _FED:
            rows += _rows(known, _fed(known, case, instance), about)
    return rows


def _instance(known: _Known, name: str) -> Instance:
    of = {part: known[f"{name} {part}"] for part in ("vcpus", "gpus", "network_gbit_per_s")}
    gpu, cores = _INSTANCES.get(name), int(of["vcpus"] * known["cores_per_vcpu"])
    rates = (known[f"{gpu} low"], known[f"{gpu} high"]) if gpu else (0.0, 0.0)
    return Instance(cores, int(of["gpus"]), rates, of["network_gbit_per_s"] * 1e9 / 8)


def _fleet(known: _Known, image_set: str, instance: str, arrangement: str) -> Fleet:
    """One node of it."""
    client, in_order = _CLIENTS[arrangement][0], arrangement == BUCKET
    load_ms, get_ms, gets_per_s, kb = (
        known[f"{name}_{image_set}"]
        for name in ("load_ms", f"{client}_get_ms", f"{client}_gets_per_s", "kb")
    )
    counts = int(known["images"]), int(known["shard"])
    images = Images(*counts, 1e3 * kb, load_ms / 1e3, get_ms / 1e3)
    prefixes, latency_s = int(known["prefixes"]), known["get_latency_ms"] / 1e3
    flight = latency_s, int(known["gets_in_flight"]), gets_per_s
    store = Store(known["gets_per_s_prefix"], prefixes, *flight, spread=not in_order)
    names = "boot_variation actor_start_s dispatch_per_s shard_variation cost_spread"  # as they are
    timing = Timing(
        boot_s=known["boot_s"] + known["environment_s"],
        list_s=1 / known["list_keys_per_s"] if in_order else 0.0,
        hop_s=8e-9 * known["list_bytes"] / known["head_gbit_per_s"],
        **{name: known[name] for name in names.split()},
    )
    return Fleet(images, _instance(known, instance), 1, store, timing)


def _fed(known: _Known, case: Fleet, instance: str) -> Fleet:
    """With as many CPU nodes beside each GPU node as make an image cheapest."""
    each = Feeders(
        _instance(known, _FEEDER), 0, int(known["feeder_cores"]), 1e3 * known["pixels_kb"]
    )
    fed = [replace(case, feeders=replace(each, count=n)) for n in range(1, _MOST + 1)]
    usd, more = (known[f"{name} usd_per_hour"] for name in (instance, _FEEDER))
    hourly = [usd + n * more for n in range(1, _MOST + 1)]
    return min(zip(fed, hourly, strict=True), key=lambda one: one[1] / one[0].rate().img_per_s)[0]


def _rows(known: _Known, case: Fleet, about: Row) -> Iterator[Row]:
    """A row for each number of nodes."""
    beside, count = case.feeders.count if case.feeders else 0, int(known["runs"])
    gets = case.images.count * known["usd_per_million_gets"] / 1e6
    until = {"s3": case.nodes_until("S3 prefix"), "driver": case.nodes_until("driver")}
    for nodes in NODES:
        fixed = replace(case, nodes=nodes)
        lost = replace(case.timing, losses_per_s=known["losses_per_hour"] / 3600)
        runs, spot = (fleet.simulate(one, count) for one in (fixed, replace(fixed, timing=lost)))
        hours, hours_spot = ([run.hours for run in one] for one in (runs, spot))
        usd = {}
        for market, taken in (("", hours), ("_spot", hours_spot)):
            each, more = (
                known[f"{name} usd_per_hour{market}"] for name in (about["instance"], _FEEDER)
            )
            hourly = nodes * (each + beside * more) + known["head_usd_per_hour"]
            usd[market] = hourly * median(taken)
        limits = [run.limit for run in runs]
        yield {
            **about,
            **{"nodes": nodes, "feeders": beside * nodes, "feeder": _FEEDER if beside else ""},
            **{"n_images": case.images.count, "runs": count},
            **{f"hours_p{q}": quantile(hours, q / 100) for q in (5, 50, 95)},
            **{f"hours_spot_p{q}": quantile(hours_spot, q / 100) for q in (50, 95)},
            "losses_spot": sum(run.losses for run in spot) / count,
            **{"usd_on_demand": usd[""], "usd_spot": usd["_spot"], "usd_gets": gets},
            "usd_per_million": (usd[""] + gets) / case.images.count * 1e6,
            "img_per_s": case.images.count / median(hours) / 3600,
            "img_per_s_work": case.images.count / median([run.work_s for run in runs]),
            "bound_by": max(limits, key=limits.count),
            **{f"nodes_until_{name}": at for name, at in until.items()},
            **{"origin": "predicted", "status": "ok", "reason": ""},
        }


@cache
def _defaults() -> dict[str, dict[str, str]]:
    path = provenance.ROOT / "data" / "paper" / "fleet.csv"
    with path.open(encoding="utf-8", newline="") as handle:
        return {line["input"]: line for line in csv.DictReader(handle)}
