"""The sentence that ends a run: one comparison, from the tables that the run wrote."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from experiments import (
    batch,
    cpu,
    decoders,
    fast,
    frontier,
    layers,
    limits,
    onnx,
    opt,
    predict,
    profiler,
    scaling,
    serial,
    serialization,
    steps,
    t4,
    workers,
)
from wallclock.paper.csvfile import Row, number, ok_rows, read_table
from wallclock.paper.diagnosis import words
from wallclock.paper.format import digits, factor, percent
from wallclock.paper.labels import DECODERS, RUNTIMES, SHORT_SETS, STEPS, SYSTEMS
from wallclock.summary import median

_LABELS: Mapping[str, Mapping[str, str]] = {
    **{"decoder": DECODERS, "resizer": DECODERS, "runtime": RUNTIMES},
    **{"step": STEPS, "image_set": SHORT_SETS},
}
#: Rows that differ in one of these are not compared.
_CONDITIONS = ("corpus", "image_set", "device", "weights", "service_ms")


@dataclass(frozen=True)
class _Comparison:
    """The best row of a table versus a base row."""

    csv: str
    #: Template; of the best row's cells, its `{value}` and `{rate}`, `{ratio}` or `{percent}`.
    sentence: str
    column: str = "img_per_s"
    #: Cells of the base row, and its table if that is another.
    base: Mapping[str, str] = field(default_factory=dict)
    base_csv: str = ""
    #: Divide by this column of the best row itself instead.
    base_column: str = ""
    #: Cells of the candidates.
    only: Mapping[str, str] = field(default_factory=dict)
    lowest: bool = False

    def __call__(self, folder: Path) -> str:
        """The sentence; empty if either row was not measured."""
        rows = [
            row
            for row in _passed(_rows(folder, self.csv))
            if row[self.column] and _has(row, self.only) and row.get("decoder") != "null"
            if not (self.base and _has(row, self.base))
        ]
        if not rows:
            return ""
        best = (min if self.lowest else max)(rows, key=lambda row: float(row[self.column]))
        base_csv, base_column = self.base_csv or self.csv, self.base_column or self.column
        bases = [best] if self.base_column else _rows(folder, base_csv)
        base = next((row for row in bases if _has(row, self.base) and _alike(best, row)), None)
        if base is None:
            return ""
        ratio = float(best[self.column]) / float(base[base_column])
        cells = {name: _LABELS.get(name, {}).get(cell, cell) for name, cell in best.items()}
        text = self.sentence.format(
            **cells,
            value=digits(best[self.column]),
            rate=digits(best.get("img_per_s", "")),
            ratio=factor(ratio),
            percent=percent(ratio),
        )
        return f"{text} (mock model)" if best.get("weights") == "none" else text


def closing_sentence(tables_folder: Path, experiments: Collection[str]) -> str:
    """Compare the result of a run with what it competes with; empty if nothing was measured.

    Of several experiments the one nearest to the paper's question is compared.

    Raises:
        UserError: a table is damaged.
    """
    for name, sentences in _SENTENCES.items():
        for sentence in sentences if name in experiments else ():
            if text := sentence(tables_folder):
                return text
    return ""


def _rows(folder: Path, csv: str) -> list[Row]:
    """The measured rows of a table; none if it is absent."""
    path = folder / csv
    return ok_rows(read_table(path)) if path.is_file() else []


def _passed(rows: Sequence[Row]) -> list[Row]:
    """Rows whose output passed its check, or has none."""
    return [row for row in rows if row.get("gate", "passed") in ("passed", "reference")]


def _has(row: Row, cells: Mapping[str, str]) -> bool:
    return all(row[name] == cell for name, cell in cells.items())


def _alike(one: Row, other: Row) -> bool:
    return all(one[name] == other[name] for name in _CONDITIONS if name in one and name in other)


def _diagnose(folder: Path) -> str:
    diagnosis = words.load(folder)
    if diagnosis is None:
        return ""
    first = diagnosis.first()
    if first is None:
        return words.headline(diagnosis)
    measured, base = first["measured_img_per_s"], diagnosis.present["measured_img_per_s"]
    proof = f", {factor(float(measured) / float(base))} measured" if measured and base else ""
    return f"fix first: {first['fix']}, {factor(first['predicted_speedup'])} predicted{proof}"


def _frontier(folder: Path) -> str:
    """Versus the next fastest whose pixels pass, the paper's recipe, and DataLoader + PIL."""
    rows = sorted(_rows(folder, frontier.CSV), key=lambda row: row["image_set"] != "original")
    ours = next((row for row in rows if row["system"] == "ours"), None)
    if ours is None:
        return ""
    panel = {name: ours[name] for name in ("corpus", "image_set", "subset")}
    others = {row["system"]: row for row in rows if row is not ours and _has(row, panel)}
    passed = _passed(list(others.values()))
    rivals = dict(SYSTEMS)
    order = ["paper", "pil"]
    if passed:
        fastest = max(passed, key=lambda row: number(row["img_per_s"]) or 0.0)["system"]
        rivals[fastest] = f"the next fastest whose pixels pass ({SYSTEMS[fastest]})"
        order = list(dict.fromkeys([fastest, *order]))
    versus = [
        f"{factor(float(ours['img_per_s']) / float(others[system]['img_per_s']))} {rivals[system]}"
        for system in order
        if system in others
    ]
    rate, images = digits(ours["img_per_s"]), SHORT_SETS[ours["image_set"]]
    return f"ours prepares {rate} {images} a second on {ours['cores']} cores: {', '.join(versus)}"


