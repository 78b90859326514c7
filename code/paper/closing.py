"""The sentence that ends a run: one comparison, from the tables that the run wrote."""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path

import experiments.analytic
import experiments.train
from experiments import (
    ablation,
    batch,
    cluster,
    cpu,
    fast,
    fleet,
    frontier,
    ladder,
    layers,
    limits,
    opt,
    predict,
    scaling,
    stage_fixes,
    storage,
    t4,
)
from paper import diagnosis as job
from paper.csvfile import Row, ok_rows, read_table
from paper.format import digits, factor, percent, prediction_errors
from paper.labels import ABLATION, DECODERS, RUNTIMES, SHORT_SETS, STEPS, SYSTEMS
from paper.terminal import RESULTS

#: Rows that differ in one of these are not compared.
_CONDITIONS = (
    "corpus",
    "image_set",
    "order",
    "device",
    "weights",
    "service_ms",
    "fsync",
    "context",
    "model",
    "pruned",
)
#: Columns that name a row, with their labels.
_NAMES: Mapping[str, Mapping[str, str]] = {
    **{"step": STEPS, "what": {}, "format": {}, "recipe": {}},
    **{"decoder": DECODERS, "runtime": RUNTIMES, "dtype": {}},
}
_KB = "kb_on_disk"
_RECIPES = {opt.CSV: "the optimized recipe", t4.CSV: "the baseline", fast.CSV: "recipe=fast"}


def closing_sentence(folder: Path, ran: Collection[str]) -> str:
    """Compare the result of a run with what it competes with; empty if nothing was measured.

    Of several experiments the first of `_ORDER` with both sides of its comparison is taken. Raises
    UserError if a table in `folder` is damaged.
    """
    for name in dict.fromkeys([*_ORDER, *ran]):
        sentence = _SENTENCES.get(name, partial(_best_versus_first, name))
        if name in ran and (text := sentence(folder)):
            return text
    return ""


def _rows(folder: Path, csv: str) -> list[Row]:
    """The measured rows of a table, originals first, without the null decoder; none if absent."""
    table = ok_rows(read_table(folder / csv)) if (folder / csv).is_file() else []
    rows = [row for row in table if row.get("decoder") != "null"]
    return sorted(rows, key=lambda row: row.get("image_set", "original") != "original")


def _first(folder: Path, csv: str, **cells: str) -> Row | None:
    return next((row for row in _rows(folder, csv) if cells.items() <= row.items()), None)


def _passed(rows: Sequence[Row]) -> list[Row]:
    """Rows whose output passed its check, or has none."""
    return [row for row in rows if row.get("gate", "passed") in ("passed", "reference")]


def _alike(one: Row, other: Row) -> bool:
    return all(one[name] == other[name] for name in _CONDITIONS if name in one and name in other)


def _over(row: Row, base: Row, column: str = "img_per_s") -> str:
    return factor(float(row[column]) / float(base[column]))


def _mock(row: Row) -> str:
    return " (mock model)" if row.get("weights") == "none" else ""


def _rate(row: Row) -> str:
    """`608 originals a second`."""
    return f"{digits(row['img_per_s'])} {SHORT_SETS[row['image_set']]} a second"


def _best_versus_first(experiment: str, folder: Path) -> str:
    """The sentence of most experiments: the best row of a table versus the first one."""
    for csv in reversed([*experiments.load(experiment).TABLES]):
        rows = _rows(folder, csv)
        column = next((name for name in RESULTS if rows and rows[0].get(name)), "")
        panel = [row for row in _passed(rows) if row.get(column) and _alike(row, rows[0])]
        if len(panel) < 2:
            continue
        is_rate = column in ("img_per_s", "vectors_per_s")
        best = (max if is_rate else min)(panel[1:], key=lambda row: float(row[column]))
        names = _distinguishing(panel)
        on = f"on {SHORT_SETS[best['image_set']]} " if "image_set" in best else ""
        verb, unit = "reaches" if is_rate else "takes", RESULTS[column]
        result = f"{_name(best, names)} {verb} {digits(best[column])} {unit}{_mock(best)}"
        return f"{on}{result}, {_over(best, panel[0], column)} {_name(panel[0], names)}"
    return ""


def _distinguishing(rows: Sequence[Row]) -> list[str]:
    """The first columns that tell all rows apart."""
    names: list[str] = []
    for name in _NAMES:
        if name in rows[0] and len({row[name] for row in rows}) > 1:
            names.append(name)
        if len({tuple(row[name] for name in names) for row in rows}) == len(rows):
            break
    return names


def _name(row: Row, names: Sequence[str]) -> str:
    return " ".join(_NAMES[name].get(row[name], row[name]) for name in names)


