"""Is `wallclock trace` right on programs that others wrote, and what does it cost?

Each program of `benchmarks.traced` runs alone and under the trace in turn, round by round, and once
under py-spy. trace.csv has a row per program: what the trace says binds and what a person reads in
py-spy's samples, the images that it counted and those that there are, `overhead`, the program's CPU
seconds under the trace over those alone, less 1 (median, least, greatest), `report_s`, the CPU
seconds of the trace's own process, which starts the program and writes the report, and the greatest
difference of a stage's share from py-spy's, among the stages that both see. Then it is traced once
beside two busy processes, where the verdict may name no gain: `busy_gain` says whether it does.

The programs run in a virtual environment that is made once, with the libraries of `PINS`.

    python -m benchmarks.trace --folder DIR [--rounds N] [--program NAME] [--environment DIR]
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks._common import save, spread
from harness import provenance
from harness.measures import median
from wallclock.errors import UserError

_SOURCES = Path(__file__).with_name("traced")
#: What the environment has: the programs' libraries, py-spy, and what the trace needs.
PINS = (
    "torch==2.14.1",
    "torchvision==0.29.1",
    "timm==1.0.31",
    "imagededup==0.3.3.post2",
    "img2vec_pytorch",
    "transformers==5.24.0",
    "datasets==5.2.0",
    "accelerate==1.15.0",
    "joblib==1.6.0",
    "fastembed==0.9.1",
    "onnx==1.23.2",
    "ray==2.60.0",
    "pytest==9.2.0",
    "py-spy==0.4.3",
    "rich",
    "simplejpeg",
    "pillow",
    "numpy",
)
#: Part of a frame of py-spy's → the stage that it is of; the innermost one counts.
_STAGE_OF = {
    "load (PIL/ImageFile.py": "decode",
    "resize (PIL/Image.py": "resize",
    "forward (torchvision/transforms/": "transform",
    "__call__ (torchvision/transforms/": "transform",
    "tobytes (PIL/Image.py": "transform",
    "_call_impl (torch/nn/modules/module.py": "forward",
    "run (onnxruntime/capi/": "forward",
    "backward (torch/autograd/__init__.py": "backward",
}
_PHOTOS = "{photos}"


@dataclass(frozen=True)
class Program:
    """What Python is given, the causes that a person would name, and images at most.

    `passes`: how often an image is decoded.
    """

    name: str
    words: tuple[str, ...]
    causes: tuple[str, ...]
    images: int = 277
    passes: int = 1


PROGRAMS = (
    Program("imagededup, CNN", ("imagededup_cnn.py", _PHOTOS), ("loading",), 128),
    Program("imagededup, PHash", ("imagededup_hash.py", _PHOTOS), ("waiting",), 128),
    Program("img2vec_pytorch", ("img2vec.py", _PHOTOS), ("model",), 64),
    Program("timm, two workers", ("timm_loader.py", f"{_PHOTOS}/.."), ("model",), 128),
    Program("datasets.map and Trainer", ("hf_trainer.py", _PHOTOS), ("model",), 96),
    Program("joblib", ("joblib_thumbnails.py", _PHOTOS), ("waiting",)),
    Program("fastembed", ("fastembed_images.py", _PHOTOS), ("loading",)),
    Program(
        "torchrun, two ranks",
        ("-m", "torch.distributed.run", "--nproc-per-node=2", "rank.py", _PHOTOS),
        ("model",),
        32,
    ),
    Program("Ray", ("ray_tasks.py", _PHOTOS), ("waiting",)),
    Program("re-exec", ("reexec.py", _PHOTOS), ("loading",)),
    Program(
        "pytest",
        ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, "checked.py"),
        ("loading",),
    ),
)


def main() -> None:
    """Measure, write the table, print it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True, help="JPEGs; all with suffix .jpg")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--program", default="", help="only programs whose name has this in it")
    cache = Path.home() / ".cache" / "wallclock-traced"
    parser.add_argument("--environment", type=Path, default=cache, help="where it is, or is made")
    choices = parser.parse_args()
    python = install(choices.environment)
    rows = []
    for program in PROGRAMS:
        if choices.program in program.name:
            with tempfile.TemporaryDirectory() as name:
                rows.append(measure(program, python, choices.folder, Path(name), choices.rounds))
            save("trace", rows)  # so that what is measured is not lost with the rest


def install(folder: Path) -> Path:
    """The interpreter of the environment, which is made where there is none."""
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "-q", *PINS], check=True)
    return python


def link_images(folder: Path, n: int, to: Path) -> Path:
    """A folder with `n` links to the JPEGs of a folder, each of which may have several."""
    to.mkdir(parents=True)
    files = sorted(folder.resolve().glob("*.jpg"))  # links are not relative to here
    for index in range(n):
        (to / f"{index:05}.jpg").symlink_to(files[index % len(files)])
    return to


