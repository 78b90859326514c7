"""The fixes of a diagnosis: what each changes in the recipe, which stages it relieves, its cost.

One table, `fixes`. A fix that this version cannot run is not in it, nor one that changes nothing
for these images: a folder without a JPEG has no DCT scale.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Self

from experiments._common import Options, Recipe
from experiments._costs import LOADER_FIELDS, worker_count
from experiments._diagnosis import NOTICEABLE
from harness import provenance
from harness.decoders import DECODERS
from harness.spec import from_fields
from wallclock.clock import LOADING_STAGES, STAGES
from wallclock.recipe import ENGINES

#: Not taken over from the recipe `fast`: its own fixes, or the user's business.
_NOT_A_FIX = ("name", "device", "sink", "dtype")
#: Of a loader, what matters for JPEGs alone: Pillow decodes every other format in every recipe.
_OF_JPEGS = ("decoder", "dct_scale")
#: Times as many workers where they wait for the storage.
_WAITING = 4
#: CPU flags of arithmetic in half precision; without one, a CPU emulates it.
_BF16_FLAGS = frozenset({"avx512_bf16", "amx_bf16", "asimdbf16", "svebf16"})


@dataclass(frozen=True)
class Folder:
    """What the images are: how many of each format, and whether enough are worth a thumbnail."""

    formats: Mapping[str, int]
    has_large_images: bool = False

    def has(self, *formats: str, share: float = 0.0) -> bool:
        """Whether more than that share of the images are of these formats."""
        count = sum(self.formats.get(name, 0) for name in formats)
        return count > share * sum(self.formats.values())


@dataclass(frozen=True)
class Fix:
    """A change of the recipe. `stages`: whose time it shortens. `cost`: what it takes, in words.

    `faithful`: the model's input stays the same up to rounding. `copies`: the copies that are
    loaded in place of the images, "thumbnails" or "" (`harness.corpora.copies`). `needs_proof`: a
    prediction does not suffice to name it.
    """

    name: str
    title: str
    stages: tuple[str, ...]
    changes: Mapping[str, Any]
    cost: str
    faithful: bool = True
    copies: str = ""
    needs_proof: bool = False


@dataclass(frozen=True)
class Scenario:
    """One recipe to predict: the present one, a fix alone, fixes stacked, or a check of the model.

    The fields are keys of a record.
    """

    kind: str
    title: str
    recipe: Recipe
    stages: tuple[str, ...] = ()
    cost: str = ""
    faithful: bool = True
    copies: str = ""
    #: Whether no image is in memory, as of a folder larger than that.
    cold: bool = False
    needs_proof: bool = False

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Self:
        """The inverse of `dataclasses.asdict`, by way of JSON, without fields that are gone."""
        read = {"recipe": from_fields(Recipe, plain["recipe"]), "stages": tuple(plain["stages"])}
        return from_fields(cls, {**plain, **read})


#: Stage → what to do where no measured fix shortens it, and what that costs.
_ADVICE: Mapping[str, tuple[str, str]] = {
    "read": ("local disk; tar or LMDB shards; more reads ahead", "a copy of the images"),
    "decode": ("libjpeg-turbo at a reduced DCT scale", "a native library; pixels round otherwise"),
    "resize": ("torch's antialiased resize instead of PIL", "pixels differ by rounding"),
    "normalize": ("send uint8, normalize on the device", "a custom collate; the same numbers"),
    "assemble": ("write into one preallocated batch", "a custom collate"),
    "h2d": ("pinned memory; send uint8 instead of float32", "locked host memory"),
    "forward": ("half precision; a smaller model; a faster device", "check your own task"),
    "d2h": ("pool on the device; copy once per batch", "nothing"),
    "serialize": ("append to .npy, or write in a thread", "no schema, no compression"),
}
_WITHOUT_JPEGS = ("smaller copies, as JPEG", "a copy of the images; pixels differ slightly")


#: What it costs is measured.
_THUMBNAILS = Fix(
    "thumbnails",
    "keep 256 px thumbnails and load those",
    ("read", "decode", "resize"),
    changes={},
    cost="",
    copies="thumbnails",
)


def advice(stage: str, has_jpegs: bool) -> tuple[str, str]:
    """What to do about a stage that no fix here shortens, and what that costs."""
    if stage == "decode" and not has_jpegs:
        return _WITHOUT_JPEGS
    return _ADVICE[stage]


def fixes(
    options: Options, recipe: Recipe, cores: int, folder: Folder, weights: str = "pretrained"
) -> list[Fix]:
    """Every fix that changes this recipe or its images, in the order of the checklist.

    `weights`: of the model; a mock model has no precision.
    """
    has_jpegs = folder.has("jpeg", share=options["least_jpegs"])
    offered = [_loader_fix(choice, has_jpegs) for choice in options["loaders"]]
    fast = options.get("fast")
    if fast is not None and fast.engine in ENGINES:
        offered.append(_fast_fix(fast, recipe, cores, has_jpegs))
    offered += _size_fixes(options["better"], recipe, cores)
    if weights != "none":
        offered.append(_dtype_fix(options["better"]["dtype"][recipe.device], recipe.device))
    if folder.has_large_images:
        offered.append(_THUMBNAILS)
    distinct: dict[Recipe | str, Fix] = {}
    for fix in offered:
        changed = replace(recipe, **fix.changes)
        if fix.copies or changed != recipe:
            distinct.setdefault(fix.copies or changed, fix)
    return list(distinct.values())


def _loader_fix(choice: Mapping[str, Any], has_jpegs: bool) -> Fix:
    faithful = choice["interpolation"] != "linear"
    how = f"resize with {_label(choice['resizer'])} ({choice['interpolation']})"
    names = [name for name in LOADER_FIELDS if name in choice]
    stages: tuple[str, ...] = ("resize",)
    if has_jpegs:
        scaled = " to a reduced DCT scale" if choice.get("dct_scale") == "auto" else ""
        how = f"decode{scaled} with {_label(choice['decoder'])}, {how}"
        stages = ("decode", "resize")
    else:
        names = [name for name in names if name not in _OF_JPEGS]
    cost = "a dependency; pixels differ slightly"
    if not faithful:
        cost = "different pixels: no antialiasing; check on your task"
    changes = {name: choice[name] for name in names}
    return Fix(choice["name"], how, stages, changes, cost, faithful)


def _label(library: str) -> str:
    """What a decoder or a resizer is called."""
    return DECODERS[library].label if library in DECODERS else library


def _fast_fix(fast: Recipe, recipe: Recipe, cores: int, has_jpegs: bool) -> Fix:
    # Without a number, the threads engine takes one worker for each core; a prediction needs it.
    choices = {**asdict(fast), "workers": fast.workers or cores}
    left_out = _NOT_A_FIX if has_jpegs else (*_NOT_A_FIX, *_OF_JPEGS)
    changes = {
        name: value
        for name, value in choices.items()
        if name not in left_out and value != getattr(recipe, name)
    }
    scaled = "decode at a reduced scale, " if has_jpegs else ""
    title = f"{scaled}resize with {_label(fast.resizer)}, in threads (recipe=fast)"
    return Fix("fast", title, (*LOADING_STAGES, "h2d"), changes, "another loader: wallclock's own")


def _size_fixes(better: Mapping[str, Any], recipe: Recipe, cores: int) -> list[Fix]:
    workers = better["workers"] or cores
    batch_size = better["batch_size"][recipe.device]
    return [
        Fix(
            "workers",
            f"{workers} DataLoader workers",
            LOADING_STAGES,
            {"workers": workers},
            "memory of a process each",
        ),
        Fix(
            "batch",
            f"batches of {batch_size}",
            ("forward",),
            {"batch_size": batch_size},
            "memory on the device",
        ),
    ]


def _dtype_fix(dtype: str, device: str) -> Fix:
    emulated = device == "cpu" and dtype == "bf16" and not computes_bf16()
    cost = "check the vectors on your task"
    if emulated:
        cost = f"this CPU emulates {dtype}: only a proof counts; {cost}"
    changes = {"dtype": dtype}
    return Fix("dtype", f"{dtype} forward pass", ("forward",), changes, cost, needs_proof=emulated)


def computes_bf16() -> bool:
    """Whether this machine's CPU has instructions for bf16, by the flags that the kernel lists."""
    flags = str(provenance.machine()["topology"].get("flags", ""))
    return not _BF16_FLAGS.isdisjoint(flags.split())


