"""What a diagnosis says: read from its three tables, the same on the page and on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from experiments.diagnose import IMAGES_CSV, PREDICTIONS_CSV, STAGES_CSV
from wallclock import provenance
from wallclock.paper.csvfile import Row, number, ok_rows, read_table
from wallclock.paper.format import counted, digits, percent
from wallclock.paper.labels import SETS
from wallclock.summary import median

TABLES = (STAGES_CSV, IMAGES_CSV, PREDICTIONS_CSV)
_PAPERS_SETS = provenance.ROOT / "data" / "paper" / "image-sets.csv"

#: A smaller predicted speedup is not noticeable.
_NOTICEABLE = 1.05
#: Fewer images than this are too few to rely on.
_FEW = 30
#: With more cores than this used by other processes, the measurement is disturbed.
_DISTURBED_CORES = 0.2

#: The bottleneck, by the name that the model gives it.
_RESOURCES = {
    "accelerator": "The network",
    "h2d": "The copy to the device",
    "main": "The main process",
    "transform": "Loading (all stages before the device)",
    "storage": "The storage",
}


@dataclass(frozen=True)
class Diagnosis:
    """The tables of one diagnosis."""

    stages: Sequence[Row]
    images: Sequence[Row]
    predictions: Sequence[Row]

    @property
    def present(self) -> Row:
        """The prediction for the present recipe."""
        return self.predictions[0]

    @property
    def on_cpu(self) -> bool:
        """Whether the forward pass shares the cores with the loader."""
        return self.present["device_kind"] == "cpu" and self.present["weights"] != "none"

    @property
    def device(self) -> str:
        """What runs the forward pass."""
        if self.present["weights"] == "none":
            return "mock model"
        return "CPU" if self.on_cpu else "GPU"

    @property
    def fixes(self) -> list[Row]:
        """Fixes alone, the largest predicted speedup first; those not predicted last."""
        alone = [row for row in self.predictions if row["kind"] == "alone"]
        return sorted(alone, key=_falling_speedup)

    @property
    def stacked(self) -> list[Row]:
        """Fixes added cumulatively."""
        return [row for row in self.predictions if row["kind"] == "stacked"]

    @property
    def proved(self) -> list[Row]:
        """The predictions that were also measured end to end."""
        return [row for row in self.predictions if row["measured_img_per_s"]]

    @property
    def checklist(self) -> list[Row]:
        """The nine stages, the one with the largest predicted speedup first."""
        by_share = sorted(self.stages, key=lambda row: -(number(row["share"]) or 0))
        return sorted(by_share, key=_falling_speedup)

    @property
    def bottleneck(self) -> Row:
        """The stage that limits the rate."""
        return next(row for row in self.stages if row["is_bottleneck"] == "yes")

    def first(self) -> Row | None:
        """The fix to begin with: the most noticeable one that leaves the images as they are."""
        faithful = [row for row in ok_rows(self.fixes) if row["faithful"] == "yes"]
        gains = [row for row in faithful if float(row["predicted_speedup"]) >= _NOTICEABLE]
        return gains[0] if gains else None


def load(folder: Path) -> Diagnosis | None:
    """The diagnosis in a folder of tables; None if there is none, or if it measured no stage.

    Raises UserError if a table is damaged.
    """
    if not all((folder / name).is_file() for name in TABLES):
        return None
    stages, images, predictions = (read_table(folder / name) for name in TABLES)
    measured = ok_rows(stages) and ok_rows(predictions[:1])
    return Diagnosis(stages, images, predictions) if measured else None


def compared_images(diagnosis: Diagnosis) -> list[Row]:
    """Your images, then the paper's two sets; what the paper does not say is empty."""
    yours = diagnosis.images[0]
    papers = [dict.fromkeys(yours, "") | row for row in read_table(_PAPERS_SETS)]
    return [yours, *(row | {"source": f"the paper's {SETS[row['image_set']]}"} for row in papers)]


def headline(diagnosis: Diagnosis) -> str:
    """What to fix first, in one sentence."""
    first, bottleneck = diagnosis.first(), diagnosis.bottleneck
    share = percent(bottleneck["share"], 0)
    if first is not None:
        return f"First: {first['fix']}. Predicted: {_times(first)} as fast."
    takes = f"takes {share} of the time"
    if bottleneck["stage"] == "forward":
        return f"The network on this {diagnosis.device} {takes}; no change of the loader helps."
    return f"{bottleneck['stage']} {takes}, and none of the fixes here shortens it noticeably."


