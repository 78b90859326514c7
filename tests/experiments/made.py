"""Records with chosen samples, and a plan over a tiny folder."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir

from harness.plan import Plan
from harness.records import Record
from harness.spec import IMAGE_SETS, Cell, Recipe, Settings, Slice
from paper import settings
from tests import making
from wallclock.recipe import ModelSpec

MACHINE = {"cpu": "Test CPU", "cores": 4, "gpus": [], "memory_gib": 8}
MODEL = ModelSpec("dinov2-small", "random")
RECIPE = Recipe("fast", engine="threads")
MS = 1_000_000
S = 1000 * MS


def record(
    experiment: str,
    protocol: str,
    label: str,
    values: Mapping[str, Any],
    params: Mapping[str, Any],
    samples: Mapping[str, Sequence[int]] | None = None,
    recipe: Recipe = RECIPE,
    model: ModelSpec = MODEL,
) -> Record:
    """A record of ten small images; without samples, ten seconds long."""
    corpus = Slice("synthetic", "small_256", 10, "digest", "")
    cell = Cell(experiment, protocol, label, 0, recipe, corpus, model, params)
    samples = samples or {"wall": [10 * S]}
    environment = {"machine": MACHINE, "code": "c0de"}
    return Record(cell, samples=samples, values=values, environment=environment)


def resolved(*overrides: str) -> Settings:
    """What a command line resolves to."""
    with initialize_config_dir(str(settings.CONF), version_base="1.3"):
        return settings.resolve(compose("config", overrides=list(overrides)))


def plan(folder: Path, *overrides: str) -> Plan:
    """A plan over three small images in a folder, on a CPU and without a network."""
    images = making.folder(folder / "images", 3)
    corpus = ("corpus=folder", f"corpus.path='{images}'", f"out='{folder / 'out'}'")
    planned = resolved(*corpus, "device=cpu", "model='null'", *overrides)
    return Plan(planned, lambda done, total, what: None)


#: What a diagnosis measures of its images.
IMAGE_STATS: Mapping[str, Any] = {
    "n_sound": 10,
    "formats": {"JPEG baseline": 10},
    "image_stats": {
        f"{name}_p{q}": 1.0
        for name in ("kb", "megapixels", "longest_px", "bytes_per_pixel", "brightness")
        for q in (50, 90)
    },
}


class AboPlan(Plan):
    """A plan over the paper's images, none of which is here."""

    def slice(self, image_set: str, n: int) -> Slice:
        return Slice("abo", image_set, self.count(image_set, n), "", "")

    def sample(self, sizes: Mapping[str, int]) -> Slice:
        return self.first_slice(sizes)

    def _available_sets(self, sizes: Mapping[str, int]) -> list[str]:
        return [name for name in IMAGE_SETS if name in sizes]


