"""The user's own job: where does the wall time go, what to fix first, and what will that bring?

Method. A seeded sample of the images passes the stages before the device, with the present recipe's
libraries and with each alternative's, in one process and in several concurrently. A batch's IPC,
and the step from h2d to the sink at a few batch sizes, are timed separately. All of this runs in
several passes, apart in time. From these costs alone `harness.pipeline_model` predicts what the
recipe, each fix alone and the fixes stacked bring end to end. With `prove=true` every one of them
is then run, as `t4` is, the present recipe too, each in several passes; one whose vectors are wrong
has failed.
A cold pass over the sample says what the storage allows for images that are not in memory, and
what more workers bring there. With `accelerator`, predictions are for a box that is not here
(`accelerators`): its forward pass and its bus are cited, not measured. Thumbnails are predicted
from loading real ones of the sample.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from math import ceil
from operator import itemgetter
from typing import Any

from experiments import common
from experiments.common import Cell, Options, Plan, Recipe, Record, Records, Row, Tables, cell
from experiments.diagnose import accelerators
from experiments.diagnose.fixes import Folder, Scenario, advice, cold, loaders, scenarios
from experiments.diagnose.predictions import Predicted, describing, new_row, plan_of, predict
from experiments.predict import accuracy
from experiments.predict.accuracy import Outcome
from experiments.predict.costs import step_recipes, worker_count
from harness import provenance
from harness.corpora import copies
from harness.corpora.manifest import Item
from harness.pipeline_model.model import RESOURCES
from wallclock.clock import STAGES
from wallclock.errors import UserError, check_name

ON_REQUEST = True
STAGES_CSV = "diagnosis.csv"
IMAGES_CSV = "diagnosis-images.csv"
PREDICTIONS_CSV = "diagnosis-predictions.csv"
ACCURACY_CSV = "diagnosis-accuracy.csv"

_SHARED = "image_set corpus weights model device device_kind n_images origin status reason"
_CHOICES = common.columns("decoder resizer interpolation engine workers batch_size dtype")
TABLES = {
    STAGES_CSV: common.columns(
        "stage ms_per_image share is_bottleneck at_most_speedup fix predicted_speedup fix_cost",
        _SHARED,
    ),
    IMAGES_CSV: common.columns(
        "source n_images median_kb p90_kb median_megapixels p90_megapixels bytes_per_pixel",
        "median_longest_px brightness formats corpus origin status reason",
    ),
    PREDICTIONS_CSV: common.columns(
        "kind fix",
        _CHOICES,
        "dct_scale normalize_on copies",
        "predicted_img_per_s low_img_per_s high_img_per_s",
        "predicted_speedup low_speedup high_speedup",
        "passes cost_spread cost_other_cores bottleneck",
        "accelerator_utilization faster_accelerator_speedup workers_to_saturate usd_per_million",
        "measured_img_per_s error within_interval measured_speedup gain_error gain_within_interval",
        "measured_bottleneck other_cores cores fix_cost",
        _SHARED,
    ),
    ACCURACY_CSV: accuracy.COLUMNS,
}
MEANINGS = """
[diagnosis.csv]
stage | | setting | one of the nine stages
ms_per_image | ms | measured | time per image
share | 0 to 1 | measured | that time in the time of all stages
is_bottleneck | yes or no | status | the stage that limits the rate
at_most_speedup | x | measured | speed-up if the stage took no time
fix | | status | the fix of this stage that gains most, or advice
predicted_speedup | x | measured | its predicted speed-up; empty for advice
fix_cost | | note | what the fix costs, in words
[diagnosis-images.csv]
source | | setting | what was sampled
p90_kb | kB | fact | 90th percentile of a file's size
p90_megapixels | megapixels | fact | 90th percentile of an image's pixels
bytes_per_pixel | bytes | fact | median bytes per pixel
median_longest_px | pixels | fact | median of the longest side
brightness | 0 to 1 | computed | median of the mean luma: black to white
formats | | fact | formats of the files, and how many of each
[diagnosis-predictions.csv]
kind | | setting | present, alone, stacked, a check of the model, or cold: images that are not in
  memory