def _diagnose(folder: Path) -> str:
    diagnosis = job.load(folder)
    if diagnosis is None:
        return ""
    first = diagnosis.first()
    if first is None:
        return diagnosis.words[0]
    present, column = diagnosis.present, "measured_img_per_s"
    proof = f", {_over(first, present, column)} measured" if first[column] else ""
    on = f", on a {diagnosis.device}" if diagnosis.elsewhere else ""
    return f"fix first{on}: {first['fix']}, {factor(first['predicted_speedup'])} predicted{proof}"


def _frontier(folder: Path) -> str:
    """Versus the next fastest whose pixels pass, the paper's recipe, and DataLoader + PIL."""
    ours = _first(folder, frontier.CSV, system="ours")
    if ours is None:
        return ""
    panel = {name: ours[name] for name in ("corpus", "image_set", "subset")}
    rows = [row for row in _rows(folder, frontier.CSV) if panel.items() <= row.items()]
    others = {row["system"]: row for row in rows if row["system"] != "ours"}
    rival = {}
    if passed := _passed(list(others.values())):
        fastest = max(passed, key=lambda row: float(row["img_per_s"]))["system"]
        rival = {fastest: f"the next fastest whose pixels pass ({SYSTEMS[fastest]})"}
    names = rival | {name: SYSTEMS[name] for name in ("paper", "pil") if name not in rival}
    versus = [f"{_over(ours, others[name])} {names[name]}" for name in names if name in others]
    return f"ours prepares {_rate(ours)} on {ours['cores']} cores: {', '.join(versus)}"


def _ablation(folder: Path) -> str:
    """The complete loader versus the baseline, and the step that brings most."""
    full = _first(folder, ablation.CSV, step=list(ablation.STEPS)[-1], mode="cumulative")
    if full is None or not full["speedup_vs_baseline"]:
        return ""
    rows = [row for row in _rows(folder, ablation.CSV) if row["image_set"] == full["image_set"]]
    rungs = [row for row in rows if row["mode"] == "cumulative" and row["step"] in ablation.STEPS]
    most = max(rungs, key=lambda row: float(row["speedup_vs_previous"] or 0))
    step = ABLATION[most["step"]].removeprefix("+ ")
    gain = f"{factor(full['speedup_vs_baseline'])} DataLoader + PIL"
    most_of_it = f"{step} brings most of it, {factor(most['speedup_vs_previous'])}"
    return f"the loader prepares {_rate(full)}, {gain}; {most_of_it}"


def _end_to_end(csv: str, folder: Path) -> str:
    """One recipe versus the first other one that was measured under like conditions."""
    row = _first(folder, csv)
    if row is None:
        return ""
    rate = f"embeds {digits(row['img_per_s'])} images a second{_mock(row)}"
    text = f"on {SHORT_SETS[row['image_set']]} {_RECIPES[csv]} {rate}"
    for base_csv in (opt.CSV, t4.CSV):
        base = _first(folder, base_csv)
        if base and base_csv != csv and _alike(row, base):
            return f"{text}, {_over(row, base)} {_RECIPES[base_csv]}"
    waits = percent(row["wait_share"], 0)
    return f"{text}; its main process waits for them {waits} of the time"


def _batch(folder: Path) -> str:
    """The knee, and the largest batch within the bound on latency that the user named."""
    rows = _rows(folder, batch.CSV)
    knee, largest = (
        next((row for row in rows if row.get(column) == "yes"), None)
        for column in ("knee", "largest_in_bound")
    )
    if knee is None:
        return _best_versus_first("batch", folder)
    near = f"batch {knee['batch_size']} is the smallest within 2 % of the best rate"
    bound, p99 = knee["latency_bound_ms"], knee["latency_p99_ms"]
    if not bound:
        latency = f", with {digits(p99)} ms of latency at p99" if p99 else ""
    elif largest is not None:
        size, ms = largest["batch_size"], digits(largest["latency_p99_ms"])
        latency = f"; batch {size} is the largest under {digits(bound)} ms at p99 ({ms} ms)"
    else:
        latency = f"; no batch is known to be under {digits(bound)} ms at p99"
    return f"{near}{_mock(knee)}{latency}"


def _scaling(folder: Path) -> str:
    rows = [row for row in _rows(folder, scaling.CSV) if row["speedup_vs_one_thread"]]
    if not rows:
        return ""
    best = max(rows, key=lambda row: int(row["threads"]))
    ratio = factor(best["speedup_vs_one_thread"])
    return f"{best['threads']} threads load {_rate(best)}, {ratio} one thread"


