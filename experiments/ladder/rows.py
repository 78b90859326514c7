"""The rows of the ladder's tables: from a full queue, at rates of arrivals, and redeliveries."""

from collections.abc import Sequence

from experiments import common
from experiments.common import Record, Records, Row
from experiments.frontier import pairs
from experiments.ladder import parts as predicted
from harness.measures import median

#: Setups: a mock of the source's machine; the configured model on the configured device; neither.
MOCK = "mock S3"
MODEL = "model"
BOX = "this box"
#: The service; those below it are the source's, those above it are compared with it.
SERVICE = 5

_SHARED = common.columns("setup rung duty image_set corpus device device_kind cores")
#: Of cores and of the GPU, in percent.
_USE = ("cpu_util_mean", "gpu_util_mean")
_COSTS = common.columns(
    common.with_limits(_USE),
    "gpu_used_gib cpu_ms_per_request bed_ms_per_request",
    "peak_memory_mib redeliveries wasted_share kb_per_request origin status reason",
)
COLUMNS = common.columns(
    "what",
    _SHARED,
    "model weights dtype services workers batch_size n_images repeats",
    common.with_limits("requests_per_s"),
    "predicted_per_s error source_per_s",
    pairs.columns("speedup_vs_previous"),
    pairs.columns("service_speedup"),
    "usd_per_hour usd_per_million",
    _COSTS,
)
LATENCY_COLUMNS = common.columns(
    "what",
    _SHARED,
    "share offered_per_s arrived_per_s requests_per_s n_images repeats",
    common.LATENCY_COLUMNS,
    "bound within_bound keeps_up knee late_ms",
    _COSTS,
)
REDELIVERY_COLUMNS = common.columns(
    "what",
    _SHARED,
    "visibility_s queue_size largest_queue_size n_requests wall_s repeats",
    "deliveries_per_request callbacks_per_request completed_share",
    common.with_limits("completed_per_s"),
    "completed_late_per_s peak_memory_mib origin status reason",
)
#: Of the requests that arrive in a second, those that are answered in one, at least.
_KEPT_UP = 0.95


def rate_rows(records: Records) -> list[Row]:
    """A row for each rung in each setup, compared with the rung below."""
    full = [
        repeats
        for repeats in common.groups(records, "ladder").values()
        if not repeats[0].cell.params["rate"]
    ]
    return [
        _compared(common.complete(_rung_row(repeats), repeats, _measured), repeats, full)
        for repeats in full
    ]


def latency_rows(records: Records) -> list[Row]:
    """A row for each rate of arrivals; of each rung and duty, the knee is marked."""
    rows = []
    for repeats in common.groups(records, "ladder").values():
        params = repeats[0].cell.params
        if params["rate"]:
            row = _new_row(repeats, LATENCY_COLUMNS)
            row |= {"share": params["share"], "offered_per_s": params["rate"]}
            rows.append(common.complete(row, repeats, _at_rate))
    for series in dict.fromkeys((row["rung"], row["duty"]) for row in rows):
        _mark(
            [row for row in rows if (row["rung"], row["duty"]) == series and row["status"] == "ok"]
        )
    return rows


def redelivery_rows(records: Records) -> list[Row]:
    """A row for each rung and bound of its queues."""
    rows = []
    for repeats in common.groups(records, "redelivery").values():
        params = repeats[0].cell.params
        row = _new_row(repeats, REDELIVERY_COLUMNS)
        for name in ("visibility_s", "largest_queue_size"):
            row[name] = params[name]
        row["queue_size"] = params["queue_size"] or None
        rows.append(common.complete(row, repeats, _redelivered))
    return rows


def _new_row(repeats: Records, columns: tuple[str, ...]) -> Row:
    """What a cell says of itself; the mock's device in place of this machine's."""
    timed = repeats[0].cell
    params = timed.params
    row = common.new_row(repeats, columns)
    row |= {"what": timed.label, "setup": params["setup"], "rung": params["rung"]}
    if params["setup"] == MOCK:
        row |= {"device": MOCK, "device_kind": "mock"}
        row["duty"] = params["duty"] if params["rung"] >= SERVICE else None
    return row


def _rung_row(repeats: Records) -> Row:
    timed = repeats[0].cell
    params, size = timed.params, timed.recipe.batch_size
    row = _new_row(repeats, COLUMNS)
    row["batch_size"] = size if params["rung"] >= 4 else 1
    if params["setup"] != MODEL:
        row |= dict.fromkeys(("model", "weights", "dtype"))
    if params["setup"] != BOX:
        row["source_per_s"] = dict(enumerate(predicted.PRINTED, start=1)).get(params["rung"])
    if params["setup"] == MOCK:
        parts = predicted.parts(params["callback_ms"] / 1e3, params["duty"])
        row["predicted_per_s"] = predicted.rate(params["rung"], parts, batch=size)
    return row


def _measured(repeats: Records) -> Row:
    measured = common.measured(repeats)
    rates = [common.rate(record) for record in measured]
    return {
        "services": measured[0].values["services"],
        "repeats": len(rates),
        **common.with_spread("requests_per_s", rates),
        **_price(measured[0], median(rates)),
        **_costs(repeats),
    }


