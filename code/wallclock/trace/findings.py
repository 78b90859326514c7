"""What there is to say of a trace: the verdict, notes, numbers, for terminal, JSON and page."""

import signal
from collections.abc import Iterator

from wallclock.machine import SWAPPING
from wallclock.trace.fixes import Fixes, fixes_of
from wallclock.trace.helps import helps_of
from wallclock.trace.record import Trace
from wallclock.trace.shares import Row, Shares
from wallclock.trace.sizes import Sizes, say_size, tabulate_sizes
from wallclock.trace.verdict import find_verdict
from wallclock.trace.words import count, digits, percent, seconds

#: Fewer images than this are too few to judge by.
_FEW_IMAGES = 100
#: The model's error that is worth a note.
_WORTH_A_NOTE = 0.1
#: Less than this is what traced processes use while they end.
_LEAST_UNTRACED_S = 1.0


class Findings:
    """What there is to say of a trace. Nothing is read but the trace."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.shares = Shares(trace)
        #: What each fix would bring.
        self.fixes = fixes_of(self.shares)
        #: What would help the model.
        self.helps = helps_of(self.shares)
        #: What binds, where, and what to change.
        self.verdict = find_verdict(self.shares, self.fixes, self.helps)
        #: Sentences below the verdict.
        self.notes = list(say_notes(self.shares, self.fixes))
        #: The most frequent kinds of images.
        self.sizes = tabulate_sizes(trace)
        #: Of the main process and, if there are any, of the workers.
        self.tables = [t for t in (self.shares.main, self.shares.workers) if t.n_threads]

    @property
    def facts(self) -> str:
        """Wall time, start-up, images, cores, CPU use and device, in a line."""
        shares = self.shares
        parts = [f"{seconds(self.trace.wall_s)} in all"]
        if shares.n_images:
            parts.append(
                f"{count(shares.n_images, 'image')}, {digits(shares.img_per_s)} per second"
            )
        use = "" if shares.cpu_use is None else f", {percent(shares.cpu_use)} of them used"
        parts.append(f"{count(self.trace.cores, 'core')}{use}")
        if self.trace.device:
            busy_s = self.trace.device_busy_s
            busy = "" if busy_s is None else f", busy {seconds(busy_s)}"
            parts.append(f"{self.trace.device}{busy}")
        return "; ".join(parts)


def stage_cells(row: Row) -> tuple[str, ...]:
    """Seconds, share, calls, images, milliseconds per image."""
    calls = f"{row.spent.calls:,}" if row.spent.calls else ""
    images = f"{row.spent.images:,}" if row.spent.images else ""
    ms = "" if row.ms_per_image is None else digits(row.ms_per_image)
    return digits(row.spent.seconds), percent(row.share), calls, images, ms


def image_cells(sizes: Sizes) -> tuple[str, ...]:
    """Format or stage, number, size before, size after, KB each, function."""
    name = sizes.format or "decoded"
    if sizes.function.stage == "resize":
        name = f"resized {sizes.format}".rstrip()
    median = "" if sizes.is_typical else " median"
    made = "in full" if sizes.made == sizes.source else say_size(sizes.made)
    kb = "" if sizes.kb is None else digits(sizes.kb)
    stored = f"{say_size(sizes.source)}{median}"
    return name, f"{sizes.count:,}", stored, made, kb, sizes.function.name


def say_notes(shares: Shares, fixes: Fixes) -> Iterator[str]:
    """How the program ended, what is not in the shares, and how sure the gains are."""
    trace = shares.trace
    if trace.exit_code:
        how = _say_exit(trace.exit_code)
        yield f"The program ended {how} after {seconds(trace.wall_s)}; the times are until then."
    if trace.untraced_s > max(_LEAST_UNTRACED_S, _WORTH_A_NOTE * trace.wall_s):
        yield (
            f"Processes that are not traced used {seconds(trace.untraced_s)} of the cores: programs"
            " of another language, or Python with -E, -I or -S or without this environment."
        )
    if shares.n_images and shares.startup_s > 0.5 * trace.wall_s:
        yield (
            f"Start-up took {seconds(shares.startup_s)} of {seconds(trace.wall_s)}:"
            " trace a run of more images to judge the rest."
        )
    error = fixes.model_error
    if shares.is_busy_machine:
        yield (
            f"Other programs used {percent(shares.others)} of the cores: no gain follows from such"
            " times. Trace it again on an idle machine, or add --try."
        )
    elif error >= _WORTH_A_NOTE and fixes.predicted:
        follows = "the intervals are wider for it."
        if not fixes.are_known:
            follows = "no gain follows from it. Run it again, or add --try."
        yield (
            f"The pipeline model's rate differs from the program's by {percent(error)}: {follows}"
        )
    if trace.swapped_bytes >= SWAPPING:
        yield (
            f"The machine moved {trace.swapped_bytes / 1e6:,.0f} MB to and from swap meanwhile:"
            " its memory was short. Use fewer workers or smaller batches."
        )
    if 0 < shares.n_images < _FEW_IMAGES:
        yield f"This rests on {count(shares.n_images, 'image')}: trace {_FEW_IMAGES} or more."


def _say_exit(code: int) -> str:
    signals = {128 + number: number.name for number in signal.Signals}
    return f"by {signals[code]}" if code in signals else f"with exit code {code}"