def _storage(folder: Path) -> str:
    """Decoded once and kept small, versus files, from memory."""
    alike = {"source": "warm", "access": "ahead", "finish": "tensor"}
    files = _first(folder, storage.CSV, form="files", **alike)
    for form, size in (("pixels_256", " of 256 px"), ("pixels", "")):
        kept = _first(folder, storage.CSV, form=form, **alike)
        if files and kept and _alike(kept, files):
            rates = f"{_over(kept, files)} the rate of files, for {_over(kept, files, _KB)}"
            names = f"{SHORT_SETS[kept['image_set']]} kept as pixels{size}"
            return f"from memory, {names} become tensors at {rates} the bytes"
    return ""


def _predict(folder: Path) -> str:
    row = _first(folder, predict.SUMMARY_CSV, experiment="all")
    return f"predicted rates against measured: {prediction_errors(row)}" if row else ""


def _first_row(csv: str, text: Callable[[Row], str], **cells: str) -> Callable[[Path], str]:
    """What `text` says of the first row with these cells."""

    def sentence(folder: Path) -> str:
        row = _first(folder, csv, **cells)
        return text(row) if row else ""

    return sentence


#: Sentences of experiments that are more than a table of alternatives.
_SENTENCES: Mapping[str, Callable[[Path], str]] = {
    "diagnose": _diagnose,
    "frontier": _frontier,
    "ablation": _ablation,
    **{"fast": partial(_end_to_end, fast.CSV), "opt": partial(_end_to_end, opt.CSV)},
    "t4": partial(_end_to_end, t4.CSV),
    "scaling": _scaling,
    "batch": _batch,
    "storage": _storage,
    "predict": _predict,
    "limits": _first_row(
        limits.CSV,
        lambda row: (
            f"the loader prepares {_rate(row)}, {percent(row['efficiency'])} of its ceiling"
        ),
        what="loader",
    ),
    "analytic": _first_row(
        experiments.analytic.WALLS_CSV,
        lambda row: (
            f"by formula, not end to end: {SHORT_SETS[row['image_set']]} prepared here keep a "
            f"{row['what'].split(',')[0]} busy {percent(row['utilization'])} of the time, at most"
        ),
        wall=experiments.analytic.ELSEWHERE,
    ),
    "fleet": _first_row(
        fleet.CSV,
        lambda row: (
            f"simulated, not run: {int(row['n_images']):,} {SHORT_SETS[row['image_set']]} on "
            f"{row['nodes']} {row['instance']} take {digits(row['hours_p50'])} h and "
            f"${digits(row['usd_on_demand'])}; the 95th percentile of the hours is "
            f"{factor(float(row['hours_p95']) / float(row['hours_p50']))} that"
        ),
        **{"image_set": "original", "arrangement": fleet.LIST, "nodes": "8"},
    ),
    "ladder": _first_row(
        ladder.CSV,
        lambda row: (
            f"on {row['setup']} the service answers {digits(row['requests_per_s'])} requests a "
            f"second, {factor(row['speedup_vs_previous'])} rung 4"
        ),
        **{"setup": ladder.MOCK, "what": "rung-5"},
    ),
    "cluster": _first_row(
        cluster.CSV,
        lambda row: (
            f"Ray Data as its guide has it prepares {percent(row['share_of_ours'])} of what "
            f"wallclock does on Ray Data, on {SHORT_SETS[row['image_set']]}"
        ),
        system="ray-images",
    ),
    "formats": _first_row(
        "formats.csv",
        lambda row: (
            f"progressive costs {factor(row['time_vs_baseline'])} a baseline JPEG at reduced size"
        ),
        **{"variant": "progressive", "quality": "85", "decoder": "simplejpeg", "dct_scale": "auto"},
    ),
    "train": _first_row(
        experiments.train.CSV,
        lambda row: (
            f"behind its loader a training step is busy {percent(row['utilization'])} of the time, "
            f"{percent(row['utilization_expected'])} predicted; the limit: {row['limited_by']}"
        ),
        part="together",
    ),
    "stage_fixes": _first_row(
        stage_fixes.CSV,
        lambda row: (
            f"{row['stage']} alone, {row['fixed']}: {factor(row['gain'])} as fast as {row['plain']}"
        ),
    ),
    "layers": _first_row(
        layers.OPERATORS_CSV,
        lambda row: f"{row['operator']} takes {percent(row['share'])} of the forward pass",
    ),
    "cpu": _first_row(
        cpu.CSV,
        lambda row: (
            f"one CPU thread embeds {_rate(row)}; forward takes "
            f"{percent(row['forward_share'])} of the time"
        ),
    ),
}
#: The nearest to the paper's question first; others follow in the order of the run.
_ORDER = ("diagnose", "frontier", "fast", "opt", "t4", "steps", "serial", "decoders", "workers")
