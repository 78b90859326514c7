"""A job of one's own diagnosed: on real files, from the command line; and the fixes it weighs."""

from __future__ import annotations

import re
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from experiments import _fixes
from tests import making
from tests.conftest import RunMain
from tests.experiments import made
from wallclock.clock import STAGES
from wallclock.paper.csvfile import read_table
from wallclock.paper.diagnosis import words
from wallclock.run.plan import Plan
from wallclock.spec import Recipe

#: As little of everything as still measures it.
SHORT = (
    *(
        "--experiment",
        "diagnose",
        "corpus=folder",
        "model=null",
        "model.service_ms=20",
        "device=cpu",
    ),
    *("experiment.diagnose.loading.seconds=0.05", "experiment.diagnose.batch_transfer.batches=4"),
    *("experiment.diagnose.step.batches.cpu=2", "experiment.diagnose.better.dtype.cpu=fp32"),
    "experiment.diagnose.loaders=[{name: turbojpeg, decoder: turbojpeg, resizer: opencv, interpolation: area}]",
    *("experiment.diagnose.checks=[]", "experiment.diagnose.better.workers=1"),
)
#: On screen, in this order; the page has all parts.
ON_SCREEN = (
    "Where the time of an image goes",
    "Expect ",
    "what it costs",
    "Predicted, not measured",
)
PARTS = ("Verdict", "Checklist", "What each fix will bring", "Proof")


def folder(path: Path, count: int) -> Path:
    path.mkdir()
    for seed in range(count):
        (path / f"{seed}.jpg").write_bytes(making.jpeg(800, 600, seed=seed))
    return path


def test_one_image_is_enough_for_five_parts_and_said_to_be_few(
    run_main: RunMain, tmp_path: Path
) -> None:
    images = folder(tmp_path / "my images", 1)
    out, figures = tmp_path / "data", tmp_path / "figures"
    done = run_main(*SHORT, f"corpus.path={images}", f"out={out}", f"figures={figures}")
    assert done.returncode == 0, done.stdout + done.stderr
    positions = [done.stdout.find(part) for part in ON_SCREEN]
    assert -1 not in positions
    assert positions == sorted(positions)
    assert "This rests on 1 image:" in done.stdout
    assert str(figures / "diagnosis.html") in done.stdout
    assert done.stdout.splitlines()[-1].startswith("fix first: ")
    page = (figures / "diagnosis.html").read_text(encoding="utf-8")
    for number, heading in enumerate(("Where the time of an image goes", *PARTS), start=1):
        assert f"{number}. {heading}" in page
    assert "± 15 % on every cost" in page
    assert not re.search(r"(?:src|href)=\"(?!#|data:)", page), "it must open without a network"

    stages = read_table(out / "diagnosis.csv")
    assert [row["stage"] for row in stages] == list(STAGES)
    assert sum(float(row["share"]) for row in stages) == pytest.approx(1, rel=1e-4)
    assert sum(row["is_bottleneck"] == "yes" for row in stages) == 1
    assert all(
        row["fix"] and row["fix_cost"] and float(row["at_most_speedup"]) >= 0.999 for row in stages
    )
    predictions = read_table(out / "diagnosis-predictions.csv")
    assert {row["origin"] for row in predictions} == {"predicted"}
    assert not any(row["measured_img_per_s"] for row in predictions)
    for row in predictions:
        low, rate, high = (float(row[f"{name}_img_per_s"]) for name in ("low", "predicted", "high"))
        assert low < rate < high
    (mine,) = read_table(out / "diagnosis-images.csv")
    assert (mine["median_megapixels"], mine["formats"]) == ("0.48", "100 % JPEG baseline")


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({}, "no image under"),
        ({"notes.txt": b"hello"}, "no image under"),
        ({"a.jpg": making.jpeg()[:200], "b.jpg": b""}, "none of the 2 images under"),
    ],
    ids=["empty", "no images", "all broken"],
)
def test_nothing_to_diagnose_is_one_line(
    files: dict[str, bytes], words: str, run_main: RunMain, tmp_path: Path
) -> None:
    images = folder(tmp_path / "images", 0)
    for name, data in files.items():
        (images / name).write_bytes(data)
    paths = (f"corpus.path={images}", f"out={tmp_path / 'data'}", f"figures={tmp_path / 'figures'}")
    done = run_main(*SHORT, *paths)
    assert done.returncode == 1
    (line,) = done.stderr.strip().splitlines()
    assert words in line
    assert not (tmp_path / "figures" / "diagnosis.html").exists()


