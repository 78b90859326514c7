"""Engine `serial`: every image through the nine stages, one after the other, in one thread.

Nothing overlaps, so the stages' seconds add up to the wall clock, and each stage's share is its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from wallclock.clock import StageProfiler
from wallclock.corpus.manifest import Item
from wallclock.engines.pipeline import Images, Pipeline
from wallclock.errors import ImageError, UserError, describe


@dataclass
class Outcome:
    """What a pass left: how many images became vectors, and which did not, as {id, stage, reason}."""

    n_embedded: int = 0
    failures: list[dict[str, str]] = field(default_factory=list)


def run(
    items: Sequence[Item],
    pipeline: Pipeline,
    profiler: StageProfiler,
    batch_size: int,
    max_failures: int,
    progress: Callable[[int], None],
) -> Outcome:
    """Take `items` through the pipeline in batches of `batch_size`; the last may be smaller.

    An image that fails is counted and left out of its batch; ids stay with their vectors.

    Raises:
        UserError: more than `max_failures` images failed.
    """
    outcome = Outcome()
    pipeline.expect(items)
    for start in range(0, len(items), batch_size):
        ids, images = _load(items[start : start + batch_size], pipeline, profiler, outcome.failures)
        if len(outcome.failures) > max_failures:
            last = describe(outcome.failures[-1])
            raise UserError(
                f"more than max_failures={max_failures} images failed; the last, {last}"
            )
        if ids:
            _embed(ids, images, pipeline, profiler)
            outcome.n_embedded += len(ids)
        progress(min(start + batch_size, len(items)))
    with profiler.stage("serialize"):
        pipeline.finish()
    return outcome


def _load(
    items: Sequence[Item],
    pipeline: Pipeline,
    profiler: StageProfiler,
    failures: list[dict[str, str]],
) -> tuple[list[str], list[Images]]:
    stage = profiler.stage
    ids: list[str] = []
    images: list[Images] = []
    for item in items:
        try:
            with stage("read"):
                data = pipeline.read(item)
            with stage("decode"):
                pixels = pipeline.decode(item, data)
            with stage("resize"):
                pixels = pipeline.resize(item, pixels)
            with stage("normalize"):
                image = pipeline.normalize(pixels)
        except ImageError as error:
            failures.append({"id": item.id, "stage": error.stage, "reason": error.reason})
            continue
        ids.append(item.id)
        images.append(image)
    return ids, images


def _embed(
    ids: list[str], images: list[Images], pipeline: Pipeline, profiler: StageProfiler
) -> None:
    stage = profiler.stage
    with stage("assemble"):
        batch = pipeline.assemble(images)
    with stage("h2d"):
        on_device = pipeline.h2d(batch)
    with stage("forward"):
        result = pipeline.forward(on_device)
    with stage("d2h"):
        vectors = pipeline.d2h(result)
    with stage("serialize"):
        pipeline.serialize(ids, vectors)
