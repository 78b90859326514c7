"""A diagnosis of one's own job: its tables, its sentences, its page and its terminal summary.

The sentences are in report_template/diagnosis_words.jinja, for both the page and the terminal. The
page is one HTML file that opens offline, styled like the report.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from rich.console import Console
from rich.text import Text

from experiments import _accuracy, _diagnosis
from experiments.diagnose import ACCURACY_CSV, IMAGES_CSV, PREDICTIONS_CSV, STAGES_CSV, is_slow
from harness import provenance
from paper.csvfile import Row, number, ok_rows, read_table
from paper.format import count_noun, digits, factor, percent
from paper.labels import SETS
from paper.pages import render_page, segment
from paper.rendering import Rendering
from paper.terminal import print_line, print_table
from wallclock.files import write_text
from wallclock.predict.intervals import GAIN_ERROR, NOTICEABLE, RATE_ERROR
from wallclock.recipe import DTYPES, FAST
from wallclock.summary import median

STEM = "diagnosis"
#: The tables that a diagnosis is made from.
CSVS = (STAGES_CSV, IMAGES_CSV, PREDICTIONS_CSV)
_PAPERS_SETS = provenance.ROOT / "data" / "paper" / "image-sets.csv"

#: What a job fixes: `wallclock embed` has no settings for these.
_OF_A_JOB = ("engine", "decoder", "resizer", "interpolation", "dct_scale", "normalize_on")
#: On a terminal, stages below this share of the time are not named.
_NAMED_SHARE = 0.01


@dataclass(frozen=True)
class Diagnosis:
    """The tables of one diagnosis."""

    stages: Sequence[Row]
    images: Sequence[Row]
    predictions: Sequence[Row]
    accuracy: Sequence[Row] = ()

    @property
    def present(self) -> Row:
        """The prediction for the present recipe."""
        return self.predictions[0]

    @property
    def on_cpu(self) -> bool:
        """Whether the forward pass shares the cores with the loader."""
        return _diagnosis.is_on_cpu(self.present)

    @property
    def elsewhere(self) -> bool:
        """Whether the predictions are for a box that is not here."""
        return _diagnosis.is_elsewhere(self.present)

    @property
    def device(self) -> str:
        """What runs the forward pass."""
        return _diagnosis.device_name(self.present)

    @property
    def fixes(self) -> list[Row]:
        """Fixes alone, the largest speedup first, measured if it was; those not predicted last."""
        return _diagnosis.alone_by_speedup(self.predictions)

    @property
    def stacked(self) -> list[Row]:
        """Fixes added cumulatively."""
        return [row for row in self.predictions if row["kind"] == "stacked"]

    @property
    def cold(self) -> list[Row]:
        """With images that are not in memory the present recipe, then more workers."""
        return ok_rows([row for row in self.predictions if row["kind"] == "cold"])

    @property
    def slow_storage(self) -> list[Row]:
        """The same where it is noticeably slower; else empty."""
        return self.cold if is_slow(self.cold) else []

    @property
    def proved(self) -> list[Row]:
        """The predictions that were also measured end to end."""
        return [row for row in self.predictions if row["measured_img_per_s"]]

    @property
    def failed(self) -> list[Row]:
        """The predictions that ran end to end, or tried to, without a time that counts."""
        rows = [row for row in self.predictions if row["predicted_img_per_s"]]
        return [row for row in rows if row["status"] != "ok"]

    @property
    def by_share(self) -> list[Row]:
        """The nine stages, the longest first."""
        return sorted(self.stages, key=_falling_share)

    @property
    def checklist(self) -> list["Advice"]:
        """Each fix or piece of advice once, with its stages; what gains most first."""
        by_fix: dict[str, list[Row]] = {}
        for row in self.by_share:
            by_fix.setdefault(row["fix"], []).append(row)
        listed = [Advice(rows) for rows in by_fix.values()]
        return sorted(listed, key=lambda advice: _falling_speedup(advice.rows[0]))

    @property
    def harmful(self) -> list[Row]:
        """Fixes that are expected to slow the job down noticeably, or were measured to."""
        rows = [row for row in ok_rows(self.fixes) if not _diagnosis.was_busy(row)]
        return [row for row in rows if _diagnosis.gain_of(row) < 1 / NOTICEABLE]

    @property
    def busy(self) -> bool:
        """Whether something else ran while the costs, or all proofs, were measured."""
        return _diagnosis.was_busy(self.present)

    @property
    def fastest(self) -> Row | None:
        """The setup that gains most, of those that are recommended."""
        return _diagnosis.fastest(self.predictions)

    @property
    def bottleneck(self) -> Row:
        """The stage that limits the rate."""
        return _diagnosis.bottleneck_of(self.stages)

    def first(self) -> Row | None:
        """The fix to begin with: the most noticeable one that leaves the images as they are."""
        return _diagnosis.first_fix(self.predictions)

    @cached_property
    def words(self) -> tuple[str, list[str], str]:
        """What to fix first, the verdict's sentences, the proof (empty if nothing was measured)."""
        text = render_page(
            "diagnosis_words.jinja",
            diagnosis=self,
            accuracy=_accuracy.describe(self.accuracy[0]) if self.accuracy else "",
            busy_cores=[number(row["other_cores"]) or 0.0 for row in self.proved],
            busy_from=_diagnosis.BUSY_CORES,
            count_noun=count_noun,
            median=median,
            noticeable=NOTICEABLE,
            without_fix=_diagnosis.without_fix(self.stages, self.predictions),
        )
        headline, *verdict, proof = text.split("\n")
        return headline, [line for line in verdict if line], proof


