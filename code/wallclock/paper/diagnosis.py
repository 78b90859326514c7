"""What a diagnosis says in words: read from its three tables, shown alike on screen and as a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from wallclock import provenance
from wallclock.paper.csvfile import number, ok_rows, read_table
from wallclock.paper.labels import SETS
from wallclock.summary import median

STAGES_CSV, IMAGES_CSV, PREDICTIONS_CSV = (
    "diagnosis.csv",
    "diagnosis-images.csv",
    "diagnosis-predictions.csv",
)
_PAPERS_SETS = provenance.ROOT / "data" / "paper" / "image-sets.csv"

#: Below this a prediction brings nothing that a person would notice.
_WORTH = 1.05
#: Fewer images than this are an anecdote.
_FEW = 30

#: More cores than this in use by others, and what was measured is not what the job would do alone.
_BUSY = 0.2

#: The resource that binds, in words.
_BINDS = {
    "accelerator": "The network",
    "h2d": "The copy to the device",
    "main": "The main process",
    "transform": "Loading, which is all that comes before the device,",
    "storage": "The storage",
}

Row = Mapping[str, str]


@dataclass(frozen=True)
class Diagnosis:
    """The tables of one diagnosis. `proved`: the predictions that were also measured."""

    stages: Sequence[Row]
    images: Sequence[Row]
    predictions: Sequence[Row]

    @property
    def present(self) -> Row:
        """The prediction for the recipe as it is."""
        return self.predictions[0]

    @property
    def on_cpu(self) -> bool:
        """Whether the forward pass shares the cores with everything else."""
        return self.present["device_kind"] == "cpu" and self.present["weights"] != "none"

    @property
    def device(self) -> str:
        """What the forward pass runs on, in words."""
        return {"none": "mock model"}.get(self.present["weights"], "CPU" if self.on_cpu else "GPU")

    @property
    def fixes(self) -> list[Row]:
        """Fixes alone, those that bring most first; what could not be predicted last."""
        alone = [row for row in self.predictions if row["kind"] == "alone"]
        return sorted(alone, key=lambda row: -(number(row["predicted_speedup"]) or 0))

    @property
    def stacked(self) -> list[Row]:
        """Fixes on top of one another."""
        return [row for row in self.predictions if row["kind"] == "stacked"]

    @property
    def proved(self) -> list[Row]:
        """The predictions that were also measured."""
        return [row for row in self.predictions if row["measured_img_per_s"]]

    @property
    def checklist(self) -> list[Row]:
        """The nine stages, the one whose fix brings most first."""
        return sorted(
            self.stages,
            key=lambda row: (
                -(number(row["predicted_speedup"]) or 0),
                -(number(row["share"]) or 0),
            ),
        )

    def first(self) -> Row | None:
        """The fix to begin with: of those that leave the picture as it is, the one that brings most."""
        worth = (row for row in self.fixes if row["status"] == "ok" and row["faithful"] == "yes")
        return next((row for row in worth if float(row["predicted_speedup"]) >= _WORTH), None)


def load(folder: Path) -> Diagnosis | None:
    """The diagnosis whose tables lie in a folder; None if there is none, or none of its stages was measured.

    Raises:
        UserError: a table is damaged.
    """
    if not all((folder / name).is_file() for name in (STAGES_CSV, IMAGES_CSV, PREDICTIONS_CSV)):
        return None
    stages, images, predictions = (
        read_table(folder / name) for name in (STAGES_CSV, IMAGES_CSV, PREDICTIONS_CSV)
    )
    return (
        Diagnosis(stages, images, predictions)
        if ok_rows(stages) and ok_rows(predictions[:1])
        else None
    )


def compared_images(found: Diagnosis) -> list[dict[str, str]]:
    """Your images, then the paper's two sets; what the paper does not say is empty."""
    columns = found.images[0].keys()
    papers = [
        {**dict.fromkeys(columns, ""), **row, "source": f"the paper's {SETS[row['image_set']]}"}
        for row in read_table(_PAPERS_SETS)
    ]
    return [dict(found.images[0]), *papers]


