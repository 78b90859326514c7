"""How fast, and how right: every loader from files to 224 × 224 RGB, ready for the network.

Method. One loader a process, all on the same cores, files and page cache, batches of one size, in
steady state, interleaved. The finish line of device=cpu is a batch in host memory, uint8 or float32
as each system ships it; that of device=cuda (`finish_line`) is the normalized batch on the device,
where each batch is waited for: from pinned memory, or left there by a system that decodes there.
Every image of the set, as the system delivered it first, is compared with Pillow's antialiased
resize (`n_compared`: records before this rule have the first 64); the least PSNR of any says which
`level` it reaches (`levels`). A system that reaches none has its row, but is never a `next`.

Round one measures every variant of a system under every setup (workers a core, glibc's allocator)
that its users can choose, in brief passes, interleaved; `other_variants` quotes their median. Round
two measures in full the fastest of each system at each level; no pass that chose it enters a row. A
folder's subsets take the choice of the whole folder. A system has two rows where less fidelity
makes it faster; ours has a variant that decodes fewer pixels (`margin 1`). `next` is the fastest
other row of the level `faithful`, `next_close` that of `close`. Ratios and their intervals come
from pairs of repeats of one block, without passes that other programs disturbed (`pairs`). Where no
pass of a row was calm, it has no ratio, and no other row one to it.

Our loader and the thread pool are measured a second time as a job with DINOv2 runs them: to the
shortest side, bicubic, and cropped (`preprocess`). Those pictures are compared with Pillow's of the
same geometry, and no loader that squashes is their rival. Images are taken as they are stored:
nothing is rotated.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path

from experiments import common
from experiments.common import Cell, Options, Plan, Recipe, Record, Records, Row, Tables, cell
from experiments.frontier import levels, pairs
from experiments.frontier.levels import LEVELS
from experiments.sentences import MeasuredRows, TableRow, rate, ratio, sizes
from harness import provenance
from harness.drawing.labels import Labels
from harness.engines import third_party
from harness.engines.third_party import thread_pool_crop
from harness.spec import Slice
from wallclock.errors import check_name

RANK = 130
SENTENCE_RANK = 2
QUICK = True
CSV = "frontier.csv"
COLUMNS = common.columns(
    "system variant library settings preprocess image_set folder subset corpus weights",
    "device device_kind cores batch_size n_images n_unique repeats wall_s wall_s_min wall_s_max",
    "img_per_s img_per_s_min img_per_s_max",
    "next",
    pairs.columns("speedup_vs_next"),
    "next_close",
    pairs.columns("speedup_vs_next_close"),
    pairs.columns("speedup_vs_pil"),
    pairs.columns("speedup_vs_paper"),
    pairs.columns("speedup_of_ours"),
    "other_variants finish_line startup_s other_cores",
    pairs.COLUMNS,
    common.FIDELITY_COLUMNS,
    "level",
    "median_kb median_megapixels progressive_share origin status reason",
)
TABLES = {CSV: COLUMNS}
MEANINGS = """
system | | setting | the loader
variant | | setting | the variant and setup that the first round chose
preprocess | | setting | geometry of the pixels: squash, or the text of a crop
folder | | setting | the name of a folder of images
subset | | setting | all, baseline or progressive files of a folder
next | | status | the next fastest system that is faithful
next_close | | status | the next fastest that is at least close
speedup_vs_next | x | measured | rate over that of `next`, by pairs of repeats
speedup_vs_next_close | x | measured | rate over that of `next_close`, by pairs of repeats
speedup_vs_pil | x | measured | rate over that of DataLoader and Pillow
speedup_vs_paper | x | measured | rate over that of the paper's recipe
speedup_of_ours | x | measured | rate of wallclock over that of this row, by pairs of repeats
other_variants | | status | rates of the other variants in the first round
finish_line | | setting | where the clock stops: host memory, or on the device
progressive_share | 0 to 1 | fact | progressive JPEGs among the images
"""

#: Level → the column that names the next fastest row that reaches it.
NEXT = {levels.FAITHFUL: "next", levels.CLOSE: "next_close"}
#: What two rows share that are compared.
_SHARED = common.columns("corpus preprocess device cores batch_size finish_line")

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
#: Of our loader as its users have it, and with a JPEG decoded to no more than the target's size.
_MARGIN_1 = "margin 1"
_OUR_VARIANTS: Mapping[str, Sequence[str]] = {"ours": ("", _MARGIN_1)}
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
#: Of two systems whose interval contains 1.
_TIE = ", from which it cannot be told apart"
#: Cells shorter than this are a smoke test's: no network in each.
_NETWORK_FROM_S = 1.0


def cells(plan: Plan, options: Options) -> list[Cell]:
    """Round one; or all of it, where each system has one setup."""
    grid = _grid(plan, options)
    if not _searches(plan, options):
        return _repeated(plan, grid)
    seconds = min(options["search_seconds"], plan.settings.loader_seconds)
    brief = {"search": True, "seconds": seconds, "bursts": _SEARCH_BURSTS}
    return [
        replace(full, label=f"search-{full.label}", repeat=repeat, params={**full.params, **brief})
        for repeat in range(min(options["search_repeats"], len(plan.repeats("frontier"))))
        for full in grid
        if full.params["subset"] == "all"
    ]


def second_round(plan: Plan, options: Options, records: Records) -> list[Cell]:
    """The best of each system in round one that ran, in full; of subsets the same."""
    chosen = set()
    for key, setups in _by_setup(records, search=True).items():
        chosen |= {
            (*key[:-1], name) for name in _best(setups) if setups[name].row["status"] == "ok"
        }
    grid = _grid(plan, options) if chosen else []
    return _repeated(
        plan, [full for full in grid if (*_key(full)[:-1], full.params["setup"]) in chosen]
    )


def expected_second_round(plan: Plan, options: Options) -> list[Cell]:
    """Cells that take as long as the second round will at most: a setup a level."""
    if not _searches(plan, options):
        return []
    by_system: dict[tuple[str, ...], dict[str, Cell]] = {}
    for full in _grid(plan, options):
        by_system.setdefault(_key(full), {}).setdefault(full.params["variant"], full)
    return _repeated(
        plan,
        [full for variants in by_system.values() for full in [*variants.values()][: len(LEVELS)]],
    )


def _searches(plan: Plan, options: Options) -> bool:
    """Whether there is a round one. A single repeat has no interval, which a choice would serve."""
    return bool(options["all_variants"]) and len(plan.repeats("frontier")) > 1


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
    path = plan.settings.corpus.path
    corpora = [(corpus, path) for corpus in plan.slices(counts).values()]
    for path in options["folders"]:
        n = options["folder_images"]
        corpora.append((plan.folder_slice(path, n, sample=True), path))
    images = [
        (corpus, Path(path).name, subset)
        for corpus, path in corpora
        for subset in _subsets(plan, corpus, options)
    ]
    fidelity = dict(options["fidelity"])
    if plan.settings.loader_seconds < _NETWORK_FROM_S:
        fidelity["vectors"] = 0
    shared = {**plan.params, "seconds": plan.settings.loader_seconds, "fidelity": fidelity}
    if options["ours"].device == "cuda":
        shared["finish"] = "device"
    new = partial(cell, plan, "frontier", "loading")
    grid = []
    for corpus, folder, subset in images:
        for name, variant, setup in _systems(plan, options):
            words = _setup_words(variant, setup)
            parts = (name, words, corpus.kind, corpus.image_set, subset)
            label = "-".join(part for part in parts if part)
            size = options["batch_size"][corpus.image_set]
            workers = int(setup["workers_per_core"]) * provenance.machine()["cores"]
            recipe = recipe_of(plan, options, name, workers)
            if variant == _MARGIN_1:
                recipe = replace(recipe, dct_margin=1.0)
            params = {**shared, "system": name, "variant": variant, "setup": words}
            params |= {"allocator": setup["allocator"], "subset": subset}
            params |= {"folder": folder} if folder else {}
            params["installed"] = third_party.installed(name)
            grid.append(new(label, replace(recipe, batch_size=size), corpus, params=params))
    return grid


def _systems(plan: Plan, options: Options) -> list[tuple[str, str, Options]]:
    """Each system with each of its variants, under each setup that it has."""
    loaders = third_party.LOADERS
    names = options["systems"] or [*loaders, *_OUR_SYSTEMS]
    every = _searches(plan, options)
    systems = []
    for name in names:
        check_name(name, [*loaders, *_OUR_SYSTEMS], "system")
        ours = _OUR_VARIANTS.get(name, ("",))
        variants = loaders[name].variants if name in loaders else ours
        per_core = loaders[name].workers_per_core if name in loaders else _OUR_SYSTEMS[name]
        setups = [s for s in options["setups"] if s["workers_per_core"] in per_core]
        # What is not here says so once.
        each = every and third_party.is_installed(name)
        chosen = product(variants, setups) if each else [(variants[0], setups[0])]
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
    if name in ("paper", "baseline"):
        paper: Recipe = options[name]
        return replace(paper, name=name, workers=workers, device=ours.device, dtype="fp32")
    recipe = replace(ours, name=name)
    if name not in _OUR_SYSTEMS:
        recipe = Recipe(name, engine=name, workers=workers, device=ours.device)
    if not name.endswith("-crop"):
        return recipe
    return replace(recipe, preprocess=str(thread_pool_crop.geometry(plan.settings.model.input_px)))


def tables(records: Records) -> Tables:
    """One row per system, image set and subset, and where one setup is faster, one per level."""
    searched = _by_setup(records, search=True)
    # Round two may have ended early.
    measured = searched | _by_setup(records, search=False)
    chosen: list[_Setup] = []
    for key, setups in measured.items():
        best = _best(setups)
        chosen += [setups[name] for name in best]
        others = [
            f"{name or 'default'}: {_rate_of(other.row):.4g} img/s, {_level_in_words(other.row)}"
            for name, other in searched.get(key, setups).items()
            if name not in best and other.row["status"] == "ok"
        ]
        for name in best:
            setups[name].row["other_variants"] = "; ".join(others)
    for setup in chosen:
        _compare(setup, chosen)
    return {CSV: [setup.row for setup in chosen]}


def _compare(setup: "_Setup", others: Sequence["_Setup"]) -> None:
    """Add the ratios to the next fastest at each level, to Pillow, the paper's recipe and ours."""
    row = setup.row
    panel = [other for other in others if other.images == setup.images]
    panel = [other for other in panel if all(other.row[name] == row[name] for name in _SHARED)]
    for level, column in NEXT.items():
        rivals = [
            other
            for other in panel
            if other.row["system"] != row["system"] and levels.reaches(other.row["level"], level)
        ]
        if rivals and levels.reaches(row["level"], level):
            fastest = max(rivals, key=lambda other: _rate_of(other.row))
            row[column] = fastest.row["system"]
            name = f"speedup_vs_{column}"
            row |= pairs.ratio_columns(name, setup.repeats, fastest.repeats)
    first = {other.row["system"]: other.repeats for other in reversed(panel)}
    for system in {"pil", "paper"} & first.keys():
        row |= pairs.ratio_columns(f"speedup_vs_{system}", setup.repeats, first[system])
    if "ours" in first:
        row |= pairs.ratio_columns("speedup_of_ours", first["ours"], setup.repeats)


