"""Seconds, shares, images and cores of traces made by hand."""

from dataclasses import replace

import pytest
from hypothesis import given

from tests.wallclock.trace import traces
from tests.wallclock.trace.traces import decoded, process, resized, thread, trace
from wallclock.trace.record import Sampled, Trace
from wallclock.trace.shares import OTHER, OTHER_WAITS, Shares


def test_shares_are_of_the_time_after_start_up() -> None:
    shares = Shares(traces.SERIAL_DECODE)
    assert (shares.startup_s, shares.steady_s, shares.main.wall_s) == (2.0, 8.0, 8.0)
    assert shares.main.share("decode") == pytest.approx(6.0 / 8)
    assert shares.main.seconds(OTHER) == pytest.approx(8 - 0.1 - 6.0 - 1.5 - 0.1)
    assert shares.img_per_s == pytest.approx(200 / 8)


def test_workers_times_are_added_up() -> None:
    shares = Shares(traces.STARVING_DECODE)
    assert shares.workers.wall_s == pytest.approx(4 * 8)
    assert shares.workers.seconds("decode") == pytest.approx(4 * 6.2)
    assert shares.workers.share("decode") == pytest.approx(6.2 / 8)
    assert shares.n_workers == 4
    decode = shares.workers.largest("decode", "read")
    assert decode is not None
    assert decode.functions[0][0] == "PIL.ImageFile.load"
    assert decode.ms_per_image == pytest.approx(4 * 6.2 / 400 * 1e3)


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


def test_more_traced_than_the_time_after_start_up() -> None:
    """A model that warms up before the first image: shares are of what was traced."""
    made = trace([process([thread({"decode": 1.0, "forward": 9.0}, 10)])], [decoded(10)])
    shares = Shares(made)
    assert shares.main.wall_s == pytest.approx(10.0)
    assert shares.main.share("forward") == pytest.approx(0.9)
    assert shares.main.share(OTHER) == 0


def test_without_images_there_is_no_start_up() -> None:
    shares = Shares(traces.NO_IMAGES)
    assert (shares.startup_s, shares.n_images, shares.img_per_s) == (0.0, 0, 0.0)
    assert shares.main.share(OTHER) == pytest.approx(0.95)


def test_images_are_counted_once() -> None:
    """By decoders; a resize or a read counts where no decoder was traced."""
    by_two = [decoded(30), decoded(12, name="cv2.imread"), resized(90)]
    assert Shares(trace([process([thread({"decode": 1.0}, 5)])], by_two)).n_images == 42
    only_read = trace([process([thread({"read": 1.0}, 7)])])
    assert Shares(only_read).n_images == 7


def test_the_device_waits_at_most_while_it_is_not_busy() -> None:
    shares = Shares(traces.STARVING_DECODE)
    assert shares.device_waits == pytest.approx(5.7 / 8)
    busy = traces.dataloader({"wait": 6.0}, {"decode": 7.0}, device="GPU", device_busy_s=6.0)
    assert Shares(busy).device_waits == pytest.approx(1 - 6 / 8)


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
    assert (by_stage[OTHER].place, by_stage[OTHER].call) == ("embed.py:7", "")
    assert by_stage[OTHER_WAITS].spent.seconds == pytest.approx(6 / 4)
    assert (by_stage[OTHER_WAITS].place, by_stage[OTHER_WAITS].call) == ("embed.py:9", "time.sleep")
    beside = thread({"decode": 3.0}, 10, is_main=False)
    main = Shares(trace([process([alone, beside])])).main
    assert main.seconds("wait") == pytest.approx(6 / 4), "for the thread that loads images"
    assert main.seconds(OTHER_WAITS) == 0


def test_cpu_use() -> None:
    assert Shares(traces.SERIAL_DECODE).cpu_use == pytest.approx(9.9 / (8 * 10))
    assert Shares(traces.KILLED).cpu_use is None
    assert Shares(traces.KILLED).killed == 1


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
