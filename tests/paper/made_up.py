"""Made-up rows of the end-to-end tables, on two machines: the paper's T4, and a CPU with a mock model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from experiments import _paper_values, predict
from wallclock.clock import STAGES

Row = dict[str, object]
Rows = list[Row]


@dataclass(frozen=True)
class Machine:
    """What the rows say they were measured on, and how much slower than the paper's it is."""

    device: str
    kind: str
    corpus: str
    weights: str
    n_images: int
    repeats: int
    slower: float = 1.0

    @property
    def on_gpu(self) -> bool:
        """Whether there is GPU telemetry."""
        return self.kind == "cuda"


T4 = Machine("Tesla T4", "cuda", "abo", "pretrained", 20_000, 5)
CPU = Machine(
    "AMD EPYC 9V74 80-Core Processor (2 cores)", "cpu", "synthetic", "none", 640, 1, slower=1.6
)

#: Busy milliseconds an image of each stage, by decoder.
_BUSY: Mapping[str, tuple[float, ...]] = {
    "pil": (0.1, 0.5, 0.9, 0.8, 0.1, 0.05, 3.4, 0.02, 0.1),
    "turbojpeg": (0.1, 0.26, 0.2, 0.8, 0.1, 0.05, 3.4, 0.02, 0.1),
}
_FASTER_IN_FP16 = 3.8


def end_to_end(
    machine: Machine,
    rate: float,
    recipe: str = "baseline",
    decoder: str = "pil",
    workers: int = 4,
    batch_size: int = 32,
    dtype: str = "fp32",
    **more: object,
) -> Row:
    """One row; `rate` is what the T4 would reach, in images a second."""
    rate /= machine.slower
    wall = machine.n_images / rate
    stages = dict(zip(STAGES, _BUSY[decoder], strict=True))
    if dtype == "fp16":
        stages["forward"] /= _FASTER_IN_FP16
    busy = {name: ms * machine.slower * machine.n_images / 1e3 for name, ms in stages.items()}
    wait = max(0.02, 1 - busy["forward"] / wall)
    row: Row = {
        **{
            "recipe": recipe,
            "decoder": decoder,
            "resizer": "pil" if decoder == "pil" else "opencv",
        },
        **{"interpolation": "bilinear" if decoder == "pil" else "linear", "engine": "dataloader"},
        **{"workers": workers, "start_method": "fork", "batch_size": batch_size, "dtype": dtype},
        **{
            "runtime": "pytorch",
            "sink": "parquet",
            "image_set": "small_256",
            "corpus": machine.corpus,
        },
        **{"weights": machine.weights, "service_ms": None if machine.weights != "none" else 40.0},
        **{"device": machine.device, "device_kind": machine.kind},
        **{"n_images": machine.n_images, "repeats": machine.repeats},
        **{f"{name}_s": seconds for name, seconds in busy.items()},
        **{f"{name}_share": seconds / sum(busy.values()) for name, seconds in busy.items()},
        **{"wait_s": wait * wall, "wait_share": wait, "startup_s": 4.2},
        **{"wall_s": wall, "wall_s_min": wall * 0.98, "wall_s_max": wall * 1.03},
        **{"img_per_s": rate, "img_per_s_min": rate / 1.03, "img_per_s_max": rate / 0.98},
        **{"seconds_per_100k": 1e5 / rate, "seconds_per_100k_origin": "extrapolated"},
        **{"batch_p50_ms": 1e3 * batch_size / rate, "batch_p95_ms": 1.2e3 * batch_size / rate},
        **{
            "batch_p99_ms": 1.5e3 * batch_size / rate,
            "throttle_reasons": "",
            "cpu_cores_used": 2.1,
        },
        **{"peak_gpu_mem_gib": 0.28 + batch_size * 0.00535 if machine.on_gpu else None},
        **{
            "gpu_util_mean": 93.0 if machine.on_gpu else None,
            "gpu_power_w": 68.0 if machine.on_gpu else None,
        },
        **{"sm_clock_mhz": 1350.0 if machine.on_gpu else None},
        **{
            "usd_per_million": 1e6 / rate / 3600 * 0.35,
            "psnr_db": None,
            "cosine": None,
            "gate": "reference",
        },
        **{"n_failed": 0, "median_kb": 7.4, "median_megapixels": 0.05},
        **{"origin": "measured", "status": "ok", "reason": ""},
    }
    if decoder != "pil":
        row |= {"psnr_db": 29.3, "cosine": 0.991, "gate": "passed"}
    return row | more


