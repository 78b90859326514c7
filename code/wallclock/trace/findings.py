"""What there is to say of a trace: the verdict, notes, numbers, for terminal, JSON and page."""

import signal
from collections.abc import Iterator
from functools import cached_property

from wallclock.machine import SWAPPING
from wallclock.trace.fixes import MOST_MODEL_ERROR, Fixes, Predicted, fixes_of
from wallclock.trace.record import Trace
from wallclock.trace.shares import LOADING, MODEL, OTHER, OTHER_WAITS, Row, Shares, Table
from wallclock.trace.sizes import (
    Sizes,
    full_size_share,
    say_size,
    say_target,
    tabulate_sizes,
    target_of,
)
from wallclock.trace.words import count, digits, percent, seconds, times
from wallclock.trace.work import job_of

#: Stage → the subject of a sentence.
_SUBJECTS = {
    "read": "reading",
    "decode": "decoding",
    "resize": "resizing",
    "transform": "transforming the pixels",
    "normalize": "normalizing",
    "assemble": "assembling batches",
    "h2d": "copying to the device",
    "forward": "the model",
    "backward": "the model",
    "optimizer": "the model",
    "d2h": "copying from the device",
    "serialize": "writing the results",
    "wait": "waiting for data",
    "send": "sending batches",
    OTHER: "Python code that is not traced",
}
#: The same of whose time it is.
_MAIN = "the main process waits", "the main process's"
_WORKERS = "the workers wait", "the workers'"
#: A model that takes this share of the time is what there is to say.
_MODEL_BINDS = 0.5
#: What most images share is said of all.
_MOST = 0.5
#: Fewer images than this are too few to judge by.
_FEW_IMAGES = 100
#: The model's error that is worth a note.
_WORTH_A_NOTE = 0.1

#: Less than this is what traced processes use while they end.
_LEAST_UNTRACED_S = 1.0

LOST = "The trace is lost: its counters were removed from the temporary folder (TMPDIR)"
NO_IMAGES = "No image was read or decoded: nothing here to say about an image job"


