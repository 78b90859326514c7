"""What each change of a traced program is predicted to bring, and its code."""

import math
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
from wallclock.trace.fixes import CODE, Fixes, Predicted, errors_of, fixes_of
from wallclock.trace.record import ImageKind, Trace, Use
from wallclock.trace.shares import Shares
from wallclock.trace.work import job_of


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


SMALL = (256, 256)
CROPS = [decoded(200), *(resized(1, (900 + i, 700 + i)) for i in range(200))]


@pytest.mark.parametrize(
    ("images", "absent"),
    [
        ([decoded(200, made=(640, 480)), resized(200, (640, 480))], {"scaled decode"}),
        ([decoded(200, source=SMALL, kb=10), resized(200, SMALL)], {"scaled decode", "thumbnails"}),
        ([decoded(200, "PNG"), resized(200)], {"scaled decode", "loader_for"}),
        ([decoded(200, "GIF"), resized(200)], {"scaled decode", "loader_for"}),
        (CROPS, {"scaled decode", "thumbnails", "loader_for"}),
    ],
)
def test_what_brings_nothing_is_not_offered(images: list[ImageKind], absent: set[str]) -> None:
    assert not names(replace(traces.SERIAL_DECODE, images=tuple(images))) & absent


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
            kinds = [replace(kind, backend=library) for kind in work.decoded]
            changed = replace(work, target=target, decoded=kinds)
            for fix in FIXES.values():
                if fix.applies(changed):
                    exec(CODE[fix.name](changed), {})


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


def test_a_model_that_workers_disturb_is_faster_alone() -> None:
    """400 images in 6 s, and in the fastest call one in 3 ms."""
    for least_s, model_s in [(0.0, 15e-3), (3e-3, 3e-3), (20e-3, 15e-3)]:
        work = job(traces.a_model_beside_workers(least_s))
        assert work.of("model") == pytest.approx(model_s)
    disturbed, alone = (
        gain(traces.a_model_beside_workers(least_s), "open_images") for least_s in (0.0, 3e-3)
    )
    assert alone.speedup > 1.1 * disturbed.speedup


def test_the_loader_keeps_the_batch() -> None:
    """A model in training learns by it."""
    assert "batch=32" in named(traces.SERIAL_DECODE, "open_images").code
    use = Use("torch.utils.data.DataLoader", {"num_workers": "4", "batch_size": "5"})
    made = replace(traces.STARVING_DECODE, uses=(use,))
    assert "batch=5)" in named(made, "open_images").code
    made = replace(traces.SERIAL_DECODE, images=tuple(CROPS))
    assert "augment=True" in named(made, "open_images").code


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