def without(row: Row, status: str, reason: str) -> Row:
    """The same row as it is when there is no measurement."""
    kept: tuple[str, ...] = (
        "step",
        "recipe",
        "decoder",
        "resizer",
        "interpolation",
        "engine",
        "workers",
        "start_method",
    )
    kept += (
        "batch_size",
        "dtype",
        "runtime",
        "sink",
        "image_set",
        "corpus",
        "weights",
        "device",
        "device_kind",
    )
    kept += ("provider", "format", "fsync")
    return {name: value if name in kept else None for name, value in row.items()} | {
        "origin": "measured",
        "status": status,
        "reason": reason,
    }


def baseline(machine: Machine) -> Rows:
    """The table of experiment `t4`."""
    return [end_to_end(machine, 168)]


def optimized(machine: Machine) -> Rows:
    """The table of experiment `opt`."""
    return [
        end_to_end(machine, 988, "optimized", "turbojpeg", workers=8, batch_size=64, dtype="fp16")
    ]


def steps(machine: Machine) -> Rows:
    """The cumulative ladder."""
    best: dict[str, object] = {}
    rows = []
    ladder: tuple[tuple[str, float, dict[str, object]], ...] = (
        ("baseline", 168, {}),
        ("decode_resize", 214, {"decoder": "turbojpeg"}),
        ("workers", 259, {"workers": 8}),
        ("batch", 263, {"batch_size": 64}),
        ("fp16", 988, {"dtype": "fp16"}),
    )
    for step, rate, change in ladder:
        best |= change
        rows.append({"step": step} | end_to_end(machine, rate, step, **best))  # type: ignore[arg-type]
    return rows


def batch_sweep(machine: Machine) -> Rows:
    """One row a batch size."""
    rates = {1: 71, 8: 151, 16: 160, 32: 165, 64: 167, 128: 168.5, 256: 169}
    rows = [end_to_end(machine, rate, "batch", batch_size=size) for size, rate in rates.items()]
    if machine.weights == "none":
        for row in rows:
            row["service_ms"] = 8 + 1.2 * float(str(row["batch_size"]))
    return rows


def workers_sweep(machine: Machine) -> Rows:
    """One row a number of workers."""
    rates = {0: 185, 2: 262, 4: 261, 8: 258, 16: 259}
    return [
        end_to_end(machine, rate, "workers", "turbojpeg", workers=n, batch_size=64)
        for n, rate in rates.items()
    ]


def timeline(
    machine: Machine, workers: int = 4, batch_size: int = 32, forward_ms: float = 108, n: int = 20
) -> Rows:
    """Spans of a run in which every worker takes each `workers`-th batch, the device one after the other."""
    on = {"corpus": machine.corpus, "weights": machine.weights, "device": machine.device}
    on |= {"device_kind": machine.kind, "n_images": str(machine.n_images)}
    on |= {"workers": str(workers), "batch_size": str(batch_size)}
    rows: Rows = []

    def add(lane: str, stage: str, batch: int, start: float, duration: float) -> float:
        rows.append(
            {
                **on,
                "lane": lane,
                "stage": stage,
                "batch": batch,
                "start_ms": start,
                "duration_ms": duration,
            }
        )
        return start + duration

    device = "gpu" if machine.on_gpu else "main"
    loader = "worker {}" if workers else "main"
    free = [
        -3.0 * batch_size * machine.slower * (1 - i / max(workers, 1))
        for i in range(max(workers, 1))
    ]
    clock, fetched = 0.0, [0.0] * n
    for batch in range(n):
        turn = batch % workers if workers else 0
        # DataLoader asks for a batch when it hands out the one `2 * workers` before it.
        at = (
            max(free[turn], fetched[batch - 2 * workers] if batch >= 2 * workers else free[turn])
            if workers
            else clock
        )
        for _ in range(batch_size):
            for stage, ms in zip(STAGES[:4], _BUSY["pil"][:4], strict=True):
                at = add(loader.format(turn), stage, batch, at, ms * machine.slower)
        at = free[turn] = add(loader.format(turn), "assemble", batch, at, 2.0)
        begin = max(clock, at)
        add("main", "wait", batch, clock, begin - clock)
        fetched[batch] = begin
        for stage, ms in (("h2d", 2.0), ("forward", forward_ms * machine.slower), ("d2h", 0.4)):
            begin = add(device, stage, batch, begin, ms)
        clock = add("main", "serialize", batch, begin, 3.0)
    return rows


