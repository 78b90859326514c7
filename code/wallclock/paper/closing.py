"""The sentence that ends a run: one comparison, from the tables that the run wrote."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

import experiments
from experiments import cpu, fast, frontier, layers, limits, opt, predict, scaling, serial, t4
from wallclock.paper import diagnosis as job
from wallclock.paper.csvfile import Row, number, ok_rows, read_table
from wallclock.paper.format import digits, factor, percent
from wallclock.paper.labels import DECODERS, RUNTIMES, SHORT_SETS, STEPS, SYSTEMS
from wallclock.paper.terminal import RESULTS
from wallclock.summary import median

#: Rows that differ in one of these are not compared.
_CONDITIONS = ("corpus", "image_set", "device", "weights", "service_ms", "fsync")
#: Columns that name a row, with their labels.
_NAMES: Mapping[str, Mapping[str, str]] = {
    **{"step": STEPS, "what": {}, "format": {}, "recipe": {}},
    **{"decoder": DECODERS, "runtime": RUNTIMES, "dtype": {}},
}


def closing_sentence(tables_folder: Path, ran: Collection[str]) -> str:
    """Compare the result of a run with what it competes with; empty if nothing was measured.

    Of several experiments the first of `_ORDER` with both sides of its comparison is taken. Raises
    UserError if a table is damaged.
    """
    for name in dict.fromkeys([*_ORDER, *ran]):
        sentence = _SENTENCES.get(name, _best_versus_first(name))
        if name in ran and (text := sentence(tables_folder)):
            return text
    return ""


def _rows(folder: Path, csv: str) -> list[Row]:
    """The measured rows of a table, originals first; none if it is absent."""
    path = folder / csv
    rows = ok_rows(read_table(path)) if path.is_file() else []
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


def _best_versus_first(experiment: str) -> Callable[[Path], str]:
    """The sentence of most experiments: the best row of its table versus the first one's."""

    def sentence(folder: Path) -> str:
        for csv in experiments.load(experiment).TABLES:
            rows = _rows(folder, csv)
            column = next((name for name in RESULTS if rows and rows[0].get(name)), "")
            panel = [row for row in _passed(rows) if row.get(column) and _alike(row, rows[0])]
            if len(panel) < 2:
                continue
            is_rate = column in ("img_per_s", "vectors_per_s")
            sign = 1 if is_rate else -1
            best = max(panel[1:], key=lambda row: sign * float(row[column]))
            names = _distinguishing(panel)
            on = f"on {SHORT_SETS[best['image_set']]} " if "image_set" in best else ""
            verb, unit = "reaches" if is_rate else "takes", RESULTS[column]
            result = f"{_name(best, names)} {verb} {digits(best[column])} {unit}{_mock(best)}"
            return f"{on}{result}, {_over(best, panel[0], column)} {_name(panel[0], names)}"
        return ""

    return sentence


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
    return f"fix first: {first['fix']}, {factor(first['predicted_speedup'])} predicted{proof}"


def _frontier(folder: Path) -> str:
    """Versus the next fastest whose pixels pass, the paper's recipe, and DataLoader + PIL."""
    ours = _first(folder, frontier.CSV, system="ours")
    if ours is None:
        return ""
    panel = {name: ours[name] for name in ("corpus", "image_set", "subset")}
    rows = [row for row in _rows(folder, frontier.CSV) if panel.items() <= row.items()]
    others = {row["system"]: row for row in rows if row["system"] != "ours"}
    names = {"paper": SYSTEMS["paper"], "pil": SYSTEMS["pil"]}
    passed = _passed(list(others.values()))
    if passed:
        fastest = max(passed, key=lambda row: float(row["img_per_s"]))["system"]
        rival = f"the next fastest whose pixels pass ({SYSTEMS[fastest]})"
        names = {fastest: rival} | {name: names[name] for name in names if name != fastest}
    versus = [f"{_over(ours, others[name])} {names[name]}" for name in names if name in others]
    return f"ours prepares {_rate(ours)} on {ours['cores']} cores: {', '.join(versus)}"


