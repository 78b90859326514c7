"""What the tables share: columns, groups of repeats, and the cells that every row begins with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

from wallclock.clock import LOADING_STAGES, STAGES
from wallclock.records import Record
from wallclock.spec import Cell, Recipe
from wallclock.summary import quantile

Row = dict[str, object]

_PER_100K = 100_000
_RECIPE_FIELDS = frozenset(field.name for field in fields(Recipe)) - {"name", "device"}


def columns(*parts: str | Sequence[str]) -> tuple[str, ...]:
    """Column names: the words of each text, and tuples of names as they are."""
    return tuple(
        name for part in parts for name in (part.split() if isinstance(part, str) else part)
    )


#: Columns of every table whose rows are serial or end-to-end passes.
STAGE_COLUMNS = tuple(column for name in STAGES for column in (f"{name}_s", f"{name}_share"))

#: Of every table whose recipes pass a fidelity gate. Older records leave newer columns empty.
FIDELITY_COLUMNS = columns(
    "psnr_db psnr_db_min max_abs_diff psnr_loss_vs_area_db psnr_gain_vs_paper_db cosine gate"
)


def groups(records: Sequence[Record], protocol: str) -> dict[tuple[str, str], list[Record]]:
    """Repeats together: records of one protocol by (image set, label), in plan order."""
    grouped: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        if record.cell.protocol == protocol:
            grouped.setdefault((image_set_of(record), record.cell.label), []).append(record)
    return grouped


def image_set_of(record: Record) -> str:
    """The image set that a record was measured on; empty for none."""
    return record.cell.corpus.image_set if record.cell.corpus else ""


def measured(repeats: Sequence[Record]) -> list[Record]:
    """The repeats that have a measurement."""
    return [record for record in repeats if record.ok]


def status_of(repeats: Sequence[Record]) -> tuple[str, str]:
    """('ok', '') if any repeat measured; else the first one's status and reason."""
    return ("ok", "") if measured(repeats) else (repeats[0].status, repeats[0].reason)


def empty_row(names: Sequence[str]) -> Row:
    """A row without values."""
    return dict.fromkeys(names)


def new_row(repeats: Sequence[Record], names: Sequence[str]) -> Row:
    """A row with all that its cell says before any time is read.

    Filled where the table has the column: environment, image set, the recipe's choices, origin,
    and the status of the repeats.
    """
    cell = repeats[0].cell
    status, reason = status_of(repeats)
    known = {name: getattr(cell.recipe, name) for name in _RECIPE_FIELDS}
    known |= {"recipe": cell.recipe.name, "image_set": image_set_of(repeats[0])}
    known |= {"model": cell.model.name, **environment_columns(repeats[0])}
    known |= {"origin": "measured", "status": status, "reason": reason}
    known |= _ran(repeats)
    return {name: known.get(name) for name in names}


def _ran(repeats: Sequence[Record]) -> Row:
    """What really ran, as the loader, its stages and the network reported it."""
    for record in repeats:
        ran = dict(record.values.get("ran", {}))
        layout = ran.pop("layout", "files")
        if ran and record.cell.corpus and layout != "files":
            ran["corpus"] = f"{record.cell.corpus.kind} ({layout})"
        if ran:
            return ran
    return {}


def environment_columns(record: Record) -> Row:
    """Corpus, weights and device of a record."""
    cell = record.cell
    machine = record.environment["machine"]
    on_gpu = cell.recipe.device == "cuda" and bool(machine["gpus"])
    return {
        "corpus": cell.corpus.label if cell.corpus else "",
        "weights": cell.model.weights,
        "device": machine["gpus"][0]["name"] if on_gpu else _cpu_name(machine),
        "device_kind": "cuda" if on_gpu else "cpu",
    }


def _cpu_name(machine: Mapping[str, Any]) -> str:
    # With its GPU: some absolute CPU figures bind on one box only.
    gpu = f", with {machine['gpus'][0]['name']}" if machine["gpus"] else ""
    return f"{machine['cpu']} ({machine['cores']} cores{gpu})"


def size_columns(values: Mapping[str, Any]) -> Row:
    """The median size of the images that a row timed."""
    return {name: values.get(name) for name in ("median_kb", "median_megapixels")}


def withheld(reason: str) -> Row:
    """The status of a row whose output failed its gate: it shows no time."""
    return {"status": "gate failed", "reason": f"{reason}: no time counts"}


