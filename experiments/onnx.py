"""Does another runtime run the forward pass faster than PyTorch does?

Method. One batch of real images lies on the device; each runtime takes it through the network again
and again, in a process of its own. A sample is one batch: the call, and the wait for the device. The
copy to the device is not in it. Export, compilation (torch.compile's first call, a graph's capture,
creating a session) and warm-up are in columns of their own. p50, p95 and p99 are over the batches of
the median repeat.

ONNX Runtime gets a graph of fixed shape, exported once, its position embeddings fitted to the input
size before; input and output stay in buffers on the device. It may not hand nodes to the CPU behind
our back: the provider that the nodes are really on is read back, and a provider that does not load,
or leaves nodes to the CPU, is a row with a reason and no time.

The vectors of the last timed batch are compared with those of PyTorch in FP32. A runtime whose
vectors are not the same within its dtype's limits (`gate`) gets no time. FP32 means FP32: TF32 is off
in both libraries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from experiments import Row, _rows
from wallclock.records import Record
from wallclock.run.plan import Plan
from wallclock.spec import Cell
from wallclock.summary import quantile

COLUMNS = (
    *(
        "runtime",
        "dtype",
        "provider",
        "device",
        "device_kind",
        "corpus",
        "weights",
        "batch_size",
        "n_batches",
    ),
    *(
        "repeats",
        "mean_ms",
        "p50_ms",
        "p95_ms",
        "p99_ms",
        "mean_ms_min",
        "mean_ms_max",
        "img_per_s",
    ),
    *(
        "warmup_batches",
        "warmup_s",
        "compile_s",
        "export_s",
        "cosine_min",
        "cosine",
        "max_rel_error",
        "gate",
    ),
    *("peak_gpu_mem_gib", "origin", "status", "reason"),
)
CSV = "onnx-vs-pytorch.csv"
TABLES = {CSV: COLUMNS}


def cells(plan: Plan, options: Mapping[str, Any]) -> list[Cell]:
    """Each runtime and dtype, repeated; what needs a GPU is asked for on a CPU too, and says why not."""
    device = plan.settings.recipe.device
    size = options["batch_size"][device]
    corpus = plan.first_slice(dict.fromkeys(options["image_sets"], size))
    found = []
    for repeat in plan.repeats("onnx"):
        for choice in [*options["rows"], *(options["cpu_rows"] if device == "cpu" else ())]:
            runtime, dtype = choice["runtime"], _on(device, choice["dtype"])
            name = f"{runtime}-{dtype}"
            recipe = plan.recipe(
                **{"name": name, "runtime": runtime, "dtype": dtype, "batch_size": size},
                **{
                    "decoder": "pil",
                    "resizer": "pil",
                    "interpolation": "bilinear",
                    "engine": "serial",
                    "workers": 0,
                },
            )
            params = {
                "batches": options["batches"][device],
                "warmup_batches": options["warmup_batches"][device],
                "opset": options["opset"],
                "gate": options["gate"][dtype],
            }
            found.append(
                Cell("onnx", "runtime", name, repeat, recipe, corpus, plan.settings.model, params)
            )
    return found


def tables(records: Sequence[Record]) -> dict[str, list[Row]]:
    """One row a runtime and dtype."""
    return {CSV: [_row(repeats) for repeats in _rows.groups(records, "runtime").values()]}


def _on(device: str, dtype: str | Mapping[str, str]) -> str:
    return dtype if isinstance(dtype, str) else dtype[device]


def _row(repeats: Sequence[Record]) -> Row:
    recipe = repeats[0].cell.recipe
    status, reason = _rows.status_of(repeats)
    row = _rows.blank(COLUMNS) | _rows.where(repeats[0])
    row |= {"runtime": recipe.runtime, "dtype": recipe.dtype, "batch_size": recipe.batch_size}
    row |= {"gate": "not checked", "origin": "measured", "status": status, "reason": reason}
    if status != "ok":
        return row
    measured = sorted((record for record in repeats if record.ok), key=_mean_ms)
    chosen = measured[(len(measured) - 1) // 2]
    row |= {
        "provider": chosen.values["provider"],
        "export_s": chosen.values.get("export_s"),
        **_gate(measured),
    }
    if row["gate"] == "failed":
        return row | {"status": "gate failed", "reason": _why(row, chosen)}
    return row | _timing(measured, chosen, recipe.batch_size)


def _timing(measured: Sequence[Record], chosen: Record, batch_size: int) -> Row:
    samples, mean_ms = chosen.samples["batch"], _mean_ms(chosen)
    return {
        "n_batches": len(samples),
        "repeats": len(measured),
        "mean_ms": mean_ms,
        "p50_ms": quantile(samples, 0.5) / 1e6,
        "p95_ms": quantile(samples, 0.95) / 1e6,
        "p99_ms": quantile(samples, 0.99) / 1e6,
        "mean_ms_min": _mean_ms(measured[0]),
        "mean_ms_max": _mean_ms(measured[-1]),
        "img_per_s": batch_size / mean_ms * 1e3,
        "warmup_batches": chosen.values["warmup_batches"],
        "warmup_s": chosen.values["warmup_s"],
        "compile_s": chosen.values["compile_s"],
        "peak_gpu_mem_gib": chosen.values["peak_gpu_mem_gib"],
    }


def _gate(measured: Sequence[Record]) -> Row:
    """The worst agreement of any repeat, and whether it is good enough for the dtype."""
    cell = measured[0].cell
    values = [record.values for record in measured]
    if any(found["cosine_min"] is None for found in values):
        return {"gate": "failed"}
    cosine_min = min(found["cosine_min"] for found in values)
    error = max(found["max_rel_error"] for found in values)
    limits = cell.params["gate"]
    passed = cosine_min >= limits["min_cosine"] and error <= limits["max_rel_error"]
    is_reference = (cell.recipe.runtime, cell.recipe.dtype) == ("pytorch", "fp32")
    return {
        "cosine_min": cosine_min,
        "cosine": min(found["cosine"] for found in values),
        "max_rel_error": error,
        "gate": "failed" if not passed else "reference" if is_reference else "passed",
    }


def _why(row: Row, record: Record) -> str:
    if row["cosine_min"] is None:
        return "its vectors are not finite: no time counts"
    limits = record.cell.params["gate"]
    return (
        f"not PyTorch FP32's vectors: cosine_min {row['cosine_min']:.6g} (at least {limits['min_cosine']}), "
        f"max_rel_error {row['max_rel_error']:.6g} (at most {limits['max_rel_error']}): no time counts"
    )


def _mean_ms(record: Record) -> float:
    samples = record.samples["batch"]
    return sum(samples) / len(samples) / 1e6
