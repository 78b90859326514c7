"""What the tables share: grouping repeats, the stage columns, the columns that say on what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from wallclock.clock import STAGES
from wallclock.records import Record

#: Columns of every table whose rows are serial or end-to-end passes.
STAGE_COLUMNS = tuple(column for name in STAGES for column in (f"{name}_s", f"{name}_share"))

#: The stages that a serial loader pays before the device sees a batch.
_LOADER = ("read", "decode", "resize", "normalize", "assemble")

_PER_100K = 100_000


def groups(records: Sequence[Record], protocol: str) -> dict[tuple[str, str], list[Record]]:
    """Repeats together: records of one protocol by (image set, label), in plan order."""
    found: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        if record.cell.protocol == protocol:
            found.setdefault((image_set_of(record), record.cell.label), []).append(record)
    return found


def values_of(records: Sequence[Record], protocol: str, image_set: str) -> Mapping[str, Any]:
    """The values of the one record of a protocol on an image set; empty if it is not there."""
    for record in records:
        if (
            record.cell.protocol == protocol
            and record.cell.corpus
            and record.cell.corpus.image_set == image_set
        ):
            return record.values
    return {}


def status_of(repeats: Sequence[Record]) -> tuple[str, str]:
    """('ok', '') if any repeat measured; else the first one's status and reason."""
    return (
        ("ok", "")
        if any(record.ok for record in repeats)
        else (repeats[0].status, repeats[0].reason)
    )


def where(record: Record) -> dict[str, object]:
    """On what: corpus, weights, device."""
    cell = record.cell
    machine = record.environment["machine"]
    device = cell.recipe.device
    on_gpu = device == "cuda" and bool(machine["gpus"])
    return {
        "corpus": cell.corpus.label if cell.corpus else "",
        "weights": cell.model.weights,
        "device": machine["gpus"][0]["name"] if on_gpu else _cpu_name(machine),
        "device_kind": "cuda" if on_gpu else "cpu",
    }


def _cpu_name(machine: Mapping[str, Any]) -> str:
    """The CPU, with the GPU that sits beside it: some absolute CPU figures bind on one box only."""
    beside = f", beside {machine['gpus'][0]['name']}" if machine["gpus"] else ""
    return f"{machine['cpu']} ({machine['cores']} cores{beside})"


def shape(values: Mapping[str, Any]) -> dict[str, object]:
    """The median size of the images that a row timed."""
    return {
        "median_kb": values.get("median_kb"),
        "median_megapixels": values.get("median_megapixels"),
    }


def blank(columns: Sequence[str]) -> dict[str, object]:
    """A row that has nothing to say yet."""
    return dict.fromkeys(columns)


def image_set_of(record: Record) -> str:
    """The image set that a record was measured on; empty for none."""
    return record.cell.corpus.image_set if record.cell.corpus else ""


def loading_rate(record: Record) -> float:
    """Images a second of a pass that only loads (protocol `loading`)."""
    return float(record.values["n_loaded"]) / wall_s(record)


def wall_s(record: Record) -> float:
    """The pass's wall clock in seconds."""
    return record.seconds_in("wall")


def median_pass(repeats: Sequence[Record]) -> Record:
    """The repeat whose wall is the median (the faster of the middle two).

    A row shows one real pass: medians taken stage by stage would not add up to any wall.
    """
    ordered = sorted((record for record in repeats if record.ok), key=wall_s)
    return ordered[(len(ordered) - 1) // 2]


def rate(n_images: int, wall: float) -> dict[str, object]:
    """Images, wall clock and what follows from the two; scaled figures say so."""
    return {
        "n_images": n_images,
        "wall_s": wall,
        "img_per_s": n_images / wall,
        "seconds_per_100k": wall / n_images * _PER_100K,
        "seconds_per_100k_origin": "measured" if n_images == _PER_100K else "extrapolated",
    }


#: Of every table whose recipes pass a fidelity gate. Records from before a column was thought of leave it empty.
FIDELITY_COLUMNS = (
    "psnr_db",
    "psnr_db_min",
    "max_abs_diff",
    "psnr_loss_vs_area_db",
    "psnr_gain_vs_paper_db",
    "cosine",
    "gate",
)


def judge_fidelity(found: Mapping[str, Any], limits: Mapping[str, Any]) -> dict[str, object]:
    """The fidelity columns, from what a fidelity cell found of one recipe.

    The limits on a single image (`max_loss_db`, `not_below_paper`) are for recipes that claim to
    antialias; where the configuration names none, there is none.
    """
    if "psnr_db" not in found:
        return {"gate": "not checked"}
    passed = (
        found["psnr_db"] >= limits["min_psnr_db"]
        and found.get("cosine", 1.0) >= limits["min_cosine"]
    )
    if "max_loss_db" in limits:
        passed = passed and found["psnr_loss_vs_area_db"] <= limits["max_loss_db"]
    if limits.get("not_below_paper"):
        passed = passed and found["psnr_gain_vs_paper_db"] >= 0
    columns: dict[str, object] = {name: found.get(name) for name in FIDELITY_COLUMNS[:-1]}
    return columns | {"gate": "passed" if passed else "failed"}


def stage_columns(repeats: Sequence[Record]) -> dict[str, object]:
    """Seconds and shares of each stage, the wall with its spread, and rates, of the median pass."""
    chosen = median_pass(repeats)
    walls = [wall_s(record) for record in repeats if record.ok]
    wall, n = wall_s(chosen), int(chosen.values["n_embedded"])
    stages = {name: chosen.seconds_in(name) for name in STAGES}
    row: dict[str, object] = {}
    for name, seconds in stages.items():
        row[f"{name}_s"] = seconds
        row[f"{name}_share"] = seconds / wall
    loader = sum(stages[name] for name in _LOADER)
    return row | {
        "repeats": len(walls),
        "unattributed_s": wall - sum(stages.values()),
        "wall_s_min": min(walls),
        "wall_s_max": max(walls),
        **rate(n, wall),
        "decode_resize_share_without_forward": (stages["decode"] + stages["resize"])
        / (wall - stages["forward"])
        if loader
        else None,
        "n_failed": len(chosen.failures),
    }
