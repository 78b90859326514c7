"""`diagnose`: from the command line on files, its costs and its proof."""

import re
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from experiments.diagnose import cells as diagnose
from experiments.diagnose import fixes
from experiments.diagnose.fixes import Scenario
from harness import records as stored
from harness.plan import Plan
from harness.records import Record
from harness.table import read_table
from paper import check
from paper import diagnosis as words
from paper.__main__ import main as paper
from tests import making
from tests.conftest import RunMain
from tests.experiments import made, test_predict
from wallclock.clock import STAGES

#: As little of everything as still measures it.
FEWER = {
    "loading.seconds": 0.05,
    "batch_transfer": "{batches: 4, batch_sizes: [1, 8]}",
    "step.batch_sizes.cpu": "[1, 8]",
    "step.batches.cpu": 2,
    "better": "{workers: 1, batch_size: {cpu: 8}, dtype: {cpu: fp32}}",
    "checks": "[{workers: 0}]",
    "passes": 1,
}
SHORT = (
    "--experiment=diagnose",
    "corpus=folder",
    "model=null",
    "model.service_ms=20",
    "device=cpu",
    *(f"experiment.diagnose.{option}={value}" for option, value in FEWER.items()),
)
FIRST = "Where the time goes, "
#: On screen, in this order; the page has all parts.
ON_SCREEN = (FIRST, "Expect ", "what it costs", "Predicted, not measured")
PARTS = (
    "Where the time of an image goes",
    "Verdict",
    "Checklist",
    "What each fix will bring",
    "Proof",
)


@pytest.mark.slow
def test_one_image_gives_five_parts(run_main: RunMain, tmp_path: Path) -> None:
    images = making.folder(tmp_path / "my images", 1, 400, 300)
    out, figures = tmp_path / "data", tmp_path / "figures"
    size = "experiment.diagnose.recipe.batch_size=8"
    paths = (f"corpus.path={images}", f"out={out}", f"figures={figures}")
    done = run_main(*SHORT, size, *paths, timeout=400)
    assert done.returncode == 0, done.stdout + done.stderr
    positions = [done.stdout.find(part) for part in ON_SCREEN]
    assert -1 not in positions
    assert positions == sorted(positions)
    assert "This rests on 1 image:" in done.stdout
    assert str(figures / "diagnosis.html") in done.stdout
    assert done.stdout.splitlines()[-1]
    page = (figures / "diagnosis.html").read_text(encoding="utf-8")
    for number, heading in enumerate(PARTS, start=1):
        assert f"{number}. {heading}" in page
    assert "in one pass" in page
    assert not re.search(r"(?:src|href)=\"(?!#|data:)", page), "it must open without a network"

    stages = read_table(out / diagnose.STAGES_CSV)
    assert [row["stage"] for row in stages] == list(STAGES)
    assert sum(row["share"] for row in stages) == pytest.approx(1, rel=1e-4)
    assert sum(row["is_bottleneck"] for row in stages) == 1
    assert all(row["fix"] and row["fix_cost"] for row in stages)
    assert min(row["at_most_speedup"] for row in stages) >= 1
    predictions = read_table(out / diagnose.PREDICTIONS_CSV)
    assert {row["origin"] for row in predictions} == {"predicted"}
    assert not any(row["measured_img_per_s"] for row in predictions)
    assert {row["passes"] for row in predictions} == {1}
    assert not (out / diagnose.ACCURACY_CSV).exists()
    for row in predictions:
        low, rate, high = (row[f"{name}_img_per_s"] for name in ("low", "predicted", "high"))
        assert low < rate < high
    (mine,) = read_table(out / diagnose.IMAGES_CSV)
    assert (mine["median_megapixels"], mine["formats"]) == (0.12, "100 % JPEG baseline")

    # Its records become a reference, from which `make check` rebuilds it.
    reference = making.folder(tmp_path / "reference", 0)
    assert paper(["check", "--pack", str(out / "runs"), "--reference", str(reference)]) == 0
    assert check.check(reference) == {}
    packed = (reference / diagnose.PREDICTIONS_CSV, reference / "figures" / "diagnosis.html")
    assert packed[0].read_bytes() == (out / diagnose.PREDICTIONS_CSV).read_bytes()
    assert packed[1].read_text(encoding="utf-8") == page


def test_nothing_to_diagnose_is_one_line(run_main: RunMain, tmp_path: Path) -> None:
    images = making.folder(tmp_path / "images", 0)
    (images / "a.jpg").write_bytes(making.jpeg()[:200])
    (images / "b.jpg").touch()
    paths = (f"corpus.path={images}", f"out={tmp_path / 'data'}", f"figures={tmp_path / 'figures'}")
    done = run_main(*SHORT, *paths)
    assert done.returncode == 1
    (line,) = done.stderr.strip().splitlines()
    assert "none of the 2 images under" in line
    assert not (tmp_path / "figures" / "diagnosis.html").exists()


