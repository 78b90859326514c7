"""How many DataLoader workers does the job need, with a fast decoder and with Pillow?

Method. Two recipes, batch 64, FP32: libjpeg-turbo's decode and OpenCV's resize, which is the
paper's curve, and Pillow's decode and resize. Each with 0 to 16 workers, end to end, as `t4`. With
0 workers the main process loads and embeds alternately. `workers_needed` is the smallest number of
workers within 2 % of the decoder's best rate: in each block of repeats, of which the row has the
median, the lowest and the highest.
"""

from collections.abc import Sequence
from dataclasses import replace

from experiments import common, end_to_end
from experiments.common import Cell, Options, Plan, Records, Row, Tables

RANK = 110
CSV = "workers-sweep.csv"
COLUMNS = common.columns(end_to_end.COLUMNS, common.with_limits("workers_needed"), "in_paper")
TABLES = {CSV: COLUMNS}
MEANINGS = """
workers_needed | count | measured | fewest workers whose rate is within 2 % of the highest, of the
  row's decoder
"""


def cells(plan: Plan, options: Options) -> list[Cell]:
    """Every number of workers with every decoder, repeated; the configured recipe's first."""
    base = options["recipe"]
    recipes = []
    for decoder in options["decoders"]:
        suffix = "" if decoder == base.decoder else f"-{decoder}"
        choices = {"decoder": decoder, **options["resize"].get(decoder, {})}
        recipes += [
            replace(base, name=f"workers-{count}{suffix}", workers=count, **choices)
            for count in options["workers"]
        ]
    return end_to_end.cells(plan, "workers", recipes, options)


def tables(records: Records) -> Tables:
    """One row per decoder and number of workers."""
    rows = end_to_end.tables(CSV)(records)[CSV]
    groups = list(common.groups(records, "throughput").values())
    for row, repeats in zip(rows, groups, strict=True):
        sweep = [
            others
            for other, others in zip(rows, groups, strict=True)
            if other["status"] == "ok" and _sweep_of(others) == _sweep_of(repeats)
        ]
        row |= _needed(sweep if row["status"] == "ok" else [])
        row["in_paper"] = row["decoder"] == "turbojpeg"
    return {CSV: rows}


def _sweep_of(repeats: Records) -> tuple[str, str]:
    return common.image_set_of(repeats[0]), repeats[0].cell.recipe.decoder


def _needed(sweep: Sequence[Records]) -> Row:
    """`workers_needed` of one decoder's sweep, its limits too; empty for a single point."""
    names = common.with_limits("workers_needed")
    if len(sweep) < 2:
        return dict.fromkeys(names)
    blocks: dict[int, dict[int, float]] = {}
    for repeats in sweep:
        for record in repeats:
            rates = blocks.setdefault(record.cell.repeat, {})
            rates[record.cell.recipe.workers] = common.rate(record)
    needed = sorted(_least_workers(rates) for rates in blocks.values() if len(rates) == len(sweep))
    if not needed:
        return dict.fromkeys(names)
    # Of an even number of blocks the larger of the middle two, as `median_repeat` has it.
    quoted = needed[len(needed) // 2], needed[0], needed[-1]
    return dict(zip(names, quoted, strict=True))


def _least_workers(rates: dict[int, float]) -> int:
    enough = end_to_end.NEAR_BEST * max(rates.values())
    return min(count for count, rate in rates.items() if rate >= enough)
