"""`python -m paper analytic`: the analytic model of a reader's own numbers. Nothing is measured.

A batch takes the longer of its transform (batch × sample / rate of the workers) and of the
accelerator's step. busy: the step over the longer one. slow-down: the longer one over the step.
needed: workers, the accelerator's samples per second over a worker's. demand: batch × sample /
step, which storage and interconnect must supply. The formulas are those of mlsysim's tutorial
"Starving the GPU".
"""

import argparse
from collections.abc import Iterator
from typing import Any

from rich.console import Console

from experiments.analytic import cells as analytic
from harness.drawing.format import EMPTY, digits, factor, percent
from harness.pipeline_model import check
from paper.terminal import print_line, print_table
from wallclock.errors import UsageError

_NUMBERS = ("batch", "workers", "transform", "step", "busy", "slow-down", "needed", "demand")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the numbers of a case."""
    step_help = "the accelerator's milliseconds, one number for each batch"
    parser.add_argument(
        "--sample-kb", type=float, metavar="KB", required=True, help="of a sample, in 1000 bytes"
    )
    for flag, meaning in (
        ("--worker-mb-per-s", "MB of samples that a worker transforms per second"),
        ("--transform-gb-per-s", "GB of samples, by all of them; instead of workers"),
        ("--storage-gb-per-s", "GB that the storage supplies per second (default: enough)"),
        ("--interconnect-gb-per-s", "GB that the way to the accelerator does (default: enough)"),
    ):
        parser.add_argument(flag, type=float, metavar="X", help=meaning)
    parser.add_argument(
        "--batch", type=int, nargs="+", metavar="N", required=True, help="samples of a batch"
    )
    parser.add_argument(
        "--step-ms", type=float, nargs="+", metavar="MS", required=True, help=step_help
    )
    parser.add_argument(
        "--workers", type=int, nargs="+", metavar="N", help="that transform samples"
    )


def print_case(options: argparse.Namespace, console: Console) -> None:
    """Print a line for each number of workers and batch.

    Raises UsageError: a number is missing, zero, negative, infinite or NaN, or one too many.
    """
    try:
        rows = list(case_rows(options))
    except ValueError as error:
        raise UsageError(str(error)) from error
    lines = [
        (
            str(row["batch_size"]),
            str(row["workers"] or EMPTY),
            f"{digits(row['transform_ms'])} ms",
            f"{digits(row['step_ms'])} ms",
            percent(row["utilization"]),
            factor(row["slowdown"]),
            str(row["workers_needed"] or EMPTY),
            f"{digits(row['demand_gb_per_s'])} GB/s",
            row["bottleneck"],
        )
        for row in rows
    ]
    print_table((*_NUMBERS, "bound by"), lines, console, right=_NUMBERS, gap=1)
    crossover = rows[0]["crossover_batch"]
    if crossover:
        print_line(f"up to a batch of {crossover:.0f} the accelerator is the slower one", console)


def case_rows(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The rows of a case, as `experiments.analytic.bounds` makes them, with `workers`.

    Raises UsageError: a number is missing, or one too many; ValueError: one is out of range.
    """
    if len(options.batch) != len(options.step_ms):
        counts = f"{len(options.batch)} of --batch, {len(options.step_ms)} of --step-ms"
        raise UsageError(f"{counts}: give a step for each batch")
    of_workers = (options.workers is not None, options.worker_mb_per_s is not None)
    in_all = options.transform_gb_per_s is not None
    if any(of_workers) == in_all or any(of_workers) != all(of_workers):
        rate = "--workers with --worker-mb-per-s, or --transform-gb-per-s alone"
        raise UsageError(f"the transform needs one rate: give {rate}")
    for value in (options.sample_kb, *options.step_ms):
        check("--sample-kb or --step-ms", value, above_zero=True)
    sample = 1e3 * options.sample_kb
    steps = {n: ms / 1e3 for n, ms in zip(options.batch, options.step_ms, strict=True)}
    rates = {}
    for name in analytic.PATHS:
        gb_per_s = getattr(options, f"{name}_gb_per_s")
        if gb_per_s is not None:
            rates[name] = 1e9 * gb_per_s / sample
    for workers in options.workers or [None]:
        worker = None
        if workers is not None:
            worker = 1e6 * options.worker_mb_per_s / sample
            rates["transform"] = workers * worker
        for size in steps:
            yield {"workers": workers, **analytic.bounds(size, sample, steps, rates, worker)}