def headline(found: Diagnosis) -> str:
    """What to fix first, in one sentence."""
    first, binding = found.first(), _binding(found)
    share = float(binding["share"])
    if first is not None:
        return f"First: {first['fix']}. Predicted: {_times(first)} as fast."
    if binding["stage"] == "forward":
        return f"The network on this {found.device} takes {share:.0%} of the time; no change of the loader helps."
    return f"{binding['stage']} takes {share:.0%} of the time, and none of the fixes here shortens it noticeably."


def verdict(found: Diagnosis) -> list[str]:
    """The sentences of the verdict: what binds, how starved the device is, what more speed would bring."""
    present = found.present
    lines = [_pace(found), _starved(found), _amdahl(found), _feeding(found), _together(found)]
    n = int(present["n_images"])
    if n < _FEW:
        lines.append(
            f"All this rests on {n} image{'' if n == 1 else 's'}: give a folder of {_FEW} or more to rely on it."
        )
    return [line for line in lines if line]


def proof(found: Diagnosis) -> str:
    """How far the predictions were off, in one sentence; empty if none was measured."""
    errors = [abs(float(row["error"])) for row in found.proved]
    if not errors:
        return ""
    inside = sum(row["within_interval"] == "yes" for row in found.proved)
    said = (
        f"{len(errors)} predictions measured end to end: median error {median(errors):.1%}, worst {max(errors):.1%}; "
        f"{inside} inside their interval."
    )
    busy = median([number(row["other_cores"]) or 0.0 for row in found.proved])
    if busy >= _BUSY:
        said += f" Other processes took {busy:.1f} cores meanwhile: run it again on a quiet machine before you judge."
    return said


def _binding(found: Diagnosis) -> Row:
    return next(row for row in found.stages if row["is_bottleneck"] == "yes")


def _pace(found: Diagnosis) -> str:
    binding, present = _binding(found), found.present
    return (
        f"{_BINDS[present['bottleneck']]} sets the pace, above all in {binding['stage']}: "
        f"{float(binding['ms_per_image']):.3g} ms of an image, {float(binding['share']):.0%} of its time, one stage "
        f"after another. Expect {_rate(present)}."
    )


def _starved(found: Diagnosis) -> str:
    busy = float(found.present["accelerator_utilization"])
    device = "CPU's forward pass" if found.on_cpu else found.device
    if busy >= 0.9:
        return f"The {device} is busy {busy:.0%} of the time: it is not starved."
    if found.on_cpu:
        return f"The {device} would take {busy:.0%} of the time alone; for the rest it waits, or loading holds its cores."
    words = "starves" if busy < 0.5 else "waits often"
    return f"The {device} {words}: it is busy {busy:.0%} of the time and waits for images the rest."


def _amdahl(found: Diagnosis) -> str:
    bound = float(found.present["faster_accelerator_speedup"])
    share = next(float(row["share"]) for row in found.stages if row["stage"] == "forward")
    what = "A GPU instead of this CPU" if found.on_cpu else f"A faster {found.device}"
    if bound < _WORTH:
        return f"{what} would bring next to nothing: at most {bound:.2f} times, however fast it is."
    serial = f"{1 / (1 - share):.2f}" if share < 1 else "any number of"
    return (
        f"{what} would bring at most {bound:.3g} times, however fast it is ({serial} times if stages ran one after "
        "the other, Amdahl's law)."
    )


def _feeding(found: Diagnosis) -> str:
    present = found.present
    wanted, workers = number(present["workers_to_saturate"]), int(present["workers"])
    if found.on_cpu:
        return (
            "Loading and the network share these cores: more workers hide waits, they add no speed."
        )
    if wanted is None:
        return "No number of workers on these cores loads as fast as the device computes."
    enough = "enough" if workers >= wanted else "too few"
    plural = "" if wanted == 1 else "s"
    return f"{wanted:.0f} worker{plural} would keep the device busy; the recipe has {workers}, {enough}."


def _together(found: Diagnosis) -> str:
    if not found.stacked or found.stacked[-1]["status"] != "ok":
        return ""
    last = found.stacked[-1]
    return f"All fixes on top of one another: {_rate(last)}, {_times(last)} as fast as now."


def _times(row: Row) -> str:
    return f"{float(row['predicted_speedup']):.2f} times"


def _rate(row: Row) -> str:
    low, high = float(row["low_img_per_s"]), float(row["high_img_per_s"])
    return f"{float(row['predicted_img_per_s']):.3g} img/s ({low:.3g} to {high:.3g})"
