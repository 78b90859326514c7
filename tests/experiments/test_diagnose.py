"""`diagnose`: from the command line on files, and its fixes."""

import re
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from experiments import _fixes, diagnose
from experiments._fixes import Scenario
from harness.corpora.manifest import Item
from harness.plan import Plan
from harness.records import Record
from paper import check
from paper import diagnosis as words
from paper.__main__ import main as paper
from paper.csvfile import read_table
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
    "loaders": "[]",
    "checks": "[{workers: 0}]",
}
SHORT = (
    "--experiment=diagnose",
    "corpus=folder",
    "model=null",
    "model.service_ms=20",
    "device=cpu",
    *(f"experiment.diagnose.{option}={value}" for option, value in FEWER.items()),
)
FIRST = "Where the time of an image goes"
#: On screen, in this order; the page has all parts.
ON_SCREEN = (FIRST, "Expect ", "what it costs", "Predicted, not measured")
PARTS = (FIRST, "Verdict", "Checklist", "What each fix will bring", "Proof")


def folder(path: Path, count: int) -> Path:
    path.mkdir()
    for seed in range(count):
        (path / f"{seed}.jpg").write_bytes(making.jpeg(400, 300, seed=seed))
    return path


@pytest.mark.slow
def test_one_image_gives_five_parts(run_main: RunMain, tmp_path: Path) -> None:
    images = folder(tmp_path / "my images", 1)
    out, figures = tmp_path / "data", tmp_path / "figures"
    size = "experiment.diagnose.recipe.batch_size=8"
    done = run_main(*SHORT, size, f"corpus.path={images}", f"out={out}", f"figures={figures}")
    assert done.returncode == 0, done.stdout + done.stderr
    positions = [done.stdout.find(part) for part in ON_SCREEN]
    assert -1 not in positions
    assert positions == sorted(positions)
    assert "This rests on 1 image:" in done.stdout
    assert str(figures / "diagnosis.html") in done.stdout
    assert done.stdout.splitlines()[-1].startswith("fix first: ")
    page = (figures / "diagnosis.html").read_text(encoding="utf-8")
    for number, heading in enumerate(PARTS, start=1):
        assert f"{number}. {heading}" in page
    assert "± 15 % on every cost" in page
    assert not re.search(r"(?:src|href)=\"(?!#|data:)", page), "it must open without a network"

    stages = read_table(out / diagnose.STAGES_CSV)
    assert [row["stage"] for row in stages] == list(STAGES)
    assert sum(float(row["share"]) for row in stages) == pytest.approx(1, rel=1e-4)
    assert sum(row["is_bottleneck"] == "yes" for row in stages) == 1
    assert all(row["fix"] and row["fix_cost"] for row in stages)
    assert min(float(row["at_most_speedup"]) for row in stages) >= 1
    predictions = read_table(out / diagnose.PREDICTIONS_CSV)
    assert {row["origin"] for row in predictions} == {"predicted"}
    assert not any(row["measured_img_per_s"] for row in predictions)
    for row in predictions:
        low, rate, high = (float(row[f"{name}_img_per_s"]) for name in ("low", "predicted", "high"))
        assert low < rate < high
    (mine,) = read_table(out / diagnose.IMAGES_CSV)
    assert (mine["median_megapixels"], mine["formats"]) == ("0.12", "100 % JPEG baseline")

    # Its records become a reference, from which `make check` rebuilds it.
    reference = folder(tmp_path / "reference", 0)
    assert paper(["check", "--pack", str(out / "runs"), "--reference", str(reference)]) == 0
    assert check.check(reference) == {}
    packed = (reference / diagnose.PREDICTIONS_CSV, reference / "figures" / "diagnosis.html")
    assert packed[0].read_bytes() == (out / diagnose.PREDICTIONS_CSV).read_bytes()
    assert packed[1].read_text(encoding="utf-8") == page


