"""What binds a traced program: the cause, the line, and the change, in a sentence."""

from collections.abc import Sequence
from dataclasses import dataclass

from wallclock.trace.fixes import Fixes, Predicted, say_gain
from wallclock.trace.record import LOADING, MODEL
from wallclock.trace.remedies import Help, change_of_writing
from wallclock.trace.shares import OTHER, OTHER_WAITS, Row, Shares
from wallclock.trace.sizes import full_size_share, say_size, say_target, tabulate_sizes, target_of
from wallclock.trace.work import job_of
from wallclock.words import digits, percent

#: Stage → the subject of a sentence.
_SUBJECTS = {
    "read": "reading",
    "decode": "decoding",
    "resize": "resizing",
    "transform": "transforming the pixels",
    "normalize": "normalizing",
    "assemble": "assembling batches",
    "h2d": "copying to the device",
    "d2h": "copying from the device",
    "serialize": "writing the results",
    "send": "sending batches",
    OTHER: "Python code that is not traced",
}
#: The same of whose time it is.
_MAIN = "the main process waits", "the main process's"
_WORKERS = "the workers wait", "the workers'"
#: A stage that takes this part of loading is named alone.
_NEARLY_ALL = 0.75
#: What rounds to no percent is not said.
_LEAST = 0.005
#: The model's share beside a longer stage.
_WORTH_SAYING = 0.2
#: Cores whose work takes this part of their time have none left.
_FULL = 0.7
#: Requests at a time that servers take.
_AT_ONCE = 16
#: What most images, samples or seconds share is said of all.
_MOST = 0.5
LOST = (
    "The program was not traced: it left no counters. Its temporary folder (TMPDIR) was emptied,"
    " or its Python runs with -E, -I or -S."
)


@dataclass(frozen=True)
class Verdict:
    """What binds: `cause`, `line` of the user's code, and the fixes that `text` names.

    `cause`: of `_CAUSES`, `fetching`, `untraced` or `no images`. `line`: empty where unknown.
    """

    cause: str
    text: str
    line: str = ""
    fixes: tuple[Predicted, ...] = ()


#: Cause → the stages of the main thread that it is compared by.
_CAUSES = {
    "waiting": ("wait",),
    "loading": LOADING,
    "model": MODEL,
    "writing": ("serialize",),
    "copying": ("h2d", "d2h"),
    "python": (OTHER,),
    "pausing": (OTHER_WAITS,),
}


def find_verdict(shares: Shares, fixes: Fixes, helps: Sequence[Help] = ()) -> Verdict:
    """What takes most of the main process's time, why, and what to change."""
    if not any(process.role == "main" for process in shares.trace.processes):
        return Verdict("untraced", LOST)
    if not shares.n_images:
        text = "No image was read or decoded, so there is no image job to judge."
        return Verdict("no images", text)
    main = shares.main
    totals = {cause: main.share(*stages) for cause, stages in _CAUSES.items()}
    cause = max(totals, key=totals.__getitem__)
    row = main.largest(*_CAUSES[cause])
    if cause == "loading":
        row = main.largest(*LOADING, OTHER)
    if cause == "waiting":
        row = shares.workers.largest(*LOADING, "serialize", "send", OTHER, OTHER_WAITS)
    if row is None or cause == "waiting":
        text = _starving(shares, row)
    elif cause == "model":
        text = _model_binds(shares, fixes, helps)
    else:
        text = _in_main(shares, helps, row, totals["loading"] if cause == "loading" else 0.0)
    if row is None:
        return Verdict(cause, f"{text}.")
    if cause != "model":
        change = _change(shares, fixes, row)
        text += f"{_reason(shares, row)}{f'; {change}' if change else ''}"
    if row.stage == OTHER:
        cause = "python"
    if row.fetches:
        cause = "fetching"
    sharing = _say_sharing(shares) if cause in ("waiting", "model") else ""
    if sharing:
        text = f"{sharing}: {text[:1].lower()}{text[1:]}"
    of_model = (each.line for each in helps if each.helps and cause == "model")
    return Verdict(cause, f"{text}.", next(of_model, row.place), _fixes_for(fixes, row))


def _starving(shares: Shares, row: Row | None) -> str:
    subject, share = "The main process", shares.main.share("wait")
    if shares.trace.device and shares.device_waits >= _LEAST:
        subject, share = "The GPU", shares.device_waits
    head = f"{subject} waits for data {percent(share)} of the time"
    return f"{head}; {_say_row(row, _WORKERS)}" if row else head


def _in_main(shares: Shares, helps: Sequence[Help], row: Row, loading: float) -> str:
    """`loading`: its share, where one of its stages is the longest."""
    head = _say_row(row, _MAIN)
    head = head[:1].upper() + head[1:]
    meanwhile = shares.device_waits
    if row.stage in LOADING and row.share < _NEARLY_ALL * loading:
        model = shares.main.share(*MODEL)
        why = f": {helps[0].what}" if helps and helps[0].helps else ""
        beside = f" (the model {percent(model)}{why})" if model >= _WORTH_SAYING else ""
        head = f"Loading takes {percent(loading)} of the main process's time{beside},"
        head += f" most of it {_subject(row)}: {percent(row.share)}{_where(row)}"
    if shares.trace.device and row.stage in LOADING and meanwhile >= _MOST:
        head = f"The GPU waits for data {percent(meanwhile)} of the time;"
        head += f" {_subject(row)} alone takes {percent(row.share)}{_where(row)}"
    return head


