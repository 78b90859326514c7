"""The diagnosis' words: a starved GPU, a busy CPU, the fix to begin with; screen and page."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from experiments.diagnose import cells as diagnose
from harness.drawing.format import digits
from harness.table import column
from paper import diagnosis as job
from paper.diagnosis import words_of
from paper.findings import Diagnosis
from paper.provenance_files import read_provenance
from tests.paper.tables import REFERENCE, Row, copy_tables, save
from wallclock.__main__ import embed_parser
from wallclock.clock import STAGES
from wallclock.constraints import build
from wallclock.job.settings import JobSettings

MS = {"read": 0.1, "decode": 25.0, "resize": 19.0, "normalize": 0.9, "forward": 3.8}


def empty(csv: str) -> Row:
    """A row of a table as it is read where every cell is empty."""
    return {name: column(csv, name).parse("") for name in diagnose.TABLES[csv]}


def stages(bottleneck: str) -> list[Row]:
    rows = []
    for stage in STAGES:
        row: Row = empty(diagnose.STAGES_CSV) | {"stage": stage}
        ms = MS.get(stage, 0.0)
        row |= {"ms_per_image": ms, "share": ms / sum(MS.values()), "status": "ok"}
        row |= {"is_bottleneck": stage == bottleneck, "fix": "x"}
        rows.append(row)
    return rows


def prediction(kind: str, fix: str, speedup: float, **changes: Any) -> Row:
    """A prediction for a GPU that loading starves."""
    row = empty(diagnose.PREDICTIONS_CSV)
    row |= {"kind": kind, "fix": fix, "status": "ok", "workers": 4}
    row |= {"predicted_speedup": speedup, "predicted_img_per_s": 80 * speedup}
    row |= {"low_img_per_s": 70 * speedup, "high_img_per_s": 94 * speedup}
    row |= {"low_speedup": speedup / 1.2, "high_speedup": speedup * 1.2}
    row |= {"passes": 3, "cost_spread": 0.02, "cost_other_cores": 0.01, "cores": 8}
    row |= {"bottleneck": "transform", "accelerator_utilization": 0.3, "workers_to_saturate": 13}
    row |= {"engine": "dataloader", "batch_size": 32}
    row |= {"faster_accelerator_speedup": 1.0, "weights": "random", "device_kind": "cuda"}
    return row | {"n_images": 200} | changes


def case(*rows: Row, bottleneck: str = "decode") -> Diagnosis:
    return Diagnosis(stages(bottleneck), [], rows)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The reference's diagnosis, which was proved: DINOv2 on two CPU cores, 64 photos."""
    copy_tables(tmp_path, *diagnose.TABLES, source=REFERENCE)
    about = read_provenance(REFERENCE)[diagnose.STAGES_CSV]
    (tmp_path / "diagnosis.meta.json").write_text(json.dumps(about), encoding="utf-8")
    return tmp_path


def test_starved_gpu() -> None:
    diagnosis = case(
        prediction("present", "your recipe", 1.0),
        prediction("alone", "libjpeg-turbo", 1.9),
        prediction("alone", "more workers", 1.7),
    )
    first = "First: libjpeg-turbo. Predicted: 1.90 times as fast (1.58 to 2.28)."
    assert words_of(diagnosis)[0] == first
    text = " ".join(words_of(diagnosis)[1])
    assert "above all decode: 25 ms per image, 51 % of its time" in text
    assert "The GPU starves: it is busy 30 % of the time" in text
    assert "A faster GPU would bring next to nothing: at most 1.00 times" in text
    assert "13 workers would keep the device busy; the recipe has 4, too few." in text


def test_model_that_takes_all_the_time() -> None:
    on_cpu = {"bottleneck": "accelerator", "accelerator_utilization": 0.98, "device_kind": "cpu"}
    diagnosis = case(
        prediction("present", "your recipe", 1.0, faster_accelerator_speedup=10.3, **on_cpu),
        prediction("alone", "x", 1.01),
        bottleneck="forward",
    )
    assert diagnosis.first is None
    assert (
        words_of(diagnosis)[0]
        == "The model takes 98 % of the time; no loader will help; a GPU could."
    )
    assert "The model is the bottleneck: 3.8 ms per image" in " ".join(words_of(diagnosis)[1])
    text = " ".join(words_of(diagnosis)[1])
    assert "it is not starved" in text
    assert "A GPU instead of this CPU would bring at most 10.3 times" in text


