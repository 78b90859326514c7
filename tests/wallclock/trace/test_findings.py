"""What a trace says: the verdict, notes, and what each change is predicted to bring."""

import math
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from PIL import ExifTags, Image

from tests.wallclock.trace import traces
from tests.wallclock.trace.traces import (
    dataloader,
    decoded,
    process,
    resized,
    serial,
    thread,
    trace,
)
from wallclock.predict.advice import FIXES, Job
from wallclock.predict.fitted import RESIZE_NS
from wallclock.predict.intervals import NOTICEABLE, Gain
from wallclock.predict.pictures import Library, Target
from wallclock.trace.findings import say_notes
from wallclock.trace.fixes import CODE, Fixes, Predicted, errors_of, fixes_of
from wallclock.trace.record import Function, Sampled, Spent, Thread, Trace, Use
from wallclock.trace.shares import Shares
from wallclock.trace.verdict import Verdict, find_verdict
from wallclock.trace.work import job_of

# --- verdict --------------------------------------------------------------------------------------


SITUATIONS = [
    (
        traces.STARVING_DECODE,
        "The GPU waits for data 71 % of the time; decoding takes 78 % of the workers' time:"
        " full-size 2560 × 1920 JPEGs for 224 px.",
    ),
    (
        traces.STARVING_READ,
        "The GPU waits for data 75 % of the time; reading takes 81 % of the workers' time:"
        " the storage binds.",
    ),
    (traces.MODEL_BOUND, "The model takes 89 % of the time."),
    (
        traces.SERIAL_DECODE,
        "Decoding takes 75 % of the main process's time: full-size 2560 × 1920 JPEGs for 224 px.",
    ),
    (traces.SERIAL_READ, "Reading takes 81 % of the main process's time: the storage binds."),
    # The CPU is at work while it reads: files in memory.
    (
        serial({"read": 6.5, "decode": 0.8}, cpu_s=9.9),
        "Reading takes 81 % of the main process's time.",
    ),
    (traces.SERIAL_MODEL, "The model takes 89 % of the time."),
    (
        traces.THREADS,
        "The main process waits for data 98 % of the time; decoding takes 82 % of the workers'"
        " time: full-size 2560 × 1920 JPEGs for 224 px.",
    ),
    (
        replace(traces.THREADS, processes=()),
        "The program was not traced: it left no counters. Its temporary folder (TMPDIR) was"
        " emptied, or its Python runs with -E, -I or -S.",
    ),
    (traces.NO_IMAGES, "No image was read or decoded: nothing here to say about an image job."),
    (
        traces.KILLED,
        "The main process waits for data 83 % of the time; decoding takes 92 % of the workers'"
        " time: full-size 2560 × 1920 JPEGs for 224 px.",
    ),
    # A loop without workers feeds a GPU.
    (
        serial({"decode": 5.6, "forward": 1.0}, device="NVIDIA L4", device_busy_s=0.9),
        "The GPU waits for data 70 % of the time; decoding alone takes 70 %: full-size 2560 × 1920"
        " JPEGs for 224 px.",
    ),
    (
        serial({"decode": 0.5, "resize": 6.0}),
        "Resizing takes 75 % of the main process's time: full-size 2560 × 1920 JPEGs for 224 px.",
    ),
    # No stage takes most of it, all together do.
    (
        serial({"decode": 1.5, "transform": 1.7, "normalize": 1.6, "forward": 2.0}),
        "Loading takes 60 % of the main process's time (the model 25 %), most of it transforming"
        " the pixels: 21 %.",
    ),
    (
        serial({"decode": 0.5}),
        "Python code that is not traced takes 94 % of the main process's time.",
    ),
    (
        serial({"decode": 0.5, "serialize": 7.0}),
        "Writing the results takes 88 % of the main process's time; write in 8 threads, beside the"
        " loop.",
    ),
    (
        dataloader({"wait": 7.0}, {"decode": 1.0, "read": 0.5}),
        "The main process waits for data 88 % of the time; Python code that is not traced takes"
        " 81 % of the workers' time.",
    ),
]


def verdict(made: Trace) -> Verdict:
    shares = Shares(made)
    return find_verdict(shares, fixes_of(shares))


def verdict_of(made: Trace) -> str:
    """Without the changes of the loading, and what they bring."""
    return re.sub(r"; [^;]*: [\d.]+ × \(.*", ".", verdict(made).text)


def notes_of(made: Trace) -> str:
    shares = Shares(made)
    return "\n".join(say_notes(shares, fixes_of(shares)))