fix | | setting | the fix
copies | | setting | thumbnails: they are loaded in place of the images; empty: the images
predicted_img_per_s | images/s | measured | predicted images per second, of the pass in the middle
low_img_per_s | images/s | measured | lower end of the interval
high_img_per_s | images/s | measured | upper end of the interval
predicted_speedup | x | measured | predicted gain over the present recipe
low_speedup | x | measured | lower end of the interval
high_speedup | x | measured | upper end of the interval
passes | count | note | passes over the costs
cost_spread | relative | note | how far the passes lie apart
cost_other_cores | cores | note | CPU use of other programs while costs were measured
faster_accelerator_speedup | x | measured | speed-up if the device took no time
within_interval | yes or no | status | the measured rate lies within its interval
measured_speedup | x | measured | measured gain over the present recipe
gain_error | relative | measured | predicted gain over measured gain, less 1
gain_within_interval | yes or no | status | the measured gain lies within its interval
fix_cost | | note | what the fix costs, in words
"""
TIMED = ("harness.corpora.copies", "harness.corpora.image_stats")

#: The storage is slow if it leaves less of the rate.
_SLOW = 0.95
#: A smaller speedup does nothing for its stage.
_MIN_SPEEDUP = 1.005
#: Few images get less time and smaller batches: their share of those asked for, at least this.
_LEAST_SHARE = 1 / 6


def cells(plan: Plan, options: Options) -> list[Cell]:
    """The images, then loading, batch transfer and steps in each of the passes."""
    elsewhere = _elsewhere(plan, options)
    recipe = options["recipe"]
    there = replace(recipe, device="cuda") if elsewhere else recipe
    cores = elsewhere.get("cores", provenance.machine()["cores"])
    corpus = plan.sample(options["images"])
    sound = plan.manifest(corpus).valid
    folder = _folder(options, sound)
    planned = scenarios(options, there, cores, folder, plan.settings.model.weights)
    if not elsewhere:
        planned += cold(recipe, cores)
    # The tables are made from records alone: the first cell carries the scenarios.
    described = {
        "setups": [asdict(scenario) for scenario in planned],
        "elsewhere": elsewhere,
        "has_jpegs": folder.has_jpegs,
    }
    grid = _Grid(plan, options, elsewhere, planned)
    return [
        grid.cell("image_stats", "images", recipe, described),
        *grid.thumbnails(),
        *grid.storage(),
        *grid.costs(),
    ]


def second_round(plan: Plan, options: Options, records: Records) -> list[Cell]:
    """With `prove`, every prediction end to end; of images not in memory where storage is slow."""
    if not options["prove"]:
        return []
    rows = tables(records).get(PREDICTIONS_CSV, ())
    slow = is_slow([row for row in rows if row["kind"] == "cold"])
    proved = [scenario for scenario in plan_of(records) if slow or not scenario.cold]
    return _Grid(plan, options, {}, proved).proofs()


def is_slow(cold: Sequence[Mapping[str, Any]]) -> bool:
    """Whether images that are not in memory slow the present recipe down noticeably.

    `cold`: the rows of such images.
    """
    return bool(cold) and (cold[0]["predicted_speedup"] or 1.0) < _SLOW


class _Grid:
    """The cells of the costs: what is measured for these scenarios, of this folder's sample."""

    def __init__(
        self, plan: Plan, options: Options, elsewhere: Options, planned: Sequence[Scenario]
    ) -> None:
        self._plan, self._options, self._elsewhere = plan, options, elsewhere
        self._planned = planned
        self._images = plan.sample(options["images"])
        wanted = options["images"][self._images.image_set]
        n_sound = len(plan.manifest(self._images).valid)
        self._share = max(_LEAST_SHARE, min(1.0, n_sound / wanted))

    def cell(
        self,
        protocol: str,
        label: str,
        timed: Recipe,
        params: Options,
        copies: str = "",
        repeat: int = 0,
    ) -> Cell:
        """One cell on the sample, or on its thumbnails."""
        images = self._plan.thumbnails(self._images) if copies else self._images
        timed = replace(timed, device=self._options["recipe"].device)
        return cell(
            self._plan,
            "diagnose",
            protocol,
            label,
            timed,
            images,
            repeat=repeat,
            params={**self._plan.params, **params},
        )

    def thumbnails(self) -> list[Cell]:
        """What making thumbnails costs, where they are offered."""
        if not any(scenario.copies for scenario in self._planned):
            return []
        params = _reduced({"seconds": self._options["thumbnails"]["seconds"]}, self._share)
        label = f"copies-{copies.KIND}"
        return [self.cell("copies", label, self._options["recipe"], params)]

    def storage(self) -> list[Cell]:
        """The cold pass; of a box that is not here, none."""
        if self._elsewhere:
            return []
        cores = provenance.machine()["cores"]
        counts = {worker_count(s.recipe, cores) for s in self._planned if s.cold}
        readers = sorted({1, *counts} - {0})
        params = {**self._options["storage"], "readers": readers}
        return [self.cell("storage", "storage", self._options["recipe"], params)]

    def costs(self) -> list[Cell]:
        """Loading, batch transfer and steps, in each of the passes."""
        return [cell for repeat in range(self._options["passes"]) for cell in self._pass(repeat)]

    def _pass(self, repeat: int) -> list[Cell]:
        options, share = self._options, self._share
        recipe = options["recipe"]
        grid = []
        for loader in loaders(self._planned):
            params = _reduced(options["loading"], share)
            label = f"loading-{loader.recipe.name}"
            grid.append(
                self.cell("contention", label, loader.recipe, params, loader.copies, repeat)
            )
        transfer = _reduced(options["batch_transfer"], share)
        grid.append(self.cell("batch_transfer", "batch_transfer", recipe, transfer, repeat=repeat))
        if self._elsewhere:
            counted = replace(recipe, name="step-flops", dtype="fp32", normalize_on="host")
            params = options["step_elsewhere"]
            return [*grid, self.cell("step", counted.name, counted, params, repeat=repeat)]
        chosen = ("batch_sizes", "batches", "seconds")
        step = _reduced({name: options["step"][name][recipe.device] for name in chosen}, share)
        dtypes = dict.fromkeys(scenario.recipe.dtype for scenario in self._planned)
        for timed in step_recipes(recipe, dtypes):
            grid.append(self.cell("step", timed.name, timed, step, repeat=repeat))
        return grid

    def proofs(self) -> list[Cell]:
        """Each scenario end to end, on the images whose costs were measured."""
        options = self._options
        least = options["prove_images"][options["recipe"].device]
        grid = []
        # Passes of one recipe differ, more so on a virtual machine: every rate is the middle of
        # several that are apart in time.
        for repeat in range(options["prove_passes"]):
            for scenario in self._planned:
                recipe, copied = scenario.recipe, scenario.copies
                params: dict[str, Any] = {"batches": ceil(least / recipe.batch_size)}
                if scenario.cold:
                    params["page_cache"] = "cold"
                grid.append(self.cell("throughput", recipe.name, recipe, params, copied, repeat))
        return grid


