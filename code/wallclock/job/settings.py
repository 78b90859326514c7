"""The settings of a job: `key=value` on the command line, keyword arguments of `embed`."""

import csv
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from wallclock import checkpoint, machine
from wallclock.constraints import OneOf, Range
from wallclock.errors import UserError
from wallclock.recipe import DTYPES, FAST, PROGRESSIVE, SINKS, Count, ModelSpec, Positive, Recipe

#: By name; device, precision and batch are the job's. `pillow` decodes in full and resizes with
#: Pillow: the reference of `verify`.
RECIPES: Mapping[str, Recipe] = {
    "fast": FAST,
    "diagnosed": replace(FAST, name="diagnosed"),
    "pillow": replace(FAST, name="pillow", decoder="pil", resizer="pil", dct_scale="full"),
}
#: The mock model: it copies pixels, and takes as long as `service_ms` says.
MOCK = "null"
_Milliseconds = Annotated[float, Range(0, 3_600_000)]


@dataclass(frozen=True)
class JobSettings:
    """One job. What changes its vectors is in `identity`; the rest may change between two starts.

    `model`: a hub id, a folder, or null for the mock. `recipe`: one of `RECIPES`; diagnosed is fast
    with the batch and the precision that the diagnosis in the folder `diagnosis` recommends.
    `progressive`: how much of a progressive JPEG is decoded (`stages/decode/scans.py`);
    recipe=pillow decodes all. `batch`: 0 for 64, or as diagnosed. `workers`: threads that load, 0
    for one a core; `processes`: among which they are divided, 0 for as many as threads where no GPU
    is used and the loader limits a job of small images, else 1; on a cluster always 1. `reuse`: an
    earlier dataset whose vectors are taken where an image has not changed; one of the same size and
    date is not read, with `rehash` it is; so is one whose thumbnail is to be kept and is not there
    either. `deduplicate`: images of equal bytes are embedded once. `max_failures`: the job stops
    above it; by default all may fail. `into_new`: where OUT holds another job's vectors, go to
    OUT-2, OUT-3 … `export`: a port for live metrics, 0 for none. `limit`: the first so many images
    of the list. `usd_per_hour`: of this machine; the estimate then has the job's price. `cluster`:
    local, auto, HOST:PORT or ray://HOST:PORT: the job runs on Ray (`cluster.py`), where images of
    equal bytes are embedded once in each shard, and `workers` is of an actor.
    """

    model: str = "facebook/dinov2-small"
    recipe: Annotated[str, OneOf(RECIPES)] = "fast"
    progressive: Annotated[str, OneOf(PROGRESSIVE)] = "early"
    diagnosis: str = "data"
    batch: Annotated[int, Range(0, 65_536)] = 0
    device: Annotated[str, OneOf(("auto", "cpu", "cuda"))] = "auto"
    dtype: Annotated[str, OneOf(("auto", *DTYPES["pytorch"]))] = "auto"
    workers: Annotated[int, Range(0, 1024)] = 0
    processes: Annotated[int, Range(0, 1024)] = 0
    shard: Annotated[int, Range(1, 10_000_000)] = 10_000
    sink: Annotated[str, OneOf(SINKS)] = "parquet"
    reuse: str = ""
    rehash: bool = False
    keep: Annotated[str, OneOf(("", "thumbnails"))] = ""
    deduplicate: bool = True
    max_failures: Count | None = None
    into_new: bool = False
    export: Annotated[int, Range(0, 65_535)] = 0
    limit: Positive | None = None
    service_ms: _Milliseconds = 0.0
    service_ms_per_image: _Milliseconds = 0.0
    usd_per_hour: Annotated[float, Range(0, 1_000_000)] = 0.0
    cluster: str = ""

    def resolved_device(self) -> str:
        """cpu or cuda. Raises UserError: a GPU that is not here."""
        gpus = machine.gpus() if self.device != "cpu" else []
        if self.device == "cuda" and not gpus:
            raise UserError(
                "device=cuda, but there is no NVIDIA GPU; set device=auto or device=cpu"
            )
        return "cuda" if gpus else "cpu"

    def resolved_recipe(self, device: str) -> Recipe:
        """The recipe with its device, batch and precision.

        Raises UserError: a diagnosis that is not here.
        """
        advice = _diagnosed(Path(self.diagnosis)) if self.recipe == "diagnosed" else {}
        # A CPU emulates FP16.
        auto = "fp16" if device == "cuda" and self.recipe == "fast" else "fp32"
        dtype = advice.get("dtype", auto) if self.dtype == "auto" else self.dtype
        batch = self.batch or int(advice.get("batch_size", FAST.batch_size))
        changes: dict[str, Any] = {"device": device, "dtype": dtype, "batch_size": batch}
        changes |= {"workers": self.workers, "sink": self.sink}
        recipe = replace(RECIPES[self.recipe], **changes)
        scales = recipe.dct_scale == "auto"
        return replace(recipe, progressive=self.progressive if scales else "full")

    def resolved_model(self) -> ModelSpec:
        """The model with its input size, width and pixel statistics.

        The default model has random weights where the hub's cache lacks it and no hub is set.
        Raises UserError: no such model.
        """
        if self.model == MOCK:
            times = {name: getattr(self, name) for name in ("service_ms", "service_ms_per_image")}
            return ModelSpec(MOCK, weights="none", **times)
        for name in ("service_ms", "service_ms_per_image"):
            if getattr(self, name):
                raise UserError(f"{name}={getattr(self, name):g}: needs model={MOCK}, the mock")
        default = checkpoint.DEFAULT
        if self.model == default.hub_id:
            return (
                replace(default, weights="pretrained") if checkpoint.has_hub(default) else default
            )
        local = Path(self.model).expanduser().is_dir()
        source: dict[str, Any] = {"path" if local else "hub_id": self.model}
        if not local and self.model.count("/") != 1:
            raise UserError(f"model={self.model}: give a hub id (owner/name), a folder, or null")
        opened: dict[str, Any] = {"input_px": 0, "dim": 0, "mean": (), "std": ()}
        return checkpoint.complete(
            ModelSpec("any", weights="pretrained", revision="main", **source, **opened)
        )


def _diagnosed(folder: Path) -> dict[str, str]:
    """All that the last diagnosis recommends together: the last row of its stack of fixes.

    Raises UserError: there is none.
    """
    path = folder.expanduser() / "diagnosis-predictions.csv"
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = {row["kind"]: row for row in csv.DictReader(file)}  # the last one of each kind
    except FileNotFoundError as error:
        fix = "make diagnose IMAGES=… writes it; or set diagnosis=FOLDER"
        raise UserError(f"recipe=diagnosed: there is no {path}; {fix}") from error
    return rows.get("stacked") or rows["present"]