@pytest.mark.parametrize(("made", "sentence"), SITUATIONS)
def test_verdict(made: Trace, sentence: str) -> None:
    assert verdict_of(made) == sentence


@pytest.mark.parametrize(
    ("images", "what"),
    [
        ([decoded(100), resized(100)], "full-size 2560 × 1920 JPEGs for 224 px."),
        ([decoded(100, made=(640, 480)), resized(100, (640, 480))], ": 2560 × 1920 JPEGs for 224"),
        ([decoded(100, "PNG"), resized(100)], ": 2560 × 1920 PNGs for 224 px."),
        (
            [decoded(50), decoded(50, "progressive JPEG", (1280, 960)), resized(100)],
            "full-size JPEGs, 3.1 megapixels on average, for 224 px.",
        ),
        (
            [decoded(60, "PNG"), decoded(40, "GIF"), resized(100)],
            ": images, 4.9 megapixels on average, for 224 px.",
        ),
        ([decoded(100)], ": 2560 × 1920 JPEGs."),
        ([decoded(100), resized(100, made=(320, 240))], "JPEGs for 320 × 240 px."),
        ([decoded(100, ""), resized(100)], ": 2560 × 1920 images for 224 px."),
    ],
)
def test_what_is_decoded(images: list[object], what: str) -> None:
    made = replace(traces.SERIAL_DECODE, images=tuple(images))  # type: ignore[arg-type]
    assert what in verdict_of(made)


def placed(made: Trace, stage: str, place: str = "", call: str = "", seconds: float = 6.0) -> Trace:
    """The same whose threads were in a stage at a line of the program, `file:line`."""
    path, _, line = place.partition(":")
    sample = Sampled(path, int(line or 0), "", call, stage, seconds, 0.0)
    threads = [
        [replace(thread, samples=(sample,)) for thread in each.threads] for each in made.processes
    ]
    pairs = zip(made.processes, threads, strict=True)
    return replace(made, processes=tuple(replace(p, threads=tuple(t)) for p, t in pairs))


SAVE = traces.function("serialize", "PIL.Image.save")
PNG = Use("PIL.Image.save", {"format": "PNG", "optimize": "True", "line": "thumbs.py:8"})


def a_writer(*uses: Use, function: Function = SAVE) -> Trace:
    """Writes nine tenths of its time."""
    main = Thread(True, 0.0, 10.0, {function: Spent(7.2, 200)})
    made = trace([process([main])], [decoded(200), resized(200)], uses=uses, cores=2)
    return placed(made, "serialize", "thumbs.py:8")


@pytest.mark.parametrize(
    ("told", "change"),
    [
        ({"format": "PNG", "optimize": "True"}, "compress_level=1, without optimize=True"),
        ({"format": "PNG"}, "save with compress_level=1;"),
        ({"format": "PNG", "compress_level": "1"}, "write in 2 threads"),
        ({"format": "WEBP"}, "save with method=0"),
        ({"format": "WEBP", "lossless": "True"}, "save with method=0"),
        ({"format": "AVIF"}, "save with speed=10"),
        ({"format": "JPEG"}, "write in 2 threads"),
    ],
)
def test_what_would_help_writing(told: dict[str, str], change: str) -> None:
    found = verdict(a_writer(Use("PIL.Image.save", told)))
    assert (found.cause, found.line) == ("writing", "thumbs.py:8")
    assert change in found.text
    assert not found.fixes, "no other loader"


def test_the_gain_of_writing_faster() -> None:
    """What is left of the time that the encoder takes; of several ways to write, not known."""
    text = verdict(a_writer(PNG)).text
    low, high = (1 / (0.1 + 0.9 * left) for left in (0.21, 0.054))
    middle, *ends = (float(n) for n in re.findall(r"[\d.]+(?= ×| to)", text)[-3:])
    assert middle == pytest.approx(1 / (0.1 + 0.9 * 0.12), rel=0.02)
    assert ends[0] < low < high < ends[1]
    assert "×" not in verdict(a_writer(PNG, Use(PNG.name, {"format": "GIF"}))).text
    assert "×" not in verdict(replace(a_writer(PNG), others_s=10.0)).text
    arrays = Function("serialize", "numpy.savez_compressed")
    assert "numpy.savez writes" in verdict(a_writer(function=arrays)).text


