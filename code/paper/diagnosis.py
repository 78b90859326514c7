"""A diagnosis of one's own job: its tables, its sentences, its page and its terminal summary.

The sentences are in report_template/diagnosis_words.jinja, for both the page and the terminal. The
page is one HTML file that opens offline, styled like the report.
"""

import json
import shutil
from pathlib import Path

from rich.console import Console
from rich.text import Text

from experiments.diagnose.cells import ACCURACY_CSV, IMAGES_CSV, PREDICTIONS_CSV, STAGES_CSV, tables
from harness import provenance, records
from harness.drawing.format import count_noun, digits, factor, percent
from harness.drawing.labels import SETS
from harness.drawing.rendering import Rendering
from harness.measures import median
from harness.table import Row, ok_rows, read_table
from paper.accuracy import describe
from paper.findings import Diagnosis, best, busy_from, was_busy
from paper.pages import render_page, segment
from paper.terminal import print_line, print_table
from wallclock.files import write_text
from wallclock.predict.intervals import GAIN_ERROR, NOTICEABLE, RATE_ERROR
from wallclock.recipe import DTYPES, FAST, by_pixels

STEM = "diagnosis"
#: The tables that a diagnosis is made from.
CSVS = (STAGES_CSV, IMAGES_CSV, PREDICTIONS_CSV)
_PAPERS_SETS = provenance.ROOT / "data" / "paper" / "image-sets.csv"

#: What a job fixes: `wallclock embed` has no settings for these.
_OF_A_JOB = ("decoder", "resizer", "interpolation", "dct_scale", "normalize_on")
#: On a terminal, stages below this share of the time are not named.
_NAMED_SHARE = 0.01


def words_of(diagnosis: Diagnosis) -> tuple[str, list[str], str]:
    """What to fix first, the verdict's sentences, the proof (empty if nothing was measured)."""
    accuracy = diagnosis.accuracy
    text = render_page(
        "diagnosis_words.jinja",
        diagnosis=diagnosis,
        accuracy=describe(accuracy[0]) if accuracy else "",
        busy_cores=[row["other_cores"] or 0.0 for row in diagnosis.proved],
        busy_from=busy_from(diagnosis.present),
        count_noun=count_noun,
        median=median,
        noticeable=NOTICEABLE,
    )
    headline, *verdict, proof = text.split("\n")
    return headline, [line for line in verdict if line], proof


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


def discard_disturbed(runs: Path) -> bool:
    """Delete the records of the last diagnosis if something else ran meanwhile; whether it did.

    It gave no advice, and would give none again. Raises UserError if a record was edited.
    """
    rows = tables(records.load_experiment(runs, "diagnose")).get(PREDICTIONS_CSV, [])
    disturbed = bool(rows) and was_busy(rows[0])
    for folder in records.indexed(runs, "diagnose") if disturbed else ():
        shutil.rmtree(folder)
    return disturbed


def render(tables_dir: Path, figures_dir: Path) -> Rendering:
    """Write `diagnosis.html` from the diagnosis in `tables_dir`. Equal tables give equal bytes.

    Raises UserError if a CSV is damaged.
    """
    diagnosis = load(tables_dir)
    if diagnosis is None:
        return Rendering(STEM, (), f"no {STAGES_CSV}")
    meta = (tables_dir / STAGES_CSV).with_suffix(".meta.json").read_text(encoding="utf-8")
    alone = [diagnosis.present, *diagnosis.fixes]
    stacked = diagnosis.of_kind("stacked")
    groups = {"Each alone": alone}
    if stacked:
        groups["Together, one added to another"] = stacked
    if diagnosis.slow_storage:
        groups["Images not in memory"] = diagnosis.slow_storage
    headline, verdict, proof = words_of(diagnosis)
    page = render_page(
        "diagnosis.html.jinja",
        headline=headline,
        verdict=verdict,
        proof=proof,
        diagnosis=diagnosis,
        segments=[segment(row["stage"], row["share"]) for row in diagnosis.stages],
        images=_compared_images(diagnosis),
        groups=groups,
        fastest=max(row["high_img_per_s"] or 0.0 for row in (*alone, *stacked)),
        first=diagnosis.first,
        errors=(percent(RATE_ERROR, 0), percent(GAIN_ERROR, 0)),
        embed_command=embed_command(diagnosis),
        about=json.loads(meta),
        csvs=CSVS,
    )
    write_text(figures_dir / f"{STEM}.html", page)
    return Rendering(STEM, (figures_dir / f"{STEM}.html",))


def embed_command(diagnosis: Diagnosis) -> str:
    """The `make embed` command of the fastest recommended setup that a job can run; empty: none."""
    chosen = {name: str(getattr(FAST, name)) for name in _OF_A_JOB}
    settings = by_pixels({"engine": "threads", **chosen})
    row = best(
        row
        for row in diagnosis.of_kind("alone", "stacked")
        if not row["copies"]
        and row["dtype"] in DTYPES["pytorch"]
        and by_pixels({name: row[name] for name in settings}) == settings
    )
    if row is None:
        return ""
    args = f"batch={row['batch_size']} dtype={row['dtype']} workers={row['workers']}"
    args += f" device={row['device_kind']}"
    return f'make embed IMAGES=/path/to/images OUT=/path/to/vectors ARGS="{args}"'


def print_diagnosis(diagnosis: Diagnosis, page: Path, console: Console) -> None:
    """Print where the time goes, what to fix first, what each fix will bring, and the proof."""
    headline, verdict, proof = words_of(diagnosis)
    total = sum(row["ms_per_image"] or 0 for row in diagnosis.stages)
    longest = [row for row in diagnosis.by_share if row["share"] >= _NAMED_SHARE]
    shares = ", ".join(f"{row['stage']} {percent(row['share'], 0)}" for row in longest)
    time = f"Where the time goes, {digits(total)} ms per image: {shares}."
    style = "bold green" if diagnosis.first else "bold yellow"
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
    all_fixes = diagnosis.of_kind("stacked")[-1:]
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
    yours, papers = diagnosis.images[0], read_table(_PAPERS_SETS)
    missing = dict.fromkeys(yours)
    return [
        yours,
        *({**missing, **row, "source": f"the paper's {SETS[row['image_set']]}"} for row in papers),
    ]
