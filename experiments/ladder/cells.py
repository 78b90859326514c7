"""How many requests per second does a queue-driven service answer, and how fast is each?

Method. The rungs of GumGum's module (`measure.rungs`), each switch alone, and as rung 5
`wallclock serve`, as processes against a queue, an image store and a callback receiver on loopback.
`setup=mock S3`: a device, preprocessing and network that last as long as the source's own rungs
say, slept, for 8 vCPUs; `ladder.parts` derives them and predicts every rung: rungs 1 to 4 return
what was put in. Rung 5 there has the same preprocessing, so that nothing is credited to its
decoder, and once for each `duty`, which the source leaves open. `setup=model`: the configured model
on the configured device, preprocessing as long as it takes here, downloads and callbacks as slow as
the mock's; every rung in the same precision. `setup=this box`: no mock and no model, decoding and
resizing alone; of rung 5 `services` processes on one queue, because the event loop of one cannot
use more than a core; each has its share of the cores as `workers`, which is 0 there. Rungs 6 and 7
are no steps of the source's: a consumer of sixty lines (`consumer.py`), and with the model also
LitServe behind a consumer (`model_server.py`), both with rung 5's batches.

`ladder.csv`: from a full queue, so that a latency would be that of the queue. `usd_per_million`:
requests, by the price of the source's machine on the mock, of the configured one elsewhere, empty
where that is of another device. `cpu_util_mean` is of all cores, `gpu_util_mean` NVML's, both in
percent. `ladder-latency.csv`: Poisson arrivals at shares of each rung's own measured rate;
`within_bound`: the 99th percentile is at most `bound` times that at the lowest share; `keeps_up`:
requests were answered as fast as they arrived, within 5 %. `knee` marks the highest rate at which
both hold. Above a share of 1 the queue grows as long as requests arrive.

`ladder-redelivery.csv`: a backlog that takes longer than the visibility timeout. Rung 2 on the
mock, `speed` times as fast, without a bound of its queues and with the source's, visibility timeout
x requests per second / 3; and the service, which extends what it holds, on the mock as it is.
`completed`: deleted from the queue; `completed_late_per_s`: in the second half of the pass.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from experiments import common
from experiments.common import Cell, Options, Plan, Recipe, Records, Tables, cell, mock_model
from experiments.ladder import parts as predicted
from experiments.ladder.rows import (
    BOX,
    COLUMNS,
    LATENCY_COLUMNS,
    MOCK,
    MODEL,
    REDELIVERY_COLUMNS,
    latency_rows,
    rate_rows,
    redelivery_rows,
)
from experiments.sentences import MeasuredRows, TableRow
from harness import peers
from harness.drawing.format import digits, factor
from harness.measures import median
from harness.spec import Slice
from wallclock.recipe import ModelSpec

__all__ = ["BOX", "MOCK", "MODEL"]

ON_REQUEST = True
CSV = "ladder.csv"
LATENCY_CSV = "ladder-latency.csv"
REDELIVERY_CSV = "ladder-redelivery.csv"
TABLES = {CSV: COLUMNS, LATENCY_CSV: LATENCY_COLUMNS, REDELIVERY_CSV: REDELIVERY_COLUMNS}
MEANINGS = """
[ladder.csv ladder-latency.csv]
setup | | setting | mock S3: device, preprocessing and network sleep as long as the source says;
  this box: no mock, no model
rung | count | setting | 1 to 4: the steps of the source; 5: wallclock serve; 6: a consumer of
  sixty lines; 7: LitServe behind a consumer
duty | 0 to 1 | setting | assumed utilization of the device at rung 1, which the source does not say
requests_per_s | requests/s | measured | requests answered per second; in ladder.csv from a full
  queue
cpu_ms_per_request | ms | measured | CPU time of the service per request
bed_ms_per_request | ms | measured | CPU time of queue, store and receiver per request
redeliveries | count | measured | messages that were delivered again
wasted_share | relative | measured | downloads beyond one per request
kb_per_request | kB | measured | bytes downloaded per request
[ladder.csv]
usd_per_hour | $/h | setting | price of the machine
services | count | setting | processes of the service on one queue
predicted_per_s | requests/s | measured | predicted requests per second
source_per_s | requests/s | fact | the figure that the source gives
speedup_vs_previous | x | measured | rate over that of the rung below, by pairs of repeats
service_speedup | x | measured | rate of rung 5 over that of this rung, 6 or 7, by pairs of repeats
[ladder-redelivery.csv]
setup | | setting | mock S3: device, preprocessing and network sleep as long as the source says
rung | count | setting | the rung that pulls
duty | 0 to 1 | setting | assumed utilization of the device at rung 1
visibility_s | s | setting | visibility timeout of the queue
queue_size | count | setting | bound of each queue of the rung; empty: none
largest_queue_size | count | measured | the bound by the source's formula: timeout × rate / number
  of queues