def test_fetching_is_the_line_that_fetches() -> None:
    """Counted, or in a library of its own: what it calls tells."""
    made = serial({"decode": 0.8, "resize": 0.2}, cpu_s=3.0)
    found = verdict(placed(made, "", "get.py:8", "requests.api.get", 7.0))
    assert (found.cause, found.line) == ("fetching", "get.py:8")
    assert found.text.startswith("Fetching takes 88 % of the main process's time (get.py:8);")
    assert "fetch 16 at a time" in found.text
    assert [fix.fix.name for fix in found.fixes] == ["open_images"]
    assert "urls.txt" in found.fixes[0].code


def test_floats_before_the_resize() -> None:
    made = serial({"decode": 3.0, "resize": 0.5})
    kinds = (decoded(200), replace(resized(200), format="float32"))
    found = verdict(placed(replace(made, images=kinds), "", "data.py:11"))
    assert (found.cause, found.line) == ("python", "data.py:11")
    assert found.text == (
        "The program's own code takes 56 % of the main process's time (data.py:11); whole images"
        " become floats before they are resized: resize uint8, then convert."
    )


def test_workers_as_the_program_sets_them() -> None:
    """By its own option if that is what its loader has; else at the line of the loader."""
    settings = {"num_workers": "2", "batch_size": "8", "line": "train.py:30"}
    loader = Use("torch.utils.data.DataLoader", settings)
    option = Use("option", {"flag": "--workers", "value": "2"})
    other = Use("option", {"flag": "--jobs", "value": "7"})
    base = dataloader({"wait": 7.5}, {"decode": 7.0}, n_workers=2, worker_cpu_s=7.0, cores=8)
    for uses, title in [
        ((loader, other, option), "--workers 8"),
        ((loader, other), "num_workers=8 in the DataLoader of train.py:30"),
        ((other,), "--jobs 8"),
    ]:
        more = named(replace(base, uses=uses), "workers")
        assert (more.title, more.code) == (title, "")


def test_loaders_and_a_model_that_share_the_cores() -> None:
    made = a_model_beside_workers()
    text = verdict(made).text
    assert text.startswith("Loaders and model share the 2 cores, loading ")
    assert "the model takes 75 % of the time" in text
    assert "share" not in verdict(replace(made, cores=8)).text


def test_a_librarys_loop_is_not_replaced() -> None:
    made = traces.STARVING_DECODE
    for place, names in [("embed.py:3", {"loader_for", "open_images"}), ("", {"loader_for"})]:
        found = verdict(placed(made, "decode", place))
        assert {fix.fix.name for fix in found.fixes} == names


def test_a_model_that_binds_with_a_gain_left() -> None:
    """The model takes most of a serial program, but what remains can overlap with it."""
    made = serial({"decode": 3.0, "forward": 4.6}, device="NVIDIA T4", device_busy_s=4.6)
    sentence = verdict_of(made)
    assert sentence.startswith("The model takes 57 % of the time; ")
    assert "still brings" in sentence


@pytest.mark.parametrize(
    ("changes", "note"),
    [
        ({"exit_code": 1}, "The program ended with exit code 1 after 10 s; the times are until"),
        ({"exit_code": 130}, "The program ended by SIGINT after 10 s"),
        ({"exit_code": 255}, "The program ended with exit code 255"),
        ({"first_image_s": 7.0}, "Start-up took 7.0 s of 10 s"),
        ({"swapped_bytes": 250_000_000}, "The machine moved 250 MB to and from swap meanwhile"),
    ],
)
def test_notes(changes: dict[str, object], note: str) -> None:
    assert notes_of(replace(traces.SERIAL_DECODE, swapped_bytes=10_000_000)) == "", "at rest, too"
    assert notes_of(traces.SERIAL_DECODE) == ""
    assert note in notes_of(replace(traces.SERIAL_DECODE, **changes))  # type: ignore[arg-type]


def test_notes_of_a_killed_program() -> None:
    notes = notes_of(traces.KILLED)
    assert "ended by SIGKILL after 3.2 s" in notes
    assert "This rests on 20 images" in notes


def test_nothing_follows_on_a_busy_machine() -> None:
    assert fixes_of(Shares(traces.SERIAL_DECODE)).all
    quiet, busy = (replace(traces.SERIAL_DECODE, others_s=8 * 10 * part) for part in (0.05, 0.2))
    assert notes_of(quiet) == ""
    assert "Other programs used 20 % of the cores" in notes_of(busy)
    assert not fixes_of(Shares(busy)).all
    assert "px; try " in verdict(busy).text
    assert "× (" not in verdict(busy).text