def _change(shares: Shares, fixes: Fixes, row: Row) -> str:
    """What to change where the longest stage takes so long; empty where nothing is known."""
    if row.stage == "serialize":
        what, gain = change_of_writing(shares, row)
        return f"{what}: {say_gain(gain)}" if gain else what
    named = _fixes_for(fixes, row)
    gains = [f": {say_gain(each.gain)}" if fixes.are_known else "" for each in named]
    said = ", or ".join(f"{e.title}{gain}" for e, gain in zip(named, gains, strict=True))
    if row.fetches:
        return f"fetch {_AT_ONCE} at a time{f', as by {said}' if said else ''}"
    if row.stage == OTHER and any(
        kind.format.startswith(("float", "bfloat")) and kind.source > kind.made
        for kind in shares.trace.kinds("resize")
    ):
        return "whole images become floats before they are resized: resize uint8, then convert"
    return said if fixes.are_known or not said else f"try {said}"


def _fixes_for(fixes: Fixes, row: Row) -> tuple[Predicted, ...]:
    """What shortens a stage: of fetching, what fetches ahead."""
    if row.stage not in LOADING:
        return ()
    fetches = row.fetches
    return tuple(e for e in fixes.to_write if not fetches or e.fix.name == "open_images")


def _say_sharing(shares: Shares) -> str:
    """Whose work the cores do, where loaders and a model take turns on them; else empty."""
    job = job_of(shares)
    if job is None or not job.model_cores or not job.workers:
        return ""
    loading, model = job.load_s + job.of("send"), job.of("model") * job.model_cores
    is_full = shares.img_per_s * (loading + model) > _FULL * job.cores
    if job.workers + job.model_cores <= job.cores or not is_full:
        return ""
    part = loading / (loading + model)
    return (
        f"Loaders and model share the {job.cores} cores, loading {percent(part)} of the work and"
        f" the model {percent(1 - part)}"
    )


def _model_binds(shares: Shares, fixes: Fixes, helps: Sequence[Help]) -> str:
    head = f"The model takes {percent(shares.main.share(*MODEL))} of the time"
    first = next((each for each in helps if each.helps), None)
    if first:
        gain = f", {first.gain}" if first.gain and not shares.is_busy_machine else ""
        return f"{head}: {first.sentence[:1].lower()}{first.sentence[1:]}{gain}"
    if fixes.are_known and fixes.recommended:
        best = fixes.recommended[0]
        return f"{head}; {best.fix.name} still gains {say_gain(best.gain)}"
    return head


def _say_row(row: Row, whose: tuple[str, str]) -> str:
    """`decoding takes 63 % of the workers' time (embed.py:14)`."""
    waits, owner = whose
    if row.stage == OTHER_WAITS:
        return f"{waits} {percent(row.share)} of the time in {row.call or 'a library'}{_where(row)}"
    return f"{_subject(row)} takes {percent(row.share)} of {owner} time{_where(row)}"


def _subject(row: Row) -> str:
    if row.stage == OTHER and row.place:
        return "the program's own code"
    return "fetching" if row.fetches else _SUBJECTS[row.stage]


def _where(row: Row) -> str:
    place = row.place
    if place and row.stage == OTHER:
        place += "" if row.user_function[:1] in ("", "<") else f" in {row.user_function}"
        place += f", which calls {row.call}" if row.call else ""
    return f" ({place})" if place else ""


def _reason(shares: Shares, row: Row) -> str:
    """`: full-size 2560 × 1920 JPEGs for 224 px`, `: storage is the limit`; empty if not known."""
    if row.stage == "read" and not row.fetches:
        return ": storage is the limit" if row.waits > _MOST else ""
    kinds = shares.trace.kinds("decode")
    if row.stage not in ("decode", "resize") or not kinds:
        return ""
    target = target_of(shares.trace)
    first = "full-size " if full_size_share(shares.trace, target) >= _MOST else ""
    formats = {kind.format.removeprefix("progressive ") for kind in kinds}
    name = f"{formats.pop()}s" if len(formats) == 1 and formats != {""} else "images"
    sizes = [row for row in tabulate_sizes(shares.trace) if row.function.stage == "decode"]
    if len(sizes) == 1 and sizes[0].is_typical:
        pictures = f": {first}{say_size(sizes[0].source)} {name}"
    else:
        mean = sum(kind.pixels for kind in kinds) / sum(kind.count for kind in kinds) / 1e6
        pictures = f": {first}{name}, {digits(mean)} megapixels on average,"
    if target is None or target.mode == "crop":
        return pictures.removesuffix(",")
    return f"{pictures} for {say_target(target)}"
