"""`as_dataloader`: an epoch from its start at every `iter`, as trainers expect of a DataLoader.

`Images` is an iterator: left in the middle, it goes on there. Lightning, transformers' Trainer and
others begin again instead: they look at two batches before they train, or stop an epoch early.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, TypeVar, overload

from wallclock.loader.batch import Batch, ImagesT
from wallclock.loader.iteration import Images

T = TypeVar("T")


class Epochs(Generic[T]):
    """What `as_dataloader` returns: it can be iterated again, and has a length where items have."""

    def __init__(self, images: Images[Any], convert: Callable[[Batch[Any]], T]) -> None:
        self._images, self._convert = images, convert
        self._next, self._resumes = 0, False

    def __len__(self) -> int:
        """Batches of one iteration. Raises TypeError: of a stream."""
        return len(self._images)

    def __iter__(self) -> Iterator[T]:
        """The next epoch from its start; the first after `load_state_dict` goes on in its own."""
        if self._resumes:
            self._resumes = False
        else:
            self._images.set_epoch(self._next)
        for batch in self._images:
            self._next = self._images.epoch + 1
            yield self._convert(batch)

    def set_epoch(self, epoch: int) -> None:
        """Begin the next iteration with this epoch, from 0."""
        self._next = epoch

    def state_dict(self) -> dict[str, Any]:
        """See `Images`."""
        return self._images.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See `Images`."""
        self._images.load_state_dict(state)
        self._resumes = True


@overload
def as_dataloader(images: Images[ImagesT]) -> Epochs[Batch[ImagesT]]: ...
@overload
def as_dataloader(images: Images[ImagesT], convert: Callable[[Batch[ImagesT]], T]) -> Epochs[T]: ...
def as_dataloader(images: Images[Any], convert: Any = None) -> Epochs[Any]:
    """Batches instead of a DataLoader: each `iter` is an epoch from its start.

    Args:
        images: of `open_images`, opened with one epoch; it is closed as always.
        convert: what a trainer is to get of a batch, as the keyword arguments of its model; None:
            the batch.

    Returns:
        An iterable with `len`, `set_epoch`, `state_dict` and `load_state_dict`.
    """
    return Epochs(images, convert or _unchanged)


def _unchanged(batch: Batch[ImagesT]) -> Batch[ImagesT]:
    return batch