def test_nothing_follows_from_a_model_that_is_off() -> None:
    """Workers that never wait and are idle half of the time: something else held them up."""
    made = dataloader({"wait": 7.9}, {"decode": 2.0, "idle": 5.9}, worker_cpu_s=2.0)
    assert "The pipeline model's rate differs from the program's by" in notes_of(made)
    assert not fixes_of(Shares(made)).all


# --- fixes ----------------------------------------------------------------------------------------


def fixes(made: Trace) -> Fixes:
    return fixes_of(Shares(made))


def job(made: Trace) -> Job:
    taken = job_of(Shares(made))
    assert taken is not None
    return taken


def gain(made: Trace, name: str) -> Gain:
    """Of a fix, noticeable or not."""
    return FIXES[name].gain(job(made), errors_of(Shares(made), job(made)))


def named(made: Trace, name: str) -> Predicted:
    return next(each for each in fixes(made).all if each.fix.name == name)


def names(made: Trace) -> set[str]:
    """Those that the program has a use for."""
    return {fix.name for fix in FIXES.values() if fix.applies(job(made))}


def recommended(made: Trace) -> set[str]:
    return {each.fix.name for each in fixes(made).recommended}


def test_the_model_of_a_serial_program_is_its_sum() -> None:
    assert fixes(traces.SERIAL_DECODE).model_error == pytest.approx(0, abs=1e-9)
    work = job(traces.SERIAL_DECODE)
    assert work.workers == 0
    assert work.of("decode") == pytest.approx(6.0 / 200)
    assert work.img_per_s() == pytest.approx(25.0)


def test_the_model_of_busy_workers_is_near() -> None:
    """Workers that are never idle load as fast as they did."""
    assert fixes(traces.STARVING_DECODE).model_error < 0.1
    assert fixes(traces.STARVING_READ).model_error < 0.1
    assert fixes(traces.MODEL_BOUND).model_error < 0.1
    assert fixes(traces.THREADS).model_error < 0.1


def test_scaled_decode_from_the_sizes() -> None:
    """2560 × 1920 for 224 px is 1/4: what is left of decode and resize is the gain."""
    fix = named(traces.SERIAL_DECODE, "scaled decode")
    # 900 KB over 4.9 megapixels is 0.183 bytes per pixel.
    density = 9e5 / (2560 * 1920)
    left = (7 * density + 0.38 + 2.8 / 16) / (7 * density + 1.0 + 2.8)
    read, made = RESIZE_NS["pillow"]
    resize_left = (read * 640 * 480 + made * 224**2) / (read * 2560 * 1920 + made * 224**2)
    time = 8.0 - 6.0 * (1 - left) - 1.5 * (1 - resize_left)
    assert fix.gain.speedup == pytest.approx(8.0 / time)
    assert fix.code.endswith('image.draft("RGB", (280, 280))  # right after Image.open')


def test_a_scale_that_is_used_already_brings_nothing() -> None:
    images = (decoded(200, made=(640, 480)), resized(200, (640, 480)))
    made = replace(traces.SERIAL_DECODE, images=images)
    assert "scaled decode" not in names(made)


def test_small_images_cannot_be_decoded_smaller() -> None:
    small = (256, 256)
    images = (decoded(200, source=small, kb=10), resized(200, small))
    made = replace(traces.SERIAL_DECODE, images=images)
    assert not names(made) & {"scaled decode", "thumbnails"}
    assert gain(made, "loader_for").speedup > 1.5, "libjpeg-turbo without Pillow's copy"


def test_other_formats_are_never_promised_a_faster_decode() -> None:
    for format in ("PNG", "GIF"):
        made = replace(traces.SERIAL_DECODE, images=(decoded(200, format), resized(200)))
        assert not names(made) & {"scaled decode", "loader_for"}
        assert gain(made, "thumbnails").speedup > 3


@pytest.mark.parametrize("made", [traces.MODEL_BOUND, traces.SERIAL_MODEL])
def test_nothing_is_recommended_where_the_model_binds(made: Trace) -> None:
    assert recommended(made) == set()


def test_workers_where_there_are_cores() -> None:
    more = named(traces.STARVING_DECODE, "workers")
    assert 1.4 < more.gain.low < more.gain.speedup < 2
    assert (more.title, more.code) == ("num_workers=8 in the DataLoader", "")
    full = dataloader({"wait": 7.0}, {"decode": 7.5}, n_workers=8, worker_cpu_s=7.5)
    assert "workers" not in names(full)
    one_core = serial({"decode": 7.5}, cores=1)
    assert "workers" not in recommended(one_core)
    assert gain(one_core, "open_images").is_recommended, "but decoding less is"


