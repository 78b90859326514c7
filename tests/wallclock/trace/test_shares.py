"""What a trace's numbers are: shares, sizes of images, and how they read."""

from dataclasses import replace

import pytest
from hypothesis import given

from tests.wallclock.trace import traces
from tests.wallclock.trace.traces import decoded, process, resized, thread, trace
from wallclock.check import ImageInfo
from wallclock.loader.images import open_images
from wallclock.loader.loading import ChooseScale, Loading
from wallclock.predict.pictures import MARGIN, Target
from wallclock.preprocess import preprocess_of
from wallclock.recipe import FAST
from wallclock.trace.fixes import geometry_of
from wallclock.trace.record import ImageKind, Sampled, Trace, Use
from wallclock.trace.shares import OTHER, OTHER_WAITS, Shares
from wallclock.trace.sizes import full_size_share, scale_of, target_of
from wallclock.words import digits


def test_a_thread_that_only_sends_does_not_dilute_the_workers() -> None:
    loads = thread({"decode": 6.0}, 50, started_s=2.0)
    sends = thread({"idle": 7.0, "send": 0.5}, started_s=2.0, is_main=False)
    made = trace(
        [process([thread({"wait": 7.5})]), process([loads, sends], "worker")], [decoded(50)]
    )
    shares = Shares(made)
    assert shares.n_workers == 1
    assert shares.workers.wall_s == pytest.approx(8.0 + 0.5)
    assert shares.workers.seconds("idle") == 0
    assert shares.workers.share("decode") == pytest.approx(6.0 / 8.5)


def test_epochs_workers_are_not_counted_twice() -> None:
    """Workers of the second epoch start after those of the first have ended."""
    epochs = [
        process([thread({"decode": 3.0}, 50, started_s=start, ended_s=start + 4)], "worker")
        for start in (2.0, 2.1, 6.2, 6.3)
    ]
    shares = Shares(trace([process([thread({"wait": 7.0})]), *epochs], [decoded(200)]))
    assert shares.n_workers == 2


def test_loaders_that_take_turns_keep_their_workers() -> None:
    made = traces.dataloader({"wait": 7.0}, {"decode": 3.0}, n_workers=4)
    uses = [Use("torch.utils.data.DataLoader", {"num_workers": "2"}) for _ in range(2)]
    assert Shares(replace(made, uses=tuple(uses))).n_workers == 2
    assert Shares(made).n_workers == 4


def test_more_traced_than_the_time_after_start_up() -> None:
    """A model that warms up before the first image: shares are of what was traced."""
    made = trace([process([thread({"decode": 1.0, "forward": 9.0}, 10)])], [decoded(10)])
    shares = Shares(made)
    assert shares.main.wall_s == pytest.approx(10.0)
    assert shares.main.share("forward") == pytest.approx(0.9)
    assert shares.main.share(OTHER) == 0


def test_images_are_counted_once() -> None:
    """By decoders; a resize or a read counts where no decoder was traced."""
    by_two = [decoded(30), decoded(12, name="cv2.imread"), resized(90)]
    assert Shares(trace([process([thread({"decode": 1.0}, 5)])], by_two)).n_images == 42
    only_read = trace([process([thread({"read": 1.0}, 7)])])
    assert Shares(only_read).n_images == 7


def test_samples_tell_work_from_waits() -> None:
    """What is in no traced function is divided as the samples outside of all are."""
    samples = (
        Sampled("/job/embed.py", 7, "load", "", "", 3.0, 0.0),
        Sampled("/job/embed.py", 9, "load", "time.sleep", "", 1.0, 1.0),
        Sampled("/job/embed.py", 5, "load", "PIL.Image.Image.load", "decode", 2.0, 0.0),
    )
    alone = replace(thread({"decode": 2.0}, 10), samples=samples)
    by_stage = {row.stage: row for row in Shares(trace([process([alone])])).main.rows}
    assert by_stage["decode"].place == "embed.py:5"
    assert by_stage[OTHER].spent.seconds == pytest.approx(6 * 3 / 4)
    assert (by_stage[OTHER].place, by_stage[OTHER].user_function) == ("embed.py:7", "load")
    assert by_stage[OTHER_WAITS].spent.seconds == pytest.approx(6 / 4)
    assert (by_stage[OTHER_WAITS].place, by_stage[OTHER_WAITS].call) == ("embed.py:9", "time.sleep")
    beside = thread({"decode": 3.0}, 10, is_main=False)
    main = Shares(trace([process([alone, beside])])).main
    assert main.seconds("wait") == pytest.approx(6 / 4), "for the thread that loads images"
    assert main.seconds(OTHER_WAITS) == 0


