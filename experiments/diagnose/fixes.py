"""The fixes of a diagnosis: what each changes in the recipe, and the scenarios to predict.

Names, words and costs are those of `wallclock.predict.advice`. A fix that this version cannot run
is not offered, nor one that changes nothing: a folder without a JPEG has no scaled decode.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Self

from experiments.common import Options, Recipe
from experiments.predict.costs import LOADER_FIELDS, worker_count
from harness.spec import THUMBNAIL_PX, from_fields
from wallclock.clock import STAGES
from wallclock.machine import computes_bf16
from wallclock.predict.advice import FIXES, workers_for
from wallclock.predict.intervals import NOTICEABLE

#: Not taken over from the recipe `fast`: its own fixes, or the user's business.
_NOT_A_FIX = ("name", "device", "sink", "dtype")
#: What of it is a fix of its own.
_SCALED_DECODE = ("decoder", "resizer", "interpolation", "dct_scale")


@dataclass(frozen=True)
class Folder:
    """What the images are: whether many are JPEGs, and whether enough are worth a thumbnail."""

    has_jpegs: bool
    has_large_images: bool = False


@dataclass(frozen=True)
class Scenario:
    """One recipe to predict: the present one, a fix alone, fixes stacked, or a check of the model.

    The fields are keys of a record. `stages`: whose time it shortens. `cost`: what it takes, in
    words. `copies`: what is loaded in place of the images, "thumbnails" or nothing. `cold`: whether
    no image is in memory, as of a folder larger than that.
    """

    kind: str
    title: str
    recipe: Recipe
    stages: tuple[str, ...] = ()
    cost: str = ""
    copies: str = ""
    cold: bool = False

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Self:
        """Read what `dataclasses.asdict` and JSON wrote; ignore fields that no longer exist."""
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


def advice(stage: str, has_jpegs: bool) -> tuple[str, str]:
    """What to do about a stage that no fix here shortens, and what that costs."""
    if stage == "decode" and not has_jpegs:
        return _WITHOUT_JPEGS
    return _ADVICE[stage]


def fixes(
    options: Options, recipe: Recipe, cores: int, folder: Folder, weights: str = "pretrained"
) -> list[Scenario]:
    """Each fix alone that changes this recipe or its images.

    `weights`: of the model; a mock model has no precision.
    """
    alone = []
    for name, changes, number in _offers(options, recipe, cores, folder, weights):
        fix = FIXES[name]
        changed = replace(recipe, **changes)
        if changed == recipe:
            continue
        changed = replace(changed, name=f"alone-{name.replace(' ', '-')}")
        title = fix.title.format(number)
        alone.append(Scenario("alone", title, changed, fix.stages, fix.cost))
    if folder.has_large_images:
        fix = FIXES["thumbnails"]
        same = replace(recipe, name=f"alone-{fix.name}")
        title = fix.title.format(THUMBNAIL_PX)
        # What thumbnails cost is measured.
        alone.append(Scenario("alone", title, same, fix.stages, copies=fix.name))
    return alone


def _offers(
    options: Options, recipe: Recipe, cores: int, folder: Folder, weights: str
) -> Iterator[tuple[str, Mapping[str, Any], object]]:
    """Fixes of the recipe: name, changes, and the number in the title."""
    better = options["better"]
    # Without a number, the threads engine takes one worker for each core; a prediction needs it.
    fast = {**asdict(options["fast"]), "workers": options["fast"].workers or cores}
    if folder.has_jpegs:
        yield "scaled decode", {name: fast[name] for name in _SCALED_DECODE}, ""
    yield "open_images", {name: fast[name] for name in fast if name not in _NOT_A_FIX}, ""
    workers = better["workers"] or workers_for(cores, waits=False)
    yield "workers", {"workers": workers}, workers
    batch_size = better["batch_size"][recipe.device]
    yield "batch", {"batch_size": batch_size}, batch_size
    dtype = better["dtype"][recipe.device]
    is_emulated = recipe.device == "cpu" and dtype == "bf16" and not computes_bf16()
    if weights != "none" and not is_emulated:
        yield "dtype", {"dtype": dtype}, dtype


def scenarios(
    options: Options, recipe: Recipe, cores: int, folder: Folder, weights: str = "pretrained"
) -> list[Scenario]:
    """The present recipe, every fix alone, and the checks."""
    present = Scenario("present", "your recipe as it is", replace(recipe, name="now"))
    planned = [present, *fixes(options, recipe, cores, folder, weights)]
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
    left = [s for s in planned if s.kind == "alone" and not s.copies]
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
    workers = workers_for(max(1, worker_count(recipe, cores)), waits=True)
    engine = "dataloader" if recipe.engine == "serial" else recipe.engine
    ahead = replace(recipe, name="cold-ahead", engine=engine, workers=workers)
    title = f"{workers} {'threads' if engine == 'threads' else 'DataLoader workers'}, not in memory"
    cost = "memory of each; the gain is over the row above"
    now = replace(recipe, name="cold-now")
    return [
        Scenario("cold", "your recipe, images not in memory", now, cold=True),
        Scenario("cold", title, ahead, ("read",), cost, cold=True),
    ]


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
    stackable = [s for s in planned if s.kind == "alone" and not s.copies]
    sizes = dict.fromkeys(scenario.recipe.batch_size for scenario in stackable)
    resized = [
        replace(scenario, recipe=replace(recipe, batch_size=size, name=f"{recipe.name}-b{size}"))
        for scenario in stackable
        for recipe in [scenario.recipe]
        for size in sizes
        if size != recipe.batch_size
    ]
    return [*planned, *resized]
