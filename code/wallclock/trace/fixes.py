"""What each fix would bring a traced program, and the lines to write.

The gain is the ratio of two rates of the pipeline model (`wallclock.predict`): with the fix, and as
the program is. Its interval reaches as far as four errors together (`predict.intervals`): of the
least and the most that the fix does (`predict.advice`); of the model's rate for the program as it
is, over the measured one; of such gains on earlier programs; and of a mean over so few images.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from wallclock.predict.advice import FIXES, Fix, Job, workers_for
from wallclock.predict.intervals import GAIN_ERROR, NOTICEABLE, Gain
from wallclock.predict.pictures import Target
from wallclock.trace.record import Trace
from wallclock.trace.shares import Shares
from wallclock.trace.work import job_of
from wallclock.words import times

#: Where the program reads → the same images as `items` of `open_images`.
_ITEMS = {
    "files": 'from pathlib import Path\nitems = sorted(Path("photos").rglob("*.jpg"))',
    "zip": (
        'from zipfile import ZipFile\narchive = ZipFile("photos.zip")\n'
        'names = [name for name in archive.namelist() if not name.endswith("/")]\n'
        "items = ((name, archive.read(name)) for name in names)"
    ),
    "urls": 'from pathlib import Path\nitems = Path("urls.txt").read_text().split()',
}
#: Images of a loader's batch where the program has no batches.
_USUAL_BATCH = 32
_USUAL_PX = 224
#: Beyond this the model is of another program.
_MOST_MODEL_ERROR = 0.3


@dataclass(frozen=True)
class Predicted:
    """A fix of a program: `gain`, times as many images per second after start-up; its `code`."""

    fix: Fix
    title: str
    gain: Gain
    code: str


@dataclass(frozen=True)
class Fixes:
    """The fixes of a program whose gain is noticeable, the highest first.

    `predicted`: all of them; `model_error`: of the model's rate for the program as it is, relative,
    at least 0. `are_known`: whether that error, and the machine's other programs, leave anything to
    say of their gains. `is_own_loop`: whether lines of the program load the images, no library's.
    """

    predicted: tuple[Predicted, ...]
    model_error: float
    are_known: bool = True
    is_own_loop: bool = True

    @property
    def all(self) -> tuple[Predicted, ...]:
        """Those whose gains may be said."""
        return self.predicted if self.are_known else ()

    @property
    def recommended(self) -> list[Predicted]:
        """Of these, those of which all of the interval is a gain."""
        return [each for each in self.all if each.gain.is_recommended]

    @property
    def to_write(self) -> list[Predicted]:
        """What comes first: the best of a line or a setting; and the best that needs no new files.

        Those are all of its own loop.
        """
        best = [each for each in self.predicted if each.gain.is_recommended]
        if not self.is_own_loop:
            best = [each for each in best if each.fix.name != "open_images"]
        direct = [each for each in best if not each.fix.new_files] or best
        short = [each for each in direct if each.fix.is_short]
        return list(dict.fromkeys([*short[:1], *direct[:1]]))


def fixes_of(shares: Shares) -> Fixes:
    """What each fix would bring alone."""
    job = job_of(shares)
    if job is None:
        return Fixes((), 0.0)
    errors = _, error, _ = errors_of(shares, job)
    predicted = [
        Predicted(
            fix, _say_title(fix, job, shares.trace), fix.gain(job, errors), CODE[fix.name](job)
        )
        for fix in FIXES.values()
        if fix.applies(job)
    ]
    noticeable = [each for each in predicted if each.gain.speedup >= NOTICEABLE]
    noticeable.sort(key=lambda each: -each.gain.speedup)
    are_known = not shares.is_busy_machine and error <= _MOST_MODEL_ERROR
    return Fixes(tuple(noticeable), error, are_known, shares.loads_itself)


def say_gain(gain: Gain) -> str:
    """`2.1 × (1.8 to 2.6 ×)`."""
    return f"{times(gain.speedup)} ({times(gain.low).removesuffix(' ×')} to {times(gain.high)})"


def errors_of(shares: Shares, job: Job) -> tuple[float, float, float]:
    """The relative errors that every gain has: of earlier ones, of the model's rate for the program
    as it is, and of a mean over so few images.
    """
    ratio = shares.img_per_s / job.img_per_s()
    # The times of single images vary about as much as they are long.
    return GAIN_ERROR, max(ratio, 1 / ratio) - 1, shares.n_images**-0.5


def _say_title(fix: Fix, job: Job, trace: Trace) -> str:
    """What to do, with the job's number of pixels, or the program's own way to set its workers."""
    if fix.name != "workers":
        return fix.title.format(job.target.thumbnail_px if job.target else _USUAL_PX)
    number = workers_for(job.cores, waits=job.waits)
    loaders = [use.settings for use in trace.uses if "num_workers" in use.settings]
    options = [use.settings for use in trace.uses if use.name == "option"]
    for option in options:
        if not loaders or option["value"] in (made["num_workers"] for made in loaders):
            return f"{option['flag'] or 'argument'} {number}"
    if loaders:
        line = loaders[0].get("line", "")
        return f"num_workers={number} in the DataLoader{f' of {line}' if line else ''}"
    return fix.title.format(number)


def options_of(job: Job) -> dict[str, Any]:
    """Of `open_images`, to load what the program loads; its own batch, to which a model is used."""
    batch = job.batch_size if job.batch_size > 1 else _USUAL_BATCH
    waiting = {"workers": workers_for(job.cores, waits=True)} if job.waits else {}
    return {**geometry_of(job.target), "batch": batch, **waiting}


def geometry_of(target: Target | None) -> dict[str, Any]:
    """The size of the images, as arguments of `open_images`, `decode` and `loader_for`."""
    if target is None or target.mode == "crop":
        return {"size": target.px if target else _USUAL_PX, "augment": True, "shuffle": True}
    if target.mode == "squash":
        width, height = target.size
        return {"size": width if width == height else (height, width)}
    return {"preprocess": f"{target.mode}:{target.px},crop:{target.px}x{target.px}"}


def _arguments(options: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in options.items()).replace("'", '"')


def _scaled_code(job: Job) -> str:
    if job.target is None or all(kind.backend != "pillow" for kind in job.decoded):
        size = _arguments(geometry_of(job.target))
        return f'import wallclock\nimage = wallclock.decode("photo.jpg", {size})'
    return f"""\
