"""How fast, and how right: every loader from files to 224 × 224 RGB, ready for the network.

Method. One loader a process, all on the same cores, files and page cache, batches of one size, in
steady state, interleaved. The finish line of device=cpu is a batch in host memory, uint8 or float32
as each system ships it; that of device=cuda (`finish_line`) is the normalized batch on the device,
where each batch is waited for: from pinned memory, or left there by a system that decodes there. A
system's first decoded images are kept as it delivered them and compared with Pillow's antialiased
resize. Round one measures every variant of a system under every setup (workers a core, glibc's
allocator) that its users can choose, once and briefly; `other_variants` quotes it. Round two
measures the fastest whose pixels pass the gate, in full; no pass that chose it enters the row. A
folder's subsets take the choice of the whole folder. The gate is that of the recipe `fast`: every
image within `max_loss_db` of full decode + INTER_AREA and no worse than the paper's. It withholds
no time here: the distance is an axis of the figure.

Our loader is measured a second time as a job with DINOv2 runs it: to the shortest side, bicubic,
and cropped (`preprocess`). Those pictures are compared with Pillow's of the same geometry, and no
loader that squashes is its rival. Images are taken as they are stored: nothing is rotated.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product

from experiments import _common
from experiments._common import Cell, Options, Plan, Recipe, Record, Records, Row, Tables, cell
from experiments._sentences import MeasuredRows, is_comparable, passed, rate, ratio
from experiments._words import Labels
from harness import provenance
from harness.engines import third_party
from harness.spec import Slice
from wallclock.errors import check_name

RANK = 130
SENTENCE_RANK = 2
QUICK = True
#: Ours beside Pillow; all systems take minutes.
QUICK_SETTINGS = {"systems": "[ours,pil]"}
CSV = "frontier.csv"
COLUMNS = _common.columns(
    "system variant library settings preprocess image_set subset corpus weights",
    "device device_kind cores batch_size n_images n_unique repeats wall_s wall_s_min wall_s_max",
    "img_per_s img_per_s_min img_per_s_max speedup_vs_next speedup_vs_pil speedup_vs_paper",
    "other_variants finish_line startup_s other_cores",
    _common.FIDELITY_COLUMNS,
    "median_kb median_megapixels progressive_share origin status reason",
)
TABLES = {CSV: COLUMNS}

#: Values of a record that are columns as they are.
_VALUES = (
    "library",
    "settings",
    "cores",
    "n_unique",
    "startup_s",
    "other_cores",
    "progressive_share",
)
#: This suite's own systems, and the numbers of workers a core that each is measured with.
_OUR_SYSTEMS: Mapping[str, Sequence[int]] = {
    "baseline": (1, 4),
    "paper": (1, 4),
    "ours": (1,),
    "ours-crop": (1,),
}
#: What the systems are called.
LABELS = Labels(
    {
        "ours": "wallclock (threads)",
        "ours-crop": "wallclock, DINOv2's crop",
        "paper": "the paper's recipe",
        "baseline": "the paper's baseline",
        **{name: loader.label for name, loader in third_party.LOADERS.items()},
    }
)
#: Of round one: a batch of every worker so many times, at least.
_SEARCH_BURSTS = 3
#: Cells shorter than this are a smoke test's: no network in each.
_NETWORK_FROM_S = 1.0


def cells(plan: Plan, options: Options) -> list[Cell]:
    """Round one; or all of it, where each system has one variant."""
    grid = _grid(plan, options)
    if not options["all_variants"]:
        return _repeated(plan, grid)
    seconds = min(options["search_seconds"], plan.settings.loader_seconds)
    brief = {"search": True, "seconds": seconds, "bursts": _SEARCH_BURSTS}
    return [
        replace(full, label=f"search-{full.label}", params={**full.params, **brief})
        for full in grid
        if full.params["subset"] == "all"
    ]


def second_round(plan: Plan, options: Options, records: Records) -> list[Cell]:
    """The best of each system in round one that ran, in full; of subsets the same."""
    chosen = set()
    for key, rows in _by_row(records, search=True).items():
        best = _best(rows)
        if rows[best]["status"] == "ok":
            chosen.add((*key[:-1], best))
    grid = _grid(plan, options) if chosen else []
    return _repeated(plan, [full for full in grid if (*_key(full)[:-1], _setup(full)) in chosen])


def _repeated(plan: Plan, grid: Sequence[Cell]) -> list[Cell]:
    return [
        replace(planned, repeat=repeat) for repeat in plan.repeats("frontier") for planned in grid
    ]


def _grid(plan: Plan, options: Options) -> list[Cell]:
    """Every system in every variant and setup on every set of images, in full."""
    counts = options["images"]
    if plan.settings.corpus.kind == "folder":
        # Its first images need not be like the others: names are sorted.
        counts = dict.fromkeys(counts, options["folder_images"])
    corpora = list(plan.slices(counts).values())
    if options["folder"]:
        n = options["folder_images"]
        corpora.append(plan.folder_slice(options["folder"], n, sample=True))
    images = [(corpus, subset) for corpus in corpora for subset in _subsets(plan, corpus, options)]
    fidelity = dict(options["fidelity"])
    if plan.settings.loader_seconds < _NETWORK_FROM_S:
        fidelity["vectors"] = 0
    shared = {**plan.params, "seconds": plan.settings.loader_seconds, "fidelity": fidelity}
    if options["ours"].device == "cuda":
        shared["finish"] = "device"
    new = partial(cell, plan, "frontier", "loading")
    grid = []
    for corpus, subset in images:
        for name, variant, setup in _systems(options):
            words = _setup_words(variant, setup)
            parts = (name, words, corpus.kind, corpus.image_set, subset)
            label = "-".join(part for part in parts if part)
            size = options["batch_size"][corpus.image_set]
            workers = int(setup["workers_per_core"]) * provenance.machine()["cores"]
            recipe = recipe_of(plan, options, name, workers)
            params = {**shared, "system": name, "variant": variant, "setup": words}
            params |= {"allocator": setup["allocator"], "subset": subset}
            params["installed"] = third_party.installed(name)
            grid.append(new(label, replace(recipe, batch_size=size), corpus, params=params))
    return grid


def _systems(options: Options) -> list[tuple[str, str, Options]]:
    """Each system with each of its variants, under each setup that it has."""
    loaders = third_party.LOADERS
    names = options["systems"] or [*loaders, *_OUR_SYSTEMS]
    every = options["all_variants"]
    systems = []
    for name in names:
        check_name(name, [*loaders, *_OUR_SYSTEMS], "system")
        variants = loaders[name].variants if name in loaders else ("",)
        per_core = loaders[name].workers_per_core if name in loaders else _OUR_SYSTEMS[name]
        setups = [s for s in options["setups"] if s["workers_per_core"] in per_core]
        chosen = product(variants, setups) if every else [(variants[0], setups[0])]
        systems += [(name, variant, setup) for variant, setup in chosen]
    return systems


def _setup_words(variant: str, setup: Options) -> str:
    words = [variant] if variant else []
    if setup["workers_per_core"] > 1:
        words.append(f"{setup['workers_per_core']} workers a core")
    if setup["allocator"] == "keep":
        words.append("allocator=keep")
    return ", ".join(words)


def _subsets(plan: Plan, corpus: Slice, options: Options) -> list[str]:
    """All, and for a folder those processes of JPEG that it holds both of."""
    if corpus.kind != "folder":
        return ["all"]
    present = {item.process for item in plan.manifest(corpus).valid if item.plain_jpeg}
    both = present if len(present) > 1 else set()
    return [name for name in options["subsets"] if name == "all" or name in both]


def recipe_of(plan: Plan, options: Options, name: str, workers: int) -> Recipe:
    """Ours and the paper's as configured; a third party's is its name."""
    ours: Recipe = options["ours"]
    if name == "ours":
        return replace(ours, name=name)
    if name == "ours-crop":
        return replace(ours, name=name, preprocess=_crop(plan.settings.model.input_px))
    if name in ("paper", "baseline"):
        paper: Recipe = options[name]
        return replace(paper, name=name, workers=workers, device=ours.device, dtype="fp32")
    return Recipe(name, engine=name, workers=workers, device=ours.device)


def _crop(px: int) -> str:
    """The geometry of DINOv2's processor: 256 and 224 pixels, or as much larger as the input."""
    return f"shortest:{px * 8 // 7},crop:{px}x{px},bicubic"


