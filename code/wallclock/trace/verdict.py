"""What binds a traced program, in a sentence."""

from wallclock.trace.fixes import Fixes, say_interval
from wallclock.trace.shares import LOADING, MODEL, OTHER, OTHER_WAITS, Row, Shares
from wallclock.trace.sizes import full_size_share, say_size, say_target, tabulate_sizes, target_of
from wallclock.trace.words import digits, percent, times
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
LOST = "The trace is lost: its counters were removed from the temporary folder (TMPDIR)"
NO_IMAGES = "No image was read or decoded: nothing here to say about an image job"


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