def _price(record: Record, rate: float) -> Row:
    """Of an hour of the machine, and of a million requests; empty where no price is configured."""
    params = record.cell.params
    if params["setup"] == MOCK:
        usd_per_hour = params["usd_per_hour"]
    else:
        usd_per_hour = common.usd_per_hour(record)
    if usd_per_hour is None:
        return {}
    return {"usd_per_hour": usd_per_hour, "usd_per_million": usd_per_hour / 3600 / rate * 1e6}


def _at_rate(repeats: Records) -> Row:
    median_repeat = common.median_repeat(repeats, _longest_latency)
    return {
        "arrived_per_s": median_repeat.values["arrived_per_s"],
        "requests_per_s": common.rate(median_repeat),
        "repeats": len(common.measured(repeats)),
        **common.percentile_columns(median_repeat, "latency"),
        "bound": median_repeat.cell.params["bound"],
        "late_ms": 1e3 * median_repeat.values["late_s"],
        **_costs(repeats),
    }


def _longest_latency(record: Record) -> float:
    return max(record.samples["latency"])


def _costs(repeats: Records) -> Row:
    median_repeat = common.median_repeat(repeats, common.seconds_an_image)
    values = median_repeat.values
    n = common.count(median_repeat)
    sent = values["n_requests"]
    measured = [record.values for record in common.measured(repeats)]
    return {
        "n_images": n,
        "cores": values["cores"],
        "cpu_ms_per_request": 1e3 * values["cpu_s"] / n,
        "bed_ms_per_request": 1e3 * values["bed_cpu_s"] / sent,
        "peak_memory_mib": max(repeat["peak_memory_mib"] for repeat in measured),
        "redeliveries": max(repeat["redeliveries"] for repeat in measured),
        "wasted_share": values["wasted"] / sent,
        "kb_per_request": values["image_bytes"] / sent / 1e3,
        **_use(repeats),
    }


def _use(repeats: Records) -> Row:
    """Of cores and GPU, in percent: the median repeat, the lowest and the highest."""
    median_repeat = common.median_repeat(repeats, common.seconds_an_image)
    if median_repeat.cell.params["setup"] == MOCK:
        return {}  # what it sleeps is no use of this machine
    row: Row = {"gpu_used_gib": median_repeat.values.get("gpu_used_gib")}
    passes = [_use_of_pass(record) for record in common.measured(repeats)]
    return row | _use_of_pass(median_repeat) | common.limits(passes, _USE)


def _use_of_pass(record: Record) -> Row:
    values = record.values
    cpu_util = 100 * values["cpu_s"] / common.wall_s(record) / values["cores"]
    return {"cpu_util_mean": cpu_util, "gpu_util_mean": values.get("gpu_util_mean")}


def _redelivered(repeats: Records) -> Row:
    median_repeat = common.median_repeat(repeats, _seconds_a_completion)
    values, wall = median_repeat.values, common.wall_s(median_repeat)
    measured = common.measured(repeats)
    rates = [record.values["completed"] / common.wall_s(record) for record in measured]
    n = values["n_requests"]
    return {
        "cores": values["cores"],
        "n_requests": n,
        "wall_s": wall,
        "repeats": len(rates),
        "deliveries_per_request": values["delivered"] / n,
        "callbacks_per_request": (values["accepted"] + values["repeated"]) / n,
        "completed_share": values["completed"] / n,
        **common.with_spread("completed_per_s", rates),
        "completed_late_per_s": values["completed_late"] / (wall / 2),
        "peak_memory_mib": max(record.values["peak_memory_mib"] for record in measured),
    }


def _seconds_a_completion(record: Record) -> float:
    return float(common.wall_s(record) / max(1, record.values["completed"]))


def _compared(row: Row, repeats: Records, others: Sequence[Records]) -> Row:
    """The row with the prediction's error; its gain over the rung below, or the service's over it.

    Compared are rungs of one setup and image set, of rung 5 each duty.
    """
    rung = repeats[0].cell.params["rung"]
    bases = {
        other[0].cell.params["rung"]: other
        for other in reversed(others)  # of rung 5 the first duty
        if _setting(other) == _setting(repeats)
    }
    if row["predicted_per_s"] and row["requests_per_s"]:
        row["error"] = row["predicted_per_s"] / row["requests_per_s"] - 1
    if rung <= SERVICE:
        row |= pairs.ratio_columns("speedup_vs_previous", repeats, bases.get(rung - 1, []))
    else:
        row |= pairs.ratio_columns("service_speedup", bases.get(SERVICE, []), repeats)
    return row


def _setting(repeats: Records) -> tuple[str, str]:
    timed = repeats[0].cell
    return timed.params["setup"], timed.images.image_set


def _mark(series: list[Row]) -> None:
    """Mark the rates of one rung at which the bound holds and it keeps up, and the highest."""
    for row in series:
        limit_ms = row["bound"] * series[0]["latency_p99_ms"]
        row["within_bound"] = row["latency_p99_ms"] <= limit_ms
        row["keeps_up"] = row["requests_per_s"] >= _KEPT_UP * row["arrived_per_s"]
        row["knee"] = False
    if sustained := [row for row in series if row["within_bound"] and row["keeps_up"]]:
        highest = max(sustained, key=lambda row: row["offered_per_s"])
        highest["knee"] = True