def tables(records: Records) -> Tables:
    """One row per system, image set and subset."""
    searched = _by_row(records, search=True)
    full = _by_row(records, search=False)
    # Round two may have ended early.
    rows = {
        key: _row(variants, searched.get(key, variants))
        for key, variants in (searched | full).items()
    }
    for (system, *images), row in rows.items():
        panel = {
            name: other
            for (name, *where), other in rows.items()
            if where == images and other["preprocess"] == row["preprocess"]
        }
        passing = [other for name, other in panel.items() if name != system and _passes(other)]
        rivals = {
            "next": max(passing, key=_rate_of, default={}),
            "pil": panel.get("pil", {}),
            "paper": panel.get("paper", {}),
        }
        for name, rival in rivals.items():
            if _rate_of(row) and _rate_of(rival):
                row[f"speedup_vs_{name}"] = _rate_of(row) / _rate_of(rival)
    return {CSV: list(rows.values())}


def _key(cell: Cell) -> tuple[str, ...]:
    """What a row is of: the system, then the images, their subset last."""
    images, params = cell.images, cell.params
    return params["system"], images.kind, images.image_set, images.digest, params["subset"]


def _setup(cell: Cell) -> str:
    return str(cell.params.get("setup", cell.params["variant"]))


def _by_row(records: Records, search: bool) -> dict[tuple[str, ...], dict[str, Row]]:
    """For each row of the table, what round one (`search`) or two says of each setup."""
    grouped: dict[tuple[str, ...], dict[str, list[Record]]] = {}
    for record in records:
        if ("search" in record.cell.params) == search:
            by_setup = grouped.setdefault(_key(record.cell), {})
            by_setup.setdefault(_setup(record.cell), []).append(record)
    return {
        key: {name: _variant_row(name, repeats) for name, repeats in variants.items()}
        for key, variants in grouped.items()
    }


