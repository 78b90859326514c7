"""The settings of a job and of its check: `key=value` words, or keyword arguments in Python."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

from wallclock import checkpoint, machine
from wallclock.constraints import OF_DATASET, Help, OneOf, Range
from wallclock.errors import UsageError, UserError, check_name
from wallclock.outside import printable
from wallclock.preprocess import Preprocess
from wallclock.processor import read_processor
from wallclock.recipe import DTYPES, FAST, POOLS, Count, Limits, ModelSpec, Positive, Recipe

#: By name; device, precision and batch are the job's. `pillow` decodes in full and resizes with
#: Pillow: the reference of `verify`.
RECIPES: Mapping[str, Recipe] = {
    "fast": FAST,
    "pillow": replace(FAST, name="pillow", decoder="pil", resizer="pil", dct_scale="full"),
}
#: The mock model: it copies pixels, and takes as long as `service_ms` says.
MOCK = "null"
#: A job with such weights prints this at its start and at its end.
RANDOM = "weights=random: these vectors mean nothing; they are for speed tests only"
# What the service's module of vectors takes, too.
Weights = Annotated[
    str, OneOf(("pretrained", "random")), Help("random: untrained weights, for speed tests only")
]
Geometry = Annotated[str, Help("auto: as the model's own; squash; or shortest:256,crop:224")]
Pool = Annotated[
    str, OneOf(("auto", *POOLS)), Help("the vector; auto: projection if it has that, else tower")
]
Normalize = Annotated[bool, Help("scale vectors to length 1")]
Device = Annotated[
    str, OneOf(("auto", "cpu", "cuda")), Help("where the network runs; auto: a GPU if there is one")
]
Runtime = Annotated[
    str,
    OneOf(("auto", "pytorch", "openvino")),
    Help("auto: openvino on a CPU if installed and worth it"),
]
Dtype = Annotated[
    str, OneOf(("auto", *DTYPES["pytorch"])), Help("precision; auto: fp16 on a GPU, else fp32")
]


@dataclass(frozen=True)
class JobSettings:
    """One job. Of these, `identity` has what changes its vectors; the rest may change."""

    model: Annotated[str, Help("hub id (owner/name), a folder, or null: the mock")] = (
        "facebook/dinov2-small"
    )
    weights: Weights = "pretrained"
    preprocess: Geometry = "auto"
    pool: Pool = "auto"
    normalize: Normalize = False
    recipe: Annotated[
        str, OneOf(tuple(RECIPES)), Help("fast; or pillow, the slow reference of verify")
    ] = "fast"
    batch: Annotated[int, Range(0, 65_536), Help(f"images per batch; 0: {FAST.batch_size}")] = 0
    device: Device = "auto"
    runtime: Runtime = "auto"
    dtype: Dtype = "auto"
    workers: Annotated[int, Range(0, 1024), Help("threads that load; 0: one per core")] = 0
    processes: Annotated[
        int, Range(0, 1024), Help("processes for the loading threads; 0 picks a number")
    ] = 0
    shard: Annotated[int, Range(1, 10_000_000), OF_DATASET, Help("images per output file")] = 2000
    deduplicate: Annotated[bool, Help("embed identical files in a part once")] = True
    max_failures: Annotated[
        Count | None, Help("stop after more failures than this; empty: never")
    ] = None
    user_agent: Annotated[str, Help("User-Agent sent to image servers")] = Limits.user_agent
    give_up_s: Annotated[float, Range(0), Help("stop after so many seconds without any answer")] = (
        Limits.give_up_s
    )
    prune: Annotated[bool, Help("remove images from OUT that are gone from SRC")] = False
    limit: Annotated[
        Positive | None, Help("number of images from the start of SRC; empty: all")
    ] = None
    service_ms: Annotated[
        float, Range(0, 3_600_000), Help("the mock's ms per batch; needs model=null")
    ] = 0.0
    cluster: Annotated[str, Help("Ray: local, auto, HOST:PORT; empty: none")] = ""

    def resolved_device(self) -> str:
        """cpu or cuda; the mock's is the host. Raises UsageError: a GPU that is not here."""
        if self.model == MOCK and self.device == "auto":
            return "cpu"
        gpus = machine.gpus() if self.device != "cpu" else []
        if self.device == "cuda" and not gpus:
            raise UsageError(
                "device=cuda, but there is no NVIDIA GPU; set device=auto or device=cpu"
            )
        return "cuda" if gpus else "cpu"

    def limits(self, origin: str | None = None) -> Limits:
        """Those of these settings that are limits, of the images of a list from there.

        Raises UsageError: the user agent cannot be sent.
        """
        return Limits(user_agent=self.user_agent, give_up_s=self.give_up_s, origin=origin)

    def resolved_recipe(self, device: str) -> Recipe:
        """The recipe; `runtime=auto` is pytorch. Raises UsageError: OpenVINO cannot run it."""
        recipe = RECIPES[self.recipe]
        # A CPU emulates FP16.
        auto = "fp16" if device == "cuda" and self.recipe == "fast" else "fp32"
        dtype = auto if self.dtype == "auto" else self.dtype
        if self.runtime == "openvino":
            wrong = {"device": device != "cpu", "recipe": self.recipe != "fast"}
            wrong |= {"dtype": dtype not in DTYPES["openvino"], "model": self.model == MOCK}
            for name in (name for name, is_wrong in wrong.items() if is_wrong):
                raise UsageError(f"runtime=openvino: needs another {name}=; set runtime=auto")
        return replace(
            recipe,
            device=device,
            runtime="pytorch" if self.runtime == "auto" else self.runtime,
            dtype=dtype,
            batch_size=self.batch or recipe.batch_size,
            workers=self.workers or recipe.workers,
        )

    def resolved(self, device: str) -> tuple[Recipe, ModelSpec, list[str]]:
        """Recipe and model, as the model's image processor has them; notes that a user should read.

        Raises `NoWeightsError` where the model's files are neither here nor on a hub that answers;
        `UsageError` for no such model, or settings that it cannot have.
        """
        recipe, model = self.resolved_recipe(device), self.resolved_model()
        notes = [RANDOM] if model.weights == "random" else []
        processor = None
        try:
            processor = read_processor(model) if model.weights != "none" else None
        except UserError as error:
            if self.preprocess == "auto":
                raise
            assumed = f"mean {list(model.mean)} and std {list(model.std)} are assumed"
            notes.insert(0, f"{error.reason}: {assumed}")
        if processor is not None:
            model = replace(model, mean=processor.mean, std=processor.std)
        preprocess = self.preprocess
        if preprocess == "auto":
            preprocess = str(processor.preprocess) if processor else "squash"
        elif preprocess != "squash":
            preprocess = str(Preprocess.parse(preprocess, model.input_px))
        return replace(recipe, preprocess=preprocess), model, notes

    def resolved_model(self) -> ModelSpec:
        """The model with its input size, width, pooling and pixel statistics."""
        if self.model == MOCK:
            if self.weights == "random" or self.pool not in ("auto", "tower"):
                why = "the mock has no network; leave out weights= and pool="
                raise UsageError(f"model={MOCK}: {why}")
            mock = ModelSpec(MOCK, weights="none", normalize=self.normalize)
            return replace(mock, service_ms=self.service_ms)
        if self.service_ms:
            raise UsageError(f"service_ms={self.service_ms:g}: needs model={MOCK}, the mock")
        if self.weights == "random":
            # Of other networks there are none.
            check_name(self.model, [checkpoint.DEFAULT.hub_id], "model with weights=random")
            pool = "tower" if self.pool == "auto" else self.pool
            return replace(
                checkpoint.DEFAULT, weights="random", pool=pool, normalize=self.normalize
            )
        if self.model == checkpoint.DEFAULT.hub_id:
            default = replace(checkpoint.DEFAULT, weights="pretrained", normalize=self.normalize)
            return checkpoint.resolve(default, self.pool)
        local = os.path.isdir(os.path.expanduser(self.model))
        if not local and self.model.count("/") != 1:
            fix = "give a hub id (owner/name), a folder, or null"
            raise UsageError(f"model={printable(self.model)}: {fix}")
        values: dict[str, Any] = {"path" if local else "hub_id": self.model, "revision": "main"}
        values |= {"input_px": 0, "dim": 0, "mean": (), "std": ()}  # as the model's own files say
        model = ModelSpec("any", "pretrained", normalize=self.normalize, **values)
        return checkpoint.resolve(model, self.pool)


@dataclass(frozen=True)
class VerifySettings:
    """How `verify` checks a dataset."""

    n: Annotated[int, Range(1, 1_000_000), Help("images in the sample")] = 64
    seed: Annotated[int, Range(0), Help("seed of the random sample")] = 0
