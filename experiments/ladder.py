"""How many requests a second does a queue-driven service answer, and how fast is each?

Method. The rungs of GumGum's module (`measure.rungs`), each switch alone, and as rung 5
`wallclock serve`, as processes against a queue, an image store and a callback receiver on loopback.
`setup=mock S3`: a device, preprocessing and network that last as long as the source's own rungs
say, slept, for 8 vCPUs; `predict.ladder` derives them and predicts every rung. Rung 5 there has the
same preprocessing, so that nothing is credited to its decoder, and once for each `duty`, which the
source leaves open. `setup=this box`: no mock and no model, decoding and resizing alone; of rung 5
`services` processes on one queue, because the event loop of one cannot use more than a core; each
has its share of the cores as `workers`, which is 0 there.

`ladder.csv`: from a full queue, so that a latency would be that of the queue. `ladder-latency.csv`:
Poisson arrivals at shares of each rung's own measured rate; `within_bound`: the 99th percentile is
at most `bound` times that at the lowest share; `keeps_up`: requests were answered as fast as they
arrived, within 5 %. `knee` marks the highest rate at which both hold. Above a share of 1 the queue
grows as long as requests arrive.
"""

from dataclasses import replace

from experiments import _common
from experiments._common import (
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
from experiments._sentences import MeasuredRows
from experiments._words import digits, factor
from harness.predict import ladder as predicted
from harness.spec import Slice
from wallclock.summary import median

ON_REQUEST = True
CSV = "ladder.csv"
LATENCY_CSV = "ladder-latency.csv"
_SHARED = _common.columns("setup rung duty image_set corpus device device_kind cores")
_COSTS = _common.columns(
    "cpu_cores cpu_ms_per_request bed_ms_per_request peak_memory_mib redeliveries wasted_share",
    "kb_per_request origin status reason",
)
COLUMNS = _common.columns(
    "what",
    _SHARED,
    "services workers batch_size n_images repeats",
    "requests_per_s requests_per_s_min requests_per_s_max predicted_per_s error source_per_s",
    "speedup_vs_previous speedup_vs_rung_1",
    _COSTS,
)
LATENCY_COLUMNS = _common.columns(
    "what",
    _SHARED,
    "share offered_per_s arrived_per_s requests_per_s n_images repeats",
    _common.LATENCY_COLUMNS,
    "bound within_bound keeps_up knee late_ms",
    _COSTS,
)
TABLES = {CSV: COLUMNS, LATENCY_CSV: LATENCY_COLUMNS}
#: Setups.
MOCK = "mock S3"
BOX = "this box"
_RUNGS = (1, 2, 3, 4, 5)
#: Warm-ups and passes are whole batches of rung 4, so that a pass begins and ends with one.
_WHOLE = predicted.BATCH
#: Batches of requests, at least, for a 99th percentile.
_LEAST = 13
#: Of the requests that arrive in a second, those that are answered in one, at least.
_KEPT_UP = 0.95
#: Of rung 5's expected rate on this box, what the others' passes are planned for.
_BOX_SHARE = 0.2


def cells(plan: Plan, options: Options) -> list[Cell]:
    """Every rung from a full queue: on the mock, then on this box."""
    small = plan.first_slice(options["mock_images"])
    grid = []
    for repeat in plan.repeats("ladder"):
        grid += [_on_mock(plan, options, small, rung, repeat=repeat) for rung in _RUNGS]
        for duty in options["duty"][1:]:
            grid.append(_on_mock(plan, options, small, 5, duty=duty, repeat=repeat))
        for corpus in plan.slices(options["box_images"]).values():
            grid += [_on_box(plan, options, corpus, rung, repeat) for rung in options["box_rungs"]]
    return grid


def second_round(plan: Plan, options: Options, records: Records) -> list[Cell]:
    """Poisson arrivals at shares of the rates that the rungs of the mock had."""
    small = plan.first_slice(options["mock_images"])
    grid = []
    for repeats in _common.groups(records, "ladder").values():
        params = repeats[0].cell.params
        if _is_capacity(params, options) and _common.measured(repeats):
            capacity = median([_common.rate(record) for record in _common.measured(repeats)])
            for share in options["latency"]["shares"]:
                offered = float(f"{share * capacity:.3g}")
                grid.append(
                    _on_mock(plan, options, small, params["rung"], offered=offered, share=share)
                )
    return grid


def _is_capacity(params: Options, options: Options) -> bool:
    """Whether a cell's rate is what the shares are of: a full queue, the mock, the first duty."""
    rungs, duty = options["latency"]["rungs"], options["duty"][0]
    at = params["setup"], params["rate"], params["duty"]
    return params["rung"] in rungs and at == (MOCK, 0.0, duty)


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
    batch = options["batch"] if rung == 5 else predicted.BATCH
    parts = predicted.parts(options["callback_ms"] / 1e3, duty)
    step, preprocess_s = parts.step, parts.preprocess_s
    if rung == 5:
        step, preprocess_s = parts.device, preprocess_s + parts.host_s
    rate = offered or predicted.rate(rung, parts, batch=batch)
    times = {
        "step_ms": 1e3 * step.fixed_s,
        "step_ms_per_image": 1e3 * step.per_image_s,
        "preprocess_ms": 1e3 * preprocess_s,
    }
    service = {
        **options["serve"],
        "module": options["mock_module"],
        "workers": predicted.VCPUS,
        "batch": batch,
        **times,
    }
    seconds = options["latency" if offered else "full"]["seconds"]
    params = {
        **_params(plan, rung, rate, seconds, _LEAST if offered else 2),
        "setup": MOCK,
        "duty": duty,
        "share": share,
        "rate": offered,
        "download_ms": 1e3 * parts.download_s,
        "callback_ms": options["callback_ms"],
        "preprocess_ms": times["preprocess_ms"],
        "bound": options["latency"]["bound"],
        "serve": service if rung == 5 else {},
        "services": 1,
    }
    name = f"rung-{rung}"
    if duty != options["duty"][0]:
        name += f"-duty-{duty:.2g}"
    label = f"{name}-at-{share:g}" if offered else name
    recipe = Recipe(name, workers=predicted.VCPUS, batch_size=batch)
    model = mock_model(plan, times["step_ms"], times["step_ms_per_image"])
    new = cell(plan, "ladder", "ladder", label, recipe, corpus, repeat=repeat, params=params)
    return replace(new, model=model)


def _on_box(plan: Plan, options: Options, corpus: Slice, rung: int, repeat: int) -> Cell:
    """A rung without a mock or a model; all cores."""
    rate = options["box_rate"][corpus.image_set] * (1 if rung == 5 else _BOX_SHARE)
    batch = options["batch"] if rung == 5 else predicted.BATCH
    service = options["serve"] | {"model": "null", "batch": batch}
    params = {
        **_params(plan, rung, rate, options["full"]["seconds"]),
        "setup": BOX,
        "duty": 0.0,
        "share": 0.0,
        "rate": 0.0,
        "download_ms": 0.0,
        "callback_ms": 0.0,
        "preprocess_ms": 0.0,
        "serve": service if rung == 5 else {},
        "services": options["box_services"] if rung == 5 else 1,
    }
    recipe = Recipe(f"box-rung-{rung}", batch_size=batch)
    new = cell(plan, "ladder", "ladder", recipe.name, recipe, corpus, repeat=repeat, params=params)
    return replace(new, model=mock_model(plan))


def _params(
    plan: Plan, rung: int, rate: float, seconds: float, least: int = 2
) -> dict[str, object]:
    """The length of a pass at about `rate`: whole batches, a fifth as many to warm up."""
    n = max(least, round(rate * seconds / _WHOLE)) * _WHOLE
    warm_up = max(1, round(n / 5 / _WHOLE)) * _WHOLE
    sizes = {"n": n, "warm_up": warm_up, "seconds": (n + warm_up) / rate}
    return {**plan.params, **sizes, "rung": rung, "seed": plan.settings.seed}


def tables(records: Records) -> Tables:
    """A row for each rung in each setup; one for each rate of arrivals."""
    rows: list[Row] = []
    arrivals: list[Row] = []
    for repeats in _common.groups(records, "ladder").values():
        if repeats[0].cell.params["rate"]:
            row = _new_row(repeats, LATENCY_COLUMNS)
            arrivals.append(_common.complete(row, repeats, _at_rate))
        else:
            row = _new_row(repeats, COLUMNS)
            rows.append(_common.complete(row, repeats, _measured))
    for row in rows:
        _compare(row, {other["rung"]: other for other in rows if _alike(other, row)})
    for rung in dict.fromkeys(row["rung"] for row in arrivals):
        _mark([row for row in arrivals if row["rung"] == rung and row["status"] == "ok"])
    return {CSV: rows, LATENCY_CSV: arrivals}


def _new_row(repeats: Records, columns: tuple[str, ...]) -> Row:
    timed = repeats[0].cell
    params = timed.params
    on_mock = params["setup"] == MOCK
    row = _common.new_row(repeats, columns)
    row |= {"what": timed.label, "setup": params["setup"], "rung": params["rung"]}
    if on_mock:
        row |= {"device": MOCK, "device_kind": "mock"}
        row["duty"] = params["duty"] if params["rung"] == 5 else None
    if columns is LATENCY_COLUMNS:
        return row | {"share": params["share"], "offered_per_s": params["rate"]}
    row["batch_size"] = timed.recipe.batch_size if params["rung"] in (4, 5) else 1
    if on_mock:
        parts = predicted.parts(params["callback_ms"] / 1e3, params["duty"])
        size = timed.recipe.batch_size
        row["predicted_per_s"] = predicted.rate(params["rung"], parts, batch=size)
        row["source_per_s"] = dict(enumerate(predicted.PRINTED, start=1)).get(params["rung"])
    return row


def _measured(repeats: Records) -> Row:
    measured = _common.measured(repeats)
    rates = [_common.rate(record) for record in measured]
    return {
        "services": measured[0].values["services"],
        "repeats": len(rates),
        "requests_per_s": median(rates),
        "requests_per_s_min": min(rates),
        "requests_per_s_max": max(rates),
        **_costs(repeats),
    }


def _at_rate(repeats: Records) -> Row:
    median_repeat = _common.median_repeat(repeats, _longest_latency)
    return {
        "arrived_per_s": median_repeat.values["arrived_per_s"],
        "requests_per_s": _common.rate(median_repeat),
        "repeats": len(_common.measured(repeats)),
        **_common.percentile_columns(median_repeat, "latency"),
        "bound": median_repeat.cell.params["bound"],
        "late_ms": 1e3 * median_repeat.values["late_s"],
        **_costs(repeats),
    }


def _longest_latency(record: Record) -> float:
    return max(record.samples["latency"])


def _costs(repeats: Records) -> Row:
    median_repeat = _common.median_repeat(repeats, _common.seconds_an_image)
    values = median_repeat.values
    n = _common.count(median_repeat)
    sent = values["n_requests"]
    measured = [record.values for record in _common.measured(repeats)]
    return {
        "n_images": n,
        "cores": values["cores"],
        "cpu_cores": values["cpu_s"] / _common.wall_s(median_repeat),
        "cpu_ms_per_request": 1e3 * values["cpu_s"] / n,
        "bed_ms_per_request": 1e3 * values["bed_cpu_s"] / sent,
        "peak_memory_mib": max(repeat["peak_memory_mib"] for repeat in measured),
        "redeliveries": max(repeat["redeliveries"] for repeat in measured),
        "wasted_share": values["wasted"] / sent,
        "kb_per_request": values["image_bytes"] / sent / 1e3,
    }


def _alike(row: Row, other: Row) -> bool:
    """Whether two rungs are compared: of one setup and image set; rung 5 by its first duty."""
    same = all(row[name] == other[name] for name in ("setup", "image_set"))
    return same and "-duty-" not in str(row["what"])


def _compare(row: Row, rungs: dict[object, Row]) -> None:
    """Add the gain over the rung below and over the first, and the prediction's error."""
    rate, rung = row["requests_per_s"], row["rung"]
    if not isinstance(rate, float) or not isinstance(rung, int):
        return
    if expected := row["predicted_per_s"]:
        row["error"] = float(str(expected)) / rate - 1
    for name, below in (("previous", rung - 1), ("rung_1", 1)):
        base = rungs.get(below, {}).get("requests_per_s")
        if isinstance(base, float):
            row[f"speedup_vs_{name}"] = rate / base


def _mark(series: list[Row]) -> None:
    """Mark the rates of one rung at which the bound holds and it keeps up, and the highest."""
    for row in series:
        limit_ms = _number(row, "bound") * _number(series[0], "latency_p99_ms")
        least_per_s = _KEPT_UP * _number(row, "arrived_per_s")
        row["within_bound"] = _number(row, "latency_p99_ms") <= limit_ms
        row["keeps_up"] = _number(row, "requests_per_s") >= least_per_s
        row["knee"] = False
    if sustained := [row for row in series if row["within_bound"] and row["keeps_up"]]:
        highest = max(sustained, key=lambda row: _number(row, "offered_per_s"))
        highest["knee"] = True


def _number(row: Row, column: str) -> float:
    return float(str(row[column]))


def sentence(rows: MeasuredRows) -> str:
    """The service on the mock, versus the rung below it."""
    row = rows.first(CSV, setup=MOCK, what="rung-5")
    if row is None:
        return ""
    return (
        f"on {row['setup']} the service answers {digits(row['requests_per_s'])} requests a "
        f"second, {factor(row['speedup_vs_previous'])} rung 4"
    )
