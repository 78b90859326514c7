"""The provenance of a run from its tables' `.meta.json` files: machines, libraries, corpora."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from wallclock.paper.labels import CORPORA, SETS

T = TypeVar("T")
Meta = Mapping[str, Any]
#: Licence and attribution of a corpus.
_CREDIT = "{licence}, by {relied_on} of {source}. {attribution}".format_map


def describe(about: Sequence[Meta]) -> dict[str, Any]:
    """Each fact once, of however many tables."""
    return {
        "machines": _once(_machine(meta["machine"]) for meta in about),
        "versions": _versions(about),
        "corpora": _once(_corpus(corpus) for meta in about for corpus in meta["corpora"]),
        "images": _images([corpus for meta in about for corpus in meta["corpora"]]),
        "weights": _once(digest for meta in about for digest in meta["weights"]),
        "commits": _once(commit for meta in about for commit in meta["commits"] if commit),
        "code": _once(meta["code"] for meta in about),
        "runs": [_run(meta) for meta in about],
    }


def _once(items: Iterable[T]) -> list[T]:
    """In order of appearance; items may be unhashable."""
    distinct: list[T] = []
    for item in items:
        if item not in distinct:
            distinct.append(item)
    return distinct


def _machine(machine: Meta) -> list[tuple[str, str]]:
    gpu = "{name}, {memory_gib} GiB, driver {driver}".format_map
    return [
        ("CPU", f"{machine['cpu']}, {machine['cores']} usable cores"),
        ("GPU", "; ".join(map(gpu, machine["gpus"])) or "none"),
        ("memory", f"{machine['memory_gib']} GiB"),
        ("system", f"{machine['system']}, Python {machine['python']}"),
    ]


def _versions(about: Sequence[Meta]) -> list[tuple[str, str]]:
    names = sorted({name for meta in about for name in meta["versions"]}, key=str.lower)
    by_name = {name: [meta["versions"].get(name) for meta in about] for name in names}
    return [(name, " / ".join(filter(None, _once(versions)))) for name, versions in by_name.items()]


def _corpus(corpus: Meta) -> dict[str, str]:
    names = [name for name in corpus if name.startswith(("median_", "max_"))]
    sizes = [f"{name.replace('_', ' ')} {corpus[name]:.4g}" for name in names]
    return {
        "kind": CORPORA[corpus["kind"]],
        "image_set": SETS[corpus["image_set"]],
        "n": f"{corpus['n']:,}",
        "sizes": ", ".join(sizes),
        "digest": corpus["digest"],
        "credit": _CREDIT(corpus["credit"]) if corpus.get("credit") else "",
    }


def _images(corpora: Sequence[Meta]) -> list[str]:
    """A line for each image set of a corpus; experiments use more or fewer of its images."""
    sizes: dict[tuple[str, str], list[int]] = {}
    for corpus in corpora:
        sizes.setdefault((corpus["kind"], corpus["image_set"]), []).append(corpus["n"])
    return [
        f"{'up to ' if len(set(counts)) > 1 else ''}{max(counts):,} {SETS[image_set]}"
        f" ({CORPORA[kind]})"
        for (kind, image_set), counts in sizes.items()
    ]


def _run(meta: Meta) -> dict[str, Any]:
    statuses = Counter(record["status"] for record in meta["records"])
    return {
        "csv": meta["csv"],
        "experiment": meta["experiment"],
        "command": meta["command"],
        "records": ", ".join(f"{count} {status}" for status, count in sorted(statuses.items())),
    }
