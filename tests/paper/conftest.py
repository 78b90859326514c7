"""Made-up tables in the form that the experiments write: the paper's numbers where it gives them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

import experiments
from tests.paper import frontier, made_up
from tests.paper.made_up import CPU, T4, Machine
from wallclock.clock import STAGES
from wallclock.files import pretty_json, write_text
from wallclock.paper import claims, figures, perfetto, publish, report, tables
from wallclock.paper.csvfile import write_table
from wallclock.paper.figures import style

#: Columns by table, as the experiments declare them.
SCHEMAS: Mapping[str, Sequence[str]] = {
    csv: columns
    for name in experiments.ORDER
    for csv, columns in experiments.load(name).TABLES.items()
}

Rows = list[dict[str, object]]
#: Seconds per 100,000 images by stage; what is left of the wall is unattributed.
_SERIAL: Mapping[str, Mapping[str, tuple[float, ...]]] = {
    "small_256": {
        "pil": (588, 8, 47, 88, 76, 9, 3, 341, 2, 8),
        "opencv": (493, 8, 27, 18, 74, 9, 3, 341, 2, 8),
        "turbojpeg": (490, 8, 24, 18, 74, 9, 3, 341, 2, 8),
    },
    "original": {
        "pil": (5021, 10, 2576, 1923, 85, 9, 25, 387, 1, 3),
        "opencv": (2010, 10, 1404, 110, 74, 9, 3, 387, 2, 8),
        "turbojpeg": (1466, 10, 880, 85, 74, 9, 3, 387, 2, 8),
    },
}
_DECODE_MS: Mapping[str, Mapping[str, tuple[float, float, float]]] = {
    "small_256": {
        "pil": (0.46, 0.45, 0.58),
        "opencv": (0.25, 0.24, 0.31),
        "turbojpeg": (0.23, 0.22, 0.29),
        "simplejpeg": (0.22, 0.21, 0.27),
    },
    "original": {
        "pil": (24.8, 22.1, 41.0),
        "opencv": (13.5, 12.2, 22.0),
        "turbojpeg": (10.2, 9.3, 16.4),
        "simplejpeg": (9.9, 9.1, 15.8),
    },
}
_LIBRARIES = {
    "pil": "libjpeg-turbo 3.1.2",
    "opencv": "libjpeg-turbo 3.1.2",
    "turbojpeg": "libjpeg-turbo 2.1.5",
}


@pytest.fixture
def schemas() -> Mapping[str, Sequence[str]]:
    """Columns by table."""
    return SCHEMAS


@pytest.fixture
def serial_rows() -> Callable[..., Rows]:
    """Make a serial table; `forward_factor` slows the forward pass down, as on a CPU."""
    return make_serial_rows


@pytest.fixture
def decoder_rows() -> Callable[..., Rows]:
    """Make the decoder table."""
    return make_decoder_rows


@pytest.fixture
def save_table() -> Callable[[Path, str, Rows], Path]:
    """Write made-up rows as the table of that name."""

    return save_rows


def save_rows(folder: Path, name: str, rows: Rows) -> Path:
    """Write made-up rows as the table of that name; what they leave out is empty."""
    blank: dict[str, object] = dict.fromkeys(SCHEMAS[name])
    write_table(folder / name, SCHEMAS[name], [blank | row for row in rows])
    return folder / name


@pytest.fixture
def svg_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Save figures as SVG alone, which takes a fifth of the time."""
    monkeypatch.setattr(style, "_METADATA", {"svg": style._METADATA["svg"]})


@pytest.fixture(scope="session")
def t4_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A full run on the paper's machine: `data/` and `figures/`. Not to be changed."""
    return publish_made_up(tmp_path_factory.mktemp("t4"), T4)