def scenarios(
    options: Options, recipe: Recipe, cores: int, folder: Folder, weights: str = "pretrained"
) -> list[Scenario]:
    """The present recipe, every fix alone, and the checks."""
    planned = [Scenario("present", "your recipe as it is", replace(recipe, name="now"))]
    for fix in fixes(options, recipe, cores, folder, weights):
        planned.append(
            Scenario(
                "alone",
                fix.title,
                replace(recipe, name=f"alone-{fix.name}", **fix.changes),
                fix.stages,
                fix.cost,
                fix.faithful,
                fix.copies,
                needs_proof=fix.needs_proof,
            )
        )
    checks = options["checks"] if options["prove"] else []
    for index, changes in enumerate(checks, start=1):
        title = ", ".join(f"{name}={value}" for name, value in changes.items())
        planned.append(Scenario("check", title, replace(recipe, name=f"check-{index}", **changes)))
    return planned


def stacked(
    planned: Sequence[Scenario], rate: Callable[[Scenario], float | None]
) -> list[Scenario]:
    """Fixes added one by one, each time the one that then brings most; none that brings nothing.

    Args:
        planned: the present recipe and the fixes alone.
        rate: the predicted images per second of a scenario; None where a cost is missing.

    Returns:
        The stack after each addition; empty where fewer than two fixes bring something together.
    """
    present = planned[0]
    left = [s for s in planned if s.kind == "alone" and s.faithful]
    left = [s for s in left if not s.copies and not s.needs_proof]
    current, stack = present, list[Scenario]()
    while left:
        candidates = [(_added(current, fix, present, len(stack) + 1), fix) for fix in left]
        rated = [(rate(new) or 0.0, new, fix) for new, fix in candidates]
        best_rate, best, chosen = max(rated, key=lambda entry: entry[0])
        if best_rate < NOTICEABLE * (rate(current) or 0.0) or not best_rate:
            break
        stack.append(best)
        left.remove(chosen)
        current = best
    return stack if len(stack) > 1 else []


