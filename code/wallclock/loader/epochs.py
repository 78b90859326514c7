"""`as_dataloader`: an epoch from its start at every `iter`, as trainers expect of a DataLoader.

`Images` is an iterator: left in the middle, it goes on there. Lightning, transformers' Trainer and
others begin again instead: they look at two batches before they train, or stop an epoch early.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import count
from typing import Any, Generic, TypeVar, overload

from wallclock.loader.batch import Batch, ImagesT
from wallclock.loader.iteration import Images

T = TypeVar("T")


class Epochs(Generic[T]):
    """What `as_dataloader` returns: it can be iterated again, and has a length where items have.

    Iterations are independent: each has threads of its own, and an epoch of its own.
    """

    def __init__(self, images: Images[Any], convert: Callable[[Batch[Any]], T]) -> None:
        self._next, self._convert = images.copy(), convert
        self._next.set_epoch(images.epoch)  # from its start, unless a state was loaded
        self._running: list[Images[Any]] = []

    def __repr__(self) -> str:
        return f"<Epochs: {self._next.plan!r}, next: epoch {self._next.epoch}>"

    def __len__(self) -> int:
        """Batches of one iteration. Raises TypeError: of a stream."""
        return len(self._next)

    def __iter__(self) -> Iterator[T]:
        """The next epoch from its start; the first after `load_state_dict` goes on in its own."""
        return self.behind(0)

    def behind(self, skip: int) -> Iterator[T]:
        """The next epoch without its first `skip` batches, which are not loaded."""
        images = self._next.copy(skip)
        self._next.finish()
        self._running.append(images)
        try:
            with images, _in_accelerate() as loader:
                for batch in images:
                    loader.end_of_dataloader = images.is_last
                    yield self._convert(batch)
        finally:
            self._running.remove(images)

    def set_epoch(self, epoch: int) -> None:
        """See `Images`."""
        self._next.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Which batch comes next: of the iteration that was begun last, or else of the next one."""
        return (self._running or [self._next])[-1].state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See `Images`."""
        self._next.load_state_dict(state)

    # What trainers read of a DataLoader. Lightning tells the sampler the epoch; Accelerate, for
    # transformers too, makes a DataLoader of the others, which resumes behind some batches.

    @property
    def sampler(self) -> "Epochs[T]":
        """Itself: it has `set_epoch`."""
        return self

    @property
    def batch_sampler(self) -> "_BatchSampler[T]":
        """See `_BatchSampler`."""
        return _BatchSampler(self)

    @property
    def dataset(self) -> "_Dataset":
        """See `_Dataset`."""
        return _Dataset(self._next)

    @staticmethod
    def collate_fn(batch: T) -> T:
        """A batch is one already."""
        return batch


class _BatchSampler(Generic[T]):
    """What loads the batches of an epoch, one after another, from the first that is called."""

    def __init__(self, epochs: Epochs[T]) -> None:
        self._epochs = epochs
        self.set_epoch = epochs.set_epoch

    def __len__(self) -> int:
        return len(self._epochs)

    def __iter__(self) -> Iterator[Callable[[], T]]:
        begun: list[Iterator[T]] = []

        def take(number: int) -> T:
            if not begun:
                begun.append(self._epochs.behind(number))
            return next(begun[0])  # StopIteration ends a DataLoader's iteration too

        return (partial(take, number) for number in count())


class _Dataset:
    """The images: a length, and whatever a `_BatchSampler` asks for."""

    def __init__(self, images: Images[Any]) -> None:
        self._images = images

    def __len__(self) -> int:
        """Images of an epoch, of all ranks. Raises TypeError: of a stream."""
        return self._images.plan.order.n  # type: ignore[return-value] # None raises it

    def __getitems__(self, take: Callable[[], T]) -> T:
        return take()


class _InAccelerate:
    """An iteration as Accelerate sees it: it applies gradients at the end of an epoch."""

    end_of_dataloader = False
    remainder = 0  # images that were added to fill the last batch


@contextmanager
def _in_accelerate() -> Iterator[_InAccelerate]:
    """While an iteration runs, Accelerate, if it is imported, knows of it."""
    loader = _InAccelerate()
    accelerate = sys.modules.get("accelerate.state")
    if accelerate is None:
        yield loader
        return
    state = accelerate.GradientState()
    state.dataloader_references += [loader]
    try:
        yield loader
    finally:
        others = [other for other in state.dataloader_references if other is not loader]
        state.dataloader_references = others


@overload
def as_dataloader(images: Images[ImagesT]) -> Epochs[Batch[ImagesT]]: ...
@overload
def as_dataloader(images: Images[ImagesT], convert: Callable[[Batch[ImagesT]], T]) -> Epochs[T]: ...
def as_dataloader(images: Images[Any], convert: Any = None) -> Epochs[Any]:
    """Batches instead of a DataLoader: each `iter` is an epoch from its start.

    Args:
        images: of `open_images`, opened with one epoch; closing it closes what is iterated.
        convert: what a trainer is to get of a batch, as the keyword arguments of its model; None:
            the batch.

    Returns:
        An iterable with `len`, `set_epoch`, `state_dict` and `load_state_dict`, and with what
        trainers read of a DataLoader.
    """
    return Epochs(images, convert or _unchanged)


def _unchanged(batch: Batch[ImagesT]) -> Batch[ImagesT]:
    return batch