def _level_in_words(row: Row) -> str:
    if row["gate"] == "not checked":
        return "not checked"
    return f"{row['level'] or 'no level'} ({row['psnr_db_min']:.1f} dB)"


def _key(cell: Cell) -> tuple[str, ...]:
    """What a row is of: the system, then the images, their subset last."""
    images, params = cell.images, cell.params
    return params["system"], images.kind, images.image_set, images.digest, params["subset"]


@dataclass(frozen=True)
class _Setup:
    """A system's variant under a setup: its repeats and the row that they make."""

    images: tuple[str, ...]
    repeats: Records
    row: Row


def _by_setup(records: Records, search: bool) -> dict[tuple[str, ...], dict[str, _Setup]]:
    """For each system and images, what round one (`search`) or two says of each setup."""
    grouped: dict[tuple[str, ...], dict[str, list[Record]]] = {}
    for record in records:
        if ("search" in record.cell.params) == search:
            by_setup = grouped.setdefault(_key(record.cell), {})
            by_setup.setdefault(record.cell.params["setup"], []).append(record)
    return {
        key: {
            name: _Setup(key[1:], repeats, _setup_row(name, repeats))
            for name, repeats in setups.items()
        }
        for key, setups in grouped.items()
    }


def _best(setups: Mapping[str, _Setup]) -> list[str]:
    """For each level the fastest that reaches it; where none reaches any, the fastest."""
    rates = {name: _rate_of(setup.row) for name, setup in setups.items()}
    measured = [name for name in setups if setups[name].row["status"] == "ok"] or [*setups]
    best = []
    for level in LEVELS:
        reaching = [name for name in measured if levels.reaches(setups[name].row["level"], level)]
        best += [max(reaching, key=rates.__getitem__)] if reaching else []
    return list(dict.fromkeys(best)) or [max(measured, key=rates.__getitem__)]


