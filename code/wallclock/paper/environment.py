"""On what a run was made, as its tables' `.meta.json` files say: machines, libraries, corpora, commits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from wallclock.paper.labels import CORPORA, SETS

Meta = Mapping[str, Any]


def describe(about: Sequence[Meta]) -> dict[str, Any]:
    """Each fact once, whichever tables say it."""
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


def _once(items: Any) -> list[Any]:
    """In order of appearance; items may be lists."""
    found: list[Any] = []
    for item in items:
        if item not in found:
            found.append(item)
    return found


def _machine(machine: Meta) -> list[tuple[str, str]]:
    gpus = [
        f"{gpu['name']}, {gpu['memory_gib']} GiB, driver {gpu['driver']}" for gpu in machine["gpus"]
    ]
    return [
        ("CPU", f"{machine['cpu']}, {machine['cores']} usable cores"),
        ("GPU", "; ".join(gpus) or "none"),
        ("memory", f"{machine['memory_gib']} GiB"),
        ("system", f"{machine['system']}, Python {machine['python']}"),
    ]


def _versions(about: Sequence[Meta]) -> list[tuple[str, str]]:
    names = sorted({name for meta in about for name in meta["versions"]}, key=str.lower)
    return [
        (
            name,
            " / ".join(_once(meta["versions"][name] for meta in about if name in meta["versions"])),
        )
        for name in names
    ]


def _corpus(corpus: Meta) -> dict[str, str]:
    sizes = [
        f"{name.replace('_', ' ')} {value:.4g}"
        for name, value in corpus.items()
        if name.startswith(("median_", "max_"))
    ]
    return {
        "kind": CORPORA.get(corpus["kind"], corpus["kind"]),
        "image_set": SETS.get(corpus["image_set"], corpus["image_set"]),
        "n": f"{corpus['n']:,}",
        "sizes": ", ".join(sizes),
        "digest": corpus["digest"],
        "credit": _credit(corpus.get("credit", {})),
    }


def _images(corpora: Sequence[Meta]) -> list[str]:
    """A line for each image set of a corpus: experiments take more or fewer of its first images."""
    most: dict[tuple[str, str], list[int]] = {}
    for corpus in corpora:
        most.setdefault((corpus["kind"], corpus["image_set"]), []).append(corpus["n"])
    return [
        f"{'up to ' if len(set(counts)) > 1 else ''}{max(counts):,} {SETS.get(image_set, image_set)}"
        f" ({CORPORA.get(kind, kind)})"
        for (kind, image_set), counts in most.items()
    ]


def _credit(credit: Meta) -> str:
    """Licence and attribution, where a corpus has them to state."""
    return (
        f"{credit['licence']}, by {credit['relied_on']} of {credit['source']}. {credit['attribution']}"
        if credit
        else ""
    )


def _run(meta: Meta) -> dict[str, Any]:
    statuses: dict[str, int] = {}
    for record in meta["records"]:
        statuses[record["status"]] = statuses.get(record["status"], 0) + 1
    return {
        "csv": meta["csv"],
        "experiment": meta["experiment"],
        "command": meta["command"],
        "records": ", ".join(f"{count} {status}" for status, count in sorted(statuses.items())),
    }
