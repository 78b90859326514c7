"""What there is to say of a trace: numbers and words for the terminal, the JSON and the page."""

from functools import cached_property

from wallclock.trace.fixes import Fix, Fixes, fixes_of
from wallclock.trace.record import Trace
from wallclock.trace.shares import Row, Shares, Table
from wallclock.trace.sizes import Sizes, say_size, tabulate_sizes
from wallclock.trace.verdict import say_notes, say_verdict
from wallclock.trace.words import count, digits, percent, seconds, times


class Findings:
    """What there is to say of a trace. Nothing is read but the trace."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.shares = Shares(trace)

    @cached_property
    def fixes(self) -> Fixes:
        """What each change would bring."""
        return fixes_of(self.shares)

    @cached_property
    def verdict(self) -> str:
        """One sentence."""
        return say_verdict(self.shares, self.fixes)

    @cached_property
    def notes(self) -> list[str]:
        """Sentences below the verdict."""
        return say_notes(self.shares, self.fixes)

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

    @property
    def fixes_in_order(self) -> list[Fix]:
        """The recommended ones, the highest gain first; their combination; the others."""
        combined = [] if self.fixes.combined is None else [self.fixes.combined]
        return [*self.fixes.recommended, *combined, *self.fixes.others]

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


def say_fix(fix: Fix) -> str:
    """Its title; of a combination the names of its parts."""
    return f"together: {' + '.join(fix.parts)}" if fix.parts else fix.title


def say_interval(fix: Fix) -> str:
    """`1.8 × to 2.6 ×`."""
    return f"{times(fix.low)} to {times(fix.high)}"