def _added(current: Scenario, fix: Scenario, present: Scenario, count: int) -> Scenario:
    """A stack with one fix more."""
    changes = {
        field.name: getattr(fix.recipe, field.name)
        for field in fields(Recipe)
        if getattr(fix.recipe, field.name) != getattr(present.recipe, field.name)
    }
    name = f"stacked-{count}-{fix.recipe.name.removeprefix('alone-')}"
    recipe = replace(current.recipe, **{**changes, "name": name})
    relieved = {*current.stages, *fix.stages}
    stages = tuple(stage for stage in STAGES if stage in relieved)
    title = fix.title if count == 1 else f"+ {fix.title}"
    return Scenario("stacked", title, recipe, stages, fix.cost)


def cold(recipe: Recipe, cores: int) -> list[Scenario]:
    """The recipe with images that are not in memory; then with more workers, which wait for them.

    A worker that waits leaves its core to others.
    """
    workers = _WAITING * max(1, worker_count(recipe, cores))
    engine = "dataloader" if recipe.engine == "serial" else recipe.engine
    ahead = replace(recipe, name="cold-ahead", engine=engine, workers=workers)
    title = f"{workers} {'threads' if engine == 'threads' else 'DataLoader workers'}, not in memory"
    cost = "memory of each; the gain is over the row above"
    now = Scenario("cold", "your recipe, images not in memory", replace(recipe, name="cold-now"))
    planned = [now, Scenario("cold", title, ahead, ("read",), cost)]
    return [replace(scenario, cold=True) for scenario in planned]


def loaders(planned: Sequence[Scenario]) -> list[Scenario]:
    """Those whose loading is measured: each loader at the batch sizes predicted with it.

    A fix may be stacked with larger batches. A batch size within a factor of two of one measured
    takes that, and so does every check.
    """
    measured: dict[tuple[Any, ...], list[Scenario]] = {}
    for scenario in sorted(_at_each_size(planned), key=lambda scenario: scenario.kind == "check"):
        recipe, size = scenario.recipe, scenario.recipe.batch_size
        loader = (scenario.copies, *(getattr(recipe, name) for name in LOADER_FIELDS))
        same_loader = measured.setdefault(loader, [])
        is_near = any(size <= 2 * other.recipe.batch_size <= 4 * size for other in same_loader)
        if is_near or (same_loader and scenario.kind == "check"):
            continue
        same_loader.append(scenario)
    return [scenario for same_loader in measured.values() for scenario in same_loader]


def _at_each_size(planned: Sequence[Scenario]) -> list[Scenario]:
    """The scenarios, then each fix that can be stacked at every other fix's batch size."""
    stackable = [s for s in planned if s.kind == "alone" and s.faithful and not s.copies]
    sizes = dict.fromkeys(scenario.recipe.batch_size for scenario in stackable)
    resized = [
        replace(scenario, recipe=_resized(scenario.recipe, size))
        for scenario in stackable
        for size in sizes
        if size != scenario.recipe.batch_size
    ]
    return [*planned, *resized]


def _resized(recipe: Recipe, size: int) -> Recipe:
    return replace(recipe, batch_size=size, name=f"{recipe.name}-b{size}")