@dataclass(frozen=True)
class Advice:
    """A fix, or advice without a prediction, and the stages that it is for."""

    rows: Sequence[Row]

    @property
    def share(self) -> float:
        """Of the time that these stages take together."""
        return sum(float(row["share"]) for row in self.rows)


def load(folder: Path) -> Diagnosis | None:
    """The diagnosis in a folder of tables; None if there is none, or if it predicted nothing.

    Raises UserError if a table is damaged.
    """
    if not all((folder / name).is_file() for name in CSVS):
        return None
    stages, images, predictions = (read_table(folder / name) for name in CSVS)
    path = folder / ACCURACY_CSV
    accuracy = ok_rows(read_table(path)) if path.is_file() else []
    return Diagnosis(stages, images, predictions, accuracy) if ok_rows(stages) else None


def render(tables_dir: Path, figures_dir: Path) -> Rendering:
    """Write `diagnosis.html` from the diagnosis in `tables_dir`. Equal tables give equal bytes.

    Raises UserError if a CSV is damaged.
    """
    diagnosis = load(tables_dir)
    if diagnosis is None:
        return Rendering(STEM, (), f"no {STAGES_CSV}")
    meta = (tables_dir / STAGES_CSV).with_suffix(".meta.json").read_text(encoding="utf-8")
    alone = [diagnosis.present, *diagnosis.fixes]
    stacked = diagnosis.stacked
    groups = {"Each alone": alone}
    if stacked:
        groups["Together, one added to another"] = stacked
    if diagnosis.slow_storage:
        groups["Images not in memory"] = diagnosis.slow_storage
    headline, verdict, proof = diagnosis.words
    page = render_page(
        "diagnosis.html.jinja",
        headline=headline,
        verdict=verdict,
        proof=proof,
        diagnosis=diagnosis,
        segments=[segment(row["stage"], float(row["share"])) for row in diagnosis.stages],
        images=_compared_images(diagnosis),
        groups=groups,
        fastest=max(number(row["high_img_per_s"]) or 0.0 for row in (*alone, *stacked)),
        first=diagnosis.first(),
        errors=(percent(RATE_ERROR, 0), percent(GAIN_ERROR, 0)),
        embed_command=embed_command(diagnosis),
        about=json.loads(meta),
        csvs=CSVS,
    )
    write_text(figures_dir / f"{STEM}.html", page)
    return Rendering(STEM, (figures_dir / f"{STEM}.html",))