n_requests | count | fact | requests in the queue at the start
deliveries_per_request | count | measured | times that a message was delivered
callbacks_per_request | count | measured | callbacks that were posted
completed_share | 0 to 1 | measured | requests that were deleted from the queue
completed_per_s | requests/s | measured | those per second
completed_late_per_s | requests/s | measured | the same in the second half of the pass
[ladder-latency.csv]
share | x | setting | arrivals over the measured rate of the rung
offered_per_s | requests/s | measured | mean of the Poisson arrivals
arrived_per_s | requests/s | measured | requests that arrived per second
latency_p50_ms | ms | measured | median time from when a request was due to its accepted callback
latency_p95_ms | ms | measured | 95th percentile of that time
latency_p99_ms | ms | measured | 99th percentile of that time
bound | x | setting | latency_p99_ms may be that many times the one at the lowest share
within_bound | yes or no | status | latency_p99_ms is at most that many times
keeps_up | yes or no | status | answered as fast as requests arrived, within 5 %
knee | yes or no | status | the highest rate at which both hold
late_ms | ms | measured | 99th percentile of how late requests were sent
"""
TIMED = (
    "experiments.ladder.bed",
    "experiments.ladder.consumer",
    "experiments.ladder.mock_module",
    "experiments.ladder.model_server",
    "experiments.ladder.parts",
    "experiments.ladder.rungs",
    "harness.testbed",
    "wallclock.predict",
    "wallclock.service",
)
_RUNGS = (1, 2, 3, 4, 5, 6)
#: Of each of a rung's queues, as in the source.
_QUEUE_SIZE = 300
#: Warm-ups and passes are whole batches of rung 4, so that a pass begins and ends with one.
_WHOLE = predicted.BATCH
#: Batches of requests, at least, for a 99th percentile.
_LEAST = 13
#: Buffers that a message goes through: to be downloaded, to be inferred, to be called back.
_N_QUEUES = 3
#: Of rung 5's expected rate on this box, what the others' passes are planned for.
_BOX_SHARE = 0.2


def cells(plan: Plan, options: Options) -> list[Cell]:
    """Every rung from a full queue: on the mock, with the model, on this box; then redeliveries."""
    small = plan.first_slice(options["mock_images"])
    of_model = plan.first_slice(options["model"]["images"])
    grid = []
    for repeat in plan.repeats("ladder"):
        grid += [_on_mock(plan, options, small, rung, repeat=repeat) for rung in _RUNGS]
        for duty in options["duty"][1:]:
            grid.append(_on_mock(plan, options, small, 5, duty=duty, repeat=repeat))
        for rung in options["model"]["rungs"]:
            grid.append(_with_model(plan, options, of_model, rung, repeat))
        for corpus in plan.slices(options["box_images"]).values():
            grid += [_on_box(plan, options, corpus, rung, repeat) for rung in options["box_rungs"]]
        grid += _redeliveries(plan, options, small, repeat)
    return grid


def max_queue_size(visibility_s: float, requests_per_s: float) -> int:
    """The source's bound of each queue: visibility timeout × rate / number of queues."""
    return int(visibility_s * requests_per_s / _N_QUEUES)


def second_round(plan: Plan, options: Options, records: Records) -> list[Cell]:
    """Poisson arrivals at shares of the rates that the rungs of the mock had."""
    small = plan.first_slice(options["mock_images"])
    grid = []
    for repeats in common.groups(records, "ladder").values():
        params = repeats[0].cell.params
        if _is_capacity(params, options) and common.measured(repeats):
            capacity = median([common.rate(record) for record in common.measured(repeats)])
            for share in options["latency"]["shares"]:
                offered = float(f"{share * capacity:.3g}")
                grid.append(
                    _on_mock(
                        plan,
                        options,
                        small,
                        params["rung"],
                        duty=params["duty"],
                        offered=offered,
                        share=share,
                    )
                )
    return grid


def _is_capacity(params: Options, options: Options) -> bool:
    """Whether a cell's rate is what the shares are of: a full queue on the mock."""
    rungs = options["latency"]["rungs"]
    return params["rung"] in rungs and (params["setup"], params["rate"]) == (MOCK, 0.0)


