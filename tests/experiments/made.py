"""Records with chosen samples, and a plan over a tiny folder."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir

from tests import making
from wallclock import settings
from wallclock.records import Record
from wallclock.run.plan import Plan
from wallclock.spec import Cell, ModelSpec, Recipe, Settings, Slice

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


def storage() -> list[Record]:
    """Three repeats of tar: 50, 100 and 200 images a second, evicted in two of the repeats."""
    made = []
    for repeat, rate in enumerate((100, 50, 200)):
        names = ["cold/1/bytes", "cold/16/bytes"][: 1 + (repeat < 2)]
        found = {"n": rate, "cpu_ms": 50 / rate, "cached_share": 0.01, "from_disk_share": 1.0}
        unavailable = {"http-0": "no remote form"}
        if repeat == 2:
            unavailable["cold/16/bytes"] = "mincore finds 50% of them in memory"
        values = {"passes": dict.fromkeys(names, found), "unavailable": unavailable}
        values |= {"n_images": 10, "mean_kb": 20.0, "kb_on_disk": 24}
        one = record("storage", "forms", "tar", values, {"form": "tar"}, {n: [S] for n in names})
        made.append(replace(one, cell=replace(one.cell, repeat=repeat)))
    return made


def stage_fixes() -> list[Record]:
    """Three repeats of a stage that its fix makes 1, 2 and 4 times as fast; one without a GPU."""
    counts, plain = {"n_plain": 10, "n_fixed": 10}, (20 * MS, 5 * MS, 10 * MS)
    timed = partial(record, "stage_fixes", "stage_fix")
    made = [timed("assemble", counts, {}, {"plain": [ns], "fixed": [5 * MS]}) for ns in plain]
    return [
        *made,
        replace(timed("h2d", {}, {}), status="unavailable", reason="needs a GPU", samples={}),
    ]