@given(traces.any_traces())
def test_shares_never_exceed_the_time(made: Trace) -> None:
    shares = Shares(made)
    for table in (shares.main, shares.workers):
        assert all(row.share >= 0 for row in table.rows)
        assert sum(row.share for row in table.rows) <= 1 + 1e-9
        if table.rows and table.wall_s > 0:
            total = sum(row.spent.seconds for row in table.rows)
            assert total == pytest.approx(table.wall_s)
    assert 0 <= shares.device_waits <= 1 + 1e-9


def of(*kinds: ImageKind) -> Trace:
    return trace([process([thread({"decode": 1.0}, 10)])], kinds)


@pytest.mark.parametrize(
    ("kinds", "target"),
    [
        ((decoded(10), resized(10)), Target((224, 224), "squash")),
        ((decoded(10), resized(10, made=(320, 240))), Target((320, 240), "squash")),
        # Resize(256) of portraits and landscapes.
        (
            (
                decoded(6),
                decoded(5, source=(1000, 3000)),
                resized(6, made=(341, 256)),
                resized(5, source=(1000, 3000), made=(256, 768)),
            ),
            Target((256, 256), "shortest"),
        ),
        (
            (
                decoded(6),
                decoded(5, source=(1000, 3000)),
                resized(6, made=(512, 384)),
                resized(5, source=(1000, 3000), made=(170, 512)),
            ),
            Target((512, 512), "longest"),
        ),
        # RandomResizedCrop: what is resized was cut out.
        (
            (decoded(10), *(resized(1, source=(900 + i, 700 + i)) for i in range(10))),
            Target((224, 224), "crop"),
        ),
        # Turned upright between decode and resize.
        ((decoded(10), resized(10, source=(1920, 2560))), Target((224, 224), "squash")),
        ((decoded(10),), None),
        ((decoded(3), *(resized(1, made=(100 + i, 200 + 2 * i)) for i in range(3))), None),
    ],
)
def test_target(kinds: tuple[ImageKind, ...], target: Target | None) -> None:
    assert target_of(of(*kinds)) == target


@pytest.mark.parametrize("mode", ["shortest", "longest"])
@pytest.mark.parametrize("source", [(640, 1280), (1279, 3000), (2560, 2560), (6000, 4000)])
def test_the_scale_is_the_loaders(mode: str, source: tuple[int, int]) -> None:
    """Of a bilinear resize that keeps the aspect ratio."""
    recipe = replace(FAST, preprocess=f"{mode}:160,crop:160x160")
    choose = ChooseScale(Loading.of(recipe, 224))
    assert Target((160, 160), mode).scale(source) == choose(ImageInfo("x", 1, *source))


def test_the_margin_is_the_default_recipes() -> None:
    assert FAST.dct_margin == MARGIN


@pytest.mark.parametrize(
    "target",
    [
        Target((224, 224), "squash"),
        Target((320, 240), "squash"),
        Target((256, 256), "shortest"),
        Target((512, 512), "longest"),
    ],
)
def test_the_code_is_what_open_images_takes(target: Target) -> None:
    """The arguments that a user is told to write are understood, and mean the target."""
    options = geometry_of(target)
    with open_images([], **options) as batches:
        assert list(batches) == []
    if "preprocess" in options:
        geometry = preprocess_of(replace(FAST, preprocess=str(options["preprocess"])), 224)
        assert (geometry.resize, geometry.size) == (target.mode, target.size)
    else:
        width, height = target.size
        assert options["size"] in ((height, width), height)


@pytest.mark.parametrize(
    ("made", "scale"), [((2560, 1920), 1), ((1280, 960), 2), ((320, 240), 8), ((321, 240), 4)]
)
def test_what_a_decoder_has_shrunk_already(made: tuple[int, int], scale: int) -> None:
    assert scale_of(decoded(1, made=made)) == scale


def test_full_size_is_said_of_pixels() -> None:
    """Many thumbnails beside a few photos: the photos are what takes the time."""
    made = of(decoded(900, source=(256, 256)), decoded(100), resized(1000))
    assert full_size_share(made, Target((224, 224), "squash")) > 0.85
    shrunk = of(decoded(100, made=(640, 480)), resized(100))
    assert full_size_share(shrunk, Target((224, 224), "squash")) == 0
    assert full_size_share(of(decoded(5, "PNG")), Target((224, 224), "squash")) == 0


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0004, "0"),
        (0.0126, "0.013"),
        (0.9999, "1.0"),
        (9.96, "10"),
        (0.254, "0.25"),
        (3600.4, "3,600"),
    ],
)
def test_digits(value: float, text: str) -> None:
    assert digits(value) == text
