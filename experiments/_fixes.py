"""The fixes of a diagnosis: what each changes in the recipe, which stages it relieves, its cost.

One table, `fixes`. A fix that this version cannot run is not in it.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

from experiments._common import Options, Recipe
from experiments._costs import LOADER_FIELDS, worker_count
from harness.decoders import DECODERS
from wallclock.clock import LOADING_STAGES, STAGES
from wallclock.recipe import ENGINES

#: Not taken over from the recipe `fast`: its own fixes, or the user's business.
_NOT_A_FIX = ("name", "device", "sink", "dtype")
#: Times as many workers where they wait for the storage.
_WAITING = 4


@dataclass(frozen=True)
class Fix:
    """A change of the recipe. `stages`: whose time it shortens. `cost`: what it takes, in words.

    `order`: its place when fixes are stacked, 0 for none. `faithful`: the network's input stays the
    same up to rounding. `copies`: the kind of copies that are loaded (`harness.corpora.copies`).
    """

    name: str
    title: str
    stages: tuple[str, ...]
    changes: Mapping[str, Any]
    cost: str
    order: int = 0
    faithful: bool = True
    copies: str = ""


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

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Self:
        """The inverse of `dataclasses.asdict`, by way of JSON."""
        fields = dict(plain)
        fields["recipe"] = Recipe(**plain["recipe"])
        fields["stages"] = tuple(plain["stages"])
        return cls(**fields)


#: Stage → what to do where no measured fix shortens it, and what that costs.
ADVICE: Mapping[str, tuple[str, str]] = {
    "read": ("local disk; tar or LMDB shards; more reads ahead", "a copy of the images"),
    "decode": ("libjpeg-turbo at a reduced DCT scale", "a native library; pixels round otherwise"),
    "resize": ("torch's antialiased resize instead of PIL", "pixels differ by rounding"),
    "normalize": ("send uint8, normalize on the device", "a custom collate; the same numbers"),
    "assemble": ("write into one preallocated batch", "a custom collate"),
    "h2d": ("pinned memory; send uint8 instead of float32", "locked host memory"),
    "forward": ("half precision; a smaller network; a faster device", "check your own task"),
    "d2h": ("pool on the device; copy once a batch", "nothing"),
    "serialize": ("append to .npy, or write in a thread", "no schema, no compression"),
}


#: Kind of copies → the fix, and the stages that it relieves. What it costs is measured.
_COPIES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "thumbnails": ("keep 256 px thumbnails and load those", ("read", "decode", "resize")),
    "baseline": ("re-encode progressive files as baseline JPEGs", ("decode",)),
    "jpeg": ("keep PNGs as JPEGs", ("read", "decode")),
}


def fixes(options: Options, recipe: Recipe, cores: int, copies: Collection[str] = ()) -> list[Fix]:
    """Every fix that changes this recipe or its images, in the order of the checklist."""
    better = options["better"]
    workers = better["workers"] or cores
    batch_size = better["batch_size"][recipe.device]
    dtype = better["dtype"][recipe.device]
    offered = [_loader_fix(choice, options["stack"]) for choice in options["loaders"]]
    fast = options.get("fast")
    if fast is not None and fast.engine in ENGINES:
        offered.append(_fast_fix(fast, recipe, cores))
    offered += [
        Fix(
            "workers",
            f"{workers} DataLoader workers",
            LOADING_STAGES,
            {"workers": workers},
            "memory of a process each",
            order=2,
        ),
        Fix(
            "batch",
            f"batches of {batch_size}",
            ("forward",),
            {"batch_size": batch_size},
            "memory on the device",
            order=3,
        ),
        Fix(
            "dtype",
            f"{dtype} forward pass",
            ("forward",),
            {"dtype": dtype},
            "check the vectors on your task",
            order=4,
        ),
    ]
    for kind, (title, stages) in _COPIES.items():
        if kind in copies:
            offered.append(Fix(kind, title, stages, {}, "", copies=kind))
    return [fix for fix in offered if fix.copies or replace(recipe, **fix.changes) != recipe]


def _loader_fix(choice: Mapping[str, Any], stacked: str) -> Fix:
    faithful = choice["interpolation"] != "linear"
    decoder = _label(choice["decoder"])
    resizer = _label(choice["resizer"])
    scaled = " to a reduced DCT scale" if choice.get("dct_scale") == "auto" else ""
    how = f"decode{scaled} with {decoder}, resize with {resizer} ({choice['interpolation']})"
    changes = {name: choice[name] for name in LOADER_FIELDS if name in choice}
    if faithful:
        cost = "a dependency; pixels differ slightly"
    else:
        cost = "different pixels: no antialiasing; check on your task"
    order = 1 if choice["name"] == stacked else 0
    return Fix(choice["name"], how, ("decode", "resize"), changes, cost, order, faithful)


def _label(library: str) -> str:
    """What a decoder or a resizer is called."""
    return DECODERS[library].label if library in DECODERS else library


def _fast_fix(fast: Recipe, recipe: Recipe, cores: int) -> Fix:
    # Without a number, the threads engine takes one worker for each core; a prediction needs it.
    choices = {**asdict(fast), "workers": fast.workers or cores}
    changes = {
        name: value
        for name, value in choices.items()
        if name not in _NOT_A_FIX and value != getattr(recipe, name)
    }
    title = "this suite's threaded engine, recipe=fast"
    return Fix("fast", title, (*LOADING_STAGES, "h2d"), changes, "another loader")


def scenarios(
    options: Options, recipe: Recipe, cores: int, copies: Collection[str] = ()
) -> list[Scenario]:
    """The present recipe, every fix alone, the fixes stacked in order, and the checks."""
    offered = fixes(options, recipe, cores, copies)
    planned = [Scenario("present", "your recipe as it is", replace(recipe, name="now"))]
    for fix in offered:
        changed = replace(recipe, name=f"alone-{fix.name}", **fix.changes)
        scenario = Scenario(
            "alone", fix.title, changed, fix.stages, fix.cost, fix.faithful, fix.copies
        )
        planned.append(scenario)
    current = recipe
    relieved: set[str] = set()
    stacked = sorted((fix for fix in offered if fix.order), key=lambda fix: fix.order)
    for count, fix in enumerate(stacked, start=1):
        current = replace(current, name=f"stacked-{count}-{fix.name}", **fix.changes)
        relieved |= {*fix.stages}
        title = fix.title if count == 1 else f"+ {fix.title}"
        stages = tuple(stage for stage in STAGES if stage in relieved)
        planned.append(Scenario("stacked", title, current, stages, fix.cost))
    checks = options["checks"] if options["prove"] else []
    for index, changes in enumerate(checks, start=1):
        title = ", ".join(f"{name}={value}" for name, value in changes.items())
        planned.append(Scenario("check", title, replace(recipe, name=f"check-{index}", **changes)))
    return planned


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

    A batch size within a factor of two of one measured takes that, and so does every check.
    """
    measured: dict[tuple[Any, ...], list[Scenario]] = {}
    for scenario in sorted(planned, key=lambda scenario: scenario.kind == "check"):
        recipe, size = scenario.recipe, scenario.recipe.batch_size
        loader = (scenario.copies, *(getattr(recipe, name) for name in LOADER_FIELDS))
        same_loader = measured.setdefault(loader, [])
        is_near = any(size <= 2 * other.recipe.batch_size <= 4 * size for other in same_loader)
        if is_near or (same_loader and scenario.kind == "check"):
            continue
        same_loader.append(scenario)
    return [scenario for same_loader in measured.values() for scenario in same_loader]
