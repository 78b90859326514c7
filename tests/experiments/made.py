"""Records with chosen samples, and a plan over a tiny folder."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir

from tests import making
from wallclock import settings
from wallclock.records import Record
from wallclock.run.plan import Plan
from wallclock.spec import IMAGE_SETS, Cell, ModelSpec, Recipe, Settings, Slice

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
    return Record(cell, samples=samples, values=values, environment={"machine": MACHINE})


def resolved(*overrides: str) -> Settings:
    """What a command line resolves to."""
    with initialize_config_dir(str(settings.CONF), version_base="1.3"):
        return settings.resolve(compose("config", overrides=list(overrides)))


def plan(folder: Path, *overrides: str) -> Plan:
    """A plan over three small images in a folder, on a CPU and without a network."""
    images = folder / "images"
    images.mkdir()
    for seed in range(3):
        (images / f"{seed}.jpg").write_bytes(making.jpeg(seed=seed))
    corpus = ("corpus=folder", f"corpus.path='{images}'", f"out='{folder / 'out'}'")
    planned = resolved(*corpus, "device=cpu", "model='null'", *overrides)
    return Plan(planned, lambda done, total, what: None)


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
        replace(one, status="error", values={}) if one.cell.protocol == failed else one
        for one in made
    ]