def runtimes(machine: Machine) -> Rows:
    """Experiment `onnx`: the paper's three rows and what stands beside them."""
    found = (
        *(
            ("pytorch", "fp32", "", 242.0),
            ("pytorch", "fp16", "", 63.6),
            ("pytorch", "bf16", "", 118.0),
        ),
        *(
            ("pytorch-compile", "fp16", "", 57.2),
            ("onnxruntime", "fp32", "CUDAExecutionProvider", 266.0),
        ),
        ("onnxruntime", "fp16", "CUDAExecutionProvider", 148.0),
    )
    rows: Rows = [
        {
            **{"runtime": runtime, "dtype": dtype, "provider": provider, "device": machine.device},
            **{
                "device_kind": machine.kind,
                "corpus": machine.corpus,
                "weights": "random",
                "batch_size": 64,
            },
            **{"n_batches": 50, "repeats": machine.repeats, "mean_ms": ms, "p50_ms": ms * 0.99},
            **{
                "p95_ms": ms * 1.06,
                "p99_ms": ms * 1.1,
                "mean_ms_min": ms * 0.98,
                "mean_ms_max": ms * 1.02,
            },
            **{
                "img_per_s": 64e3 / ms,
                "warmup_batches": 10,
                "warmup_s": 1.9,
                "compile_s": None,
                "export_s": None,
            },
            **{"cosine_min": 0.9999, "cosine": 0.99999, "max_rel_error": 0.002, "gate": "passed"},
            **{"peak_gpu_mem_gib": 0.6, "origin": "measured", "status": "ok", "reason": ""},
        }
        for runtime, dtype, provider, ms in found
    ]
    tensorrt = rows[-1] | {"runtime": "onnxruntime-tensorrt", "provider": ""}
    lacking = "libnvinfer.so.10: cannot open shared object file: No such file or directory"
    return [*rows, without(tensorrt, "unavailable", f"the provider could not be loaded: {lacking}")]


def serialization(machine: Machine) -> Rows:
    """Experiment `serialization`: three formats, then the same with fsync, and a scaled row."""
    found = (("parquet", 0.973, 81.3), ("lmdb", 0.521, 98.5), ("npy", 0.0852, 73.2))
    rows: Rows = []
    for fsync in (False, True):
        for name, seconds, size in found:
            took = seconds * (1.3 if fsync else 1.0)
            rows.append(
                {
                    **{
                        "format": name,
                        "fsync": fsync,
                        "n_vectors": 50_000,
                        "dim": 384,
                        "repeats": machine.repeats,
                    },
                    **{"write_s": took, "write_s_min": took * 0.97, "write_s_max": took * 1.1},
                    **{"vectors_per_s": 50_000 / took, "mib_per_s": size / took, "size_mib": size},
                    **{"read_back": True, "device": machine.device, "device_kind": "cpu"},
                    **{"origin": "measured", "status": "ok", "reason": ""},
                }
            )
    return rows


def about(machine: Machine, csv: str) -> dict[str, object]:
    """The `.meta.json` of a table."""
    gpus = (
        [{"name": machine.device, "memory_gib": 15, "driver": "560.35.03"}]
        if machine.on_gpu
        else []
    )
    sizes = {"small_256": (10_000, 7.4, 0.05), "original": (5_000, 305.1, 3.9)}
    return {
        **{
            "csv": csv,
            "experiment": "serial",
            "command": "python code/main.py --n 100000 --experiment serial",
        },
        "machine": {
            **{"cpu": "Intel Xeon Platinum 8259CL", "cores": 16, "memory_gib": 64, "gpus": gpus},
            **{"system": "Linux x86_64", "python": "3.11.7"},
        },
        "versions": {"torch": "2.13.0", "numpy": "2.4.6", "libjpeg-turbo in pillow": "3.1.2"},
        **{"code": "ab" * 32, "commits": ["6246b18" + "0" * 33], "weights": ["ef" * 32]},
        "corpora": [
            {
                **{"kind": machine.corpus, "image_set": name, "n": n, "digest": f"{n:064x}"},
                **{"median_kb": kilobytes, "median_megapixels": megapixels},
            }
            for name, (n, kilobytes, megapixels) in sizes.items()
        ],
        "records": [
            {"label": "pil", "repeat": repeat, "status": "ok"} for repeat in range(machine.repeats)
        ],
    }


def prediction(machine: Machine) -> Rows:
    """The proving set and the baseline, predicted within a tenth of what they reached; and the paper's own."""
    made = []
    rates = (
        ("predict", 40.0, 0.08),
        ("predict", 250.0, -0.05),
        ("predict", 800.0, 0.1),
        ("t4", 168.0, 0.02),
    )
    for experiment, rate, error in rates:
        row = end_to_end(machine, rate)
        measured = rate / machine.slower
        said = measured * (1 + error)
        row |= {
            "experiment": experiment,
            "img_per_s": said,
            "img_per_s_low": said / 1.15,
            "img_per_s_high": said / 0.85,
        }
        row |= {
            "measured_img_per_s": measured,
            "measured_origin": "measured",
            "error": error,
            "origin": "predicted",
        }
        row |= {"bottleneck": "transform", "measured_bottleneck": "transform"}
        made.append({name: value for name, value in row.items() if name in predict.COLUMNS})
    return [*made, *_paper_values.rows()]
