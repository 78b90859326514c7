"""What a trace says: the verdict and the notes."""

import re
from dataclasses import replace

import pytest

from tests.wallclock.trace import traces
from tests.wallclock.trace.traces import dataloader, decoded, process, resized, serial, trace
from wallclock.trace.fixes import fixes_of
from wallclock.trace.page import say_notes
from wallclock.trace.record import Function, Sampled, Spent, Thread, Trace, Use
from wallclock.trace.shares import Shares
from wallclock.trace.verdict import Verdict, find_verdict

SITUATIONS = [
    (
        traces.STARVING_DECODE,
        "The GPU waits for data 71 % of the time; decoding takes 78 % of the workers' time:"
        " full-size 2560 × 1920 JPEGs for 224 px.",
    ),
    (traces.MODEL_BOUND, "The model takes 89 % of the time."),
    (
        traces.SERIAL_DECODE,
        "Decoding takes 75 % of the main process's time: full-size 2560 × 1920 JPEGs for 224 px.",
    ),
    (traces.SERIAL_READ, "Reading takes 81 % of the main process's time: storage is the limit."),
    # The CPU is at work while it reads: files in memory.
    (
        serial({"read": 6.5, "decode": 0.8}, cpu_s=9.9),
        "Reading takes 81 % of the main process's time.",
    ),
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
    (traces.NO_IMAGES, "No image was read or decoded, so there is no image job to judge."),
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
        (
            [decoded(50), decoded(50, "progressive JPEG", (1280, 960)), resized(100)],
            "full-size JPEGs, 3.1 megapixels on average, for 224 px.",
        ),
        (
            [decoded(60, "PNG"), decoded(40, "GIF"), resized(100)],
            ": images, 4.9 megapixels on average, for 224 px.",
        ),
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
        ({"format": "PNG", "optimize": "yes"}, "compress_level=1, without optimize=True"),
        ({"format": "PNG", "optimize": "False"}, "save with compress_level=1;"),
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


def test_loaders_and_a_model_that_share_the_cores() -> None:
    made = traces.a_model_beside_workers()
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
    assert "still gains" in sentence


@pytest.mark.parametrize(
    ("changes", "note"),
    [
        ({"exit_code": 1}, "The program ended with exit code 1 after 10 s; the times are until"),
        ({"exit_code": 130}, "The program ended by SIGINT after 10 s"),
        ({"exit_code": 255}, "The program ended with exit code 255"),
        ({"first_image_s": 7.0}, "Start-up took 7.0 s of 10 s"),
    ],
)
def test_notes(changes: dict[str, object], note: str) -> None:
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


def test_what_is_not_traced_is_said() -> None:
    assert "not traced" not in notes_of(traces.SERIAL_DECODE)
    note = notes_of(replace(traces.SERIAL_DECODE, untraced_s=4.0))
    assert "Processes that are not traced used 4.0 s of the cores" in note