def _setup_row(variant: str, repeats: Records) -> Row:
    row = common.new_row(repeats, COLUMNS) | {"gate": "not checked", "variant": variant}
    params = repeats[0].cell.params
    row |= {"folder": params.get("folder", "")}
    row |= {name: params[name] for name in ("system", "subset")}
    row["finish_line"] = params.get("finish", "host")
    return pairs.note_disturbance(common.complete(row, repeats, _measured), repeats)


def _rate_of(row: Row) -> float:
    """Images a second; 0 for a row without a measurement."""
    rate = row.get("img_per_s")
    return rate if isinstance(rate, float) else 0.0


def _measured(repeats: Records) -> Row:
    row = common.loader_columns(pairs.counting(repeats), *_VALUES)
    for record in repeats:
        if "fidelity" in record.values:
            weights = record.cell.model.weights
            return row | levels.judge(record.values["fidelity"], weights)
    return row


def sentence(rows: MeasuredRows) -> str:
    """Versus the next fastest at each level, the paper's recipe, and DataLoader + PIL.

    Then with DINOv2's crop, versus without.
    """
    ours = rows.first(CSV, system="ours")
    if ours is None:
        return ""
    prepared = f"ours prepares {rate(ours)}{sizes(ours)} on {ours['cores']} cores"
    if ours["calm_repeats"] == 0:
        return f"{prepared}; other programs disturbed every repeat, so that no ratio counts"
    where = {name: ours[name] for name in ("image_set", "folder", "corpus", "subset", "device")}
    rivals = {row["system"] for row in rows[CSV] if not row["system"].endswith("-crop")} - {"ours"}
    versus = []
    for level, column in NEXT.items():
        if ours[column] and (column == "next" or ours[column] != ours["next"]):
            # Of two systems the other one is no choice among rivals.
            versus.append(_versus_next(ours, level, is_only=len(rivals) == 1))
    for name in ("paper", "pil"):
        if ours[f"speedup_vs_{name}"] and name not in (ours["next"], ours["next_close"]):
            versus.append(f"{pairs.in_words(ours, f'speedup_vs_{name}')} {LABELS[name]}")
    crop = rows.first(CSV, system="ours-crop", **where)
    if crop and crop["calm_repeats"] != 0:
        versus.append(f"with DINOv2's crop {ratio(crop, ours)} its rate without")
    return f"{prepared}: {', '.join(versus)}" if versus else prepared


def _versus_next(ours: TableRow, level: str, *, is_only: bool) -> str:
    """Our ratio to the next fastest at a level, or why there is none; `is_only`: of one rival."""
    column = NEXT[level]
    name = LABELS[ours[column]]
    if not is_only:
        name = f"the next fastest {levels.in_words(level)} ({name})"
    if not ours[f"speedup_vs_{column}"]:
        return f"no ratio to {name}, whose every repeat other programs disturbed"
    text = f"{pairs.in_words(ours, f'speedup_vs_{column}')} {name}"
    return f"{text}{_TIE}" if pairs.is_tie(ours, f"speedup_vs_{column}") else text
