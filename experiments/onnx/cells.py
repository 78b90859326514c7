"""Does another runtime run the forward pass faster than PyTorch does?

Method. One batch of real images lies on the device; each runtime takes it through the network again
and again, in a process of its own. A sample is one batch: the call, and the wait for the device.
The copy to the device is not in it. Export, compilation (torch.compile's first call, a graph's
capture, creating a session) and warm-up are in columns of their own. p50, p95 and p99 are over the
batches of the median repeat.

ONNX Runtime gets a graph of fixed shape, exported once, its position embeddings fitted to the input
size before. From opset 23 on attention is one operator of it, which runtimes of the paper's time do
not fuse; the paper's claims are about the row with opset 17 and eager attention. Input and output
stay in buffers on the device. It may not silently fall back to the CPU: the provider that the nodes
are really on is read back, and a provider that does not load, or leaves nodes to the CPU, is a row
with a reason and no time.

OpenVINO, on a CPU: the graph that `embed` runs there, in the precision that its operators are
executed in, which is read back. It normalizes the pixels while the clock runs. Its gain depends on
the network, so there are further ones of published sizes, with random weights.

Quantized graphs, on a CPU: int8 quantizes activations in every batch, int8-static by ranges that it
found before on images after the batch (calibration), int8-weights the weights alone. `pruned` is
the share of the hidden units of every MLP that was removed.

The vectors of the last timed batch are compared with those of PyTorch in FP32. A runtime whose
vectors are not the same within its dtype's limits (`gate`) gets no time. FP32 means FP32: TF32 is
off in both libraries. Under pretrained weights `neighbours_kept` is recall@10: the share of an
image's nearest neighbours by FP32's vectors that remain, among `n_neighbours` images.
"""

from dataclasses import replace
from functools import partial
from typing import Any

from experiments import common
from experiments.common import Cell, Options, Plan, Record, Records, Row, Tables, cell
from harness import models
from wallclock.recipe import ModelSpec

RANK = 60
CSV = "onnx-vs-pytorch.csv"
COLUMNS = common.columns(
    "model pruned runtime dtype opset attention provider device device_kind corpus weights",
    "batch_size n_batches repeats mean_ms p50_ms p95_ms p99_ms mean_ms_min mean_ms_max",
    common.with_limits("img_per_s"),
    "warmup_batches warmup_s compile_s export_s cosine_min cosine max_rel_error gate",
    "n_neighbours neighbours_kept",
    "gpu_used_gib sm_clock_mhz throttle_reasons in_paper origin status reason",
)
TABLES = {CSV: COLUMNS}
MEANINGS = """
gpu_used_gib | GiB | measured | GPU memory that the runtime took, as the driver counts it
pruned | 0 to 1 | setting | share of the hidden units of every MLP that was removed
opset | count | setting | opset of the exported graph
attention | | status | fused: one operator of the graph, or one kernel of PyTorch's pass; eager:
  several; none
provider | | status | execution provider that the nodes ran on
n_batches | count | fact | batches that were timed
img_per_s | images/s | measured | batch size over mean_ms
warmup_batches | count | fact | batches before the clock
warmup_s | s | measured | time of these
compile_s | s | measured | time of compilation: torch.compile's first call, a graph's capture,
  creating a session
export_s | s | measured | time of the export
cosine_min | -1 to 1 | computed | lowest cosine of a vector with PyTorch's in FP32
cosine | -1 to 1 | computed | median cosine with PyTorch's vectors in FP32
max_rel_error | relative | computed | largest error of a vector's number
gate | | status | passed, failed, reference, or not checked: by the limits of the dtype
n_neighbours | images | fact | images among which nearest neighbours were looked for
neighbours_kept | 0 to 1 | computed | nearest neighbours by FP32's vectors that remain: recall@10
"""
TIMED = ("harness.protocols.network",)
#: Labels of the rows that the paper has.
_IN_PAPER = ("pytorch-fp32", "pytorch-fp16", "onnxruntime-fp16-opset17")
_mean_ms = partial(common.mean_ms, samples="batch")


def cells(plan: Plan, options: Options) -> list[Cell]:
    """Each runtime and dtype, repeated; on a CPU the GPU's rows too, which say why they cannot."""
    device, model = plan.settings.recipe.device, plan.settings.model
    rows = [(model, choice) for choice in options["rows"]]
    if device == "cpu":
        rows += [(model, choice) for choice in options["cpu_rows"]]
        further = [models.spec(name) for name in options["models"]]
        rows += [(other, choice) for other in further for choice in options["model_rows"]]
    return [
        _cell(plan, options, network, choice, repeat)
        for repeat in plan.repeats("onnx")
        for network, choice in rows
        if _name(choice, device) not in options["skip"]
    ]