@pytest.mark.slow
def test_prediction_and_proof_side_by_side(run_main: RunMain, tmp_path: Path) -> None:
    images = folder(tmp_path / "images", 12)
    out, figures = tmp_path / "data", tmp_path / "figures"
    done = run_main(
        *(*SHORT, f"corpus.path={images}", f"out={out}", f"figures={figures}"),
        *("experiment.diagnose.prove=true", "experiment.diagnose.recipe.batch_size=4"),
        *("experiment.diagnose.recipe.workers=2", "experiment.diagnose.better.batch_size.cpu=8"),
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "predictions measured end to end: median error" in " ".join(done.stdout.split())
    found = words.load(out)
    assert found is not None
    assert len(found.proved) == len(found.predictions)
    for row in found.proved:
        error = float(row["predicted_img_per_s"]) / float(row["measured_img_per_s"]) - 1
        assert float(row["error"]) == pytest.approx(error, rel=1e-3, abs=1e-4)
        inside = (
            float(row["low_img_per_s"])
            <= float(row["measured_img_per_s"])
            <= float(row["high_img_per_s"])
        )
        assert (row["within_interval"] == "yes") == inside
    assert "measured img/s" in (figures / "diagnosis.html").read_text(encoding="utf-8")


@pytest.fixture
def planned(tmp_path: Path) -> tuple[Plan, dict[str, Any]]:
    plan = made.plan(tmp_path, "experiment=[diagnose]")
    return plan, dict(plan.settings.experiments["diagnose"])


class TestFixes:
    def test_stacked_fixes_come_in_order_each_on_top_of_the_last(
        self, planned: tuple[Plan, dict[str, Any]]
    ) -> None:
        _, options = planned
        found = _fixes.setups(options, options["recipe"], cores=16)
        stacked = [setup.recipe for setup in found if setup.kind == "stacked"]
        assert [recipe.name.rpartition("-")[2] for recipe in stacked] == [
            "scaled",
            "workers",
            "batch",
            "dtype",
        ]
        assert [(r.decoder, r.workers, r.batch_size, r.dtype) for r in stacked] == [
            ("simplejpeg", 4, 32, "fp32"),
            ("simplejpeg", 16, 32, "fp32"),
            ("simplejpeg", 16, 64, "fp32"),
            ("simplejpeg", 16, 64, "bf16"),
        ]

    def test_what_changes_nothing_is_no_fix(self, planned: tuple[Plan, dict[str, Any]]) -> None:
        _, options = planned
        already = replace(options["recipe"], workers=4, batch_size=64, dtype="bf16")
        names = [fix.name for fix in _fixes.offered(options, already, cores=4)]
        assert names == ["opencv", "turbojpeg", "scaled", "turbojpeg-linear", "fast"]

    def test_the_fast_recipe_is_a_fix_where_its_engine_is_known(
        self, planned: tuple[Plan, dict[str, Any]]
    ) -> None:
        _, options = planned
        fast = Recipe(
            "fast", decoder="turbojpeg", resizer="opencv", interpolation="area", engine="threads"
        )
        (fix,) = [
            f
            for f in _fixes.offered({**options, "fast": fast}, options["recipe"], 8)
            if f.name == "fast"
        ]
        assert (fix.changes["engine"], fix.changes["workers"]) == ("threads", 8)
        assert "device" not in fix.changes
        unknown = {**options, "fast": replace(fast, engine="unheard-of")}
        assert "fast" not in [f.name for f in _fixes.offered(unknown, options["recipe"], 4)]

    def test_loading_is_measured_in_each_batch_size_that_is_predicted_but_not_in_a_checks(
        self, planned: tuple[Plan, dict[str, Any]]
    ) -> None:
        _, options = planned
        measured = _fixes.loaders(_fixes.setups(options, options["recipe"], cores=2))
        ways = [(r.decoder, r.interpolation, r.normalize_on, r.batch_size) for r in measured]
        assert sorted(ways) == [
            ("opencv", "area", "host", 32),
            ("pil", "bilinear", "host", 32),
            ("pil", "bilinear", "host", 64),
            ("simplejpeg", "bilinear", "device", 64),
            ("simplejpeg", "bilinear", "host", 32),
            ("simplejpeg", "bilinear", "host", 64),
            ("turbojpeg", "area", "host", 32),
            ("turbojpeg", "linear", "host", 32),
        ]
        unheard_of = {**options, "checks": [{"decoder": "opencv", "batch_size": 8}]}
        checked = _fixes.loaders(_fixes.setups(unheard_of, options["recipe"], cores=2))
        assert [r.batch_size for r in checked if (r.decoder, r.resizer) == ("opencv", "pil")] == [8]

    def test_every_prediction_has_a_cell_to_prove_it(
        self, planned: tuple[Plan, dict[str, Any]]
    ) -> None:
        from experiments import diagnose

        plan, options = planned
        cells = diagnose.cells(plan, {**options, "prove": True})
        proofs = [cell.recipe for cell in cells if cell.protocol == "throughput"]
        described = cells[0].params["setups"]
        assert [asdict(recipe) for recipe in proofs if recipe] == [
            setup["recipe"] for setup in described
        ]
        assert len(proofs) >= 12
        assert len({recipe.name for recipe in proofs if recipe}) == len(proofs)


def test_a_sample_is_seeded_and_a_larger_one_keeps_the_smaller(
    planned: tuple[Plan, dict[str, Any]],
) -> None:
    plan, _ = planned
    sampled = {n: [item.id for item in _manifest(plan, n)] for n in (1, 2, 3)}
    assert sampled[3][:2] == sampled[2]
    assert sampled[2][:1] == sampled[1]
    assert sorted(sampled[3]) == ["0.jpg", "1.jpg", "2.jpg"]


def _manifest(plan: Plan, n: int) -> Any:
    from wallclock.corpus import manifest as manifests

    made_slice = plan.sample({"original": n})
    return manifests.load(Path(made_slice.manifest)).first(made_slice.n).items
