"""How fast, and how right: every loader from files to 224 × 224 RGB in host memory.

Method. One loader a process, all on the same cores, files and page cache, batches of one size, in
steady state, interleaved; uint8 or float32 as each system ships it. Nothing is done with a batch. A
system's first pictures are kept as it made them and compared with Pillow's antialiased resize.
Where a system can be set up in more than one way, all are measured and the row shows the fastest. The
gate is that of the recipe `fast`: every picture within `max_loss_db` of full decode + INTER_AREA and no
worse than the paper's. It withholds no time here, because the distance is an axis of the figure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from experiments import Row, _rows
from wallclock import provenance
from wallclock.engines import third_party
from wallclock.records import Record
from wallclock.run.plan import Plan
from wallclock.spec import Cell, Recipe, Slice
from wallclock.summary import median

CSV = "frontier.csv"
COLUMNS = (
    *(
        "system",
        "variant",
        "library",
        "settings",
        "image_set",
        "subset",
        "corpus",
        "weights",
        "device",
    ),
    *(
        "device_kind",
        "cores",
        "batch_size",
        "n_images",
        "n_unique",
        "repeats",
        "wall_s",
        "wall_s_min",
        "wall_s_max",
    ),
    *(
        "img_per_s",
        "img_per_s_min",
        "img_per_s_max",
        "speedup_vs_pil",
        "speedup_vs_paper",
        "other_variants",
        "startup_s",
    ),
    *_rows.FIDELITY_COLUMNS,
    *("median_kb", "median_megapixels", "progressive_share", "origin", "status", "reason"),
)
TABLES = {CSV: COLUMNS}

#: A smoke test, whose cells are shorter than this, has no time for a network in each.
_NETWORK_FROM_S = 1.0


def cells(plan: Plan, options: Mapping[str, Any]) -> list[Cell]:
    """Every system in every variant on every set of images, repeated."""
    wanted = options["images"]
    if plan.settings.corpus.kind == "folder":
        # Its first images need not be like the others: names are sorted.
        wanted = dict.fromkeys(wanted, options["folder_images"])
    corpora = list(plan.slices(wanted).values())
    if options["folder"]:
        corpora.append(plan.folder_slice(options["folder"], options["folder_images"]))
    chosen = [(corpus, subset) for corpus in corpora for subset in _subsets(plan, corpus, options)]
    return [
        _cell(plan, options, system, variant, corpus, subset, repeat)
        for repeat in plan.repeats("frontier")
        for corpus, subset in chosen
        for system in options["systems"]
        for variant in system.get("variants", [""])
    ]


def _subsets(plan: Plan, corpus: Slice, options: Mapping[str, Any]) -> list[str]:
    """All, and for a folder those processes of JPEG that it holds both of."""
    if corpus.kind != "folder":
        return ["all"]
    held = {item.process for item in plan.manifest(corpus).valid if item.plain_jpeg}
    return [
        name for name in options["subsets"] if name == "all" or (name in held and len(held) > 1)
    ]


def _cell(
    plan: Plan,
    options: Mapping[str, Any],
    system: Mapping[str, Any],
    variant: str,
    corpus: Slice,
    subset: str,
    repeat: int,
) -> Cell:
    name = system["name"]
    recipe = replace(
        _recipe(options, name, variant), batch_size=options["batch_size"][corpus.image_set]
    )
    label = "-".join(
        part for part in (name, variant, corpus.kind, corpus.image_set, subset) if part
    )
    params = {
        **plan.params,
        "system": name,
        "variant": variant,
        "subset": subset,
        "installed": third_party.installed(name),
        "seconds": plan.settings.loader_seconds,
        "fidelity": {
            **options["fidelity"],
            **({} if plan.settings.loader_seconds >= _NETWORK_FROM_S else {"vectors": 0}),
        },
    }
    return Cell("frontier", "loading", label, repeat, recipe, corpus, plan.settings.model, params)


def _recipe(options: Mapping[str, Any], name: str, variant: str) -> Recipe:
    """Ours and the paper's as configured; a peer's is its name."""
    ours: Recipe = options["ours"]
    if name == "ours":
        return replace(ours, name=name, device="cpu")
    if name in ("paper", "baseline"):
        workers = provenance.machine()["cores"] if variant == "cores" else int(variant)
        paper: Recipe = options[name]
        return replace(paper, name=name, workers=workers, device="cpu", dtype="fp32")
    return Recipe(name, engine=name, device=ours.device)


def tables(records: Sequence[Record]) -> dict[str, list[Row]]:
    """One row a system, image set and subset."""
    found: dict[tuple[str, str, str, str], dict[str, list[Record]]] = {}
    for record in records:
        cell = record.cell
        assert cell.corpus is not None
        key = (
            cell.corpus.kind,
            cell.corpus.image_set,
            cell.params["subset"],
            cell.params["system"],
        )
        found.setdefault(key, {}).setdefault(cell.params["variant"], []).append(record)
    made = {key: _row(key, variants) for key, variants in found.items()}
    for key, row in made.items():
        for column, other in (("speedup_vs_pil", "pil"), ("speedup_vs_paper", "paper")):
            row[column] = _ratio(row["img_per_s"], made.get((*key[:3], other), {}).get("img_per_s"))
    return {CSV: list(made.values())}


def _row(key: tuple[str, str, str, str], variants: Mapping[str, list[Record]]) -> Row:
    chosen = max(variants, key=lambda name: _median_rate(variants[name]))
    repeats = variants[chosen]
    first = repeats[0]
    recipe = first.cell.recipe
    status, reason = _rows.status_of(repeats)
    row = _rows.blank(COLUMNS) | {
        name: value for name, value in _rows.where(first).items() if name in COLUMNS
    }
    row |= {
        "system": key[3],
        "variant": chosen,
        "image_set": key[1],
        "subset": key[2],
        "batch_size": recipe.batch_size,
    }
    row |= {"origin": "measured", "status": status, "reason": reason, "gate": "not checked"}
    if status != "ok":
        return row
    others = [
        f"{name}: {_median_rate(some):.4g} img/s"
        for name, some in variants.items()
        if name != chosen
    ]
    return row | _measured(repeats) | _judged(repeats) | {"other_variants": "; ".join(others)}


def _measured(repeats: Sequence[Record]) -> Row:
    chosen = _median_repeat(repeats)
    walls = [_rows.wall_s(record) for record in repeats if record.ok]
    rates = [_rows.loading_rate(record) for record in repeats if record.ok]
    values = chosen.values
    return {
        **{
            name: values[name] for name in ("library", "settings", "cores", "n_unique", "startup_s")
        },
        **{name: values[name] for name in ("median_kb", "median_megapixels", "progressive_share")},
        **{"n_images": values["n_loaded"], "repeats": len(walls), "wall_s": _rows.wall_s(chosen)},
        **{"wall_s_min": min(walls), "wall_s_max": max(walls)},
        **{"img_per_s": median(rates), "img_per_s_min": min(rates), "img_per_s_max": max(rates)},
    }


def _judged(repeats: Sequence[Record]) -> Row:
    for record in repeats:
        if "fidelity" in record.values:
            return _rows.judge_fidelity(record.values["fidelity"], record.cell.params["fidelity"])
    return {"gate": "not checked"}


def _median_repeat(repeats: Sequence[Record]) -> Record:
    ordered = sorted((record for record in repeats if record.ok), key=_rows.loading_rate)
    return ordered[(len(ordered) - 1) // 2]


def _median_rate(repeats: Sequence[Record]) -> float:
    """Images a second of the median repeat; 0 where none measured."""
    rates = [_rows.loading_rate(record) for record in repeats if record.ok]
    return median(rates) if rates else 0.0


def _ratio(rate: object, other: object) -> float | None:
    return rate / other if isinstance(rate, float) and isinstance(other, float) else None