def test_workers_that_take_turns_are_not_increased() -> None:
    """Eight on two cores: their wall seconds are four times the core's."""
    made = dataloader(
        {"wait": 7.5}, {"decode": 6.5, "resize": 1.0}, n_workers=8, worker_cpu_s=2.0, cores=2
    )
    work = job(made)
    assert work.of("decode") == pytest.approx(8 * 6.5 / 400 / 4, rel=0.1)
    assert fixes(made).model_error < 0.1
    assert "workers" not in names(made)


def test_another_programs_load_is_not_taken_for_turns() -> None:
    """Two workers had a core for a quarter of the time: another program has them with a fix too."""
    made = dataloader(
        {"wait": 7.5}, {"decode": 6.5, "resize": 1.0}, n_workers=2, worker_cpu_s=1.9, cores=4
    )
    work = job(made)
    assert work.of("decode") == pytest.approx(2 * 6.5 / 400)
    assert fixes(made).model_error < 0.1


def test_workers_where_the_storage_binds() -> None:
    more = named(traces.STARVING_READ, "workers")
    assert more.gain.low < 1.3, "the storage may be as fast as it is"
    assert more.gain.high > 2, "or serve all of them at once"
    assert more.title == "num_workers=32 in the DataLoader"


@pytest.mark.parametrize("n", [1, 2, 8])
def test_ranks_work_side_by_side(n: int) -> None:
    """Each takes a share of the images, and as long for one as a rank alone."""
    rank = process([thread({"decode": 1.5, "forward": 6.0}, 100)], cpu_s=10.0)
    launcher = process([thread({})], "other", cpu_s=0.5)
    made = trace([launcher, *[rank] * n], [decoded(100 * n), resized(100 * n)])
    shares = Shares(made)
    assert shares.main.wall_s == pytest.approx(8 * n)
    assert shares.main.share("forward") == pytest.approx(6 / 8)
    work = job(made)
    assert work.of("model") == pytest.approx(6.0 / 100 / n)
    assert work.model_cores == n
    assert fixes(made).model_error < 0.1


def test_what_is_not_traced_is_said() -> None:
    assert "not traced" not in notes_of(traces.SERIAL_DECODE)
    note = notes_of(replace(traces.SERIAL_DECODE, untraced_s=4.0))
    assert "Processes that are not traced used 4.0 s of the cores" in note


def test_thumbnails_as_pasted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders of classes and equal names are kept, and a small image stays as it is."""
    monkeypatch.chdir(tmp_path)
    sizes = {"cat/1.jpg": (640, 480), "dog/1.jpg": (64, 48), "dog/1.png": (480, 960)}
    for name, size in sizes.items():
        path = tmp_path / "photos" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        exif = Image.Exif()
        exif[ExifTags.Base.Orientation] = 6
        Image.new("RGB", size).save(path, exif=exif)
    (tmp_path / "photos" / "labels.csv").touch()
    exec(named(traces.SERIAL_DECODE, "thumbnails").code, {})
    made = {}
    for path in (tmp_path / "small").rglob("*.*"):
        with Image.open(path) as image:
            made[path.relative_to(tmp_path / "small").as_posix()] = image.size
            assert image.getexif()[ExifTags.Base.Orientation] == 6
    assert made == {
        "cat/1.jpg.jpg": (373, 280),
        "dog/1.jpg.jpg": (64, 48),
        "dog/1.png.jpg": (280, 560),
    }


def test_a_device_normalizes_what_open_images_gives() -> None:
    seconds = {"decode": 1.0, "normalize": 4.0, "assemble": 0.6, "send": 0.6}
    main = {"wait": 6.0, "h2d": 0.5, "forward": 1.0}
    on_gpu = dataloader(main, seconds, device="GPU", device_busy_s=1.2)
    on_cpu = dataloader(main, seconds)
    loaded = [FIXES["open_images"].apply(job(made), "mid") for made in (on_gpu, on_cpu)]
    assert [each.of("normalize") > 0 for each in loaded] == [False, True]
    assert loaded[0].of("h2d") == pytest.approx(loaded[1].of("h2d") / 4)
    assert not loaded[1].of("assemble", "send")


def test_random_crops_are_not_decoded_smaller() -> None:
    crops = [resized(1, (900 + i, 700 + i)) for i in range(200)]
    made = replace(traces.SERIAL_DECODE, images=(decoded(200), *crops))
    assert not names(made) & {"scaled decode", "thumbnails", "loader_for"}
    assert "augment=True" in named(made, "open_images").code


def test_no_images_no_fixes() -> None:
    assert fixes(traces.NO_IMAGES) == Fixes((), 0.0)


def test_few_images_widen_the_interval() -> None:
    many, few = (
        gain(serial({"decode": 6.0, "resize": 1.5}, n=n), "scaled decode") for n in (2000, 20)
    )
    assert few.speedup == pytest.approx(many.speedup)
    assert few.low < many.low
    assert few.high > many.high


MODES = ("squash", "shortest", "longest", "crop")


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the code reads: a file, a folder, a zip, a list of URLs."""
    folder = tmp_path_factory.mktemp("images")
    photo = folder / "photos" / "cat" / "1.jpg"
    photo.parent.mkdir(parents=True)
    Image.new("RGB", (640, 480)).save(photo)
    shutil.copy(photo, folder / "photo.jpg")
    shutil.make_archive(str(folder / "photos"), "zip", folder / "photos")
    (folder / "urls.txt").write_text(photo.as_uri())
    return folder


