"""Is `wallclock trace` right, and what does it cost? Two tables in data/benchmarks/.

Each program of `benchmarks.traced` runs without a trace, under the trace, and with its stages timed
by hand (`StageProfiler`), in turn, round by round. trace.csv has a row per program: `overhead` is
the time per image that the trace adds, the ratio of the rates that the program prints in one round,
less 1 (median, least, greatest). `added_start_s` is what it adds to the rest of the wall time. Then
follow the greatest difference of a stage's share, and the verdict. trace-shares.csv has a row per
stage: its share of all compared stages, by hand and by the trace, each the median of the rounds.
The folder's files are linked under as many names as needed.

    python -m benchmarks.trace --folder DIR [--rounds N] [--program NAME]
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks._common import save, spread
from benchmarks.objects import serving
from benchmarks.traced import unmarked
from harness import provenance
from wallclock.summary import median

_SOURCES = Path(__file__).with_name("traced")
#: Seconds that the slow server waits before an image: far longer than a decode takes.
_SLOW_S = 0.05


@dataclass(frozen=True)
class Program:
    """A program of `benchmarks.traced`, the arguments after its folder, and its bottleneck."""

    name: str
    source: str
    words: tuple[str, ...] = ()
    #: Part of the expected verdict; empty: none is expected.
    bound: str = ""
    #: Enough images for a run of seconds.
    images: int = 300
    #: Whether its last argument is a slow server of the images.
    served: bool = False


PROGRAMS = (
    Program("Pillow loop", "pillow_loop", bound="decod"),
    Program("DataLoader, no worker", "dataloader", ("0", "2")),
    Program("DataLoader, 2 workers, small model", "dataloader", ("2", "0"), "decod", 600),
    Program("DataLoader, 2 workers, large model", "dataloader", ("2", "12"), "model"),
    Program("DataLoader, 4 workers", "dataloader", ("4", "2")),
    Program("training step", "training", images=100),
    Program("OpenCV in threads", "thread_pool", bound="decod", images=900),
    Program("slow web server", "download", (), "read", 400, served=True),
)


@dataclass(frozen=True)
class Run:
    """Wall seconds of a program with its start; the images per second that it printed."""

    wall_s: float
    rate: float
    images: int

    @property
    def start_s(self) -> float:
        """Seconds that are not spent on images."""
        return self.wall_s - self.images / self.rate


@dataclass(frozen=True)
class Round:
    """The program alone and under the trace; self time per (thread, stage)."""

    plain: "Run"
    traced: "Run"
    by_hand: Mapping[tuple[str, str], float]
    by_trace: Mapping[tuple[str, str], float]
    verdict: str


def main() -> None:
    """Measure, write both tables, print them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True, help="JPEGs; all with suffix .jpg")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--program", help="only programs whose name has this in it")
    choices = parser.parse_args()
    folder = choices.folder.resolve()
    chosen = [p for p in PROGRAMS if (choices.program or "") in p.name]
    rows, shares = [], []
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        for program in chosen:
            linked = link_images(folder, program.images, work / f"{program.images}")
            with serving(linked, _SLOW_S) if program.served else nullcontext("") as server:
                words = [str(linked), *program.words, *filter(None, [server])]
                rounds = [_round(program, words, work) for _ in range(choices.rounds)]
            of_program = _shares(program, rounds)
            rows.append(_row(program, rounds, of_program))
            shares += of_program
    save("trace", rows)
    save("trace-shares", shares)


def link_images(folder: Path, n: int, to: Path) -> Path:
    """A folder with `n` links to the JPEGs of a folder, each of which may have several."""
    if not to.exists():
        to.mkdir(parents=True)
        files = sorted(folder.resolve().glob("*.jpg"))  # links are not relative to here
        for index in range(n):
            (to / f"{index:05}.jpg").symlink_to(files[index % len(files)])
    return to