@pytest.mark.slow
def test_prediction_and_proof(run_main: RunMain, tmp_path: Path) -> None:
    images = making.folder(tmp_path / "images", 12, 400, 300)
    out, figures = tmp_path / "data", tmp_path / "figures"
    done = run_main(
        *SHORT,
        f"corpus.path={images}",
        f"out={out}",
        f"figures={figures}",
        "experiment.diagnose.prove=true",
        "experiment.diagnose.recipe.batch_size=4",
        "experiment.diagnose.recipe.workers=2",
        timeout=900,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "predictions measured end to end" in " ".join(done.stdout.split())
    loaded = words.load(out)
    assert loaded is not None
    # Those of images that are not in memory only where the storage is slow.
    unproved = [row["kind"] for row in loaded.predictions if not row["measured_img_per_s"]]
    assert unproved == ([] if loaded.slow_storage else ["cold", "cold"])
    present = loaded.present["measured_img_per_s"]
    for row in loaded.proved:
        if row["kind"] not in ("present", "cold"):
            speedup = row["measured_img_per_s"] / present
            assert row["measured_speedup"] == pytest.approx(speedup, rel=1e-3)
            gain_error = row["predicted_speedup"] / speedup - 1
            assert row["gain_error"] == pytest.approx(gain_error, rel=1e-2, abs=1e-3)
        error = row["predicted_img_per_s"] / row["measured_img_per_s"] - 1
        assert row["error"] == pytest.approx(error, rel=1e-3, abs=1e-4)
        low, rate, high = (row[f"{name}_img_per_s"] for name in ("low", "measured", "high"))
        assert row["within_interval"] == (low <= rate <= high)
    assert "measured img/s" in (figures / "diagnosis.html").read_text(encoding="utf-8")
    (everything, *_) = read_table(out / diagnose.ACCURACY_CSV)
    n = everything["n_rates"] + everything["n_decided_by_sleep"]
    assert n == len(loaded.proved)


@pytest.mark.parametrize(
    ("sink", "status"),
    [
        ({"sink_faults": [], "sink_cosine_min": 1.0}, "ok"),
        ({"sink_faults": ["3 missing"], "sink_cosine_min": 1.0}, "gate failed"),
        ({"sink_faults": [], "sink_cosine_min": 0.998}, "gate failed"),
    ],
)
def test_a_proof_whose_vectors_are_wrong_has_failed(sink: dict[str, Any], status: str) -> None:
    proof = test_predict.end_to_end("diagnose", 900, workers=2)
    proof = replace(proof, values={**proof.values, **sink})
    scenario = Scenario("present", "your recipe", proof.cell.recipe)
    params, model = {"setups": [asdict(scenario)]}, proof.cell.model
    images = made.record("diagnose", "image_stats", "images", made.IMAGE_STATS, params, model=model)
    made_of = diagnose.tables([images, *test_predict.costs(), proof])
    (row,) = made_of[diagnose.PREDICTIONS_CSV]
    assert row["status"] == status
    assert (row["measured_img_per_s"] is None) == (row["error"] is None) == (status != "ok")
    assert ("vectors" in str(row["reason"])) == (status != "ok")
    assert row["predicted_img_per_s"] is not None


def test_a_gain_is_over_the_pass_in_the_middle() -> None:
    """One slow pass of the present recipe makes no change look good."""
    proof = test_predict.end_to_end("diagnose", 900, workers=2)
    present = Scenario("present", "your recipe", replace(proof.cell.recipe, name="now"))
    better = Scenario("alone", "better", replace(proof.cell.recipe, name="better"))

    def ran(scenario: Scenario, repeat: int, img_per_s: float) -> Record:
        recipe = scenario.recipe
        measured = replace(proof.cell, recipe=recipe, label=recipe.name, repeat=repeat)
        return replace(proof, cell=measured, values={**proof.values, "img_per_s": img_per_s})

    params = {"setups": [asdict(present), asdict(better)]}
    images = made.record(
        "diagnose", "image_stats", "images", made.IMAGE_STATS, params, model=proof.cell.model
    )
    passes = [ran(present, repeat, rate) for repeat, rate in enumerate((100.0, 60.0, 110.0))]
    rows = diagnose.tables([images, *test_predict.costs(), *passes, ran(better, 0, 150.0)])
    now, then = rows[diagnose.PREDICTIONS_CSV]
    assert now["measured_img_per_s"] == 100
    assert then["measured_speedup"] == pytest.approx(1.5)


def cold_job(ms: float, plan: Plan, options: dict[str, Any]) -> list[Record]:
    """A job that loads 1,600 images a second from memory; one takes so long from the storage."""
    loading, *others = test_predict.costs()
    recipe = replace(options["recipe"], workers=2)
    planned = [Scenario("present", "now", recipe), *fixes.cold(recipe, 4)]
    setups = [asdict(scenario) for scenario in planned]
    images = partial(made.record, "diagnose", model=loading.cell.model)
    times = {f"cold-{n}": [int(10 * ms * made.MS / n)] for n in (1, 2, 8)}
    return [
        images("image_stats", "images", made.IMAGE_STATS, {"setups": setups}),
        images("storage", "storage", {"n_loaded": 10}, {"readers": [1, 2, 8]}, times),
        loading,
        *others,
    ]


@pytest.mark.parametrize(
    ("ms", "img_per_s"), [(0.1, (1600, 3200)), (4.0, (2 / 5.15e-3, 8 / 5.15e-3))]
)
def test_images_that_are_not_in_memory(
    ms: float, img_per_s: tuple[float, float], plan: Plan, options: dict[str, Any]
) -> None:
    """Two workers of 1.25 ms an image wait 3.9 ms more, or not at all; eight do, too."""
    records = cold_job(ms, plan, options)
    rows = diagnose.tables(records)[diagnose.PREDICTIONS_CSV]
    _, now, ahead = rows
    rates = [now["predicted_img_per_s"], ahead["predicted_img_per_s"]]
    assert rates == pytest.approx(img_per_s, rel=5e-3)
    assert now["predicted_speedup"] == pytest.approx(img_per_s[0] / 1600)
    assert ahead["predicted_speedup"] == pytest.approx(img_per_s[1] / img_per_s[0], rel=5e-3)
    slow = ms > 1
    assert (now["bottleneck"], ahead["workers"]) == ("storage" if slow else "transform", 8)
    proofs = diagnose.second_round(plan, {**options, "prove": True}, records)
    names = ["baseline", "cold-now", "cold-ahead"]
    assert [cell.recipe.name for cell in proofs] == 3 * (names if slow else names[:1])
    cold = [cell for cell in proofs if cell.recipe.name != "baseline"]
    assert {cell.params["page_cache"] for cell in cold} <= {"cold"}
    assert diagnose.second_round(plan, {**options, "prove": False}, records) == []


def measured_costs(plan: Plan, options: dict[str, Any], others: float) -> list[Record]:
    """What `cells` planned, with costs that are all alike while others took so many cores."""
    loading, transfer, step = test_predict.costs()
    contention_values = {**loading.values, "other_cores": others}
    by_protocol = {"contention": loading, "batch_transfer": transfer, "step": step}
    made_of = []
    for cell in diagnose.cells(plan, options):
        if cell.protocol == "image_stats":
            made_of.append(replace(loading, cell=cell, values=made.IMAGE_STATS, samples={}))
        elif cell.protocol in by_protocol:
            cost = by_protocol[cell.protocol]
            values = contention_values if cell.protocol == "contention" else cost.values
            params = {**cell.params, "batch_sizes": [1, 32]}
            made_of.append(replace(cost, cell=replace(cell, params=params), values=values))
    return made_of


def test_a_row_says_how_busy_the_machine_was(plan: Plan, options: dict[str, Any]) -> None:
    records = measured_costs(plan, options, 0.7)
    assert diagnose.second_round(plan, options, records) == []
    slow = [
        replace(r, values={**r.values, "cpu_s": {"1": 3e-3, "2": 3e-3}})
        if r.cell.protocol == "contention" and r.cell.repeat == 1
        else r
        for r in records
    ]
    row = diagnose.tables(slow)[diagnose.PREDICTIONS_CSV][0]
    assert row["cost_other_cores"] == 0.7
    assert row["cost_spread"] > 0.3
    assert row["passes"] == 3


@pytest.mark.parametrize("others", [0.0, 0.7])
def test_a_disturbed_diagnosis_is_measured_again(
    others: float, plan: Plan, options: dict[str, Any]
) -> None:
    runs, keys = plan.settings.runs, []
    for number, record in enumerate(measured_costs(plan, options, others)):
        keys.append(str(number))
        stored.write(runs / "diagnose" / keys[-1], record)
    stored.write_index(runs, "diagnose", keys)
    assert words.discard_disturbed(runs) == bool(others)
    assert len(stored.indexed(runs, "diagnose")) == (0 if others else len(keys))


def test_every_prediction_has_a_cell_to_prove_it(plan: Plan, options: dict[str, Any]) -> None:
    proving = {**options, "prove": True}
    records = measured_costs(plan, proving, 0.0)
    proofs = diagnose.second_round(plan, proving, records)
    rows = diagnose.tables(records)[diagnose.PREDICTIONS_CSV]
    assert {cell.protocol for cell in proofs} == {"throughput"}
    warm = [row for row in rows if row["kind"] != "cold"]
    assert len({cell.recipe.name for cell in proofs}) == len(warm) >= 10
    assert len(proofs) == 3 * len(warm)
    passes = [cell.repeat for cell in proofs]
    assert passes == sorted(passes), "those of one prediction are apart in time"
    images = records[0].cell.images
    assert {cell.images.n for cell in proofs} == {images.n}, "whose costs were measured"