def _predict(folder: Path) -> str:
    rows = [row for row in _rows(folder, predict.CSV) if row["measured_origin"] == "measured"]
    errors = [abs(error) for row in rows if (error := number(row["error"])) is not None]
    if not errors:
        return ""
    return (
        f"predictions differ from the measured rates by {percent(median(errors))} "
        f"(median of {len(errors)} cells), {percent(max(errors))} at worst"
    )


_ALL_WINS = _Comparison(
    opt.CSV, "all wins embed {value} images a second, {ratio} the baseline", base_csv=t4.CSV
)
_THREADS = {"what": "threads", "image_set": "original"}
_FAST_ORIGINALS = {"recipe": "fast", "image_set": "original"}
#: By experiment, the nearest to the paper's question first; of several sentences the first with
#: both rows.
_SENTENCES: Mapping[str, tuple[Callable[[Path], str], ...]] = {
    "diagnose": (_diagnose,),
    "frontier": (_frontier,),
    "fast": tuple(
        _Comparison(
            fast.CSV,
            f"recipe=fast embeds {{value}} images a second, {{ratio}} {name}",
            base_csv=csv,
        )
        for csv, name in ((opt.CSV, "the optimized recipe"), (t4.CSV, "the baseline"))
    ),
    "opt": (_ALL_WINS,),
    "t4": (
        _ALL_WINS,
        _Comparison(
            t4.CSV,
            "the baseline embeds {rate} images a second; "
            "its main process waits for them {percent} of the time",
            column="wait_s",
            base_column="wall_s",
        ),
    ),
    "steps": (
        _Comparison(
            steps.CSV,
            "{step} reaches {value} images a second, {ratio} the baseline",
            base={"step": "baseline"},
        ),
    ),
    "serial": tuple(
        _Comparison(
            serial.CSVS[image_set],
            "on {image_set} {decoder} + {resizer} takes {ratio} the time of PIL",
            column="seconds_per_100k",
            base={"decoder": "pil"},
            lowest=True,
        )
        for image_set in ("original", "small_256")
    ),
    "decoders": tuple(
        _Comparison(
            decoders.CSV,
            "{decoder} decodes {image_set} in {value} ms each, {ratio} the time of PIL",
            column="mean_ms",
            base={"decoder": "pil"},
            only={"image_set": image_set},
            lowest=True,
        )
        for image_set in ("original", "small_256")
    ),
    "workers": (
        _Comparison(
            workers.CSV,
            "{workers} workers reach {value} images a second, {ratio} loading in the main process",
            base={"workers": "0"},
        ),
    ),
    "batch": (
        _Comparison(
            batch.CSV,
            "batch {batch_size} reaches {value} images a second, {ratio} batch 1",
            base={"batch_size": "1"},
        ),
    ),
    "onnx": (
        _Comparison(
            onnx.CSV,
            "{runtime} {dtype} takes {value} ms a batch, {ratio} the time of PyTorch fp32",
            column="mean_ms",
            base={"runtime": "pytorch", "dtype": "fp32"},
            lowest=True,
        ),
    ),
    "limits": (
        _Comparison(
            limits.CSV,
            "the loader of recipe=fast prepares {value} {image_set} a second, "
            "{ratio} decoding from memory alone",
            base={"what": "decode_memory", **_FAST_ORIGINALS},
            only={"what": "loader", **_FAST_ORIGINALS},
        ),
    ),
    "scaling": (
        _Comparison(
            scaling.CSV,
            "{threads} threads load {value} {image_set} a second, {ratio} one thread",
            base={"threads": "1", **_THREADS},
            only=_THREADS,
        ),
    ),
    "predict": (_predict,),
    "serialization": (
        _Comparison(
            serialization.CSV,
            "{format} writes {value} vectors a second, {ratio} parquet",
            column="vectors_per_s",
            base={"format": "parquet", "fsync": "no"},
            only={"fsync": "no"},
        ),
    ),
    "layers": (
        _Comparison(
            layers.OPERATORS_CSV,
            "{operator} takes {percent} of the forward pass",
            column="ms",
            base_column="profiled_ms",
        ),
    ),
    "cpu": (
        _Comparison(
            cpu.CSV,
            "one CPU thread embeds {rate} images a second; forward takes {percent} of the time",
            column="forward_s",
            base_column="wall_s",
        ),
    ),
    "profiler": (
        _Comparison(
            profiler.CSV,
            "timing a stage costs {value} ns, {ratio} a contextlib manager",
            column="ns_per_call",
            base={"what": "contextlib call"},
            only={"what": "stage call"},
        ),
    ),
}
