"""What do 20 million images cost on cloud machines, and what limits each? A formula, not a run.

Method. A node's rate is the least of three: its GPUs', its cores' over what an image costs a core
(to load, measured by `predict`, and a GET), its network's over the bytes of one. `img_per_s_low`
and `_high` are those of the lower and the higher estimate of its GPU's rate (`accelerators`),
`img_per_s` that of their geometric mean. `hours` count from the launch of the nodes: their boot,
then the images, spread evenly. The driver's listing, stragglers, S3's request limit of a prefix and
lost spot nodes are not in it. `data/paper/fleet.csv` has the prices and every assumption. Nothing
was run on AWS.
"""

from collections.abc import Iterator, Mapping
from functools import cache

from experiments import common
from experiments.common import Cell, Options, Plan, Record, Records, Row, Tables
from experiments.diagnose import accelerators
from harness import provenance
from harness.table import read_table

RANK = 162
ALSO_READS = ("predict",)
CSV = "fleet.csv"
COLUMNS = common.columns(
    "what image_set instance nodes n_images img_per_s img_per_s_low img_per_s_high bound_by hours",
    "usd_on_demand usd_spot usd_per_million usd_per_million_spot device origin status reason",
)
TABLES = {CSV: COLUMNS}
MEANINGS = """
instance | | setting | type of the nodes
nodes | count | measured | nodes
img_per_s_low | images/s | measured | with the lower estimate of the GPU's rate
img_per_s_high | images/s | measured | with the higher estimate
bound_by | | status | GPU, CPU or network: what limits a node
hours | hours | measured | from the launch of the nodes
usd_on_demand | USD | measured | nodes on demand, and the GETs
usd_spot | USD | measured | spot nodes, and the GETs
usd_per_million | USD | measured | a million images, on demand
usd_per_million_spot | USD | measured | a million images, on spot nodes
"""
NODES = (1, 8, 64)
#: Instance → its GPU.
_INSTANCES = {
    "g4dn.xlarge": "T4",
    "g4dn.2xlarge": "T4",
    "g4dn.4xlarge": "T4",
    "g6.xlarge": "L4",
    "g6.2xlarge": "L4",
    "p5.48xlarge": "H100",
}


def cells(plan: Plan, options: Options) -> list[Cell]:
    """None: `predict` measures what loading an image costs a core."""
    return []


def tables(records: Records) -> Tables:
    """Rows for each image set whose loading was measured."""
    rows: list[Row] = []
    measured = set[str]()
    for record in records:
        of_loading = record.cell.protocol == "contention" and record.cell.recipe.name == "fast"
        image_set = common.image_set_of(record)
        if record.ok and of_loading and image_set not in measured:
            measured.add(image_set)
            for instance in _INSTANCES:
                rows += _rows(instance, record)
    return {CSV: rows} if rows else {}


def _rows(instance: str, record: Record) -> Iterator[Row]:
    """A row for each number of nodes."""
    inputs = _inputs()
    image_set = common.image_set_of(record)
    get_s = inputs[f"get_ms_{image_set}"] / 1e3
    bytes_per_s = inputs[f"{instance} network_gbit_per_s"] * 1e9 / 8
    limits = {
        "CPU": inputs[f"{instance} cores"] / (_load_s(record) + get_s),
        "network": bytes_per_s / record.values["mean_bytes"],
    }
    gpus = inputs[f"{instance} gpus"]
    low, high = accelerators.load()[_INSTANCES[instance]].rates("fp16")
    limits["GPU"] = gpus * (low * high) ** 0.5
    others = min(limits["CPU"], limits["network"])
    bound_by = min(limits, key=limits.__getitem__)
    n_images, rate = int(inputs["images"]), limits[bound_by]
    for nodes in NODES:
        hours = (inputs["boot_s"] + n_images / nodes / rate) / 3600
        gets_usd = n_images / 1e6 * inputs["usd_per_million_gets"]
        usd, spot_usd = (
            nodes * hours * inputs[f"{instance} {price}"] + gets_usd
            for price in ("usd_per_hour", "usd_per_hour_spot")
        )
        yield {
            **common.new_row([record], COLUMNS),
            "image_set": image_set,
            "what": f"{nodes} {instance}",
            "instance": instance,
            "nodes": nodes,
            "n_images": n_images,
            "img_per_s": nodes * rate,
            "img_per_s_low": nodes * min(gpus * low, others),
            "img_per_s_high": nodes * min(gpus * high, others),
            "bound_by": bound_by,
            "hours": hours,
            "usd_on_demand": usd,
            "usd_spot": spot_usd,
            "usd_per_million": usd / n_images * 1e6,
            "usd_per_million_spot": spot_usd / n_images * 1e6,
            "origin": "predicted",
        }


def _load_s(record: Record) -> float:
    """Core seconds of loading an image with all cores busy."""
    by_processes = record.values["cpu_s"]
    all_cores = str(record.environment["machine"]["cores"])
    return float(by_processes.get(all_cores, by_processes["1"]))


@cache
def _inputs() -> Mapping[str, float]:
    path = provenance.ROOT / "data" / "paper" / "fleet.csv"
    return {line["input"]: line["value"] for line in read_table(path)}