def _serial(folder: Path) -> str:
    for csv in reversed(serial.CSVS.values()):
        rows = [row for row in _passed(_rows(folder, csv)) if row["decoder"] not in ("pil", "null")]
        pil = _first(folder, csv, decoder="pil")
        if pil and rows:
            best = min(rows, key=lambda row: float(row["seconds_per_100k"]))
            names = dict.fromkeys((DECODERS[best["decoder"]], DECODERS[best["resizer"]]))
            ratio, images = _over(best, pil, "seconds_per_100k"), SHORT_SETS[best["image_set"]]
            return f"on {images} {' + '.join(names)} takes {ratio} the time of PIL{_mock(best)}"
    return ""


def _end_to_end(name: str, csv: str, bases: Mapping[str, str]) -> Callable[[Path], str]:
    """One run versus the first of `bases` (CSV by name) that was measured under like conditions."""

    def sentence(folder: Path) -> str:
        row = _first(folder, csv)
        if row is None:
            return ""
        text = f"{name} embeds {digits(row['img_per_s'])} images a second{_mock(row)}"
        for base_name, base_csv in bases.items():
            base = _first(folder, base_csv)
            if base and _alike(row, base):
                return f"{text}, {_over(row, base)} {base_name}"
        waits = percent(row["wait_share"], 0)
        return f"{text}; its main process waits for them {waits} of the time"

    return sentence


def _limits(folder: Path) -> str:
    row = _first(folder, limits.CSV, what="loader")
    if row is None:
        return ""
    return f"the loader prepares {_rate(row)}, {percent(row['efficiency'])} of its ceiling"


def _scaling(folder: Path) -> str:
    rows = [row for row in _rows(folder, scaling.CSV) if row["speedup_vs_one_thread"]]
    if not rows:
        return ""
    best = max(rows, key=lambda row: int(row["threads"]))
    ratio = factor(best["speedup_vs_one_thread"])
    return f"{best['threads']} threads load {_rate(best)}, {ratio} one thread"


def _predict(folder: Path) -> str:
    rows = [row for row in _rows(folder, predict.CSV) if row["measured_origin"] == "measured"]
    errors = [abs(error) for row in rows if (error := number(row["error"])) is not None]
    if not errors:
        return ""
    middle, worst = percent(median(errors)), percent(max(errors))
    return f"predicted and measured rates differ by {middle} (median), {worst} at worst"


def _layers(folder: Path) -> str:
    row = max(_rows(folder, layers.OPERATORS_CSV), key=lambda row: float(row["ms"]), default=None)
    return f"{row['operator']} takes {percent(row['share'])} of the forward pass" if row else ""


def _cpu(folder: Path) -> str:
    row = _first(folder, cpu.CSV)
    if row is None:
        return ""
    share = percent(row["forward_share"])
    return f"one CPU thread embeds {_rate(row)}; forward takes {share} of the time"


#: Sentences of experiments that are more than a table of alternatives.
_SENTENCES: Mapping[str, Callable[[Path], str]] = {
    "diagnose": _diagnose,
    "frontier": _frontier,
    "fast": _end_to_end(
        "recipe=fast", fast.CSV, {"the optimized recipe": opt.CSV, "the baseline": t4.CSV}
    ),
    "opt": _end_to_end("the optimized recipe", opt.CSV, {"the baseline": t4.CSV}),
    "t4": _end_to_end("the baseline", t4.CSV, {"the optimized recipe": opt.CSV}),
    "serial": _serial,
    "limits": _limits,
    "scaling": _scaling,
    "predict": _predict,
    "layers": _layers,
    "cpu": _cpu,
}
#: The nearest to the paper's question first; others follow in the order of the run.
_ORDER = ("diagnose", "frontier", "fast", "opt", "t4", "steps", "serial", "decoders", "workers")