def analytic(device: str = "cpu", failed: str = "") -> list[Record]:
    """The parts of `analytic`: 100 images a second a process of 20 KB each, steps of 10 + B ms."""
    params = {"readers": [1, 8], "batch_sizes": (1, 32)}
    cold = {"cold-1": [2 * MS, 4 * MS, 5 * MS], "cold-8": [1 * MS], "warm": [MS // 10]}
    values = {"n_loaded": 10, "n_warm": 10, "mean_bytes": 2e4, "from_disk_share": 1.0}
    rates = {"rates": {"1": 100.0, "4": 300.0}}
    times = {
        f"{name}-{n}": [a * MS] for n in (1, 32) for name, a in (("forward", 10 + n), ("h2d", n))
    }
    step = record("analytic", "step", "step", {}, params, times, Recipe("step", device=device))
    made = [
        record("analytic", "storage", "storage", values, params, cold),
        record("analytic", "contention", "loading", values | rates, params),
        replace(step, cell=replace(step.cell, corpus=None)),
    ]
    return [
        replace(part, status="error", values={}) if part.cell.protocol == failed else part
        for part in made
    ]


def train(device: str = "cpu", **together: Any) -> list[Record]:
    """A training: 20 ms an image in the step; its rate together as given, else 20 a second."""
    model = ModelSpec("resnet-50", dim=2048)
    base = Recipe("job", engine="dataloader", workers=2, batch_size=4, device=device)
    base = replace(base, normalize_on="device", augment="cpu")
    made = partial(record, "train", recipe=base, model=model)
    parts = {"h2d": 0, "forward": 30, "backward": 40, "optimizer": 10}
    times = {f"{name}-4": [ms * MS] for name, ms in parts.items()}
    sizes: dict[str, Any] = {"batch_sizes": [4]}
    stages = {"read": 1, "decode": 40, "resize": 8}
    calls = {name: [ms * MS] * 8 for name, ms in stages.items()}
    wall = {**calls, "wall": [10 * S], "wait": [4 * S]}
    values = {"n_loaded": 200, "other_cores": 0.0, **together}
    step = replace(base, name="step", augment="none")
    return [
        made("loading", "loader", {"n_loaded": 380}, {}),
        made("train_step", "step", {}, sizes, times, recipe=step),
        made("train", "fp32", values, {}, wall),
    ]


def nms() -> list[Record]:
    """Two repeats of 100 and of 300 boxes: numpy 2 and 4 times as fast, then 3 and 5 times."""
    values = {
        "n_kept": 12.5,
        "different": {"python": 0, "numpy": 0},
        "unavailable": {"torchvision": "torchvision is not installed: make setup-peers"},
    }
    made = []
    for boxes, gains in ((100, (2, 4)), (300, (3, 5))):
        params = {"boxes": boxes, "iou_threshold": 0.5, "n_images": 8}
        for repeat, gain in enumerate(gains):
            samples = {"python": [gain * MS] * 8, "numpy": [MS] * 8}
            new = record("nms", "nms", f"boxes-{boxes}", values, params, samples)
            made.append(replace(new, cell=replace(new.cell, repeat=repeat, corpus=None)))
    return made


def cores() -> list[Record]:
    """Our loader on 1, 2 and 4 cores at 1000, 1800 and 3000 images a second; a job of processes.

    The job's loop takes 8 s of 10 on one core and on two, for twice as many images; 20 µs of an
    image are the main process's.
    """
    made = []
    for n, rate in ((1, 1000), (2, 1800), (4, 3000)):
        params = {"what": "loader", "system": "ours", "variant": "", "pinned_cores": n}
        values = {"n_loaded": rate * 10, "settings": f"{n} threads", "other_cores": 0.0}
        made.append(record("cores", "loading", f"ours-{n}", values, params))
    for n in (1, 2):
        params = {"what": "job", "system": "embed-processes", "variant": "", "pinned_cores": n}
        values = {"n_loaded": 8000 * n, "startup_s": 2.0, "settings": "wallclock embed"}
        values |= {"main_cpu_s": 0.12 * n, "commit_cpu_s": 0.04 * n}
        made.append(record("cores", "job", f"embed-processes-{n}", values, params))
    return made


def ladder() -> list[Record]:
    """Rungs at 3, 9, 20, 30 and 60 requests a second; arrivals.

    Of rung 4 at 15 and at 36 a second, latencies of 0.5 and of 2 s; rung 5 at 48
    was not measured.
    """
    mock = {"setup": "mock S3", "callback_ms": 50.0, "duty": 0.05, "rate": 0.0, "share": 0.0}
    mock["usd_per_hour"] = 0.72
    values = {
        "cpu_s": 5.0,
        "peak_memory_mib": 60.0,
        "redeliveries": 0,
        "wasted": 3,
        "late_s": 0.001,
    }
    values |= {
        "image_bytes": 1_200_000,
        "n_requests": 120,
        "cores": 8,
        "services": 1,
        "bed_cpu_s": 0.6,
    }

    def rung(
        label: str, number: int, rate: float, changes: Mapping[str, Any], ms: int = 0
    ) -> Record:
        params, n = {**mock, "rung": number, "bound": 3.0, **changes}, round(10 * rate)
        samples = {"wall": [10 * S], **({"latency": [ms * MS] * 10} if ms else {})}
        recipe = Recipe(label, batch_size=32 if number == 5 else 8)
        counted = {**values, "n_loaded": n, "arrived_per_s": changes.get("rate")}
        return record("ladder", "ladder", label, counted, params, samples, recipe=recipe)

    full = [*enumerate((3.0, 9.0, 20.0, 30.0, 60.0), start=1)]
    late = rung("rung-5-at-0.8", 5, 48, {"rate": 48.0, "share": 0.8}, 100)
    return [
        *(rung(f"rung-{number}", number, rate, {}) for number, rate in full),
        rung("rung-5-duty-0.09", 5, 40, {"duty": 0.09}),
        rung("rung-4-at-0.5", 4, 15, {"rate": 15.0, "share": 0.5}, 500),
        rung("rung-4-at-1.2", 4, 30, {"rate": 36.0, "share": 1.2}, 2000),
        replace(late, status="error", reason="2 lost", samples={}),
    ]