def _on_mock(
    plan: Plan,
    options: Options,
    corpus: Slice,
    rung: int,
    *,
    duty: float | None = None,
    offered: float = 0.0,
    share: float = 0.0,
    repeat: int = 0,
) -> Cell:
    """A rung on the mock: from a full queue, or with requests `offered` a second."""
    duty = options["duty"][0] if duty is None else duty
    batch = options["batch"] if rung >= 5 else predicted.BATCH
    parts = predicted.parts(options["callback_ms"] / 1e3, duty)
    rate = offered or predicted.rate(rung, parts, batch=batch)
    seconds = options["latency" if offered else "full"]["seconds"]
    params = {
        **_length(plan, rate, seconds, _LEAST if offered else 2),
        **_mock_params(plan, options, rung, parts),
        "share": share,
        "rate": offered,
        "bound": options["latency"]["bound"],
        "usd_per_hour": options["mock_usd_per_hour"],
    }
    name = f"rung-{rung}"
    if duty != options["duty"][0]:
        name += f"-duty-{duty:.2g}"
    label = f"{name}-at-{share:g}" if offered else name
    recipe = Recipe(name, workers=predicted.VCPUS, batch_size=batch)
    new = cell(plan, "ladder", "ladder", label, recipe, corpus, repeat=repeat, params=params)
    return replace(new, model=_mock(plan, rung, parts))


def _mock(plan: Plan, rung: int, parts: predicted.Parts, speed: float = 1) -> ModelSpec:
    """The mock's device, `speed` times as fast; the host's part of rungs 1 to 4 is in its step."""
    step = parts.device if rung >= 5 else parts.step
    return mock_model(plan, 1e3 * step.fixed_s / speed, 1e3 * step.per_image_s / speed)


def _mock_params(
    plan: Plan, options: Options, rung: int, parts: predicted.Parts, speed: float = 1
) -> dict[str, object]:
    """Times of the mock outside its device, divided by `speed`, and what the rung is started as."""
    device = _mock(plan, rung, parts, speed)
    preprocess_s = parts.preprocess_s + (parts.host_s if rung >= 5 else 0.0)
    preprocess_ms = 1e3 * preprocess_s / speed
    service = {
        **options["serve"],
        "module": options["mock_module"],
        "workers": predicted.VCPUS,
        "batch": options["batch"],
        "step_ms": device.service_ms,
        "step_ms_per_image": device.service_ms_per_image,
        "preprocess_ms": preprocess_ms,
    }
    return {
        **_rung_params(plan, rung),
        "setup": MOCK,
        "duty": parts.duty,
        "download_ms": 1e3 * parts.download_s / speed,
        "callback_ms": options["callback_ms"] / speed,
        "preprocess_ms": preprocess_ms,
        "serve": service if rung == 5 else {},
    }


def _with_model(plan: Plan, options: Options, corpus: Slice, rung: int, repeat: int) -> Cell:
    """A rung with the configured model on the device; downloads and callbacks as on the mock."""
    chosen, device = options["model"], plan.settings.device
    batch = options["batch"] if rung >= 5 else predicted.BATCH
    parts = predicted.parts(options["callback_ms"] / 1e3, options["duty"][0])
    expected = (*predicted.PRINTED, *[chosen["rate"][device]] * 3)[rung - 1]
    rate = min(expected, chosen["rate"][device])
    recipe = Recipe(f"model-rung-{rung}", batch_size=batch, device=device, dtype=chosen["dtype"])
    params = {
        **_length(plan, rate, options["full"]["seconds"]),
        **_rung_params(plan, rung),
        "setup": MODEL,
        "download_ms": 1e3 * parts.download_s,
        "callback_ms": options["callback_ms"],
        "serve": _serve_model(plan, options, recipe) if rung == 5 else {},
    }
    if rung == 7:
        params["installed"] = peers.installed(["litserve"])
    return cell(plan, "ladder", "ladder", recipe.name, recipe, corpus, repeat=repeat, params=params)


def _serve_model(plan: Plan, options: Options, recipe: Recipe) -> Mapping[str, object]:
    """Settings of `wallclock serve` for the configured model, squashed as by the other rungs."""
    model = plan.settings.model
    settings = {**options["serve"], "batch": recipe.batch_size}
    if model.weights == "none":
        return settings | {"model": "null"}
    return settings | {
        "model": model.path or model.hub_id,
        "weights": model.weights,
        "pool": model.pool,
        "preprocess": "squash",
        "device": recipe.device,
        "dtype": recipe.dtype,
    }


