"""One sentence for each situation, and the notes that go with it."""

from dataclasses import replace

import pytest

from tests.wallclock.trace import traces
from tests.wallclock.trace.traces import dataloader, decoded, resized, serial
from wallclock.trace.findings import say_notes, say_verdict
from wallclock.trace.fixes import fixes_of
from wallclock.trace.record import Trace
from wallclock.trace.shares import Shares

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
    (traces.MODEL_BOUND, "The model takes 89 % of the time; no loader will help."),
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
    (
        traces.SERIAL_MODEL,
        "The model takes 89 % of the time; no loader will bring more than 1.11 ×.",
    ),
    (
        traces.THREADS,
        "The main process waits for data 98 % of the time; decoding takes 82 % of the workers'"
        " time: full-size 2560 × 1920 JPEGs for 224 px.",
    ),
    (
        replace(traces.THREADS, processes=()),
        "The trace is lost: its counters were removed from the temporary folder (TMPDIR).",
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
    (serial({"decode": 0.5, "resize": 6.0}), "Resizing takes 75 % of the main process's time."),
    (
        serial({"decode": 0.5}),
        "Python code that is not traced takes 94 % of the main process's time.",
    ),
    (
        serial({"decode": 0.5, "serialize": 7.0}),
        "Writing the results takes 88 % of the main process's time.",
    ),
    (
        dataloader({"wait": 7.0}, {"decode": 1.0, "read": 0.5}),
        "The main process waits for data 88 % of the time; Python code that is not traced takes"
        " 81 % of the workers' time.",
    ),
]


def verdict_of(made: Trace) -> str:
    shares = Shares(made)
    return say_verdict(shares, fixes_of(shares))


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
            "full-size JPEGs, 3.07 megapixels on average, for 224 px.",
        ),
        (
            [decoded(60, "PNG"), decoded(40, "GIF"), resized(100)],
            ": images, 4.92 megapixels on average, for 224 px.",
        ),
        ([decoded(100)], ": 2560 × 1920 JPEGs."),
        ([decoded(100), resized(100, made=(320, 240))], "JPEGs for 320 × 240 px."),
        ([decoded(100, ""), resized(100)], ": 2560 × 1920 images for 224 px."),
    ],
)
def test_what_is_decoded(images: list[object], what: str) -> None:
    made = replace(traces.SERIAL_DECODE, images=tuple(images))  # type: ignore[arg-type]
    assert what in verdict_of(made)


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
        ({"first_image_s": 7.0}, "Start-up took 7 s of 10 s"),
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
    assert "1 process was killed: their times are as of their last traced call." in notes
    assert "This rests on 20 images" in notes


def test_nothing_follows_on_a_busy_machine() -> None:
    assert fixes_of(Shares(traces.SERIAL_DECODE)).all
    quiet, busy = (replace(traces.SERIAL_DECODE, others_s=8 * 10 * part) for part in (0.05, 0.2))
    assert notes_of(quiet) == ""
    assert "Other programs used 20 % of the cores" in notes_of(busy)
    assert not fixes_of(Shares(busy)).all


def test_nothing_follows_from_a_model_that_is_off() -> None:
    """Workers that never wait and are idle half of the time: something else held them up."""
    made = dataloader({"wait": 7.9}, {"decode": 2.0, "idle": 5.9}, worker_cpu_s=2.0)
    assert "The pipeline model's rate differs from the program's by" in notes_of(made)
    assert not fixes_of(Shares(made)).all