def embed_command(diagnosis: Diagnosis) -> str:
    """The `make embed` command of the fastest recommended setup that a job can run; empty: none."""
    settings = {name: str(getattr(FAST, name)) for name in _OF_A_JOB}
    runnable = [
        row
        for row in diagnosis.predictions
        if row["kind"] in ("alone", "stacked")
        and not row["copies"]
        and row["dtype"] in DTYPES["pytorch"]
        and all(row[name] == value for name, value in settings.items())
        and _diagnosis.is_recommended(row)
    ]
    if not runnable:
        return ""
    row = max(runnable, key=_diagnosis.gain_of)
    args = f"batch={row['batch_size']} dtype={row['dtype']} workers={row['workers']}"
    args += f" device={row['device_kind']}"
    return f'make embed IMAGES=/path/to/images OUT=/path/to/vectors ARGS="{args}"'


def print_diagnosis(diagnosis: Diagnosis, page: Path, console: Console) -> None:
    """Print where the time goes, what to fix first, what each fix will bring, and the proof."""
    headline, verdict, proof = diagnosis.words
    total = sum(number(row["ms_per_image"]) or 0 for row in diagnosis.stages)
    longest = [row for row in diagnosis.by_share if float(row["share"]) >= _NAMED_SHARE]
    shares = ", ".join(f"{row['stage']} {percent(row['share'], 0)}" for row in longest)
    time = f"Where the time goes, {digits(total)} ms per image: {shares}."
    style = "bold green" if diagnosis.first() else "bold yellow"
    console.print(Text(f"\n{headline}", style=style))
    for line in (time, *verdict):
        print_line(f"· {line}", console)
    console.print()
    _print_fixes(diagnosis, console)
    console.print()
    unproved = "Predicted, not measured: PROVE=1 (experiment.diagnose.prove=true) runs every fix."
    if diagnosis.elsewhere:
        unproved = f"Predicted, not measured: run it with PROVE=1 on the {diagnosis.device} itself."
    console.print(Text(proof or unproved, style="bold"))
    if command := embed_command(diagnosis):
        print_line(f"The fastest setup that a job can run: {command}", console)
    print_line(f"Every stage, image statistic, check and library version: {page}", console)


def _print_fixes(diagnosis: Diagnosis, console: Console) -> None:
    """The present recipe, each fix alone by its speedup, then all fixes together."""
    numbers = ["gain", "interval", "img/s"]
    if diagnosis.proved:
        numbers = ["measured", "predicted", "img/s"]
    rows: list[list[str]] = []
    all_fixes = diagnosis.stacked[-1:]
    for row in (diagnosis.present, *diagnosis.fixes, *all_fixes, *diagnosis.slow_storage):
        is_all = row["kind"] == "stacked"
        title = "together" if is_all else row["fix"]
        if row["status"] != "ok":
            empty = [""] * len(numbers)
            rows.append([title, *empty, f"{row['status']}: {row['reason']}"])
            continue
        gain = factor(row["predicted_speedup"])
        rate = row["measured_img_per_s"] or row["predicted_img_per_s"]
        between = ""
        if row["low_speedup"]:
            between = f"{factor(row['low_speedup'])} to {factor(row['high_speedup'])}"
        cells = {
            "gain": gain,
            "predicted": gain,
            "interval": between,
            "img/s": digits(rate),
            "measured": factor(row["measured_speedup"]),
        }
        cost = "each fix on top of the last" if is_all else row["fix_cost"]
        rows.append([title, *(cells[name] for name in numbers), cost])
    print_table(["fix", *numbers, "what it costs"], rows, console, right=numbers)


def _compared_images(diagnosis: Diagnosis) -> list[Row]:
    """Your images, then the paper's two sets; what the paper does not say is empty."""
    yours = diagnosis.images[0]
    papers = [dict.fromkeys(yours, "") | row for row in read_table(_PAPERS_SETS)]
    for row in papers:
        row["source"] = f"the paper's {SETS[row['image_set']]}"
    return [yours, *papers]


def _falling_share(row: Row) -> float:
    return -(number(row["share"]) or 0)


def _falling_speedup(row: Row) -> float:
    return -(number(row["predicted_speedup"]) or 0)