def _folder(options: Options, sound: Sequence[Item]) -> Folder:
    """Whether many of these images are JPEGs, and thumbnails would replace enough of them."""
    n, least = len(sound), options["thumbnails"]
    n_jpegs = sum(item.format == "jpeg" for item in sound)
    n_large = len(copies.replaced(sound))
    worth = n >= least["images"] and n_large >= max(1, least["share"] * n)
    return Folder(n_jpegs > options["least_jpegs"] * n, has_large_images=worth)


def _elsewhere(plan: Plan, options: Options) -> dict[str, Any]:
    """The box that the predictions are for; empty for this one.

    Raises UserError: an unknown accelerator, a mock model, or a proof of what is not here.
    """
    if not options["accelerator"]:
        return {}
    name = check_name(options["accelerator"], accelerators.load(), "accelerator")
    if options["prove"]:
        raise UserError(f"a proof runs on this machine, not on a {name}: leave out one of the two")
    if plan.settings.model.weights == "none":
        raise UserError(f"a mock model has a time of its own: name a network for the {name}")
    there = accelerators.load()[name]
    cost = plan.settings.cost
    cores = options["accelerator_cores"] or there.vcpus
    price = options["accelerator_usd_per_hour"]
    if price is None and (name, cores) == (cost.device, there.vcpus):
        price = cost.usd_per_hour
    return {"accelerator": name, "cores": cores, "usd_per_hour": price}