def _round(program: Program, words: Sequence[str], work: Path) -> Round:
    """Run the program alone, under the trace, and timed by hand."""
    marked = (_SOURCES / f"{program.source}.py").read_text(encoding="utf-8")
    plain, by_hand = work / "program.py", work / "marked.py"
    plain.write_text(unmarked(marked), encoding="utf-8")
    by_hand.write_text(marked, encoding="utf-8")
    alone = _run([str(plain), *words], program.images, work)
    report = work / "trace.json"
    tracing = ["-m", "wallclock", "trace", "--json", str(report)]
    under_trace = _run([*tracing, str(plain), *words], program.images, work)
    traced = json.loads(report.read_text(encoding="utf-8"))
    seconds_by_hand = _time_by_hand([str(by_hand), *words], work)
    return Round(
        alone,
        under_trace,
        seconds_by_hand,
        _as_by_hand(traced, {stage for _, stage in seconds_by_hand}),
        traced["verdict"],
    )


def run_program(
    words: Sequence[str], work: Path, **more: str
) -> "subprocess.CompletedProcess[str]":
    """Run `python words…` in a folder, with this checkout's packages."""
    paths = os.pathsep.join((str(provenance.ROOT / "code"), str(provenance.ROOT)))
    environment = {**os.environ, "PYTHONPATH": paths, **more}
    return subprocess.run(
        [sys.executable, *words],
        cwd=work,
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )


def _run(words: Sequence[str], images: int, work: Path) -> Run:
    """Run `python words…`, which prints its rate last."""
    began = perf_counter()
    done = run_program(words, work)
    return Run(perf_counter() - began, printed_rate(done.stdout), images)


def printed_rate(printed: str) -> float:
    """Images per second, of a program's last line."""
    rate, unit = printed.splitlines()[-1].split()
    assert unit == "images/s"
    return float(rate)


def _time_by_hand(words: Sequence[str], work: Path) -> dict[tuple[str, str], float]:
    """Run the marked program; self time by (`main` or `workers`, stage)."""
    totals: dict[tuple[str, str], float] = {}
    with tempfile.TemporaryDirectory() as folder:
        run_program(words, work, BY_HAND=folder)
        for path in Path(folder).iterdir():
            for thread in json.loads(path.read_text(encoding="utf-8")):
                where = "main" if thread["is_main"] else "workers"
                for stage, seconds in thread["seconds"].items():
                    totals[where, stage] = totals.get((where, stage), 0.0) + seconds
    return totals


def _as_by_hand(traced: Mapping[str, Any], stages: set[str]) -> dict[tuple[str, str], float]:
    """The trace's seconds under the marks' names: `read+decode` is the sum of two stages."""
    totals = {}
    for where in ("main", "workers"):
        for stage in stages:
            seconds = sum(traced[where].get(part, 0.0) for part in stage.split("+"))
            if seconds:
                totals[where, stage] = seconds
    return totals


def _shares(program: Program, rounds: Sequence[Round]) -> list[dict[str, object]]:
    """A row per marked stage: its share of all marked ones, by hand and by the trace."""
    rows: list[dict[str, object]] = []
    for where, stage in rounds[0].by_hand:
        by_hand = median([_share(each.by_hand, where, stage) for each in rounds])
        by_trace = median([_share(each.by_trace, where, stage) for each in rounds])
        rows.append(
            {
                "program": program.name,
                "where": where,
                "stage": stage,
                "share_by_hand": by_hand,
                "share_by_trace": by_trace,
                "difference": by_trace - by_hand,
                "rounds": len(rounds),
                "origin": "measured",
            }
        )
    return rows


def _share(seconds: Mapping[tuple[str, str], float], where: str, stage: str) -> float:
    total = sum(value for (group, _), value in seconds.items() if group == where)
    return seconds.get((where, stage), 0.0) / total if total else 0.0


def _row(
    program: Program, rounds: Sequence[Round], shares: Sequence[Mapping[str, object]]
) -> dict[str, object]:
    ratios = [each.plain.rate / each.traced.rate - 1 for each in rounds]
    verdict = rounds[-1].verdict
    return {
        "program": program.name,
        "n_images": program.images,
        "rounds": len(rounds),
        "wall_s": median([each.plain.wall_s for each in rounds]),
        **spread("overhead", ratios),
        "added_start_s": median([each.traced.start_s - each.plain.start_s for each in rounds]),
        "greatest_difference": max(abs(float(str(row["difference"]))) for row in shares),
        "bound": program.bound,
        "is_named": "" if not program.bound else program.bound in verdict.lower(),
        "verdict": verdict,
        "origin": "measured",
    }


if __name__ == "__main__":
    main()
