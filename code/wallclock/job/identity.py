"""What the vectors of a job depend on, and whether a dataset's are of the same.

It stands in `_dataset.json` as `identity`. A dataset that was written before a field of `Recipe`,
`ModelSpec` or `JobSettings` existed says nothing of it: it was made as the field's default has it.
"""

import json
import platform
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from importlib import metadata, util
from typing import Any

from PIL import features

from wallclock.constraints import NO_VECTOR, OF_DATASET, marked
from wallclock.errors import VERSION, UserError
from wallclock.job.dataset import Dataset
from wallclock.job.settings import JobSettings
from wallclock.loader.shards import RANGE
from wallclock.machine import libjpeg_turbo_version
from wallclock.outside import printable
from wallclock.recipe import ModelSpec, Recipe, by_pixels

#: Fields of a recipe in older datasets; in every job they had the same value.
_GONE = ("engine", "augment")
_LIBRARIES = (
    *("numpy", "pillow", "simplejpeg", "opencv-python-headless", "torch", "transformers"),
    "pyarrow",
)
#: What changes no vector.
_NO_MATTER = ("python", "pyarrow")


def identity_of(settings: JobSettings, recipe: Recipe, model: ModelSpec) -> dict[str, Any]:
    """What does not depend on the list of images and on the digest of the weights, as JSON."""
    identity = {
        "model": _of_vectors(model),
        "recipe": by_pixels(_of_vectors(recipe)),
        **{name: getattr(settings, name) for name in marked(JobSettings, OF_DATASET)},
    }
    plain: dict[str, Any] = json.loads(json.dumps(identity))
    return plain


def check_same(dataset: Dataset, identity: Mapping[str, Any], model: str) -> None:
    """Raise UserError where there is a dataset of another model, called `model`, or recipe."""
    if not dataset.about:
        return
    before = _completed(dataset)
    changed = [name for name in identity if before.get(name) != identity[name]]
    if not changed:
        return
    was = printable(dataset.about["settings"].get("model") or "")
    if "model" in changed and was and was != model:
        raise UserError(f"{dataset.out} holds vectors of {was}, not of {model}; give another OUT")
    details = printable(
        "; ".join(_change(name, before.get(name), identity[name]) for name in changed)
    )
    raise UserError(f"{dataset.out} holds another job's vectors: {details}; give another OUT")


def check_source(dataset: Dataset, src: str, limit: int | None, carried: Any) -> None:
    """Raise UserError where a dataset is of another source than `src`, or of more of it."""
    about = dataset.about
    if RANGE.sub("{}", about["source"]) != RANGE.sub("{}", src):  # more shards are the same source
        was, now = printable(about["source"]), printable(src)
        raise UserError(f"{dataset.out} holds vectors of {was}, not of {now}; give another OUT")
    before = about["settings"].get("limit")
    if limit is not None and (before is None or limit < before):
        was = "none" if before is None else before
        raise UserError(f"limit was {was}, is {limit}: {dataset.out} only grows; give another OUT")
    for column in carried:
        was, now = about.get("schema", {}).get(column.name), str(column.type)
        if was not in (None, now):
            why = f"the list's column {printable(column.name)} was {printable(was)}, is {now}"
            raise UserError(f"{why}; store it as it was, or give another OUT")


def _completed(dataset: Dataset) -> dict[str, Any]:
    """A dataset's identity; a field that is newer than the dataset has its default."""
    stored = dataset.about["identity"]
    defaults = identity_of(JobSettings(), Recipe(""), ModelSpec(""))
    completed = {**defaults, **stored}
    for name in ("model", "recipe"):
        completed[name] = {**defaults[name], **stored[name]} if name in stored else {}
    for name in _GONE:
        completed["recipe"].pop(name, None)
    return completed


def _of_vectors(chosen: Recipe | ModelSpec) -> dict[str, Any]:
    others = marked(type(chosen), NO_VECTOR)
    return {name: value for name, value in asdict(chosen).items() if name not in others}


def _change(name: str, before: Any, now: Any) -> str:
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        fields = [field for field in {**now, **before} if before.get(field) != now.get(field)]
        return ", ".join(
            f"{name}.{field} was {before.get(field)}, is {now.get(field)}" for field in fields
        )
    if len(str(before)) > 40:  # a digest says nothing
        return f"{name} changed"
    return f"{name} was {before}, is {now}"


# --- versions: kept with a dataset, and compared when its job goes on ----------------------------


def versions() -> dict[str, str]:
    """By name, of Python, the libraries, and the libjpeg-turbo that is built into each decoder."""
    found = {"python": platform.python_version(), "wallclock": VERSION}
    for name in _LIBRARIES:
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    decoder = util.find_spec("simplejpeg._jpeg")
    found["libjpeg-turbo in simplejpeg"] = libjpeg_turbo_version(decoder.origin if decoder else "")
    found["libjpeg-turbo in pillow"] = features.version("libjpeg_turbo") or "unknown"
    return found


def described(dataset: Dataset) -> dict[str, Any]:
    """What a dataset's description says of versions: those of now, and of the parts there are."""
    now, earlier = versions(), [*dataset.about.get("earlier_versions", ())]
    if changes(dataset) and dataset.about["versions"] not in earlier:
        earlier.append(dataset.about["versions"])
    return {"versions": now, "earlier_versions": earlier}


def changes(dataset: Dataset) -> str:
    """What has changed since a dataset's parts were made, in a line; empty: nothing."""
    before, now = dataset.about.get("versions", {}), versions()
    names = [name for name in before if name not in _NO_MATTER and before[name] != now.get(name)]
    if not names or not dataset.committed():
        return ""
    was = ", ".join(f"{name} {before[name]}" for name in names)
    has = ", ".join(f"{name} {now.get(name, 'none')}" for name in names)
    return f"{dataset.out} has vectors of {was}; this run has {has}: vectors may differ slightly"
