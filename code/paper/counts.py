"""What `--n` comes to: the experiments that take fewer images than it allows, in one line."""

from collections.abc import Mapping
from typing import Any

from experiments import contents
from harness.corpora import prepare
from harness.spec import Settings

#: Of a table whose times are scaled to the paper's 100,000 images: `--n` is about its passes.
_SCALED = "seconds_per_100k"
#: Options of an experiment by its name.
_Options = Mapping[str, Mapping[str, Any]]


def note(settings: Settings, papers: _Options, *, is_quick: bool, is_long: bool) -> str:
    """Which experiments take fewer images than `--n`, how many, and what to type for more.

    Empty without `--n`, and where it is reached everywhere.

    Args:
        settings: of the run.
        papers: the experiments' options with the paper's numbers of images.
        is_quick: whether the profile is `quick`.
        is_long: whether the profile is the one of the paper's numbers.
    """
    n = settings.n
    sets = prepare.image_sets(settings.corpus)
    fewer, reached = {}, []
    for name, options in settings.experiments.items():
        image_set = _first_set(name, options, sets)
        if n is None or not image_set:
            continue
        limits = (options["images"][image_set], settings.max_images.get(image_set))
        count = min(limit for limit in limits if limit is not None)
        if count < n:
            fewer[name] = (image_set, count)
            if papers[name]["images"][image_set] >= n:
                reached.append(name)
    if n is None or not fewer:
        return ""
    listed = ", ".join(f"{name} {count:,}" for name, (_, count) in fewer.items())
    first, (image_set, _) = next(iter(fewer.items()))
    fixes = [f"experiment.{first}.images.{image_set}={n} for any other number"]
    if is_quick:
        fixes = ["leave out --quick for more"]
    elif not is_long:
        which = f" ({', '.join(reached)}: {n:,})" if reached else ""
        fixes.insert(0, f"profile=long for the paper's numbers{which}")
    return f"fewer images than --n {n} allows: {listed}; type {', or '.join(fixes)}"


def _first_set(name: str, options: Mapping[str, Any], sets: tuple[str, ...]) -> str:
    """The image set that an experiment's passes are over; empty if it has none."""
    columns = {column for table in contents.load(name).TABLES.values() for column in table}
    images = options["images"] if _SCALED in columns else {}
    return next((image_set for image_set in images if image_set in sets), "")