def _reduced(params: Options, share: float) -> Options:
    """So much less of `seconds`, and of `batch_sizes` at least the first two."""
    reduced = dict(params)
    if "seconds" in params:
        reduced["seconds"] *= share
    if sizes := params.get("batch_sizes"):
        reduced["batch_sizes"] = [n for n in sizes if n <= max(sizes[1], share * sizes[-1])]
    return reduced


def tables(records: Records) -> Tables:
    """The nine stages, the images, the predictions; empty where the sample was not measured.

    What was measured end to end also says how good the predictions were.
    """
    described = describing(records)
    if described is None:
        return {}
    predicted = predict(records, TABLES[PREDICTIONS_CSV])
    made = {
        STAGES_CSV: _stages(predicted, described),
        IMAGES_CSV: [_images(described)],
        PREDICTIONS_CSV: [entry.row for entry in predicted],
    }
    if judged := outcomes(made[PREDICTIONS_CSV]):
        made[ACCURACY_CSV] = accuracy.rows(judged)
    return made


def outcomes(rows: Sequence[Mapping[str, Any]]) -> list[Outcome]:
    """Of rows of `diagnosis-predictions.csv`: those measured; cold ones gain over cold ones."""
    warm = [row for row in rows if row["kind"] != "cold"]
    cold_rows = [row for row in rows if row["kind"] == "cold"]
    parts = [accuracy.outcomes(part, "predicted_img_per_s", "kind") for part in (warm, cold_rows)]
    return [outcome for part in parts for outcome in part]


def _stages(predicted: Sequence[Predicted], described: Record) -> list[Row]:
    """One row per stage, in their order."""
    base = new_row(described, TABLES[STAGES_CSV])
    present = predicted[0]
    if present.passes is None:
        base |= {name: present.row[name] for name in ("status", "reason")}
        return [base | {"stage": stage} for stage in STAGES]
    pipeline = present.passes[0].middle
    seconds = pipeline.stage_seconds()
    bottleneck = max(RESOURCES[pipeline.bottleneck()], key=seconds.__getitem__)
    has_jpegs = bool(described.cell.params.get("has_jpegs", True))
    rows = []
    for stage in STAGES:
        fix, cost, speedup = _best_fix(stage, predicted, has_jpegs)
        row = base | {"stage": stage, "fix": fix, "fix_cost": cost, "predicted_speedup": speedup}
        row |= {"ms_per_image": 1e3 * seconds[stage], "is_bottleneck": stage == bottleneck}
        row["share"] = seconds[stage] / sum(seconds.values())
        rows.append(row | {"at_most_speedup": pipeline.speedup_without(stage)})
    return rows


def _best_fix(stage: str, predicted: Sequence[Predicted], has_jpegs: bool) -> tuple[str, str, Any]:
    """The fix of a stage with the largest speedup; else advice, without a prediction."""
    candidates = [
        (row["predicted_speedup"], row["fix_cost"], scenario.title)
        for scenario, row, _ in predicted
        if (scenario.kind, row["status"]) == ("alone", "ok") and stage in scenario.stages
    ]
    speedup, cost, title = max(candidates, key=itemgetter(0), default=(0.0, "", ""))
    if speedup < _MIN_SPEEDUP:
        return *advice(stage, has_jpegs), None
    return title, cost, speedup


def _images(described: Record) -> Row:
    values = described.values
    stats = values["image_stats"]
    formats = sorted(values["formats"].items(), key=itemgetter(1), reverse=True)
    shares = [f"{100 * count / values['n_sound']:.0f} % {name}" for name, count in formats]
    return new_row(described, TABLES[IMAGES_CSV]) | {
        "source": "yours",
        "median_kb": stats["kb_p50"],
        "p90_kb": stats["kb_p90"],
        "median_megapixels": stats["megapixels_p50"],
        "p90_megapixels": stats["megapixels_p90"],
        "bytes_per_pixel": stats["bytes_per_pixel_p50"],
        "median_longest_px": stats["longest_px_p50"],
        "brightness": stats["brightness_p50"],
        "formats": ", ".join(shares),
    }
