"""Records with chosen samples, and a plan over a tiny folder."""

from collections.abc import Mapping, Sequence
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