@pytest.mark.parametrize(
    ("files", "words"),
    [
        pytest.param({}, "no image under", marks=pytest.mark.slow),
        pytest.param({"notes.txt": b"hello"}, "no image under", marks=pytest.mark.slow),
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
def test_prediction_and_proof(run_main: RunMain, tmp_path: Path) -> None:
    images = folder(tmp_path / "images", 12)
    out, figures = tmp_path / "data", tmp_path / "figures"
    done = run_main(
        *SHORT,
        f"corpus.path={images}",
        f"out={out}",
        f"figures={figures}",
        "experiment.diagnose.prove=true",
        "experiment.diagnose.recipe.batch_size=4",
        "experiment.diagnose.recipe.workers=2",
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "predictions measured end to end: median error" in " ".join(done.stdout.split())
    loaded = words.load(out)
    assert loaded is not None
    # Those of images that are not in memory only where the storage is slow.
    unproved = [row["kind"] for row in loaded.predictions if not row["measured_img_per_s"]]
    assert unproved == ([] if loaded.slow_storage else ["cold", "cold"])
    for row in loaded.proved:
        error = float(row["predicted_img_per_s"]) / float(row["measured_img_per_s"]) - 1
        assert float(row["error"]) == pytest.approx(error, rel=1e-3, abs=1e-4)
        low, rate, high = (float(row[f"{name}_img_per_s"]) for name in ("low", "measured", "high"))
        assert (row["within_interval"] == "yes") == (low <= rate <= high)
    assert "measured img/s" in (figures / "diagnosis.html").read_text(encoding="utf-8")


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
    names = ("kb", "megapixels", "longest_px", "bytes_per_pixel", "brightness")
    stats = {f"{name}_{at}": 1.0 for name in names for at in ("p50", "p90")}
    values = {"n_sound": 10, "formats": {"JPEG": 10}, "image_stats": stats}
    params, model = {"setups": [asdict(scenario)]}, proof.cell.model
    images = made.record("diagnose", "image_stats", "images", values, params, model=model)
    made_of = diagnose.tables([images, *test_predict.costs(), proof])
    (row,) = made_of[diagnose.PREDICTIONS_CSV]
    assert row["status"] == status
    assert (row["measured_img_per_s"] is None) == (row["error"] is None) == (status != "ok")
    assert ("vectors" in str(row["reason"])) == (status != "ok")
    assert row["predicted_img_per_s"] is not None


def cold_job(ms: float, plan: Plan, options: dict[str, Any]) -> list[Record]:
    """A job that loads 1,600 images a second from memory; one takes so long from the storage."""
    loading, *others = test_predict.costs()
    recipe = replace(options["recipe"], workers=2)
    planned = [Scenario("present", "now", recipe), *_fixes.cold(recipe, 4)]
    setups = [asdict(scenario) for scenario in planned]
    names = ("kb", "megapixels", "longest_px", "bytes_per_pixel", "brightness")
    stats = {f"{name}_{at}": 1.0 for name in names for at in ("p50", "p90")}
    values = {"n_sound": 10, "formats": {"JPEG": 10}, "image_stats": stats}
    images = partial(made.record, "diagnose", model=loading.cell.model)
    times = {f"cold-{n}": [int(10 * ms * made.MS / n)] for n in (1, 2, 8)}
    return [
        images("image_stats", "images", values, {"setups": setups}),
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
    assert [cell.recipe.name for cell in proofs] == (["cold-now", "cold-ahead"] if slow else [])
    assert {cell.params["page_cache"] for cell in proofs} <= {"cold"}
    assert diagnose.second_round(plan, {**options, "prove": False}, records) == []


def test_a_cold_pass_is_part_of_a_diagnosis(plan: Plan, options: dict[str, Any]) -> None:
    cells = diagnose.cells(plan, options)
    (cold,) = [cell for cell in cells if cell.protocol == "storage"]
    assert cold.params["readers"] == [1, 4, 16]
    assert cold.images == cells[0].images


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    return made.plan(tmp_path, "experiment=[diagnose]")


@pytest.fixture
def options(plan: Plan) -> dict[str, Any]:
    return dict(plan.settings.experiments["diagnose"])


def test_stacked_fixes_add_up_in_order(options: dict[str, Any]) -> None:
    planned = _fixes.scenarios(options, options["recipe"], cores=16)
    stacked = [scenario.recipe for scenario in planned if scenario.kind == "stacked"]
    assert [(r.name, r.decoder, r.workers, r.batch_size, r.dtype) for r in stacked] == [
        ("stacked-1-scaled", "simplejpeg", 4, 32, "fp32"),
        ("stacked-2-workers", "simplejpeg", 16, 32, "fp32"),
        ("stacked-3-batch", "simplejpeg", 16, 64, "fp32"),
        ("stacked-4-dtype", "simplejpeg", 16, 64, "bf16"),
    ]


def test_a_change_that_is_there_already_is_no_fix(options: dict[str, Any]) -> None:
    recipe = replace(options["recipe"], workers=4, batch_size=64, dtype="bf16")
    offered = [fix.name for fix in _fixes.fixes(options, recipe, cores=4)]
    assert offered == ["turbojpeg", "scaled", "turbojpeg-linear", "fast"]


def test_recipe_fast_is_a_fix_if_its_engine_is_known(options: dict[str, Any]) -> None:
    fast = replace(options["fast"], decoder="turbojpeg", engine="threads", workers=0)
    offered = _fixes.fixes({**options, "fast": fast}, options["recipe"], 8)
    changes = next(fix.changes for fix in offered if fix.name == "fast")
    assert (changes["engine"], changes["workers"]) == ("threads", 8)
    assert "device" not in changes
    unknown = {**options, "fast": replace(fast, engine="unheard-of")}
    assert "fast" not in {fix.name for fix in _fixes.fixes(unknown, options["recipe"], 4)}


@pytest.mark.parametrize(("better", "more"), [(64, []), (16, []), (128, [128]), (8, [8])])
def test_loading_is_measured_within_twice_each_batch_size(
    options: dict[str, Any], better: int, more: list[int]
) -> None:
    sizes = {**options["better"], "batch_size": {"cpu": better}}
    planned = _fixes.scenarios({**options, "better": sizes}, options["recipe"], cores=2)
    measured = [scenario.recipe for scenario in _fixes.loaders(planned)]
    loaders = [(r.decoder, r.interpolation, r.normalize_on, r.batch_size) for r in measured]
    assert loaders == [
        *(("pil", "bilinear", "host", size) for size in (32, *more)),
        ("turbojpeg", "area", "host", 32),
        *(("simplejpeg", "bilinear", "host", size) for size in (32, *more)),
        ("turbojpeg", "linear", "host", 32),
        ("simplejpeg", "bilinear", "device", 64),
    ]


@pytest.mark.parametrize(
    ("wanted", "seconds", "sizes"),
    [(3, 3.0, [1, 8, 16, 32]), (6, 1.5, [1, 8, 16]), (99, 0.5, [1, 8])],
)
def test_few_images_get_less_time_and_smaller_batches(
    plan: Plan, options: dict[str, Any], wanted: int, seconds: float, sizes: list[int]
) -> None:
    step = {**options["step"], "batch_sizes": {"cpu": [1, 8, 16, 32]}}
    images = {"original": wanted}
    grid = diagnose.cells(plan, {**options, "images": images, "step": step, "prove": False})
    params = {cell.protocol: cell.params for cell in grid}
    assert params["contention"]["seconds"] == pytest.approx(seconds)
    kept = params["step"]["batch_sizes"]
    assert (params["step"]["seconds"], kept) == (pytest.approx(2 * seconds), sizes)


def test_loading_of_a_check_is_measured_if_no_other_is(options: dict[str, Any]) -> None:
    checks = {**options, "prove": True, "checks": [{"decoder": "opencv", "batch_size": 8}]}
    measured = _fixes.loaders(_fixes.scenarios(checks, options["recipe"], cores=2))
    recipes = [scenario.recipe for scenario in measured]
    assert [r.batch_size for r in recipes if (r.decoder, r.resizer) == ("opencv", "pil")] == [8]


def test_every_prediction_has_a_cell_to_prove_it(plan: Plan, options: dict[str, Any]) -> None:
    cells = diagnose.cells(plan, {**options, "prove": True})
    proofs = [cell.recipe for cell in cells if cell.protocol == "throughput"]
    setups = cells[0].params["setups"]
    planned = [scenario["recipe"] for scenario in setups if not scenario["cold"]]
    assert [asdict(recipe) for recipe in proofs] == planned
    assert len({recipe.name for recipe in proofs}) == len(proofs) >= 12


def test_a_sample_is_seeded_and_a_larger_one_keeps_the_smaller(plan: Plan) -> None:
    samples = {}
    for n in (1, 2, 3):
        corpus = plan.sample({"original": n})
        samples[n] = [item.id for item in plan.manifest(corpus).items]
    assert samples[3][:2] == samples[2]
    assert samples[2][:1] == samples[1]
    assert sorted(samples[3]) == ["0.jpg", "1.jpg", "2.jpg"]


@pytest.mark.parametrize(
    ("n_progressive", "n_other", "kinds"),
    [(3, 57, ["thumbnails", "baseline"]), (2, 58, ["thumbnails"]), (49, 0, [])],
    ids=["5 %", "too few progressive ones", "too few images"],
)
def test_copies_are_offered_where_they_replace_enough(
    options: dict[str, Any], n_progressive: int, n_other: int, kinds: list[str]
) -> None:
    image = Item("x", "x", 1, 2000, 1000, format="jpeg", process="baseline", components=3)
    progressive = replace(image, process="progressive")
    sound = [progressive] * n_progressive + [image] * n_other
    assert diagnose._worthwhile(options, sound) == kinds
    planned = _fixes.scenarios(options, options["recipe"], 4, kinds)
    with_copies = [scenario for scenario in planned if scenario.copies]
    assert [scenario.copies for scenario in with_copies] == kinds
    assert {scenario.kind for scenario in with_copies} <= {"alone"}
    assert {scenario.copies for scenario in _fixes.loaders(planned)} == {"", *kinds}
