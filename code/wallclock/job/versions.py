"""The versions of what makes vectors: kept with a dataset, and compared when its job goes on."""

import platform
from collections.abc import Mapping
from contextlib import suppress
from importlib import metadata, util
from typing import Any

from PIL import features

from wallclock.errors import VERSION
from wallclock.job.dataset import Dataset
from wallclock.machine import libjpeg_turbo_version

_LIBRARIES = (
    *("numpy", "pillow", "simplejpeg", "opencv-python-headless", "torch", "transformers"),
    "pyarrow",
)
#: What changes no vector.
_NO_MATTER = ("python", "pyarrow")


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
    if changes(dataset, now) and dataset.about["versions"] not in earlier:
        earlier.append(dataset.about["versions"])
    return {"versions": now, "earlier_versions": earlier}


def changes(dataset: Dataset, now: Mapping[str, str]) -> str:
    """What has changed since a dataset's parts were made, in a line; empty: nothing."""
    before = dataset.about.get("versions", {})
    names = [name for name in before if name not in _NO_MATTER and before[name] != now.get(name)]
    if not names or not dataset.committed():
        return ""
    was = ", ".join(f"{name} {before[name]}" for name in names)
    has = ", ".join(f"{name} {now.get(name, 'none')}" for name in names)
    return f"{dataset.out} has vectors of {was}; this run has {has}: vectors may differ slightly"
