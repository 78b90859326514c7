"""Corpus name → function that brings it onto the disk."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from wallclock.corpus import folder, synthetic
from wallclock.errors import UserError, check_name
from wallclock.spec import IMAGE_SETS, CorpusSpec, Slice

Progress = Callable[[int, int, str], None]


def _synthetic(spec: CorpusSpec, image_set: str, n: int, cache: Path, progress: Progress) -> Slice:
    return synthetic.prepare(spec, image_set, n, cache, progress)


def _folder(spec: CorpusSpec, image_set: str, n: int, cache: Path, progress: Progress) -> Slice:
    return folder.prepare(spec, n, cache, progress)


def _abo(spec: CorpusSpec, image_set: str, n: int, cache: Path, progress: Progress) -> Slice:
    # boto3 takes a while to import: only where it is needed.
    from wallclock.corpus.abo import prepare as abo

    return abo.prepare(spec, image_set, n, cache, progress)


_KINDS: dict[str, Callable[[CorpusSpec, str, int, Path, Progress], Slice]] = {
    "synthetic": _synthetic,
    "folder": _folder,
    "abo": _abo,
}


def image_sets(spec: CorpusSpec) -> tuple[str, ...]:
    """The image sets that a corpus holds: both of the paper's, or the one that a folder is taken for."""
    return (spec.image_set,) if spec.kind == "folder" else IMAGE_SETS


def prepare(spec: CorpusSpec, image_set: str, n: int, cache: Path, progress: Progress) -> Slice:
    """Bring the first `n` images of a set onto this disk and name them for a cell.

    Raises:
        UserError: the corpus cannot be had; the message names the fix.
    """
    check_name(spec.kind, _KINDS, "corpus")
    if n < 1:
        raise UserError(f"n={n}: a run needs at least one image")
    return _KINDS[spec.kind](spec, image_set, n, cache, progress)


def remarks(spec: CorpusSpec, image_set: str, n: int, cache: Path) -> list[str]:
    """Lines that a person should see of a set's first `n` images, beyond what their manifest says."""
    if spec.kind != "abo":
        return []
    from wallclock.corpus.abo import prepare as abo

    return abo.remarks(spec, image_set, n, cache)


def credit(spec: CorpusSpec, cache: Path) -> dict[str, Any]:
    """Licence and attribution of a prepared corpus, as its source states them; empty where there is none to state."""
    if spec.kind != "abo":
        return {}
    from wallclock.corpus.abo import prepare as abo

    return abo.credit(spec, cache)
