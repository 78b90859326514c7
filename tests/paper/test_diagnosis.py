"""The verdict's words, from made-up tables: a starved GPU, a busy CPU, a fix that is worth it or not."""

from __future__ import annotations

from typing import Any

from wallclock.clock import STAGES
from wallclock.paper import diagnosis
from wallclock.paper.diagnosis import Diagnosis

MS = {"read": 0.1, "decode": 25.0, "resize": 19.0, "normalize": 0.9, "forward": 3.8}


def stages(binding: str) -> list[dict[str, str]]:
    total = sum(MS.values())
    rows = []
    for stage in STAGES:
        ms = MS.get(stage, 0.0)
        row = {"stage": stage, "ms_per_image": f"{ms}", "share": f"{ms / total}", "status": "ok"}
        rows.append(
            row
            | {
                "is_bottleneck": "yes" if stage == binding else "no",
                "predicted_speedup": "",
                "fix": "x",
            }
        )
    return rows


def prediction(kind: str, fix: str, speedup: float, **changes: Any) -> dict[str, str]:
    row = {
        "kind": kind,
        "fix": fix,
        "status": "ok",
        "predicted_speedup": speedup,
        "predicted_img_per_s": 80 * speedup,
    }
    row |= {
        "low_img_per_s": 70 * speedup,
        "high_img_per_s": 94 * speedup,
        "bottleneck": "transform",
        "workers": 4,
    }
    row |= {
        "accelerator_utilization": 0.3,
        "faster_accelerator_speedup": 1.0,
        "workers_to_saturate": 13,
    }
    row |= {
        "weights": "random",
        "device_kind": "cuda",
        "n_images": 200,
        "faithful": "yes",
        "measured_img_per_s": "",
        "error": "",
        "within_interval": "",
    }
    return {name: str(value) for name, value in (row | changes).items()}


def case(*rows: dict[str, str], binding: str = "decode") -> Diagnosis:
    return Diagnosis(stages(binding), [], rows)


def test_a_starved_gpu_is_told_to_load_faster_not_to_be_replaced() -> None:
    found = case(
        prediction("present", "your recipe", 1.0),
        prediction("alone", "not antialiased", 2.6, faithful="no"),
        prediction("alone", "libjpeg-turbo", 1.9),
        prediction("alone", "more workers", 1.7),
    )
    assert diagnosis.headline(found) == "First: libjpeg-turbo. Predicted: 1.90 times as fast."
    words = " ".join(diagnosis.verdict(found))
    assert "above all in decode: 25 ms of an image, 51% of its time" in words
    assert "The GPU starves: it is busy 30% of the time" in words
    assert "A faster GPU would bring next to nothing: at most 1.00 times" in words
    assert "13 workers would keep the device busy; the recipe has 4, too few." in words


def test_a_network_that_takes_all_the_time_is_not_blamed_on_the_loader() -> None:
    present = prediction(
        "present",
        "your recipe",
        1.0,
        bottleneck="accelerator",
        accelerator_utilization=0.98,
        device_kind="cpu",
    )
    found = case(
        present | {"faster_accelerator_speedup": "10.3"},
        prediction("alone", "x", 1.01),
        binding="forward",
    )
    assert found.first() is None
    assert "no change of the loader helps" in diagnosis.headline(found)
    words = " ".join(diagnosis.verdict(found))
    assert "it is not starved" in words
    assert "A GPU instead of this CPU would bring at most 10.3 times" in words


def test_few_images_and_unavailable_fixes_are_said() -> None:
    found = case(
        prediction("present", "your recipe", 1.0, n_images=7),
        prediction("alone", "simplejpeg", 0, status="unavailable", predicted_speedup=""),
    )
    assert found.first() is None
    assert "All this rests on 7 images" in diagnosis.verdict(found)[-1]


def test_the_proof_counts_errors_both_ways() -> None:
    measured = {"measured_img_per_s": 80, "within_interval": "yes", "other_cores": 0.01}
    found = case(
        prediction("present", "a", 1.0, error=-0.1, **measured),
        prediction("alone", "b", 1.0, error=0.3, **{**measured, "within_interval": "no"}),
        prediction("alone", "c", 1.0, error=0.02, **measured),
    )
    assert diagnosis.proof(found) == (
        "3 predictions measured end to end: median error 10.0%, worst 30.0%; 2 inside their interval."
    )
    busy = case(prediction("present", "a", 1.0, error=0.9, **{**measured, "other_cores": 1.4}))
    assert "Other processes took 1.4 cores meanwhile" in diagnosis.proof(busy)
    assert diagnosis.proof(case(prediction("present", "a", 1.0))) == ""