class Findings:
    """What there is to say of a trace. Nothing is read but the trace."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.shares = Shares(trace)

    @cached_property
    def fixes(self) -> Fixes:
        """What each fix would bring."""
        return fixes_of(self.shares)

    @cached_property
    def verdict(self) -> str:
        """One sentence."""
        return say_verdict(self.shares, self.fixes)

    @cached_property
    def notes(self) -> list[str]:
        """Sentences below the verdict."""
        return list(say_notes(self.shares, self.fixes))

    @cached_property
    def sizes(self) -> list[Sizes]:
        """The most frequent kinds of images."""
        return tabulate_sizes(self.trace)

    @property
    def tables(self) -> list[Table]:
        """Of the main process and, if there are any, of the workers."""
        tables = [self.shares.main, self.shares.workers]
        return [table for table in tables if table.n_threads]

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

    def title_of(self, table: Table) -> str:
        """`main process`, `4 workers`: whose time a table is of."""
        return table.title if table is self.shares.main else count(self.shares.n_workers, "worker")


def stage_cells(row: Row) -> tuple[str, ...]:
    """Seconds, share, calls, images, milliseconds per image."""
    calls = f"{row.spent.calls:,}" if row.spent.calls else ""
    images = f"{row.spent.images:,}" if row.spent.images else ""
    ms = "" if row.ms_per_image is None else digits(row.ms_per_image)
    return digits(row.spent.seconds), percent(row.share), calls, images, ms


def image_cells(sizes: Sizes) -> tuple[str, ...]:
    """Format or stage, number, size before, size after, KB each, function."""
    name = sizes.format or ("resized" if sizes.function.stage == "resize" else "decoded")
    median = "" if sizes.is_typical else " median"
    made = "in full" if sizes.made == sizes.source else say_size(sizes.made)
    kb = "" if sizes.kb is None else digits(sizes.kb)
    stored = f"{say_size(sizes.source)}{median}"
    return name, f"{sizes.count:,}", stored, made, kb, sizes.function.name


def say_interval(fix: Predicted) -> str:
    """`1.8 × to 2.6 ×`."""
    return f"{times(fix.gain.low)} to {times(fix.gain.high)}"


def say_verdict(shares: Shares, fixes: Fixes) -> str:
    """One sentence: what takes the time, and why."""
    if not any(process.role == "main" for process in shares.trace.processes):
        return f"{LOST}."
    if not shares.n_images:
        return f"{NO_IMAGES}."
    main = shares.main
    model = main.share(*MODEL)
    waiting = main.share("wait")
    loading = main.share(*LOADING)
    rest = [row for row in main.rows if row.stage not in (*MODEL, *LOADING, "wait")]
    longest = max(rest, key=lambda row: row.share, default=None)
    largest_rest = longest.share if longest else 0.0
    if waiting >= max(model, loading, largest_rest):
        return _starving(shares)
    if loading >= max(model, largest_rest):
        return _loading(shares)
    if model >= largest_rest:
        return _model_binds(model, fixes)
    return _rest_binds(longest)


def _starving(shares: Shares) -> str:
    device = _device(shares)
    share = shares.device_waits if device else shares.main.share("wait")
    subject = f"The {device}" if device else "The main process"
    if not round(100 * share):
        subject, share = "The main process", shares.main.share("wait")
    head = f"{subject} waits for data {percent(share)} of the time"
    row = shares.workers.largest(*LOADING, "send", OTHER, OTHER_WAITS)
    if row is None:
        return f"{head}."
    return f"{head}; {_say_row(row, _WORKERS)}{_reason(shares, row)}."


def _loading(shares: Shares) -> str:
    row = shares.main.largest(*LOADING, OTHER)
    if row is None:
        return f"{NO_IMAGES}."
    head = _capital(_say_row(row, _MAIN))
    device = _device(shares)
    meanwhile = shares.device_waits
    if device and meanwhile >= _MODEL_BINDS:
        head = f"The {device} waits for data {percent(meanwhile)} of the time;"
        head += f" {_SUBJECTS[row.stage]} alone takes {percent(row.share)}"
    return f"{head}{_reason(shares, row)}."


def _model_binds(share: float, fixes: Fixes) -> str:
    head = f"The model takes {percent(share)} of the time"
    if not fixes.are_known:
        return f"{head}."
    if not fixes.all:
        return f"{head}; no loader will help."
    if not fixes.recommended:
        return f"{head}; no loader will bring more than {times(fixes.all[0].gain.speedup)}."
    best = fixes.recommended[0]
    return f"{head}; {best.fix.name} still brings {say_interval(best)}."


def _rest_binds(row: Row | None) -> str:
    return f"{_capital(_say_row(row, _MAIN))}." if row else f"{NO_IMAGES}."


def _say_row(row: Row, whose: tuple[str, str]) -> str:
    """`decoding takes 63 % of the workers' time (embed.py:14)`."""
    waits, owner = whose
    if row.stage == OTHER_WAITS:
        where = f" ({row.place})" if row.place else ""
        return f"{waits} {percent(row.share)} of the time in {row.call or 'a library'}{where}"
    called = f", which calls {row.call}" if row.call and row.stage == OTHER else ""
    where = f" ({row.place}{called})" if row.place else ""
    return f"{_SUBJECTS[row.stage]} takes {percent(row.share)} of {owner} time{where}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _reason(shares: Shares, row: Row) -> str:
    """What stands behind the longest stage, from a colon on; empty where nothing is sure."""
    if row.stage == "read":
        job = job_of(shares)
        return ": the storage binds" if job and job.of("wait") > job.of("read") else ""
    if row.stage != "decode" or not shares.trace.kinds("decode"):
        return ""
    return f": {_say_pictures(shares)}"


def _say_pictures(shares: Shares) -> str:
    """What was decoded, and for which size: `full-size 2560 × 1920 JPEGs for 224 px`."""
    kinds = shares.trace.kinds("decode")
    target = target_of(shares.trace)
    is_full = full_size_share(shares.trace, target) >= _MOST
    first = "full-size " if is_full else ""
    formats = {kind.format.removeprefix("progressive ") for kind in kinds}
    name = f"{formats.pop()}s" if len(formats) == 1 and formats != {""} else "images"
    sizes = [row for row in tabulate_sizes(shares.trace) if row.function.stage == "decode"]
    if len(sizes) == 1 and sizes[0].is_typical:
        pictures = f"{first}{say_size(sizes[0].source)} {name}"
    else:
        mean = sum(kind.pixels for kind in kinds) / sum(kind.count for kind in kinds) / 1e6
        pictures = f"{first}{name}, {digits(mean)} megapixels on average,"
    if target is None or target.mode == "crop":
        return pictures.removesuffix(",")
    return f"{pictures} for {say_target(target)}"


def _device(shares: Shares) -> str:
    return "GPU" if shares.trace.device else ""


def say_notes(shares: Shares, fixes: Fixes) -> Iterator[str]:
    """How the program ended, what is not in the shares, and how sure the gains are."""
    trace = shares.trace
    if trace.exit_code:
        how = _say_exit(trace.exit_code)
        yield f"The program ended {how} after {seconds(trace.wall_s)}; the times are until then."
    if shares.killed:
        was = "was" if shares.killed == 1 else "were"
        yield (
            f"{count(shares.killed, 'process')} {was} killed:"
            " their times are as of their last traced call."
        )
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
    if shares.is_busy_machine:
        yield (
            f"Other programs used {percent(shares.others)} of the cores: no gain follows from such"
            " times. Trace it again on an idle machine, or add --try."
        )
    elif fixes.model_error > MOST_MODEL_ERROR:
        yield (
            f"The pipeline model's rate differs from the program's by {percent(fixes.model_error)}:"
            " no gain follows from it. Run it again, or add --try."
        )
    if trace.swapped_bytes >= SWAPPING:
        yield (
            f"The machine moved {trace.swapped_bytes / 1e6:,.0f} MB to and from swap meanwhile:"
            " its memory was short. Use fewer workers or smaller batches."
        )
    if 0 < shares.n_images < _FEW_IMAGES:
        yield f"This rests on {count(shares.n_images, 'image')}: trace {_FEW_IMAGES} or more."
    if fixes.all and fixes.model_error >= _WORTH_A_NOTE:
        yield (
            f"The pipeline model's rate differs from the program's by {percent(fixes.model_error)}:"
            " the intervals are wider for it."
        )


def _say_exit(code: int) -> str:
    if code > 128:
        try:
            return f"by {signal.Signals(code - 128).name}"
        except ValueError:
            pass
    return f"with exit code {code}"
