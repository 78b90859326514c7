"""Corpus name → function that brings it onto the disk."""

from pathlib import Path

from harness.corpora import ProgressHook, folder, synthetic
from harness.spec import CORPUS_SETTINGS, IMAGE_SETS, CorpusSpec, Slice
from wallclock.errors import UserError, check_name


def image_sets(spec: CorpusSpec) -> tuple[str, ...]:
    """The corpus's image sets: both of the paper's, or the one that a folder is compared with."""
    return (spec.image_set,) if spec.kind == "folder" else IMAGE_SETS


def prepare(spec: CorpusSpec, image_set: str, n: int, cache: Path, progress: ProgressHook) -> Slice:
    """Bring the first `n` images of a set onto this disk and name them for a cell.

    Raises:
        UserError: the corpus is not available; the message names the fix.
    """
    check_name(spec.kind, CORPUS_SETTINGS, "corpus")
    if n < 1:
        raise UserError(f"n={n}: a run needs at least one image")
    if spec.kind == "synthetic":
        return synthetic.prepare(spec, image_set, n, cache, progress)
    if spec.kind == "folder":
        return folder.prepare(spec, n, cache, progress)
    # Imported where it is needed: boto3 takes a second.
    from harness.corpora.abo import prepare as abo

    return abo.prepare(spec, image_set, n, cache, progress)


def remarks(spec: CorpusSpec, image_set: str, n: int, cache: Path) -> list[str]:
    """Lines to print about a set's first `n` images, beyond what their manifest says."""
    if spec.kind != "abo":
        return []
    from harness.corpora.abo import prepare as abo

    return abo.remarks(spec, image_set, n, cache)


def credit(spec: CorpusSpec) -> dict[str, str]:
    """Source, licence and attribution of the images; empty if none is required."""
    if spec.kind != "abo":
        return {}
    from harness.corpora.abo import prepare as abo

    return abo.credit(spec)
