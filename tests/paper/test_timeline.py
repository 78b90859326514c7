"""Recorded spans: the stretch that is shown, how busy a lane was in it, figure 6, and the trace."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from tests.paper import made_up
from tests.paper.made_up import CPU, T4, Machine, Rows
from wallclock.paper import perfetto, spans
from wallclock.paper.csvfile import read_table
from wallclock.paper.figures import fig_06_cpu_gpu_timeline as fig_06
from wallclock.paper.figures.style import styled
from wallclock.paper.rendering import NothingToDrawError, measured_sources
from wallclock.paper.spans import Span, Window

BASELINE, OPTIMIZED = fig_06.OPTIONAL

Save = Callable[[Path, str, Rows], Path]
MACHINES = pytest.mark.parametrize("machine", [T4, CPU], ids=["gpu", "cpu"])


def drawn(folder: Path) -> Figure:
    with styled():
        return fig_06.draw(measured_sources(folder, fig_06.SOURCES, fig_06.OPTIONAL))


def words(figure: Figure) -> str:
    texts = [item.get_text() for item in figure.findobj(Text) if isinstance(item, Text)]
    return "\n".join(texts).replace("\u00a0", " ").replace("\n", " ")


def forward_passes(n: int, period: float = 10.0, duration: float = 6.0) -> list[Span]:
    return [Span("gpu", "forward", i, i * period, duration) for i in range(n)]


# --- what is shown ------------------------------------------------------------------------------


def test_the_window_runs_over_whole_periods_where_all_lanes_were_recorded() -> None:
    loading = [Span("worker 0", "decode", i, 10.0 * i - 25, 10.0) for i in range(20)]
    window = spans.choose_window([*forward_passes(20), *loading])
    assert window == Window(0.0, 80.0, 8, whole=True)


def test_a_faster_run_shows_more_periods_if_it_has_them() -> None:
    assert spans.choose_window(forward_passes(20), at_least_ms=125) == Window(
        0.0, 120.0, 12, whole=True
    )
    assert spans.choose_window(forward_passes(10), at_least_ms=125) == Window(
        0.0, 90.0, 9, whole=True
    )


def test_a_loader_whose_recording_ends_early_is_not_whole() -> None:
    loading = [Span("worker 0", "decode", i, 10.0 * i - 180, 10.0) for i in range(20)]
    window = spans.choose_window([*forward_passes(20), *loading], at_least_ms=1000)
    assert window == Window(0.0, 80.0, 8, whole=False)
    # unless the run itself was over
    assert spans.choose_window([*forward_passes(20), *loading], total=20) == Window(
        0.0, 80.0, 8, whole=True
    )


def test_two_passes_are_a_window_and_one_is_none() -> None:
    assert spans.choose_window(forward_passes(2)) == Window(0.0, 10.0, 1, whole=True)
    assert spans.choose_window(forward_passes(1)) is None


def test_busy_is_neither_waiting_nor_counted_twice() -> None:
    window = Window(10.0, 30.0, 2, whole=True)
    lane = [
        Span("gpu", "forward", 0, 5, 10),
        Span("gpu", "h2d", 1, 12, 2),
        Span("gpu", "forward", 1, 28, 50),
    ]
    assert spans.busy_share(
        [*lane, Span("gpu", "wait", 1, 15, 13)], "gpu", window
    ) == pytest.approx(7 / 20)
    assert spans.busy_share(lane, "main", window) == 0


def test_grouping_keeps_the_sums_and_leaves_the_device_alone() -> None:
    rows = [{name: str(value) for name, value in row.items()} for row in made_up.timeline(T4, n=6)]
    before = spans.parse(rows)
    after = spans.grouped(before)
    assert len(after) < len(before) / 10

    def totals(found: list[Span]) -> dict[tuple[str, int, str], float]:
        sums: dict[tuple[str, int, str], float] = {}
        for span in found:
            key = (span.lane, span.batch, span.stage)
            sums[key] = sums.get(key, 0) + span.duration
        return sums

    assert totals(after) == pytest.approx(totals(before))
    assert [span for span in after if span.lane == "gpu"] == [
        span for span in before if span.lane == "gpu"
    ]


def test_lanes_are_in_order_of_their_number() -> None:
    rows = [
        {name: str(value) for name, value in row.items()}
        for row in made_up.timeline(T4, workers=11, n=12)
    ]
    found = spans.lanes(spans.parse(rows))
    assert found == [*(f"worker {i}" for i in range(11)), "main", "gpu"]


# --- figure 6 -----------------------------------------------------------------------------------


@MACHINES
def test_the_device_lane_is_at_the_bottom_and_says_how_busy_it_was(
    machine: Machine, tmp_path: Path, save_table: Save
) -> None:
    save_table(tmp_path, BASELINE, made_up.timeline(machine))
    save_table(
        tmp_path,
        OPTIMIZED,
        made_up.timeline(machine, workers=8, batch_size=64, forward_ms=57, n=40),
    )
    figure = drawn(tmp_path)
    above, below = figure.axes
    assert above.get_xlim() == below.get_xlim()
    for axes in (above, below):
        labels = [tick.get_text() for tick in axes.get_yticklabels()]
        lane = "gpu" if machine.on_gpu else "main"
        assert labels[-1].startswith(f"{lane}, ")
        assert labels[-1].endswith("% busy")
        assert labels[0] == "worker 0"
    assert above.get_title(loc="left").startswith(
        "Baseline: 4 workers, batch 32 · 8 batches, 256 images in "
    )
    assert "recorded spans, not a model" in words(figure)
    assert "drawn together, batch by batch" in words(figure)
    assert "not recorded" not in words(figure)
    assert ("mock model" in words(figure)) == (machine.weights == "none")


def test_runs_of_very_unlike_pace_have_scales_of_their_own(
    tmp_path: Path, save_table: Save
) -> None:
    save_table(tmp_path, BASELINE, made_up.timeline(T4, forward_ms=4000))
    save_table(
        tmp_path, OPTIMIZED, made_up.timeline(T4, workers=8, batch_size=4, forward_ms=5, n=20)
    )
    figure = drawn(tmp_path)
    above, below = figure.axes
    assert above.get_xlim()[1] > 20 * below.get_xlim()[1]
    assert "different scales" in words(figure)


def test_what_was_not_recorded_is_hatched(tmp_path: Path, save_table: Save) -> None:
    save_table(
        tmp_path, OPTIMIZED, made_up.timeline(T4, workers=8, batch_size=64, forward_ms=57, n=20)
    )
    assert "hatched: not recorded" in words(drawn(tmp_path))


def test_long_stages_are_drawn_where_they_were(tmp_path: Path, save_table: Save) -> None:
    rows = made_up.timeline(T4, batch_size=2, forward_ms=20)
    for row in rows:
        if str(row["lane"]).startswith("worker"):
            row["duration_ms"] = 12.0
    save_table(tmp_path, BASELINE, rows)
    assert "drawn together" not in words(drawn(tmp_path))


def test_no_workers_and_too_few_batches(tmp_path: Path, save_table: Save) -> None:
    save_table(tmp_path, BASELINE, made_up.timeline(CPU, workers=0, n=3))
    (axes,) = drawn(tmp_path).axes
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["main, 100 % busy"]
    save_table(tmp_path, OPTIMIZED, made_up.timeline(CPU, n=1))
    assert "optimized: too few batches to show" in words(drawn(tmp_path))
    (tmp_path / OPTIMIZED).unlink()
    save_table(tmp_path, BASELINE, made_up.timeline(CPU, n=1))
    with pytest.raises(NothingToDrawError, match="no two forward passes"):
        drawn(tmp_path)


# --- the trace ----------------------------------------------------------------------------------


@MACHINES
def test_the_trace_holds_every_span_on_a_named_thread(
    machine: Machine, tmp_path: Path, save_table: Save
) -> None:
    save_table(tmp_path, BASELINE, made_up.timeline(machine))
    first, second = perfetto.render_all(tmp_path, tmp_path / "one")
    assert second.skipped == f"no {OPTIMIZED}"
    (path,) = first.paths
    assert path.name == "fig-06-timeline-baseline.trace.json"
    plain = json.loads(path.read_text(encoding="utf-8"))
    assert plain["displayTimeUnit"] == "ms"
    assert plain["otherData"]["device"] == machine.device
    events = plain["traceEvents"]
    threads = {
        event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"
    }
    assert list(threads.values()) == spans.lanes(spans.parse(read_table(tmp_path / BASELINE)))
    complete = [event for event in events if event["ph"] == "X"]
    assert len(complete) == len(spans.parse(read_table(tmp_path / BASELINE)))
    assert min(event["ts"] for event in complete) == 0
    assert all(event["dur"] > 0 and event["tid"] in threads for event in complete)
    again = perfetto.render_all(tmp_path, tmp_path / "two")[0].paths[0]
    assert again.read_bytes() == path.read_bytes()


def test_spans_that_rounding_made_overlap_are_kept_apart(tmp_path: Path) -> None:
    on = dict.fromkeys(
        ("batch", "corpus", "weights", "device", "device_kind", "n_images", "workers"), "1"
    )
    rows = [
        {
            **on,
            "batch_size": "1",
            "lane": "gpu",
            "stage": "forward",
            "start_ms": "10000.1",
            "duration_ms": "9.99",
        },
        {
            **on,
            "batch_size": "1",
            "lane": "gpu",
            "stage": "d2h",
            "start_ms": "10010",
            "duration_ms": "1",
        },
        {
            **on,
            "batch_size": "1",
            "lane": "main",
            "stage": "wait",
            "start_ms": "9999",
            "duration_ms": "20",
        },
    ]
    complete = [event for event in perfetto.events(rows) if event["ph"] == "X"]
    times = {event["name"]: (event["ts"], event["dur"]) for event in complete}
    assert times == {"wait": (0, 20_000), "forward": (1100, 9900), "d2h": (11_000, 1000)}


def test_a_timeline_without_spans_is_no_trace(tmp_path: Path, save_table: Save) -> None:
    save_table(tmp_path, BASELINE, [])
    assert perfetto.render_all(tmp_path, tmp_path)[0].skipped == f"no span in {BASELINE}"
