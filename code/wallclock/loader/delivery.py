"""What `open_images` delivers of what was loaded: no batch without an image.

A batch is held, in its buffer, until the next one with an image is known: failures of batches
between them join it. Where ranks need as many batches as one another, copies take their place.
"""

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

from wallclock.errors import UserError, describe
from wallclock.loader.batch import Batch
from wallclock.loader.order import Place

#: The buffer of copies.
NO_BUFFER = -1


@dataclass
class Delivery:
    """A batch, the number of its buffer, and the places before and behind it."""

    batch: Batch[Any]
    number: int
    before: Place
    behind: Place
    is_last: bool = False


def deliver(
    loaded: Iterator[Delivery], release: Callable[[int], None], repeats: bool
) -> Iterator[Delivery]:
    """The batches that have an image, with the failures of those that have none.

    `release` takes back the buffer of a batch without an image. `repeats`: deliver as many as were
    loaded. Raises UserError: at the end, if none had an image; an error of `loaded` comes behind
    its batches.
    """
    base: Delivery | None = None
    group: list[Delivery] = []  # it, and the batches without an image around it
    try:
        for now in loaded:
            if not now.batch.ids:
                release(now.number)
            elif base is not None:
                # Failures at the start of an epoch are the next batch's.
                epoch = base.before.epoch
                joined = [each for each in group if repeats or each.before.epoch <= epoch]
                group = group[len(joined) :]
                yield from _settle(base, joined, repeats)
            base = now if now.batch.ids else base
            group.append(now)
    except Exception:
        if base is not None:
            yield from _settle(base, group, repeats)
        raise
    if base is not None:
        (group[-1] if repeats else base).is_last = True
        yield from _settle(base, group, repeats)
    elif failures := [failure for one in group for failure in one.batch.failures]:
        none = f"none of {len(failures):,} images could be read; the first, {describe(failures[0])}"
        raise UserError(none)


def _settle(base: Delivery, group: list[Delivery], repeats: bool) -> Iterator[Delivery]:
    """One batch of a group, or one for each, of the images that `base` has."""
    if not repeats:
        base.batch.failures = [failure for one in group for failure in one.batch.failures]
        base.batch.skipped = [name for one in group for name in one.batch.skipped]
        base.behind = group[-1].behind
        yield base
        return
    # A copy for each, of one that no consumer has.
    images = deepcopy(base.batch.images) if len(group) > 1 else None
    batch, first, n = base.batch, group[0].before, len(base.batch.ids)
    for number, one in enumerate(group, 1):
        if one is not base:
            empty = one.batch
            one.batch = replace(batch, images=deepcopy(images), repeated=n)
            one.batch.failures, one.batch.skipped = empty.failures, empty.skipped
            one.number = NO_BUFFER
        if one is not group[-1]:
            one.behind = first._replace(skip=number)
        yield one