def verdict(diagnosis: Diagnosis) -> list[str]:
    """Sentences: the bottleneck, the device's utilization, what a faster device would bring."""
    describe = (_pace, _utilization, _faster_device, _workers, _together, _sample)
    return [line for line in (sentence(diagnosis) for sentence in describe) if line]


def proof(diagnosis: Diagnosis) -> str:
    """The error of the predictions, in one sentence; empty if none was measured."""
    proved = diagnosis.proved
    if not proved:
        return ""
    errors = [abs(float(row["error"])) for row in proved]
    inside = sum(row["within_interval"] == "yes" for row in proved)
    error = f"median error {percent(median(errors))}, worst {percent(max(errors))}"
    measured = f"{counted(len(errors), 'prediction')} measured end to end"
    sentence = f"{measured}: {error}; {inside} inside their interval."
    busy = median([number(row["other_cores"]) or 0.0 for row in proved])
    if busy < _DISTURBED_CORES:
        return sentence
    disturbed = f"Other processes took {busy:.1f} cores meanwhile"
    return f"{sentence} {disturbed}: run it again on an idle machine before you judge."


def rate(row: Row) -> str:
    """`19.3 img/s (16.8 to 22.7)`."""
    low, high = digits(row["low_img_per_s"]), digits(row["high_img_per_s"])
    return f"{digits(row['predicted_img_per_s'])} img/s ({low} to {high})"


def _falling_speedup(row: Row) -> float:
    return -(number(row["predicted_speedup"]) or 0)


def _pace(diagnosis: Diagnosis) -> str:
    bottleneck, present = diagnosis.bottleneck, diagnosis.present
    return (
        f"{_RESOURCES[present['bottleneck']]} is the bottleneck, above all {bottleneck['stage']}: "
        f"{digits(bottleneck['ms_per_image'])} ms an image, {percent(bottleneck['share'], 0)} of "
        f"its time with stages run sequentially. Expect {rate(present)}."
    )


def _utilization(diagnosis: Diagnosis) -> str:
    busy = float(diagnosis.present["accelerator_utilization"])
    device = "CPU's forward pass" if diagnosis.on_cpu else diagnosis.device
    share = percent(busy, 0)
    if busy >= 0.9:
        return f"The {device} is busy {share} of the time: it is not starved."
    if diagnosis.on_cpu:
        rest = "for the rest it waits, or loading uses its cores"
        return f"The {device} alone would take {share} of the time; {rest}."
    state = "starves" if busy < 0.5 else "waits often"
    return f"The {device} {state}: it is busy {share} of the time and waits for images the rest."


def _faster_device(diagnosis: Diagnosis) -> str:
    """Amdahl's law: what remains if the forward pass takes no time at all."""
    bound = float(diagnosis.present["faster_accelerator_speedup"])
    share = next(float(row["share"]) for row in diagnosis.stages if row["stage"] == "forward")
    what = "A GPU instead of this CPU" if diagnosis.on_cpu else f"A faster {diagnosis.device}"
    if bound < _NOTICEABLE:
        return f"{what} would bring next to nothing: at most {bound:.2f} times, however fast it is."
    serial = f"{1 / (1 - share):.2f}" if share < 1 else "any number of"
    return (
        f"{what} would bring at most {digits(bound)} times, however fast it is "
        f"({serial} times if stages ran sequentially, Amdahl's law)."
    )


def _workers(diagnosis: Diagnosis) -> str:
    present = diagnosis.present
    wanted, workers = number(present["workers_to_saturate"]), int(present["workers"])
    if diagnosis.on_cpu:
        return "Loading and the network share these cores: more workers add no speed."
    if wanted is None:
        return "No number of workers on these cores loads as fast as the device computes."
    enough = "enough" if workers >= wanted else "too few"
    keep = f"{counted(int(wanted), 'worker')} would keep the device busy"
    return f"{keep}; the recipe has {workers}, {enough}."


def _together(diagnosis: Diagnosis) -> str:
    last = ok_rows(diagnosis.stacked[-1:])
    if not last:
        return ""
    return f"All fixes added cumulatively: {rate(last[0])}, {_times(last[0])} as fast as now."


def _sample(diagnosis: Diagnosis) -> str:
    n = int(diagnosis.present["n_images"])
    advice = f"give a folder of {_FEW} or more to rely on it"
    return f"This rests on {counted(n, 'image')}: {advice}." if n < _FEW else ""


def _times(row: Row) -> str:
    return f"{float(row['predicted_speedup']):.2f} times"