def said(diagnosis: Diagnosis) -> str:
    return " ".join(words_of(diagnosis)[1])


def test_images_that_are_not_in_memory() -> None:
    present = prediction("present", "your recipe", 1.0)
    fast = case(present, prediction("cold", "not in memory", 0.97))
    assert "Expect 80 img/s (70 to 94), also of images that are not in memory." in said(fast)
    slow = case(
        present,
        prediction("cold", "not in memory", 0.5),
        prediction("cold", "16 workers", 1.9, workers=16),
    )
    text = " ".join(words_of(slow)[1])
    assert "Expect 80 img/s (70 to 94). Of images that are not in memory the storage allows" in text
    assert (
        "allows 40 img/s (35 to 47); with 16 workers that wait for it, 1.90 times as many" in text
    )
    without = case(
        present, prediction("cold", "x", 0, status="unavailable", predicted_speedup=None)
    )
    assert "not in memory" not in " ".join(words_of(without)[1])


def test_a_proof_headlines_what_was_measured() -> None:
    """The fix that measured most is first, whatever was predicted of it."""
    measured = {"measured_img_per_s": 80, "within_interval": True, "other_cores": 0.01}
    rows = [
        prediction("present", "a", 1.0, error=-0.1, **measured),
        prediction("alone", "b", 2.77, error=0.4, measured_speedup=1.44, **measured),
        prediction("alone", "c", 1.9, error=0.02, measured_speedup=1.94, **measured),
        prediction("alone", "d", 1.3, error=0.02, measured_speedup=0.34, **measured),
        prediction("stacked", "+ e", 3.0, error=0.02, measured_speedup=1.04, **measured),
    ]
    diagnosis = case(*rows)
    assert words_of(diagnosis)[0] == (
        "First: c. Measured: 1.94 times as fast (predicted 1.90, 1.58 to 2.28)."
    )
    assert "These would slow it down: d (0.34 times, measured)." in said(diagnosis)
    assert "together" not in said(diagnosis), "a stack that gains less is no advice"
    assert words_of(diagnosis)[2].startswith("5 predictions measured end to end")
    busy = case(prediction("present", "a", 1.0, error=0.9, **{**measured, "other_cores": 1.4}))
    assert "Other programs took 1.4 cores meanwhile" in words_of(busy)[2]
    assert words_of(case(prediction("present", "a", 1.0)))[2] == ""


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"cost_other_cores": 0.6}, "other programs took 0.6 cores"),
        ({"cost_spread": 0.4}, "the passes differ by 40 %"),
    ],
)
def test_a_busy_machine_gets_no_headline(changes: dict[str, float], words: str) -> None:
    rows = [
        prediction("present", "a", 1.0, **changes),
        prediction("alone", "bf16", 8.88, **changes),
    ]
    diagnosis = case(*rows)
    assert diagnosis.first is None
    headline = "No advice: something else ran while this was measured."
    assert words_of(diagnosis)[0] == headline
    assert words in words_of(diagnosis)[1][0]
    assert "Run it when nothing else runs" in words_of(diagnosis)[1][0]
    roomy = [{**row, "cost_spread": 0.02, "cores": 64} for row in rows]
    assert words_of(case(*roomy))[0].startswith("First: bf16."), "a twentieth of 64 cores is more"
    measured = {"measured_img_per_s": 160, "measured_speedup": 2.0}
    calm = prediction("alone", "proved", 1.9, **changes, **measured, other_cores=0.05)
    assert words_of(case(*rows, calm))[0].startswith("First: proved. Measured: 2.00 times as fast")
    disturbed = {**calm, "other_cores": 1.4}
    assert words_of(case(*rows, disturbed))[0] == headline
    assert "slow it down" not in said(case(*rows, {**disturbed, "measured_speedup": 0.5}))


