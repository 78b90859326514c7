"""The fixes that a diagnosis weighs: what each changes in the recipe, which stages it relieves, what it costs.

One table, `offered`. A fix that this version cannot run (the recipe `fast`, before its engine is there) is
not in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from experiments._costs import LOADER_FIELDS
from wallclock.clock import STAGES
from wallclock.predict.costs import ENGINES
from wallclock.spec import Recipe

PRESENT = "now"
_NAMES = {"pil": "PIL", "opencv": "OpenCV", "turbojpeg": "libjpeg-turbo"}
_LOADING = ("read", "decode", "resize", "normalize", "assemble")


@dataclass(frozen=True)
class Fix:
    """A change of the recipe. `stages`: whose time it shortens. `cost`: what one pays for it, in words.

    `order`: its place when fixes are stacked, 0 for none. `faithful`: the network still sees the same picture.
    """

    name: str
    title: str
    stages: tuple[str, ...]
    changes: Mapping[str, Any]
    cost: str
    order: int = 0
    faithful: bool = True


@dataclass(frozen=True)
class Setup:
    """One recipe to predict: the present one, a fix alone, fixes stacked, or a check of the model itself."""

    kind: str
    title: str
    recipe: Recipe
    stages: tuple[str, ...] = ()
    cost: str = ""
    faithful: bool = True

    def to_json(self) -> dict[str, Any]:
        """Plain data, for a record."""
        return asdict(self)

    @staticmethod
    def from_json(plain: Mapping[str, Any]) -> Setup:
        """The inverse of `to_json`."""
        return Setup(
            **{**plain, "recipe": Recipe(**plain["recipe"]), "stages": tuple(plain["stages"])}
        )


#: What to do about a stage that no measured fix shortens, and what that costs.
ADVICE: Mapping[str, tuple[str, str]] = {
    "read": (
        "local disk; pack files into tar or LMDB shards; more reads ahead",
        "a copy of the images",
    ),
    "decode": (
        "libjpeg-turbo at a reduced DCT scale",
        "a native library; pixels differ by rounding",
    ),
    "resize": ("torch's antialiased resize instead of PIL", "pixels differ by rounding"),
    "normalize": ("send uint8, normalize on the device", "a custom collate; the same numbers"),
    "assemble": ("write into one preallocated batch", "a custom collate"),
    "h2d": ("pinned memory; send uint8 instead of float32", "locked host memory"),
    "forward": (
        "half precision; a compiled or smaller network; a faster device",
        "check the vectors on your task",
    ),
    "d2h": ("pool on the device; copy once a batch", "nothing"),
    "serialize": ("append to .npy, or write in a thread", "no schema, no compression"),
}


def offered(options: Mapping[str, Any], recipe: Recipe, cores: int) -> list[Fix]:
    """Every fix that changes this recipe, in the order of the checklist."""
    better, device = options["better"], recipe.device
    same = "not the same picture: no antialiasing; check on your task"
    found = [
        Fix(
            choice["name"],
            _title(choice),
            ("decode", "resize"),
            {name: choice[name] for name in LOADER_FIELDS if name in choice},
            same if choice["interpolation"] == "linear" else "a dependency; pixels differ slightly",
            1 if choice["name"] == options["stack"] else 0,
            choice["interpolation"] != "linear",
        )
        for choice in options["loaders"]
    ]
    fast = options.get("fast")
    if fast is not None and fast.engine in ENGINES:
        kept = {field.name: getattr(recipe, field.name) for field in fields(Recipe)}
        taken = {
            name: value
            for name, value in asdict(fast).items()
            if name not in ("name", "device", "sink", "dtype")
        }
        # Without a number, the threads engine takes one worker for each core; a prediction needs the number.
        taken["workers"] = fast.workers or cores
        changes = {name: value for name, value in taken.items() if value != kept[name]}
        found.append(
            Fix(
                "fast",
                "this suite's threaded engine, recipe=fast",
                (*_LOADING, "h2d"),
                changes,
                "another loader",
            )
        )
    workers = better["workers"] or cores
    batch, dtype = better["batch_size"][device], better["dtype"][device]
    found += [
        Fix(
            "workers",
            f"{workers} DataLoader workers",
            _LOADING,
            {"workers": workers},
            "memory of a process each",
            2,
        ),
        Fix(
            "batch",
            f"batches of {batch}",
            ("forward",),
            {"batch_size": batch},
            "memory on the device",
            3,
        ),
        Fix(
            "dtype",
            f"{dtype} forward pass",
            ("forward",),
            {"dtype": dtype},
            "check the vectors on your task",
            4,
        ),
    ]
    return [fix for fix in found if replace(recipe, **fix.changes) != recipe]


def _title(choice: Mapping[str, str]) -> str:
    decoder, resizer = (_NAMES.get(choice[name], choice[name]) for name in ("decoder", "resizer"))
    scaled = " to a reduced DCT scale" if choice.get("dct_scale") == "auto" else ""
    return f"decode{scaled} with {decoder}, resize with {resizer} ({choice['interpolation']})"


def setups(options: Mapping[str, Any], recipe: Recipe, cores: int) -> list[Setup]:
    """The present recipe, every fix alone, the fixes stacked in order, and the checks."""
    fixes = offered(options, recipe, cores)
    found = [Setup("present", "your recipe as it is", replace(recipe, name=PRESENT))]
    found += [
        Setup(
            "alone",
            fix.title,
            replace(recipe, name=f"alone-{fix.name}", **fix.changes),
            fix.stages,
            fix.cost,
            fix.faithful,
        )
        for fix in fixes
    ]
    current, stages = recipe, set[str]()
    stacked = sorted((fix for fix in fixes if fix.order), key=lambda fix: fix.order)
    for count, fix in enumerate(stacked, start=1):
        current, stages = replace(current, **fix.changes), stages | {*fix.stages}
        title = fix.title if count == 1 else f"+ {fix.title}"
        ordered = tuple(stage for stage in STAGES if stage in stages)
        found.append(
            Setup(
                "stacked",
                title,
                replace(current, name=f"stacked-{count}-{fix.name}"),
                ordered,
                fix.cost,
            )
        )
    for index, changes in enumerate(options["checks"], start=1):
        found.append(
            Setup("check", _words(changes), replace(recipe, name=f"check-{index}", **changes))
        )
    return found


def loaders(found: Sequence[Setup]) -> list[Recipe]:
    """The recipes whose loading is to be measured: each way to load, in each batch size that is predicted with it.

    A check makes do with the batch size next to its own.
    """
    chosen: dict[tuple[Any, ...], Recipe] = {}
    for setup in sorted(found, key=lambda setup: setup.kind == "check"):
        way = tuple(getattr(setup.recipe, name) for name in LOADER_FIELDS)
        if setup.kind == "check" and any(known[:-1] == way for known in chosen):
            continue
        chosen.setdefault((*way, setup.recipe.batch_size), setup.recipe)
    return list(chosen.values())


def _words(changes: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in changes.items())