def _on_box(plan: Plan, options: Options, corpus: Slice, rung: int, repeat: int) -> Cell:
    """A rung without a mock or a model; all cores."""
    rate = options["box_rate"][corpus.image_set] * (1 if rung >= 5 else _BOX_SHARE)
    batch = options["batch"] if rung >= 5 else predicted.BATCH
    service = options["serve"] | {"model": "null", "batch": batch}
    params = {
        **_length(plan, rate, options["full"]["seconds"]),
        **_rung_params(plan, rung),
        "setup": BOX,
        "serve": service if rung == 5 else {},
        "services": options["box_services"] if rung >= 5 else 1,
    }
    recipe = Recipe(f"box-rung-{rung}", batch_size=batch)
    new = cell(plan, "ladder", "ladder", recipe.name, recipe, corpus, repeat=repeat, params=params)
    return replace(new, model=mock_model(plan))


def _redeliveries(plan: Plan, options: Options, corpus: Slice, repeat: int) -> list[Cell]:
    """Rung 2 without and with the bound, and the service by the least favourable duty."""
    chosen = options["redelivery"]
    parts = predicted.parts(options["callback_ms"] / 1e3, options["duty"][-1])
    grid = []
    for name, rung, is_bounded in (
        ("unbounded", 2, False),
        ("bounded", 2, True),
        ("serve", 5, False),
    ):
        # The service at the mock's own speed: faster, it would answer all within one timeout.
        speed = chosen["speed"] if rung == 2 else 1
        largest = max_queue_size(chosen["visibility_s"], speed * predicted.PRINTED[1])
        params = {
            **_mock_params(plan, options, rung, parts, speed),
            "n": chosen["requests"],
            "seconds": chosen["seconds"],
            "visibility_s": chosen["visibility_s"],
            "largest_queue_size": largest if rung == 2 else None,
            "queue_size": largest if is_bounded else 0,
        }
        recipe = Recipe(f"redelivery-{name}", workers=predicted.VCPUS)
        new = cell(
            plan, "ladder", "redelivery", recipe.name, recipe, corpus, repeat=repeat, params=params
        )
        grid.append(replace(new, model=_mock(plan, rung, parts, speed)))
    return grid


def _length(plan: Plan, rate: float, seconds: float, least: int = 2) -> dict[str, object]:
    """The length of a pass at about `rate`: whole batches, a fifth as many to warm up."""
    n = max(least, round(rate * seconds / _WHOLE)) * _WHOLE
    warm_up = max(1, round(n / 5 / _WHOLE)) * _WHOLE
    return {"n": n, "warm_up": warm_up, "seconds": (n + warm_up) / rate}


def _rung_params(plan: Plan, rung: int) -> dict[str, object]:
    """What every cell has: a rung from a full queue, nothing slept, one process."""
    return {
        **plan.params,
        "rung": rung,
        "seed": plan.settings.seed,
        "duty": 0.0,
        "share": 0.0,
        "rate": 0.0,
        "download_ms": 0.0,
        "callback_ms": 0.0,
        "preprocess_ms": 0.0,
        "queue_size": _QUEUE_SIZE,
        "services": 1,
    }


def tables(records: Records) -> Tables:
    """A row for each rung in each setup, for each rate of arrivals, and for each bound."""
    return {
        CSV: rate_rows(records),
        LATENCY_CSV: latency_rows(records),
        REDELIVERY_CSV: redelivery_rows(records),
    }


def sentence(rows: MeasuredRows) -> str:
    """The service on the mock, versus the rung below it, from the least favourable duty on."""
    served = [row for row in rows[CSV] if row["setup"] == MOCK and row["rung"] == 5]
    if not served:
        return ""
    rates = _range(served, "requests_per_s", digits)
    text = f"on {MOCK} the service answers {rates} requests per second"
    if all(row["speedup_vs_previous"] for row in served):
        text += f", {_range(served, 'speedup_vs_previous', factor)} rung 4"
    if all(row.get("usd_per_million") for row in served):
        text += f", for {_range(served, 'usd_per_million', _usd)} a million"
    return f"{text}: by the device's share of a request, which the source leaves open"


def _range(rows: Sequence[TableRow], column: str, written: Callable[[float], str]) -> str:
    """The least and the highest value of a column; the value, if both read alike."""
    values = [row[column] for row in rows]
    ends = dict.fromkeys((written(min(values)), written(max(values))))
    return " to ".join(ends)


def _usd(value: float) -> str:
    return f"${value:,.2f}"
