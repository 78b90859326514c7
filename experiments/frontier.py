"""How fast, and how right: every loader from files to 224 × 224 RGB in host memory.

Method. One loader a process, all on the same cores, files and page cache, batches of one size, in
steady state, interleaved; uint8 or float32 as each system ships it. Nothing is done with a batch. A
system's first decoded images are kept as it delivered them and compared with Pillow's antialiased
resize. Where a system has more than one setup, all are measured and the row shows the fastest. The
gate is that of the recipe `fast`: every image within `max_loss_db` of full decode + INTER_AREA and
no worse than the paper's. It withholds no time here: the distance is an axis of the figure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from experiments import _rows
from experiments._cells import cell
from experiments._rows import Row
from wallclock import provenance
from wallclock.engines import third_party
from wallclock.errors import check_name
from wallclock.records import Record
from wallclock.run.plan import Plan
from wallclock.spec import Cell, Recipe, Slice
from wallclock.summary import median

RANK = 130
CSV = "frontier.csv"
COLUMNS = _rows.columns(
    "system variant library settings image_set subset corpus weights device device_kind cores",
    "batch_size n_images n_unique repeats wall_s wall_s_min wall_s_max",
    "img_per_s img_per_s_min img_per_s_max speedup_vs_pil speedup_vs_paper other_variants",
    "startup_s",
    _rows.FIDELITY_COLUMNS,
    "median_kb median_megapixels progressive_share origin status reason",
)
TABLES = {CSV: COLUMNS}

#: Cells shorter than this are a smoke test's: no network in each.
_NETWORK_FROM_S = 1.0


class _Key(NamedTuple):
    """What a row is of."""

    corpus: str
    image_set: str
    subset: str
    system: str


def cells(plan: Plan, options: Mapping[str, Any]) -> list[Cell]:
    """Every system in every variant on every set of images, repeated."""
    counts = options["images"]
    if plan.settings.corpus.kind == "folder":
        # Its first images need not be like the others: names are sorted.
        counts = dict.fromkeys(counts, options["folder_images"])
    corpora = list(plan.slices(counts).values())
    if options["folder"]:
        corpora.append(plan.folder_slice(options["folder"], options["folder_images"]))
    subsets = [(corpus, subset) for corpus in corpora for subset in _subsets(plan, corpus, options)]
    return [
        _cell(plan, options, system, (corpus, subset), repeat)
        for repeat in plan.repeats("frontier")
        for corpus, subset in subsets
        for system in _systems(options)
    ]


def _systems(options: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Each system with each of its variants."""
    third_parties = {name: loader.variants for name, loader in third_party.LOADERS.items()}
    systems: dict[str, Sequence[str]] = {**third_parties, **options["own"]}
    names = options["systems"] or list(systems)
    for name in names:
        check_name(name, systems, "system")
    n = None if options["all_variants"] else 1
    return [(name, variant) for name in names for variant in systems[name][:n]]


def _subsets(plan: Plan, corpus: Slice, options: Mapping[str, Any]) -> list[str]:
    """All, and for a folder those processes of JPEG that it holds both of."""
    if corpus.kind != "folder":
        return ["all"]
    present = {item.process for item in plan.manifest(corpus).valid if item.plain_jpeg}
    both = present if len(present) > 1 else set()
    return [name for name in options["subsets"] if name == "all" or name in both]


def _cell(
    plan: Plan,
    options: Mapping[str, Any],
    system: tuple[str, str],
    images: tuple[Slice, str],
    repeat: int,
) -> Cell:
    (name, variant), (corpus, subset) = system, images
    size = options["batch_size"][corpus.image_set]
    recipe = replace(_recipe(options, name, variant), batch_size=size)
    parts = (name, variant, corpus.kind, corpus.image_set, subset)
    fidelity = dict(options["fidelity"])
    if plan.settings.loader_seconds < _NETWORK_FROM_S:
        fidelity["vectors"] = 0
    params = {
        **plan.params,
        "system": name,
        "variant": variant,
        "subset": subset,
        "installed": third_party.installed(name),
        "seconds": plan.settings.loader_seconds,
        "fidelity": fidelity,
    }
    label = "-".join(part for part in parts if part)
    return cell(plan, "frontier", "loading", label, recipe, corpus, repeat=repeat, params=params)


def _recipe(options: Mapping[str, Any], name: str, variant: str) -> Recipe:
    """Ours and the paper's as configured; a third party's is its name."""
    ours: Recipe = options["ours"]
    if name == "ours":
        return replace(ours, name=name, device="cpu")
    if name in ("paper", "baseline"):
        workers = provenance.machine()["cores"] if variant == "cores" else int(variant)
        paper: Recipe = options[name]
        return replace(paper, name=name, workers=workers, device="cpu", dtype="fp32")
    return Recipe(name, engine=name, device=ours.device)


def tables(records: Sequence[Record]) -> dict[str, list[Row]]:
    """One row per system, image set and subset."""
    grouped: dict[_Key, dict[str, list[Record]]] = {}
    for record in records:
        images, params = record.cell.images, record.cell.params
        key = _Key(images.kind, images.image_set, params["subset"], params["system"])
        grouped.setdefault(key, {}).setdefault(params["variant"], []).append(record)
    rows = {key: _row(key, variants) for key, variants in grouped.items()}
    for key, row in rows.items():
        for system in ("pil", "paper"):
            other = rows.get(key._replace(system=system), {})
            row[f"speedup_vs_{system}"] = _ratio(row["img_per_s"], other.get("img_per_s"))
    return {CSV: list(rows.values())}


def _row(key: _Key, variants: Mapping[str, list[Record]]) -> Row:
    fastest = max(variants, key=lambda name: _median_rate(variants[name]))
    repeats = variants[fastest]
    row = _rows.new_row(repeats, COLUMNS)
    row |= {"system": key.system, "variant": fastest, "subset": key.subset, "gate": "not checked"}
    if row["status"] != "ok":
        return row
    rates = {name: _median_rate(slower) for name, slower in variants.items() if name != fastest}
    others = "; ".join(f"{name}: {rate:.4g} img/s" for name, rate in rates.items())
    return row | _measured(repeats) | _judged(repeats) | {"other_variants": others}


def _measured(repeats: Sequence[Record]) -> Row:
    shown = _rows.median_repeat(repeats, _rows.loading_rate)
    rates = [_rows.loading_rate(record) for record in _rows.measured(repeats)]
    names = ("library", "settings", "cores", "n_unique", "startup_s", "progressive_share")
    return {
        **{name: shown.values[name] for name in names},
        **_rows.size_columns(shown.values),
        **_rows.wall_columns(repeats),
        "n_images": shown.values["n_loaded"],
        "wall_s": _rows.wall_s(shown),
        "img_per_s": median(rates),
        "img_per_s_min": min(rates),
        "img_per_s_max": max(rates),
    }


def _judged(repeats: Sequence[Record]) -> Row:
    for record in repeats:
        if "fidelity" in record.values:
            return _rows.judge_fidelity(record.values["fidelity"], record.cell.params["fidelity"])
    return {}


def _median_rate(repeats: Sequence[Record]) -> float:
    """Images a second of the median repeat; 0 where none measured."""
    rates = [_rows.loading_rate(record) for record in _rows.measured(repeats)]
    return median(rates) if rates else 0.0


def _ratio(rate: object, other: object) -> float | None:
    return rate / other if isinstance(rate, float) and isinstance(other, float) else None
