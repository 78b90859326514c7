"""`as_dataloader`: an epoch from its start at every `iter`, as trainers expect of a DataLoader."""

import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import count
from typing import Any, Generic, TypeVar, overload

from wallclock.loader.batch import Batch, ImagesT
from wallclock.loader.iteration import Images
from wallclock.loader.resizing import unchanged

T = TypeVar("T")


class Epochs(Generic[T]):
    """What `as_dataloader` returns: it can be iterated again; each iteration has its own epoch."""

    def __init__(self, images: Images[Any], convert: Callable[[Batch[Any]], T]) -> None:
        #: Where the next iteration begins.
        self.images: Images[Any] = images.copy()
        self._convert = convert
        self.images.set_epoch(images.epoch)  # from its start, unless a state was loaded
        self._running: list[Images[Any]] = []
        # Of these Accelerate, also for transformers, makes a DataLoader that begins behind others.
        self.batch_sampler: Any = _BatchSampler(self)
        self.dataset: Any = _Dataset(self)
        self.collate_fn: Callable[[Any], Any] = unchanged
        self.prefetch_factor: int | None = None

    def __repr__(self) -> str:
        return f"<Epochs: {self.images.schedule!r}, next: epoch {self.images.epoch}>"

    def __len__(self) -> int:
        """Batches of one iteration. Raises TypeError: of a stream."""
        return len(self.images)

    def __iter__(self) -> Iterator[T]:
        """The next epoch from its start; the first after `load_state_dict` goes on in its own."""
        return self.behind(0)

    def behind(self, skip: int) -> Iterator[T]:
        """The next epoch without its first `skip` batches, which are not loaded."""
        images = self.images.copy(skip)
        self.images.finish()
        self._running.append(images)
        try:
            with images, _InAccelerate() as loader:
                for batch in images:
                    loader.end_of_dataloader = images.is_last
                    yield self._convert(batch)
        finally:
            self._running.remove(images)

    @property
    def sampler(self) -> Any:
        """By its type, Lightning knows whether the first batches are the same in every epoch."""
        from torch.utils.data import SequentialSampler

        return None if self.images.schedule.order.shuffle else SequentialSampler(())

    def set_epoch(self, epoch: int) -> None:
        """See `Images`."""
        self.images.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Which batch comes next: of the iteration that was begun last, or else of the next one."""
        return (self._running or [self.images])[-1].state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See `Images`."""
        self.images.load_state_dict(state)


class _BatchSampler(Generic[T]):
    """What loads the batches of an epoch, one after another, from the first that is called."""

    def __init__(self, epochs: Epochs[T]) -> None:
        # Lightning tells the sampler the epoch, transformers this.
        self.sampler, self.set_epoch = epochs, epochs.set_epoch

    def __len__(self) -> int:
        return len(self.sampler)

    def __iter__(self) -> Iterator[Callable[[], T]]:
        begun: list[Iterator[T]] = []

        def take(number: int) -> T:
            if not begun:
                begun.append(self.sampler.behind(number))
            return next(begun[0])  # StopIteration ends a DataLoader's iteration too

        return (partial(take, number) for number in count())


class _Dataset:
    """What a `_BatchSampler` asks for; its length is the number of images."""

    def __init__(self, epochs: Epochs[Any]) -> None:
        self._epochs = epochs

    def __len__(self) -> int:
        return self._epochs.images.schedule.order.n  # type: ignore[return-value] # None raises TypeError

    def __getitems__(self, take: Callable[[], T]) -> T:
        return take()


class _InAccelerate:
    """An iteration as Accelerate sees it, where it is imported: it applies the last gradients."""

    end_of_dataloader = False
    remainder = 0  # images that were added to fill the last batch

    def __enter__(self) -> "_InAccelerate":
        accelerate = sys.modules.get("accelerate.state")
        self._state = accelerate and accelerate.GradientState()
        if self._state:
            self._state.dataloader_references += [self]
        return self

    def __exit__(self, *_: object) -> None:
        if self._state:
            others = [other for other in self._state.dataloader_references if other is not self]
            self._state.dataloader_references = others


@overload
def as_dataloader(images: Images[ImagesT]) -> Epochs[Batch[ImagesT]]: ...
@overload
def as_dataloader(images: Images[ImagesT], convert: Callable[[Batch[ImagesT]], T]) -> Epochs[T]: ...
def as_dataloader(images: Images[Any], convert: Any = None) -> Epochs[Any]:
    """Batches where a trainer takes a DataLoader: each `iter` starts an epoch.

    Args:
        images: what `open_images` returned, for one epoch. Closing it ends all iterations.
        convert: makes of a batch what the trainer takes, such as a dict of its model's arguments;
            None: the batch itself.
    """
    return Epochs(images, convert or unchanged)
