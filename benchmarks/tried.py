"""Is the gain right that `wallclock trace` predicts? data/tried.csv, with its provenance.

Each program of `benchmarks.traced` that loads files runs under `wallclock trace --try` once, and so
gets its prediction for `open_images`. Then it and its `_fixed` copy, which has that loader and the
same model, run in turn, without a trace. `gain` is the ratio of their images per second in the same
round, from the first image on: median, least and greatest. `inside`: whether the prediction's
interval has the median. `try_gain` follows from what `--try` measured. Files lie in the page cache.

    python -m benchmarks.tried --folder DIR [--n N] [--rounds N] [--program NAME]
"""

import argparse
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.fast import save
from benchmarks.preprocess import image_sets
from benchmarks.trace import link_images, printed_rate, run_program
from benchmarks.traced import unmarked
from wallclock.summary import median

TIMED = ("wallclock.trace", "wallclock.predict", "wallclock.loader", "wallclock.stages")
_SOURCES = Path(__file__).with_name("traced")
#: Images of a run at least: each is linked under so many names. Of thumbnails, more, where the
#: model is small.
_LEAST, _LEAST_SMALL = 250, 3000


@dataclass(frozen=True)
class Program:
    """A program of `benchmarks.traced`, and the words after its folder."""

    name: str
    source: str
    words: tuple[str, ...] = ()
    has_large_model: bool = False


PROGRAMS = (
    Program("Pillow loop", "pillow_loop"),
    Program("DataLoader, 2 workers, small model", "dataloader", ("2", "0")),
    Program("DataLoader, 2 workers, large model", "dataloader", ("2", "12"), True),
    Program("OpenCV in threads", "thread_pool"),
    Program("training step", "training", has_large_model=True),
)


def main() -> None:
    """Measure, write the table, print it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True, help="photos of your own")
    parser.add_argument("--n", type=int, default=60, help="synthetic images of each set")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--program", default="", help="only programs whose name has this in it")
    choices = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as work:
        for name, folder in _folders(choices, Path(work)):
            few, many = (
                link_images(folder, least, Path(work) / f"{name} {least}")
                for least in (_LEAST, _LEAST_SMALL if "small" in name else _LEAST)
            )
            for program in PROGRAMS:
                if choices.program in program.name:
                    linked = few if program.has_large_model else many
                    rows.append(_row(program, name, linked, Path(work), choices.rounds))
                    print(*rows[-1].values(), sep="  ", flush=True)
    save("tried", rows, TIMED)


def _folders(choices: argparse.Namespace, work: Path) -> Iterator[tuple[str, Path]]:
    """Each set of images in a folder of its own."""
    for name, paths in image_sets(choices, work):
        folder = paths[0].parent
        if name.startswith("synthetic"):
            folder = work / f"only {name}"
            folder.mkdir()
            for path in paths:
                path.rename(folder / path.name)
        yield name, folder


def _row(program: Program, images: str, folder: Path, work: Path, rounds: int) -> dict[str, Any]:
    words = [str(folder), *program.words]
    as_it_is = _copied(program.source, work)
    trace = _trace([str(as_it_is), *words], work)
    fixed = _copied(f"{program.source}_fixed", work)
    gains = [
        _rate([str(fixed), *words], work) / _rate([str(as_it_is), *words], work)
        for _ in range(rounds)
    ]
    fixes: list[dict[str, Any]] = trace["fixes"]
    predicted: dict[str, Any] = next((fix for fix in fixes if fix["name"] == "open_images"), {})
    tried = trace["try"]
    gain = median(gains)
    return {
        "program": program.name,
        "images": images,
        "n_images": trace["images"]["number"],
        "rounds": rounds,
        "predicted_gain": predicted.get("gain"),
        "predicted_low": predicted.get("low"),
        "predicted_high": predicted.get("high"),
        "is_recommended": predicted.get("is_recommended"),
        "try_gain": tried.get("measured_gain"),
        "try_gain_low": tried.get("measured_gain_low"),
        "try_gain_high": tried.get("measured_gain_high"),
        "gain": gain,
        "gain_min": min(gains),
        "gain_max": max(gains),
        "gain_error": predicted["gain"] / gain - 1 if predicted else None,
        "inside": predicted["low"] <= gain <= predicted["high"] if predicted else None,
        "reason": tried.get("reason", ""),
        "origin": "measured",
    }


def _copied(source: str, work: Path) -> Path:
    """A program of `benchmarks.traced` without marks."""
    text = (_SOURCES / f"{source}.py").read_text(encoding="utf-8")
    path = work / f"{source}.py"
    path.write_text(text if source.endswith("_fixed") else unmarked(text), encoding="utf-8")
    return path


def _trace(words: Sequence[str], work: Path) -> Mapping[str, Any]:
    report = work / "trace.json"
    run_program(["-m", "wallclock", "trace", "--try", "--json", str(report), *words], work)
    traced: Mapping[str, Any] = json.loads(report.read_text(encoding="utf-8"))
    return traced


def _rate(words: Sequence[str], work: Path) -> float:
    return printed_rate(run_program(words, work).stdout)


if __name__ == "__main__":
    main()
