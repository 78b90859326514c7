"""The whole job, and what others would run instead of it: data/benchmarks/peers.csv.

A model of published size with random weights embeds generated images on the CPU. `wallclock embed`
does so by PyTorch and by OpenVINO, in FP32 and in bf16; fastembed, sentence-transformers and the
pipeline of transformers as their documents show it, in FP32. Each job is a process of its own, from
its start to the vectors in a file; before the first round each has embedded a few images, so that
files lie in memory and graphs are kept. In each round every job runs once, forwards and backwards
in turn. A row has the wall seconds of the median round, and `over_first`, the first job's seconds
over this one's in the same round. What is not installed has a reason.

    python -m benchmarks.peers [--model NAME] [--small N] [--original N] [--rounds N] [--jobs JOB …]
"""

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from contextlib import chdir
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks._common import generated, in_turn, save, spread
from harness import models, provenance
from harness.jobs import run_job
from harness.measures import median
from harness.peers import installed
from wallclock.stages.forward.networks import load_network

#: `wallclock embed` → its settings.
_OURS = {
    "embed by pytorch": ("runtime=pytorch", "dtype=fp32"),
    "embed by openvino": ("runtime=openvino", "dtype=fp32"),
    "embed by openvino, bf16": ("runtime=openvino", "dtype=bf16"),
}
_HEAD = """\
import sys
import numpy as np
folder, listed, out = sys.argv[1:]
paths = open(listed).read().splitlines()
"""
#: Distribution → a program that takes the model's folder, a list of paths, and a file for vectors.
_PEERS = {
    "fastembed": """\
from fastembed import ImageEmbedding
model = ImageEmbedding(
    "Qdrant/clip-ViT-B-32-vision", specific_model_path=folder, providers=["CPUExecutionProvider"]
)
np.save(out, list(model.embed(paths)))
""",
    "sentence-transformers": """\
from sentence_transformers import SentenceTransformer
model = SentenceTransformer(folder, device="cpu")
np.save(out, model.encode(paths))
""",
    "transformers": """\
from transformers import pipeline
extract = pipeline("image-feature-extraction", model=folder, device="cpu", pool=True)
np.save(out, extract(paths))
""",
}
_JOBS = (*_OURS, *_PEERS)
_FEW = 16


def main() -> None:
    """Measure, write the table, print it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", choices=models.NAMES, default="dinov2-small")
    parser.add_argument("--small", type=int, default=500, help="images of 256 px")
    parser.add_argument("--original", type=int, default=200, help="originals")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--jobs", nargs="+", choices=_JOBS, default=_JOBS, help="default: all")
    choices = parser.parse_args()
    os.environ["HF_HUB_OFFLINE"] = "1"  # all is in the folder
    folder = models.folder(choices.model, provenance.ROOT / "data")
    if "fastembed" in choices.jobs:
        export(folder)
    rows: list[dict[str, object]] = []
    samples: dict[str, list[float]] = {}
    for images, n in (("small_256", choices.small), ("original", choices.original)):
        if not n:
            continue
        corpus = generated(images, n)
        paths = [corpus.root / item.path for item in corpus.valid]
        seconds, reasons = measure(folder, paths, choices.jobs, choices.rounds)
        about = {"model": choices.model, "images": images, "n_images": n}
        rows += make_rows(about, choices.jobs, seconds, reasons)
        samples |= {f"{images}, {job}, s": taken for job, taken in seconds.items()}
    save("peers", rows, samples)


def export(folder: Path) -> None:
    """Write the network's graph for batches of any size: model.onnx, which fastembed looks for."""
    if (folder / "model.onnx").exists():
        return
    import torch

    model = replace(models.spec(folder.name), weights="pretrained", path=str(folder))

    class Vectors(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = load_network(model)

        def forward(self, pixel_values: Any) -> Any:
            return self.network(pixel_values=pixel_values).pooler_output

    batch = torch.zeros(2, 3, 224, 224)
    # Weights are in a file beside the graph, which is named in it: the graph is moved last.
    with tempfile.TemporaryDirectory(dir=folder) as work, chdir(work):
        torch.onnx.export(
            Vectors().eval(),
            (batch,),
            "model.onnx",
            dynamo=True,
            dynamic_shapes={"pixel_values": {0: "n"}},
        )
        for name in ("model.onnx.data", "model.onnx"):
            shutil.move(name, folder / name)


def measure(
    folder: Path, paths: Sequence[Path], jobs: Sequence[str], rounds: int
) -> tuple[dict[str, list[float]], dict[str, str]]:
    """Seconds of each job in each round; of those that cannot run, the reason."""
    reasons: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as work:
        place = Path(work)
        few = _list(paths[:_FEW], place / "few.txt")
        listed = _list(paths, place / "all.txt")
        for job in jobs:
            try:
                run(job, folder, few, place)
            except RuntimeError as error:
                reasons[job] = str(error)
        runs = [job for job in jobs if job not in reasons]
        return in_turn(lambda job: run(job, folder, listed, place), runs, rounds), reasons


def _list(paths: Sequence[Path], path: Path) -> Path:
    path.write_text("".join(f"{path}\n" for path in paths), encoding="utf-8")
    return path


def run(job: str, folder: Path, listed: Path, place: Path) -> float:
    """Seconds of a job's process. Raises RuntimeError with its last line: it failed."""
    out = place / "out"
    shutil.rmtree(out, ignore_errors=True)
    if job in _OURS:
        command = ["-m", "wallclock", "embed", str(listed), str(out), f"model={folder}"]
        command += ["device=cpu", *_OURS[job]]
    else:
        out.mkdir()
        command = ["-c", _HEAD + _PEERS[job], str(folder), str(listed), str(out / "vectors.npy")]
    done = run_job([sys.executable, *command], place / "output.txt")
    if done.status:
        raise RuntimeError(done.output.strip().rpartition("\n")[2])
    seconds = done.wall_ns / 1e9
    print(f"{job}: {seconds:.1f} s", flush=True)
    return seconds


def make_rows(
    about: dict[str, object],
    jobs: Sequence[str],
    seconds: dict[str, list[float]],
    reasons: dict[str, str],
) -> list[dict[str, object]]:
    """A row for each job, those without a measurement too."""
    rows = []
    for job in jobs:
        taken, first = seconds.get(job, []), seconds.get(jobs[0], [])
        ratios = [base / own for base, own in zip(first, taken, strict=False)]
        versions = [job, "torch"] if job in _PEERS else ["torch", "openvino"]
        rows.append(
            about
            | {"job": job, "rounds": len(taken)}
            | spread("wall_s", taken)
            | {"img_per_s": int(str(about["n_images"])) / median(taken) if taken else None}
            | spread("over_first", ratios)
            | {"libraries": installed(versions), "cpu": provenance.machine()["cpu"]}
            | {"origin": "measured", "status": "unavailable" if job in reasons else "ok"}
            | {"reason": reasons.get(job, "")}
        )
    return rows


if __name__ == "__main__":
    main()
