"""Protocol `throughput` for engine `threads`: the same clock, the same samples, other machinery.

Beyond what every end-to-end record holds: `limited_by` (loader, forward or sink: what the main thread
spent most of the pass on or waiting for), where each worker's time went, and what the ring takes.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import numpy as np

from wallclock.engines import consumer as consumers
from wallclock.engines import threads
from wallclock.engines.consumer import Consumer
from wallclock.engines.pipeline import Pipeline
from wallclock.engines.threads import IMAGE_STAGES, Batch, Loader
from wallclock.engines.writer import WriterThread, open_writer
from wallclock.errors import UserError, describe
from wallclock.measure import monitor
from wallclock.measure.protocol import Pass, Progress
from wallclock.spec import ModelSpec, Recipe
from wallclock.stages import sinks

#: Batches whose spans are kept, at least.
_SPAN_BATCHES = 16


class Threaded:
    """Engine `threads`, at work: its loader, and what its batches go through."""

    def __init__(self, loader: Loader, recipe: Recipe, model: ModelSpec) -> None:
        self._loader, self._recipe, self._model = loader, recipe, model

    def warm_up(self, count: int, pipeline: Pipeline) -> None:
        """Take the first `count` batches all the way, to a sink that is thrown away."""
        with tempfile.TemporaryDirectory() as folder:
            sink = sinks.make(self._recipe.sink, Path(folder), self._model.dim)
            with open_writer(sink.write, sink.close) as writer:
                consumer = consumers.make(pipeline, self._recipe.device, writer)
                for _ in range(count):
                    batch = next(self._loader)
                    if batch.ids:
                        consumer.submit(batch.ids, batch.images, 0)
                consumer.drain()
                writer.finish()

    def measure(
        self, pipeline: Pipeline, count: int, max_failures: int, progress: Progress
    ) -> Pass:
        """The next `count` batches, from asking for the first to the sink's file being whole.

        Raises:
            UserError: more than `max_failures` images failed.
        """
        done, loader = Pass(), self._loader
        before = loader.busy()
        keep = loader.ring_size + _SPAN_BATCHES
        kept: list[tuple[int, Batch]] = []
        start = perf_counter_ns()
        with open_writer(pipeline.serialize, pipeline.finish) as writer:
            consumer = consumers.make(pipeline, self._recipe.device, writer)
            tally = _Tally(done, consumer, writer, start, keep)
            _consume(loader, count, tally, kept, max_failures, progress)
            consumer.drain()
            writer.finish()
            done.wall_ns = perf_counter_ns() - start
        tally.collect()
        _images(done, kept, start)
        watch = monitor.current()
        if watch is not None:
            watch.update(
                done.samples, done.embedded, done.batches, len(done.failures), lambda: 0, final=True
            )
        done.values = _values(loader, before, done, writer)
        return done


class _Tally:
    """Brings what the device and the sink have been through so far into the pass, each batch once."""

    def __init__(
        self, done: Pass, consumer: Consumer, writer: WriterThread, start: int, keep: int
    ) -> None:
        self.done, self.consumer, self.keep = done, consumer, keep
        self._writer, self._start = writer, start
        self._embedded = self._written = 0

    def collect(self) -> None:
        """Add the batches that came through since the last time."""
        done, start = self.done, self._start
        for number, spans in enumerate(self.consumer.spans()[self._embedded :], self._embedded):
            for name, began, took in spans:
                done.samples[name].append(took)
                if number < self.keep:
                    done.spans.append((self.consumer.lane, name, number, began - start, took))
            self._embedded += 1
        for number, each in enumerate(self._writer.written[self._written :], self._written):
            took = each.ended - each.began
            done.samples["serialize"].append(took)
            if each.asked:
                done.samples["batch"].append(each.ended - each.asked)
            if number < self.keep:
                done.spans.append(("sink", "serialize", number, each.began - start, took))
            self._written += 1


def _consume(
    loader: Loader,
    count: int,
    tally: _Tally,
    kept: list[tuple[int, Batch]],
    max_failures: int,
    progress: Progress,
) -> None:
    done, watch = tally.done, monitor.current()
    if watch is not None:
        watch.begin()
    asked = perf_counter_ns()
    for batch in islice(loader, count):
        got = perf_counter_ns()
        done.samples["wait"].append(batch.waited_ns)
        if batch.ids:
            tally.consumer.submit(batch.ids, batch.images, asked)
        done.failures += batch.failures
        _durations(done, batch)
        if done.batches < tally.keep:
            kept.append((got, replace(batch, images=batch.images[:0])))
        done.embedded += len(batch.ids)
        done.batches += 1
        if len(done.failures) > max_failures:
            last = describe(done.failures[-1])
            raise UserError(
                f"more than max_failures={max_failures} images failed; the last, {last}"
            )
        if watch is not None:
            tally.collect()
            watch.update(
                done.samples, done.embedded, done.batches, len(done.failures), loader.ready
            )
        progress(done.embedded)
        asked = perf_counter_ns()


def _durations(done: Pass, batch: Batch) -> None:
    marks = [each for _, chunk in batch.marks for each in chunk]
    if marks:
        took = np.diff(np.array(marks, dtype=np.int64), axis=1)
        for column, name in enumerate(IMAGE_STAGES):
            done.samples[name].frombytes(took[:, column].tobytes())


def _images(done: Pass, kept: Sequence[tuple[int, Batch]], start: int) -> None:
    for number, (got, batch) in enumerate(kept):
        done.spans.append(("main", "wait", number, got - batch.waited_ns - start, batch.waited_ns))
        for worker, chunk in batch.marks:
            for marks in chunk:
                for i, name in enumerate(IMAGE_STAGES):
                    span = (
                        f"thread {worker}",
                        name,
                        number,
                        marks[i] - start,
                        marks[i + 1] - marks[i],
                    )
                    done.spans.append(span)


def _values(
    loader: Loader, before: Sequence[threads.Busy], done: Pass, writer: WriterThread
) -> dict[str, Any]:
    """What limits the pass, and where each worker's time went while the clock ran."""
    workers = []
    for old, new in zip(before, loader.busy(), strict=True):
        spent = {
            f"{name}_s": (new.stage_ns[name] - old.stage_ns[name]) / 1e9 for name in IMAGE_STAGES
        }
        workers.append(
            {
                **spent,
                "wait_s": (new.wait_ns - old.wait_ns) / 1e9,
                "images": new.images - old.images,
            }
        )
    waiting = {"loader": sum(done.samples["wait"]), "sink": writer.wait_ns}
    main = {**waiting, "forward": done.wall_ns - sum(waiting.values())}
    return {
        "limited_by": max(main, key=lambda name: main[name]),
        "main_s": {name: spent / 1e9 for name, spent in main.items()},
        "workers": workers,
        "ring_batches": loader.ring_size,
        "ring_mib": loader.ring_bytes / 2**20,
    }