@pytest.fixture(scope="session")
def cpu_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A full run on a CPU, with a mock model for the network. Not to be changed."""
    return publish_made_up(tmp_path_factory.mktemp("cpu"), CPU)


def publish_made_up(folder: Path, machine: Machine) -> Path:
    """All that `publish` makes of a full run on `machine`, from made-up tables in place of records."""
    data, drawn = save_full_run(folder / "data", machine), folder / "figures"
    for name in ("t4-serial-stages.csv", "t4-baseline-stages.csv"):
        write_text(
            (data / name).with_suffix(".meta.json"), pretty_json(made_up.about(machine, name))
        )
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(style, "_METADATA", {"svg": style._METADATA["svg"]})
        figures.render_all(data, drawn)
    tables.render_all(data, drawn)
    perfetto.render_all(data, drawn)
    report.render(data, drawn)
    return folder


def save_full_run(folder: Path, machine: Machine) -> Path:
    """Every table of a full run on `machine`, and the verdicts on them."""
    common = {"device": machine.device, "device_kind": machine.kind, "corpus": machine.corpus}
    cpu = (
        f"{machine.device}"
        if not machine.on_gpu
        else "Intel Xeon Platinum 8259CL (16 cores, beside Tesla T4)"
    )
    factor = 1.0 if machine.on_gpu else 18.0
    serial = {
        image_set: [
            row | {"weights": machine.weights}
            for row in make_serial_rows(image_set, **common, forward_factor=factor)
        ]
        for image_set in _SERIAL
    }
    made = {
        "t4-serial-stages.csv": serial["small_256"],
        "t4-serial-stages-original.csv": serial["original"],
        "decoder-comparison.csv": make_decoder_rows(cpu, machine.corpus),
        "cpu-baseline-stages.csv": [
            {
                name: value
                for name, value in row.items()
                if name in SCHEMAS["cpu-baseline-stages.csv"]
            }
            for row in make_serial_rows(
                "small_256", cpu, "cpu", machine.corpus, forward_factor=220
            )[:1]
        ],
        "t4-baseline-stages.csv": made_up.baseline(machine),
        "optimized-end-to-end.csv": made_up.optimized(machine),
        "throughput-steps.csv": made_up.steps(machine),
        "batch-sweep.csv": made_up.batch_sweep(machine),
        "workers-sweep.csv": made_up.workers_sweep(machine),
        "timeline-baseline.csv": made_up.timeline(machine, n=24),
        "timeline-optimized.csv": made_up.timeline(
            machine, workers=8, batch_size=64, forward_ms=57, n=24
        ),
        "onnx-vs-pytorch.csv": made_up.runtimes(machine),
        "frontier.csv": frontier.rows(machine),
        "serialization-comparison.csv": made_up.serialization(machine),
        "prediction.csv": made_up.prediction(machine),
    }
    for name, rows in made.items():
        save_rows(folder, name, rows)
    claims.write(claims.judge(claims.load(publish.CLAIMS), folder), folder / "claims.csv")
    return folder


def make_serial_rows(
    image_set: str = "small_256",
    device: str = "Tesla T4",
    device_kind: str = "cuda",
    corpus: str = "abo",
    forward_factor: float = 1.0,
) -> Rows:
    """Rows of the paper's recipes and of the harness floor."""
    common = {
        "image_set": image_set,
        "device": device,
        "device_kind": device_kind,
        "corpus": corpus,
        "weights": "random",
    }
    rows = []
    for decoder, (wall, *stages) in _SERIAL[image_set].items():
        seconds = dict(zip(STAGES, stages, strict=True))
        extra = seconds["forward"] * (forward_factor - 1)
        seconds["forward"] += extra
        resizer = "pil" if decoder == "pil" else "opencv"
        names = {"recipe": f"{decoder}-{resizer}", "decoder": decoder, "resizer": resizer}
        rows.append({**_serial_row(seconds, wall + extra), **common, **names})
    floor = _serial_row(dict.fromkeys(STAGES, 0.1), 1.2)
    return [*rows, {**floor, **common, "recipe": "floor", "decoder": "null", "resizer": "null"}]


def _serial_row(
    seconds_per_100k: dict[str, float], wall_per_100k: float, n_images: int = 10_000
) -> dict[str, object]:
    scale = n_images / 100_000
    wall = wall_per_100k * scale
    timed = sum(seconds_per_100k.values())
    row: dict[str, object] = {
        "interpolation": "bilinear",
        "n_images": n_images,
        "repeats": 5,
        "batch_size": 32,
    }
    for stage, seconds in seconds_per_100k.items():
        row |= {f"{stage}_s": seconds * scale, f"{stage}_share": seconds / wall_per_100k}
    before = timed - seconds_per_100k["forward"]
    return row | {
        "unattributed_s": wall - timed * scale,
        "wall_s": wall,
        "wall_s_min": wall * 0.985,
        "wall_s_max": wall * 1.02,
        "img_per_s": n_images / wall,
        "seconds_per_100k": wall_per_100k,
        "seconds_per_100k_origin": "extrapolated",
        "decode_resize_share_without_forward": (
            seconds_per_100k["decode"] + seconds_per_100k["resize"]
        )
        / before,
        "psnr_db": None,
        "cosine": None,
        "gate": "passed",
        "n_failed": 0,
        "median_kb": 7.4,
        "median_megapixels": 0.05,
        "origin": "measured",
        "status": "ok",
        "reason": "",
    }


def make_decoder_rows(device: str = "AMD EPYC 9V74 80-Core Processor", corpus: str = "abo") -> Rows:
    """Four decoders on both image sets."""
    return [
        {
            "image_set": image_set,
            "decoder": decoder,
            "library": _LIBRARIES.get(decoder, ""),
            "corpus": corpus,
            "device": device,
            "device_kind": "cpu",
            "n_buffers": 2000,
            "repeats": 5,
            "mean_ms": mean,
            "p50_ms": p50,
            "p90_ms": p90,
            "mean_ms_min": mean * 0.98,
            "mean_ms_max": mean * 1.03,
            "megapixels_per_s": 3.9 / mean * 1000,
            "max_abs_diff": 0 if decoder == "pil" else 3,
            "gate": "passed",
            "median_kb": 305 if image_set == "original" else 7.4,
            "median_megapixels": 3.9 if image_set == "original" else 0.05,
            "origin": "measured",
            "status": "ok",
            "reason": "",
        }
        for image_set, decoders in _DECODE_MS.items()
        for decoder, (mean, p50, p90) in decoders.items()
    ]
