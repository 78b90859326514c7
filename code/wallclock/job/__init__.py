"""The job itself: a folder, a list or a bucket of images → vectors on the disk.

from wallclock.job import embed

embed("/path/to/images", "/path/to/vectors", model="facebook/dinov2-small")
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from wallclock.errors import import_extra

if TYPE_CHECKING:
    from rich.console import Console

    from wallclock.job.settings import JobSettings as JobSettings
    from wallclock.job.start import Outcome as Outcome

#: Name → its module, imported when the name is first used.
_HOMES = {"JobSettings": "wallclock.job.settings", "Outcome": "wallclock.job.start"}
__all__ = ["EmbedOptions", "JobSettings", "Outcome", "embed"]


class EmbedOptions(TypedDict, total=False):
    """The fields of `JobSettings`, for type checkers and editors."""

    model: str
    weights: str
    preprocess: str
    pool: str
    normalize: bool
    recipe: str
    batch: int
    device: str
    runtime: str
    dtype: str
    workers: int
    processes: int
    shard: int
    deduplicate: bool
    max_failures: int | None
    user_agent: str
    give_up_s: float
    prune: bool
    limit: int | None
    service_ms: float
    cluster: str


def embed(
    src: str | Path,
    out: str | Path,
    *,
    console: "Console | None" = None,
    **settings: Unpack[EmbedOptions],
) -> "Outcome":
    """Embed the images of a source into Parquet files in a folder or a bucket.

    Call it again after whatever stopped it, or when the source has other images: finished parts
    are kept, and what is new or has changed is embedded.

    Args:
        src: a folder, a list (docs/embed.md has its formats), s3://bucket/prefix, tars or tables of
            images, or the URL of one.
        out: a folder or s3://bucket/prefix: new, or from an earlier run of the same job.
        console: where progress goes; by default nowhere.
        settings: the fields of `JobSettings`.

    Returns:
        An `Outcome`: counts of vectors and failures, images per second, and a summary as text.

    Raises:
        UserError: the request cannot be met, or no image gave a vector; one line that says why and
            what to do.
    """
    start = load("wallclock.job.start", "wallclock.embed", str(src))
    outcome: Outcome = start.embed(src, out, console=console, **settings)
    return outcome


def load(module: str, what: str, src: str = "") -> Any:
    """Import a module of a job. Raises UserError: one line with all extras that this SRC needs."""
    extras = "embed,s3" if "://" in src else "embed"
    for library in ("pyarrow", *(["pycurl"] if "://" in src else [])):
        import_extra(library, what, extras)
    return import_extra(module, what, extras)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_extra(_HOMES[name], f"wallclock.job.{name}", "embed"), name)
