"""The file that a diagnosis leaves and `recipe=FILE` takes: the fastest setup that a job can run.

    {"format": 1, "device": "cpu", "fix": "…", "speedup": 1.9, "measured": true, "recipe": {…}}

`recipe` has fields of `Recipe`, those of `FIELDS`; one that is left out is as in `fast`.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from wallclock.errors import UsageError
from wallclock.recipe import DTYPES, FAST, INTERPOLATIONS, Recipe

FORMAT = 1
#: What a job lets a file choose, and what of it a job can do. Positive numbers where it is empty.
FIELDS: Mapping[str, Collection[str]] = {
    "decoder": ("simplejpeg", "pil"),
    "resizer": ("torch", "pil"),
    "interpolation": INTERPOLATIONS["torch"],
    "dct_scale": ("full", "auto"),
    "normalize_on": ("host", "device"),
    "engine": ("threads",),
    "dtype": DTYPES["pytorch"],
    "workers": (),
    "batch_size": (),
}
_MOST = {"workers": 1024, "batch_size": 65_536}


@dataclass(frozen=True)
class ChosenRecipe:
    """A recipe from a file. `note`: a line that says which one it is."""

    recipe: Recipe
    note: str


def can_run(fields: Mapping[str, Any]) -> bool:
    """Whether a job can run a recipe with these fields."""
    return not any(_fault(name, value) for name, value in fields.items())


def read_recipe(path: str, device: str, names: Collection[str]) -> ChosenRecipe:
    """Read the file.

    Args:
        device: that the job runs on: cpu or cuda.
        names: recipes that have a name, for the error's text.

    Raises UsageError, in one line: there is no such file, it is no recipe, it has a field that a
    job has not, or a value that a job cannot run, or it is for another device.
    """
    plain = _read(path, names)
    if plain.get("format") != FORMAT or not isinstance(plain.get("recipe"), dict):
        raise UsageError(f"recipe={path}: not a recipe of make diagnose; make diagnose writes one")
    if plain.get("device") != device:
        raise UsageError(
            f"recipe={path}: it was found for device={plain.get('device')}, and this job runs on "
            f"{device}; run make diagnose here, or leave out recipe="
        )
    fields = plain["recipe"]
    for name, value in fields.items():
        if fault := _fault(name, value):
            raise UsageError(f"recipe={path}: {fault}")
    recipe = replace(FAST, **{"name": "file", "dtype": "fp32", **fields})
    return ChosenRecipe(recipe, _note(path, plain))


def _read(path: str, names: Collection[str]) -> dict[str, Any]:
    try:
        plain = json.loads(Path(path).expanduser().read_text(encoding="utf-8"))
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        valid = ", ".join(names)
        fix = f"give {valid}, or the recipe.json that make diagnose writes"
        raise UsageError(f"recipe={path}: no such recipe, and no such file; {fix}") from None
    except (OSError, ValueError, RecursionError) as error:
        kind = type(error).__name__
        raise UsageError(f"recipe={path}: cannot be read as JSON ({kind})") from None
    return plain if isinstance(plain, dict) else {}


def _fault(name: str, value: Any) -> str:
    """Why a job cannot take a field; empty if it can."""
    if name not in FIELDS:
        return f"a job has no field {name}; valid: {', '.join(FIELDS)}"
    if name in _MOST:
        is_count = isinstance(value, int) and not isinstance(value, bool)
        if is_count and 0 < value <= _MOST[name]:
            return ""
        return f"{name}={value!r}: give a whole number from 1 to {_MOST[name]}"
    if value not in FIELDS[name]:
        return f"{name}={value!r}: a job can run {', '.join(FIELDS[name])}"
    return ""


def _note(path: str, plain: Mapping[str, Any]) -> str:
    """Which recipe is used, and what it promises."""
    gain = plain.get("speedup")
    promise = ""
    if isinstance(gain, int | float) and not isinstance(gain, bool):
        how = "measured" if plain.get("measured") else "predicted"
        promise = f", {how} as {gain:.2f} times as fast as the recipe that was diagnosed"
    return f"recipe={path}: {str(plain.get('fix', 'a recipe'))[:200]}{promise}"