def measure(
    program: Program, python: Path, folder: Path, work: Path, rounds: int
) -> dict[str, object]:
    """A program's row."""
    photos = link_images(folder, program.images, work / "photos" / "class")
    words = [word.replace(_PHOTOS, str(photos)) for word in program.words]
    report = work / "trace.json"
    tracing = ["-m", "wallclock", "trace", "--json", str(report)]
    ratios, report_s = [], []
    for _ in range(rounds):
        alone_s = sum(_cpu_s([str(python), *words], photos))
        spent_s, traced_s = _cpu_s([str(python), *tracing, *words], photos)
        ratios.append(traced_s / alone_s - 1)
        report_s.append(spent_s)
    traced = json.loads(report.read_text(encoding="utf-8"))
    with _busy_machine():
        _cpu_s([str(python), *tracing, *words], photos)
    busy = json.loads(report.read_text(encoding="utf-8"))
    sampled = sampled_shares(_sample([str(python), *words], photos, work / "samples.txt"))
    return {
        "program": program.name,
        "cause": traced["cause"],
        "expected": " or ".join(program.causes),
        "is_right": traced["cause"] in program.causes,
        "line": traced["line"],
        "n_images": traced["images"]["number"],
        "n_expected": program.images * program.passes,
        "rounds": rounds,
        **spread("overhead", ratios),
        "report_s": median(report_s),
        "greatest_difference": greatest_difference(traced, sampled),
        "verdict": traced["verdict"],
        "busy_verdict": busy["verdict"],
        "busy_gain": " × (" in busy["verdict"],
        "origin": "measured",
    }


@contextmanager
def _busy_machine() -> Iterator[None]:
    """Two processes that use what cores they get."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def _cpu_s(command: Sequence[str], photos: Path) -> tuple[float, float]:
    """User and system seconds of a process itself, and of the children that it waited for."""
    paths = str(provenance.ROOT / "code")
    environment = {**os.environ, "PYTHONPATH": paths, "PHOTOS": str(photos)}
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            command, cwd=_SOURCES, env=environment, stdout=subprocess.DEVNULL, stderr=errors
        )
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        # What has ended keeps its times until it is waited for.
        stat = Path(f"/proc/{process.pid}/stat").read_text(encoding="utf-8")
        if process.wait():
            errors.seek(0)
            said = errors.read().decode(errors="replace")[-300:]
            raise UserError(f"{' '.join(command)} failed: {said}")
    user, system, children_user, children_system = map(int, stat.rpartition(")")[2].split()[11:15])
    ticks = os.sysconf("SC_CLK_TCK")
    return (user + system) / ticks, (children_user + children_system) / ticks


def _sample(command: Sequence[str], photos: Path, to: Path) -> Sequence[str]:
    """Lines of py-spy: frames from the outermost one, parted by semicolons, and how often."""
    spy = Path(command[0]).with_name("py-spy")
    options = ["--subprocesses", "--rate", "200", "--format", "raw", "--full-filenames"]
    _cpu_s([str(spy), "record", *options, "--output", str(to), "--", *command], photos)
    return to.read_text(encoding="utf-8").splitlines()


def sampled_shares(lines: Sequence[str]) -> Mapping[str, float]:
    """Stage → its share of all samples in a known stage."""
    samples: Counter[str] = Counter()
    for line in lines:
        frames, _, number = line.rpartition(" ")
        for frame in reversed(frames.split(";")):
            stage = next((s for part, s in _STAGE_OF.items() if _has(frame, part)), "")
            if stage:
                samples[stage] += int(number)
                break
    return {stage: number / samples.total() for stage, number in samples.items()}


def _has(frame: str, part: str) -> bool:
    """Whether a frame, `ImageFile.load (/…/PIL/ImageFile.py:398)`, is of this function and file."""
    function, _, file = part.partition(" (")
    name, _, path = frame.partition(" (")
    return name.rpartition(".")[2] == function and file in path


def greatest_difference(traced: Mapping[str, Any], sampled: Mapping[str, float]) -> float | str:
    """Of a stage's share by the trace, main process and workers together, and by py-spy.

    Empty where py-spy saw none of the stages: it loses a process that replaces itself.
    """
    if not sampled:
        return ""
    seconds = {
        stage: traced["main"].get(stage, 0.0) + traced["workers"].get(stage, 0.0)
        for stage in set(_STAGE_OF.values())
    }
    total = sum(seconds.values()) or 1.0
    return float(max(abs(s / total - sampled.get(stage, 0.0)) for stage, s in seconds.items()))


if __name__ == "__main__":
    main()
