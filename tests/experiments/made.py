"""Records with chosen samples, and a plan over a tiny folder."""

from __future__ import annotations

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
VERSIONS = {
    "libjpeg-turbo in pillow": "3.1.0",
    "libjpeg-turbo in opencv": "3.1.1",
    "libjpeg-turbo in simplejpeg": "3.1.2",
    "libturbojpeg": "2.1.5",
}
ENVIRONMENT = {"machine": MACHINE, "versions": VERSIONS, "cost": {"usd_per_hour": 3.6}}
MODEL = ModelSpec("dinov2-small", "random")
MS = 1_000_000
S = 1000 * MS


def corpus(image_set: str = "small_256", n: int = 10) -> Slice:
    return Slice("synthetic", image_set, n, f"digest of {image_set}", "")


def record(
    experiment: str,
    protocol: str,
    label: str,
    recipe: Recipe,
    repeat: int = 0,
    image_set: str = "small_256",
    samples: Mapping[str, Sequence[int]] | None = None,
    values: Mapping[str, Any] | None = None,
    params: Mapping[str, Any] | None = None,
    model: ModelSpec = MODEL,
) -> Record:
    images = corpus(image_set)
    cell = Cell(experiment, protocol, label, repeat, recipe, images, model, params or {})
    sizes = {"median_kb": 7.4, "median_megapixels": 0.06, **(values or {})}
    return Record(cell, samples=samples or {}, values=sizes, environment=ENVIRONMENT)


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