def _row(rows: Mapping[str, Row], searched: Mapping[str, Row]) -> Row:
    """The best row of round two, or of the only round; `other_variants` of round one."""
    best = _best(rows)
    others = [
        f"{name or 'default'}: {_rate_of(row):.4g} img/s, gate {row['gate']}"
        for name, row in searched.items()
        if name != best and row["status"] == "ok"
    ]
    return rows[best] | {"other_variants": "; ".join(others)}


def _best(rows: Mapping[str, Row]) -> str:
    """The fastest whose pixels pass; of those that do not, the fastest."""

    def merit(name: str) -> tuple[bool, bool, float]:
        row = rows[name]
        return _passes(row), row["status"] == "ok", _rate_of(row)

    return max(rows, key=merit)


def _variant_row(variant: str, repeats: Records) -> Row:
    row = _common.new_row(repeats, COLUMNS) | {"gate": "not checked", "variant": variant}
    params = repeats[0].cell.params
    row |= {name: params[name] for name in ("system", "subset")}
    row["finish_line"] = params.get("finish", "host")
    return _common.complete(row, repeats, _measured)


def _passes(row: Row) -> bool:
    return row["gate"] == "passed"


def _rate_of(row: Row) -> float:
    """Images a second; 0 for a row without a measurement."""
    rate = row.get("img_per_s")
    return rate if isinstance(rate, float) else 0.0


def _measured(repeats: Records) -> Row:
    median_repeat = _common.median_repeat(repeats, _common.seconds_an_image)
    row = _common.value_columns(median_repeat, *_VALUES)
    row |= _common.wall_columns(repeats)
    row |= {"n_images": _common.count(median_repeat), "wall_s": _common.wall_s(median_repeat)}
    row |= _common.spread_columns(repeats)
    for record in repeats:
        if "fidelity" in record.values:
            limits, weights = record.cell.params["fidelity"], record.cell.model.weights
            return row | _common.judge_fidelity(record.values["fidelity"], limits, weights)
    return row


def sentence(rows: MeasuredRows) -> str:
    """Versus the next fastest whose pixels pass, the paper's recipe, and DataLoader + PIL.

    Then with DINOv2's crop, versus without.
    """
    ours = rows.first(CSV, system="ours")
    if ours is None:
        return ""
    others = {
        row["system"]: row
        for row in rows[CSV]
        if row["system"] != "ours" and is_comparable(row, ours, ("system", "variant"))
    }
    names = {}
    passing = passed(others.values())
    # Of two systems the other one is no choice among rivals.
    if passing and len(others) > 1:
        fastest = max(passing, key=lambda row: float(row["img_per_s"]))["system"]
        names[fastest] = f"the next fastest whose pixels pass ({LABELS[fastest]})"
    for name in ("paper", "pil"):
        names.setdefault(name, LABELS[name])
    versus = [f"{ratio(ours, others[name])} {names[name]}" for name in names if name in others]
    where = {name: ours[name] for name in ("image_set", "corpus", "subset", "device")}
    crop = rows.first(CSV, system="ours-crop", **where)
    if crop:
        versus.append(f"with DINOv2's crop {ratio(crop, ours)} its rate without")
    return f"ours prepares {rate(ours)} on {ours['cores']} cores: {', '.join(versus)}"
