"""How fast, and how right: every loader from files to 224 × 224 RGB in host memory.

Method. One loader a process, all on the same cores, files and page cache, batches of one size, in
steady state, interleaved; uint8 or float32 as each system ships it. Nothing is done with a batch. A
system's first decoded images are kept as it delivered them and compared with Pillow's antialiased
resize. Where a system has more than one setup, all are measured and the row shows the fastest. The
gate is that of the recipe `fast`: every image within `max_loss_db` of full decode + INTER_AREA and
no worse than the paper's. It withholds no time here: the distance is an axis of the figure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product

from experiments import _common
from experiments._common import Cell, Options, Plan, Recipe, Record, Records, Row, Tables, cell
from wallclock import provenance
from wallclock.engines import third_party
from wallclock.errors import check_name
from wallclock.spec import Slice
from wallclock.summary import median

RANK = 130
CSV = "frontier.csv"
COLUMNS = _common.columns(
    "system variant library settings image_set subset corpus weights device device_kind cores",
    "batch_size n_images n_unique repeats wall_s wall_s_min wall_s_max",
    "img_per_s img_per_s_min img_per_s_max speedup_vs_pil speedup_vs_paper other_variants",
    "startup_s",
    _common.FIDELITY_COLUMNS,
    "median_kb median_megapixels progressive_share origin status reason",
)
TABLES = {CSV: COLUMNS}

#: Cells shorter than this are a smoke test's: no network in each.
_NETWORK_FROM_S = 1.0


def cells(plan: Plan, options: Options) -> list[Cell]:
    """Every system in every variant on every set of images, repeated."""
    counts = options["images"]
    if plan.settings.corpus.kind == "folder":
        # Its first images need not be like the others: names are sorted.
        counts = dict.fromkeys(counts, options["folder_images"])
    corpora = list(plan.slices(counts).values())
    if options["folder"]:
        corpora.append(plan.folder_slice(options["folder"], options["folder_images"]))
    images = [(corpus, subset) for corpus in corpora for subset in _subsets(plan, corpus, options)]
    fidelity = dict(options["fidelity"])
    if plan.settings.loader_seconds < _NETWORK_FROM_S:
        fidelity["vectors"] = 0
    shared = {**plan.params, "seconds": plan.settings.loader_seconds, "fidelity": fidelity}
    new = partial(cell, plan, "frontier", "loading")
    grid = []
    for repeat, (corpus, subset) in product(plan.repeats("frontier"), images):
        for name, variant in _systems(options):
            parts = (name, variant, corpus.kind, corpus.image_set, subset)
            label = "-".join(part for part in parts if part)
            size = options["batch_size"][corpus.image_set]
            recipe = replace(_recipe(options, name, variant), batch_size=size)
            params = {**shared, "system": name, "variant": variant, "subset": subset}
            params["installed"] = third_party.installed(name)
            grid.append(new(label, recipe, corpus, repeat=repeat, params=params))
    return grid


def _systems(options: Options) -> list[tuple[str, str]]:
    """Each system with each of its variants."""
    third_parties = {name: loader.variants for name, loader in third_party.LOADERS.items()}
    systems: dict[str, Sequence[str]] = {**third_parties, **options["own"]}
    names = options["systems"] or list(systems)
    for name in names:
        check_name(name, systems, "system")
    n = None if options["all_variants"] else 1
    return [(name, variant) for name in names for variant in systems[name][:n]]


def _subsets(plan: Plan, corpus: Slice, options: Options) -> list[str]:
    """All, and for a folder those processes of JPEG that it holds both of."""
    if corpus.kind != "folder":
        return ["all"]
    present = {item.process for item in plan.manifest(corpus).valid if item.plain_jpeg}
    both = present if len(present) > 1 else set()
    return [name for name in options["subsets"] if name == "all" or name in both]


def _recipe(options: Options, name: str, variant: str) -> Recipe:
    """Ours and the paper's as configured; a third party's is its name."""
    ours: Recipe = options["ours"]
    if name == "ours":
        return replace(ours, name=name, device="cpu")
    if name in ("paper", "baseline"):
        workers = provenance.machine()["cores"] if variant == "cores" else int(variant)
        paper: Recipe = options[name]
        return replace(paper, name=name, workers=workers, device="cpu", dtype="fp32")
    return Recipe(name, engine=name, device=ours.device)


def tables(records: Records) -> Tables:
    """One row per system, image set and subset."""
    grouped: dict[tuple[str, ...], dict[str, list[Record]]] = {}
    for record in records:
        images, params = record.cell.images, record.cell.params
        key = (params["system"], images.kind, images.image_set, params["subset"])
        grouped.setdefault(key, {}).setdefault(params["variant"], []).append(record)
    rows = {key: _row(variants) for key, variants in grouped.items()}
    for (_, *same), row in rows.items():
        for system in ("pil", "paper"):
            rate, other = row["img_per_s"], rows.get((system, *same), {}).get("img_per_s")
            if isinstance(rate, float) and isinstance(other, float):
                row[f"speedup_vs_{system}"] = rate / other
    return {CSV: list(rows.values())}


def _row(variants: Mapping[str, list[Record]]) -> Row:
    rates = {name: _median_rate(repeats) for name, repeats in variants.items()}
    fastest = max(rates, key=rates.__getitem__)
    repeats = variants[fastest]
    row = _common.new_row(repeats, COLUMNS) | {"gate": "not checked"}
    row |= {name: repeats[0].cell.params[name] for name in ("system", "variant", "subset")}
    row = _common.complete(row, repeats, _measured)
    if row["status"] == "ok":
        slower = (f"{name}: {rates[name]:.4g} img/s" for name in variants if name != fastest)
        row["other_variants"] = "; ".join(slower)
    return row


def _measured(repeats: Records) -> Row:
    shown = _common.median_repeat(repeats, _common.rate)
    names = ("library", "settings", "cores", "n_unique", "startup_s", "progressive_share")
    row = _common.value_columns(shown, *names) | _common.wall_columns(repeats)
    row |= {"n_images": _common.count(shown), "wall_s": _common.wall_s(shown)}
    row |= _common.spread_columns(repeats)
    for record in repeats:
        if "fidelity" in record.values:
            limits = record.cell.params["fidelity"]
            return row | _common.judge_fidelity(record.values["fidelity"], limits)
    return row


def _median_rate(repeats: Records) -> float:
    """Images a second of the median repeat; 0 where none measured."""
    rates = [_common.rate(record) for record in _common.measured(repeats)]
    return median(rates) if rates else 0.0
