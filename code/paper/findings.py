"""What the tables of a diagnosis say: for its page and its terminal summary."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from experiments.diagnose.cells import is_slow
from experiments.diagnose.predictions import ELSEWHERE
from harness.disturbance import limit
from harness.drawing.format import percent
from harness.table import Row
from wallclock.predict.intervals import NOTICEABLE, Gain

#: Other programs disturb a diagnosis from so many cores on, or from `limit`, whichever is more.
_BUSY_CORES = 0.2
#: Passes over the costs that lie farther apart, relative, say that something else ran.
BUSY_SPREAD = 0.3


def gain_of(row: Row) -> float:
    """The speedup of a row: as measured, if it and the present recipe ran; else as predicted."""
    return row["measured_speedup"] or row["predicted_speedup"] or 0.0


def is_recommended(row: Row) -> bool:
    """Whether a row's gain is noticeable, and was measured or predicted on a calm machine.

    Of what is only predicted, all of the interval must be a gain.
    """
    if row["status"] != "ok" or was_busy(row):
        return False
    speedup = gain_of(row)
    low = speedup if row["measured_speedup"] else row["low_speedup"] or 0.0
    return Gain(speedup, low, speedup).is_recommended


def busy_from(row: Row) -> float:
    """How many cores other programs must take to disturb what a row says."""
    return max(_BUSY_CORES, limit(row["cores"]))


def was_busy(row: Row) -> bool:
    """Whether something else ran while what a row says was measured: end to end, or its costs."""
    if row["measured_img_per_s"]:
        return (row["other_cores"] or 0.0) >= busy_from(row)
    cores, spread = row["cost_other_cores"], row["cost_spread"]
    return (cores or 0.0) >= busy_from(row) or (spread or 0.0) >= BUSY_SPREAD


@dataclass(frozen=True)
class Advice:
    """A fix, or advice without a prediction, and the rows of the stages that it is for."""

    rows: Sequence[Row]

    @property
    def share(self) -> float:
        """Of the time that these stages take together."""
        return sum((row["share"] for row in self.rows), 0.0)


@dataclass(frozen=True)
class Diagnosis:
    """The tables of one diagnosis: of stages, images, predictions, and how good these were."""

    stages: Sequence[Row]
    images: Sequence[Row]
    predictions: Sequence[Row]
    accuracy: Sequence[Row] = ()

    def of_kind(self, *kinds: str) -> list[Row]:
        """The predictions of these kinds: present, alone, stacked, check, cold."""
        return [row for row in self.predictions if row["kind"] in kinds]

    @property
    def present(self) -> Row:
        """The prediction for the present recipe."""
        return self.predictions[0]

    @property
    def on_cpu(self) -> bool:
        """Whether the forward pass shares the cores with the loader."""
        return (self.present["device_kind"], self.present["weights"] == "none") == ("cpu", False)

    @property
    def elsewhere(self) -> bool:
        """Whether the predictions are for a box that is not here."""
        return str(self.present["device"]).endswith(ELSEWHERE)

    @property
    def device(self) -> str:
        """What runs the forward pass."""
        if self.elsewhere:
            return str(self.present["device"]).split()[0]
        if self.present["weights"] == "none":
            return "mock model"
        return "CPU" if self.on_cpu else "GPU"

    @property
    def fixes(self) -> list[Row]:
        """Fixes alone, the largest speedup first, measured if it was; those not predicted last."""
        return sorted(self.of_kind("alone"), key=lambda row: -gain_of(row))

    @property
    def cold(self) -> list[Row]:
        """With images that are not in memory the present recipe, then more workers."""
        return [row for row in self.of_kind("cold") if row["status"] == "ok"]

    @property
    def slow_storage(self) -> list[Row]:
        """The same where it is noticeably slower; else empty."""
        return self.cold if is_slow(self.cold) else []

    @property
    def proved(self) -> list[Row]:
        """The predictions that were also measured end to end."""
        return [row for row in self.predictions if row["measured_img_per_s"]]

    @property
    def failed(self) -> list[Row]:
        """The predictions that ran end to end, or tried to, without a time that counts."""
        rows = [row for row in self.predictions if row["predicted_img_per_s"]]
        return [row for row in rows if row["status"] != "ok"]

    @property
    def by_share(self) -> list[Row]:
        """The nine stages, the longest first."""
        return sorted(self.stages, key=lambda row: -(row["share"] or 0))

    @property
    def checklist(self) -> list[Advice]:
        """Each fix or piece of advice once, with its stages; what gains most first."""
        by_fix: dict[str, list[Row]] = {}
        for row in self.by_share:
            by_fix.setdefault(row["fix"], []).append(row)
        listed = [Advice(rows) for rows in by_fix.values()]
        return sorted(listed, key=lambda each: -(each.rows[0]["predicted_speedup"] or 0))

    @property
    def harmful(self) -> list[Row]:
        """Fixes that are expected to slow the job down noticeably, or were measured to."""
        return [
            row
            for row in self.fixes
            if row["status"] == "ok" and not was_busy(row) and gain_of(row) < 1 / NOTICEABLE
        ]

    @property
    def busy(self) -> bool:
        """Whether something else ran while the costs, or all proofs, were measured."""
        return was_busy(self.present)

    @property
    def bottleneck(self) -> Row:
        """The stage that limits the rate."""
        return next(row for row in self.stages if row["is_bottleneck"])

    @property
    def first(self) -> Row | None:
        """The fix to begin with: the one that gains most of those that are recommended."""
        return next((row for row in self.fixes if is_recommended(row)), None)

    @property
    def fastest(self) -> Row | None:
        """The setup that gains most, stacked fixes included; None where none is recommended."""
        return best(self.of_kind("alone", "stacked"))

    def without_fix(self) -> str:
        """What is said first where no fix is recommended: why, and what would help."""
        if self.busy:
            return "No advice: something else ran while this was measured."
        if self.bottleneck["stage"] == "forward":
            takes = percent(self.present["accelerator_utilization"], 0)
            return f"The model takes {takes} of the time; {self._no_loader()}"
        possible = next(iter(self.fixes), None)
        if possible and gain_of(possible) >= NOTICEABLE and not possible["measured_speedup"]:
            return f"No fix is certain to gain: {possible['fix']} may. PROVE=1 measures it."
        share = percent(self.bottleneck["share"], 0)
        takes = f"{self.bottleneck['stage']} takes {share} of the time"
        return f"{takes}, and none of the fixes here shortens it noticeably."

    def _no_loader(self) -> str:
        """What could help where the model takes the time."""
        bound = self.present["faster_accelerator_speedup"] or 1.0
        text = "no loader will help"
        if bound < NOTICEABLE:
            return f"{text}."
        if self.on_cpu:
            return f"{text}; a GPU could."
        faster = "device" if self.present["weights"] == "none" else self.device
        return f"{text}; a faster {faster} could."


def best(rows: Iterable[Row]) -> Row | None:
    """The row that gains most of those that are recommended."""
    return max(filter(is_recommended, rows), key=gain_of, default=None)