@pytest.mark.filterwarnings("ignore:Exception ignored:pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("source", ["files", "zip", "urls"])
@pytest.mark.parametrize("made", [traces.SERIAL_DECODE, traces.STARVING_READ])
def test_the_code_runs_as_pasted(
    made: Trace, source: str, images: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(images)
    libraries: tuple[Library, ...] = ("pillow", "native")
    work = replace(job(made), source=source)
    for target in (None, *(Target((224, 224), mode) for mode in MODES)):
        for library in libraries:
            kinds = [replace(kind, library=library) for kind in work.decoded]
            for fix in FIXES.values():
                if fix.applies(work):
                    exec(CODE[fix.name](replace(work, target=target, decoded=kinds)), {})


@settings(max_examples=60)
@given(traces.any_traces())
def test_intervals_hold_the_gain(made: Trace) -> None:
    predicted = fixes(made)
    for each in predicted.all:
        assert 0 < each.gain.low <= each.gain.speedup <= each.gain.high
        assert math.isfinite(each.gain.high)
        assert each.gain.speedup >= NOTICEABLE
        assert each.gain.is_recommended == (each.gain.low > 1)
    assert predicted.model_error >= 0


def a_model_beside_workers(least_s: float = 0.0) -> Trace:
    """Two workers and a model on two cores: 8 s, of which the model takes 6 and Python 1."""
    made = dataloader(
        {"wait": 1.0, "forward": 6.0}, {"decode": 7.0}, n_workers=2, worker_cpu_s=4.0, cores=2
    )
    (threads,) = made.processes[0].threads
    forward = traces.function("forward")
    threads.spent[forward] = replace(threads.spent[forward], least_s=least_s)  # type: ignore[index]
    return made


def test_a_model_that_workers_disturb_is_faster_alone() -> None:
    """400 images in 6 s, and in the fastest call one in 3 ms."""
    for least_s, model_s in [(0.0, 15e-3), (3e-3, 3e-3), (20e-3, 15e-3)]:
        work = job(a_model_beside_workers(least_s))
        assert work.of("model") == pytest.approx(model_s)
    disturbed, alone = (
        gain(a_model_beside_workers(least_s), "open_images") for least_s in (0.0, 3e-3)
    )
    assert alone.speedup > 1.1 * disturbed.speedup


def test_the_loader_keeps_the_batch() -> None:
    """A model in training learns by it."""
    assert "batch=32" in named(traces.SERIAL_DECODE, "open_images").code
    use = Use("torch.utils.data.DataLoader", {"num_workers": "4", "batch_size": "5"})
    made = replace(traces.STARVING_DECODE, uses=(use,))
    assert "batch=5)" in named(made, "open_images").code


def test_a_pool_beside_a_model_on_the_cpu() -> None:
    """The model uses all cores: loading beside it takes cores from it."""
    seconds = {"decode": 3.0, "idle": 5.0}
    pool = [thread(seconds, 100, is_main=False, started_s=2.0) for _ in range(2)]
    main = thread({"wait": 0.5, "forward": 7.0})
    made = trace(
        [process([main, *pool], cpu_s=2 + 6 + 4 * 7.0)], [decoded(200), resized(200)], cores=4
    )
    work = job(made)
    assert (work.engine, work.model_cores) == ("threads", 4)