from PIL import Image
image = Image.open("photo.jpg")
image.draft("RGB", {job.target.least})  # right after Image.open"""


def _loader_for_code(job: Job) -> str:
    size = _arguments(geometry_of(job.target))
    return f"import wallclock\nload = wallclock.loader_for({size})  # path or bytes → Pillow image"


def _open_images_code(job: Job) -> str:
    return (
        f"import wallclock\n{_ITEMS[job.source]}\n"
        f"with wallclock.open_images(items, {_arguments(options_of(job))}) as batches:\n"
        "    for batch in batches:\n"
        "        print(batch.ids, batch.images.shape)  # uint8 (n, height, width, 3)"
    )


def _workers_code(job: Job) -> str:
    if job.engine == "dataloader":
        return ""
    return f"""\
from concurrent.futures import ThreadPoolExecutor
from PIL import Image
{_ITEMS["files"]}
def load(path):
    return Image.open(path).convert("RGB")  # and what your loop does with it
with ThreadPoolExecutor({workers_for(job.cores, waits=job.waits)}) as pool:
    for path, image in zip(items, pool.map(load, items)):
        print(path, image.size)"""


def _thumbnails_code(job: Job) -> str:
    px = job.target.thumbnail_px if job.target else _USUAL_PX
    return f"""\
from pathlib import Path
from PIL import Image, ImageOps
photos, small = Path("photos"), Path("small")
for path in photos.rglob("*"):
    if path.suffix.lower() in Image.registered_extensions():
        image = Image.open(path).convert("RGB")
        if min(image.size) > {px}:
            image = ImageOps.cover(image, ({px}, {px}))
        made = small / f"{{path.relative_to(photos)}}.jpg"
        made.parent.mkdir(parents=True, exist_ok=True)
        image.save(made, quality=95, exif=image.getexif())"""


#: Name of a fix → lines that run beside the images; none where a setting is changed.
CODE: Mapping[str, Callable[[Job], str]] = {
    "thumbnails": _thumbnails_code,
    "scaled decode": _scaled_code,
    "loader_for": _loader_for_code,
    "open_images": _open_images_code,
    "workers": _workers_code,
}