def _dtype(choice: Options, device: str) -> str:
    """The dtype of a row: one for all devices, or one for each."""
    dtype = choice["dtype"]
    return str(dtype if isinstance(dtype, str) else dtype[device])


def _name(choice: Options, device: str) -> str:
    name = f"{choice['runtime']}-{_dtype(choice, device)}"
    if "opset" in choice:
        name += f"-opset{choice['opset']}"
    if "pruned" in choice:
        name += "-pruned"
    return name


def _cell(plan: Plan, options: Options, model: ModelSpec, choice: Options, repeat: int) -> Cell:
    device = plan.settings.recipe.device
    dtype, name = _dtype(choice, device), _name(choice, device)
    if model is not plan.settings.model:
        name = f"{model.name}-{name}"
    pruned = choice.get("pruned", model.pruned)
    params = {
        size: options[size][device] for size in ("batches", "warmup_batches", "warmup_seconds")
    }
    params["opset"] = choice.get("opset", options["opset"])
    params["gate"] = options["gate"]["pruned" if pruned else dtype]
    size = options["batch_size"][device]
    recipe = plan.recipe(
        decoder="pil", resizer="pil", interpolation="bilinear", engine="serial", workers=0
    )
    recipe = replace(recipe, name=name, runtime=choice["runtime"], dtype=dtype, batch_size=size)
    wanted = dict.fromkeys(options["image_sets"], size + options["further_images"][device])
    corpus = plan.first_slice(wanted)
    new = cell(plan, "onnx", "runtime", name, recipe, corpus, repeat=repeat, params=params)
    return replace(new, model=replace(model, pruned=pruned))


def tables(records: Records) -> Tables:
    """One row per runtime and dtype."""
    return {CSV: [_row(repeats) for repeats in common.groups(records, "runtime").values()]}


def _row(repeats: Records) -> Row:
    row = common.new_row(repeats, COLUMNS) | {"gate": "not checked"}
    row["pruned"] = repeats[0].cell.model.pruned
    row["in_paper"] = repeats[0].cell.label in _IN_PAPER
    if repeats[0].cell.recipe.runtime.startswith("onnxruntime"):
        row["opset"] = repeats[0].cell.params["opset"]
    if not common.measured(repeats):
        return row
    values = common.median_repeat(repeats, _mean_ms).values
    row |= {name: values.get(name) for name in ("provider", "export_s", "attention")}
    if "operators" in values:
        row["attention"] = "fused" if "Attention" in values["operators"] else "eager"
    gate, wrong = _gate(common.measured(repeats))
    return common.complete(row | gate, repeats, _measured, wrong)


def _measured(repeats: Records) -> Row:
    median_repeat = common.median_repeat(repeats, _mean_ms)
    values, names = median_repeat.values, ("warmup_batches", "warmup_s", "compile_s")
    row: Row = {name: values[name] for name in names} | common.clock_columns(repeats)
    row["gpu_used_gib"] = values["peak_gpu_mem_gib"]
    row["n_batches"] = len(median_repeat.samples["batch"])
    row |= _rate(median_repeat)
    row |= common.limits([_rate(record) for record in common.measured(repeats)], ("img_per_s",))
    return row | common.timing_columns(repeats, "batch", (50, 95, 99))


def _rate(record: Record) -> Row:
    return {"img_per_s": record.cell.recipe.batch_size / _mean_ms(record) * 1e3}


def _gate(measured: Records) -> tuple[Row, str]:
    """The worst agreement of any repeat; and, where it is too bad for the dtype, the reason."""
    timed = measured[0].cell
    values = [record.values for record in measured]
    if any(compared["cosine_min"] is None for compared in values):
        return {"gate": "failed"}, "its vectors are not finite"
    lowest = min(compared["cosine_min"] for compared in values)
    error = max(compared["max_rel_error"] for compared in values)
    limits = timed.params["gate"]
    kept: list[Any] = [compared.get("neighbours_kept") for compared in values]
    row: Row = {
        "cosine_min": lowest,
        "cosine": min(compared["cosine"] for compared in values),
        "max_rel_error": error,
        "n_neighbours": values[0].get("n_neighbours"),
        "neighbours_kept": None if None in kept else min(kept),
    }
    if lowest < limits["min_cosine"] or error > limits["max_rel_error"]:
        return row | {"gate": "failed"}, (
            "not PyTorch FP32's vectors: "
            f"cosine_min {lowest:.6g} (at least {limits['min_cosine']}), "
            f"max_rel_error {error:.6g} (at most {limits['max_rel_error']})"
        )
    is_reference = (timed.recipe.runtime, timed.recipe.dtype) == ("pytorch", "fp32")
    is_reference = is_reference and not timed.model.pruned
    return row | {"gate": "reference" if is_reference else "passed"}, ""