def test_what_may_gain_nothing_is_not_recommended() -> None:
    unsure = case(prediction("present", "a", 1.0), prediction("alone", "b", 1.15))
    assert unsure.first is None
    assert words_of(unsure)[0] == "No fix is certain to gain: b may. PROVE=1 measures it."


def test_the_command_is_the_fastest_setup_that_a_job_can_run(folder: Path) -> None:
    """What embed runs: threads, no copies, its decoder; recommended; on screen and page."""
    threads = {"engine": "threads", "decoder": "simplejpeg", "resizer": "torch"}
    threads |= {"interpolation": "bilinear", "dct_scale": "auto", "normalize_on": "device"}
    threads |= {"dtype": "fp32", "workers": "2"}
    rows = [
        prediction("present", "a", 1.0),
        prediction("alone", "processes", 3.0, **{**threads, "engine": "dataloader"}),
        prediction("alone", "copies", 2.9, **threads, copies="thumbnails"),
        prediction("alone", "another library", 2.8, **{**threads, "decoder": "turbojpeg"}),
        prediction("alone", "another runtime", 2.7, **{**threads, "dtype": "int8"}),
        prediction("alone", "threads", 2.0, **threads),
        prediction("stacked", "+ batches of 64", 2.2, **{**threads, "batch_size": 64}),
        prediction("stacked", "+ unsure", 1.1, **threads),
    ]
    command = job.embed_command(case(*rows))
    settings = "batch=64 dtype=fp32 workers=2 device=cuda"
    assert command == f'make embed IMAGES=/path/to/images OUT=/path/to/vectors ARGS="{settings}"'
    build(JobSettings, embed_parser().read(["a", "b", *settings.split()])[1], "")
    save(folder / diagnose.PREDICTIONS_CSV, rows, list(rows[0]))
    (page,) = job.render(folder, folder / "figures").paths
    assert settings in page.read_text(encoding="utf-8")
    assert job.embed_command(case(*rows[:5])) == ""


def test_a_failed_proof_is_no_confirmation(folder: Path) -> None:
    """It is no fix to begin with, and screen and page name it, the present recipe's too."""
    wrong = {"status": "gate failed", "reason": "the vectors are wrong"}
    rows = [prediction("present", "a", 1.0, **wrong), prediction("alone", "b", 2.0, **wrong)]
    diagnosis = case(*rows)
    assert diagnosis.first is None
    assert words_of(diagnosis)[2] == "Failed end to end: a, b."
    measured = {"measured_img_per_s": 80, "within_interval": True, "error": 0.1}
    rows.append(prediction("alone", "c", 3.0, **measured))
    diagnosis = case(*rows)
    assert words_of(diagnosis)[2].endswith(
        "1 prediction measured end to end. Failed end to end: a, b."
    )
    save(folder / diagnose.PREDICTIONS_CSV, rows, list(rows[0]))
    (path,) = job.render(folder, folder / "figures").paths
    proof = path.read_text(encoding="utf-8").partition("5. Proof")[2]
    assert proof.count("gate failed: the vectors are wrong") == 2


def test_screen_has_every_fix_and_names_the_page(folder: Path) -> None:
    diagnosis = job.load(folder)
    assert diagnosis is not None
    console = Console(file=io.StringIO(), width=300, color_system=None)
    job.print_diagnosis(diagnosis, Path("figures/diagnosis.html"), console)
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert words_of(diagnosis)[0] in text
    total = sum(row["ms_per_image"] for row in diagnosis.stages)
    assert f"Where the time goes, {digits(total)} ms per image: " in text
    assert ("can run: make embed IMAGES=" in text) == bool(job.embed_command(diagnosis))
    assert all(row["fix"] in text for row in diagnosis.fixes)
    assert f"{len(diagnosis.proved)} predictions measured end to end" in text
    assert text.rstrip().endswith("figures/diagnosis.html")


def test_a_missing_table_is_no_diagnosis(folder: Path) -> None:
    (folder / diagnose.IMAGES_CSV).unlink()
    assert job.load(folder) is None
    assert job.render(folder, folder).skipped == f"no {diagnose.STAGES_CSV}"