def median_repeat(repeats: Sequence[Record], key: Callable[[Record], float]) -> Record:
    """The measured repeat in the middle by `key`, the lower of the middle two.

    A row shows one real pass: medians taken stage by stage would not add up to any wall time.
    """
    ordered = sorted(measured(repeats), key=key)
    return ordered[(len(ordered) - 1) // 2]


def median_pass(repeats: Sequence[Record]) -> Record:
    """The repeat with the median wall time."""
    return median_repeat(repeats, wall_s)


def wall_s(record: Record) -> float:
    """Wall time of the pass in seconds."""
    return record.seconds_in("wall")


def loading_rate(record: Record) -> float:
    """Images a second of a pass that only loads (protocol `loading`)."""
    return float(record.values["n_loaded"]) / wall_s(record)


def mean_ms(record: Record, samples: str) -> float:
    """The mean of a record's samples in milliseconds."""
    durations = record.samples[samples]
    return sum(durations) / len(durations) / 1e6


def wall_columns(repeats: Sequence[Record]) -> Row:
    """How many repeats measured, and the spread of their wall times."""
    walls = [wall_s(record) for record in measured(repeats)]
    return {"repeats": len(walls), "wall_s_min": min(walls), "wall_s_max": max(walls)}


def timing_columns(repeats: Sequence[Record], samples: str, percents: Sequence[int]) -> Row:
    """Mean and percentiles of the samples of the repeat with the median mean; the means' range."""
    shown = median_repeat(repeats, lambda record: mean_ms(record, samples))
    means = [mean_ms(record, samples) for record in measured(repeats)]
    row: Row = {f"p{q}_ms": quantile(shown.samples[samples], q / 100) / 1e6 for q in percents}
    row |= {"mean_ms": mean_ms(shown, samples), "repeats": len(means)}
    return row | {"mean_ms_min": min(means), "mean_ms_max": max(means)}


def rate_columns(n_images: int, wall: float) -> Row:
    """Images, wall time and what follows from the two; scaled figures say so."""
    return {
        "n_images": n_images,
        "wall_s": wall,
        "img_per_s": n_images / wall,
        "seconds_per_100k": wall / n_images * _PER_100K,
        "seconds_per_100k_origin": "measured" if n_images == _PER_100K else "extrapolated",
    }


def judge_fidelity(values: Mapping[str, Any], limits: Mapping[str, Any]) -> Row:
    """The fidelity columns of one recipe, from the values of a fidelity cell.

    The limits on a single image (`max_loss_db`, `not_below_paper`) are for recipes that claim to
    antialias; where the configuration names none, there is none.
    """
    if "psnr_db" not in values:
        return {"gate": "not checked"}
    passed = (
        values["psnr_db"] >= limits["min_psnr_db"]
        and values.get("cosine", 1.0) >= limits["min_cosine"]
    )
    if "max_loss_db" in limits:
        passed = passed and values["psnr_loss_vs_area_db"] <= limits["max_loss_db"]
    if limits.get("not_below_paper"):
        passed = passed and values["psnr_gain_vs_paper_db"] >= 0
    row: Row = {name: values.get(name) for name in FIDELITY_COLUMNS}
    return row | {"gate": "passed" if passed else "failed"}


def fidelity_gate(records: Sequence[Record], timed: Cell) -> Row:
    """The fidelity columns of a timed cell, from the fidelity cell on the same image set."""
    name = timed.recipe.name
    for record in records:
        judged = record.cell
        if judged.protocol == "fidelity" and judged.images.image_set == timed.images.image_set:
            if judged.recipe.name == name:
                return {"gate": "reference"}
            measured = record.values.get("fidelity", {}).get(name, {})
            return judge_fidelity(measured, judged.params)
    return {"gate": "not checked"}


def stage_columns(repeats: Sequence[Record]) -> Row:
    """Seconds and shares of each stage, wall time with its spread, and rates: the median pass."""
    shown = median_pass(repeats)
    wall = wall_s(shown)
    stages = {name: shown.seconds_in(name) for name in STAGES}
    row: Row = {f"{name}_s": seconds for name, seconds in stages.items()}
    row |= {f"{name}_share": seconds / wall for name, seconds in stages.items()}
    loads = any(stages[name] for name in LOADING_STAGES)
    share = (stages["decode"] + stages["resize"]) / (wall - stages["forward"])
    return row | {
        "unattributed_s": wall - sum(stages.values()),
        **wall_columns(repeats),
        **rate_columns(int(shown.values["n_embedded"]), wall),
        "decode_resize_share_without_forward": share if loads else None,
        "n_failed": len(shown.failures),
        **size_columns(shown.values),
    }
