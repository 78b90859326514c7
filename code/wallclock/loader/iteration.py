"""`Images`: the iterator that `open_images` returns, and the two schedules of what comes in it.

No batch comes without an image: one is held, in its buffer, until the next one with an image is
known; failures of batches between them join it. Where ranks need equally many batches, copies take
their place.
"""

import hashlib
import os
import threading
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from itertools import count, islice
from typing import Any, Generic, TypeAlias

from wallclock.errors import UserError, describe
from wallclock.loader.batch import Batch, ImagesT
from wallclock.loader.items import ListedItems, parse_item
from wallclock.loader.lease import Lender
from wallclock.loader.opener import LoaderOptions, open_loader
from wallclock.loader.order import Order, Place
from wallclock.loader.ring import buffers_for
from wallclock.loader.stream import StreamedBatches, StreamOrder
from wallclock.loader.threads import LendingLoader

#: Ids that are hashed at a time.
_HASHED = 4096
#: The buffer of copies.
NO_BUFFER = -1
#: Opens a loader of the batches from a place to an epoch; and what says, behind each, the place.
Open: TypeAlias = Callable[[Place, int], tuple[LendingLoader, Callable[[], Place]]]


@dataclass
class Delivery:
    """A batch, the number of its buffer, and the places before and behind it."""

    batch: Batch[Any]
    number: int
    before: Place
    behind: Place
    is_last: bool = False


@dataclass(frozen=True)
class Schedule:
    """Which batches come: what all iterations over the same items have in common.

    `items`: `ListedItems`, or of a stream the names of its files, if it has some.
    `epochs`: how many one iteration takes.
    """

    items: Any
    order: Order | StreamOrder
    epochs: int
    open: Open

    def __repr__(self) -> str:
        n, of = self.order.n, f"batches of {self.order.batch_size}"
        return f"a stream, {of}" if n is None else f"{n:,} images, {self.length():,} {of}"

    def length(self) -> int | None:
        """Batches of one iteration: of all its epochs; None: unknown."""
        n = self.order.batches_per_epoch
        return None if n is None else self.epochs * n

    def about(self) -> dict[str, Any]:
        """What a state has of it: the rank, what all ranks have in common, and the images."""
        order = asdict(self.order)
        return {"rank": order.pop("rank"), "order": order, "data": self._digest}

    @cached_property
    def _digest(self) -> str:
        """Of the ids in order; empty where an item would have to be loaded for its id."""
        items = self.items
        if isinstance(items, ListedItems):
            if items.keeps:
                return str(getattr(items.given, "_fingerprint", ""))
            items = items.given
        ids = (item if isinstance(item, str) else _id_of(item, at) for at, item in enumerate(items))
        digest = hashlib.sha256()
        while some := [*islice(ids, _HASHED)]:
            digest.update("\0".join((*some, "")).encode("utf-8", "surrogatepass"))
        return digest.hexdigest()[:32]


def open_listed(
    items: ListedItems, order: Order, options: LoaderOptions, processes: int, place: Place, end: int
) -> tuple[LendingLoader, Callable[[], Place]]:
    """`Open`, of items with random access."""
    n = order.batches_per_epoch
    first = place.epoch * n + place.batches
    places = (Place(number // n, number % n + 1) for number in count(first))
    batches = order.batches(first, end * n)
    return open_loader(items, batches, options, processes), partial(next, places)


def open_stream(
    open_epoch: Callable[[Place], Iterable[Any]],
    order: StreamOrder,
    options: LoaderOptions,
    place: Place,
    end: int,
) -> tuple[LendingLoader, Callable[[], Place]]:
    """`Open`, of an iterable; `open_epoch`: see `StreamedBatches`."""
    ahead = buffers_for(options.threads, order.batch_size)
    batches = StreamedBatches(open_epoch, order, place, end, ahead)
    return open_loader(batches, batches, options), lambda: batches.place


class Images(Generic[ImagesT]):
    """What `open_images` returns: an iterator of batches, and a context manager.

    Threads may share it: each batch goes to one of them. A batch is delivered once the next one is
    loaded. With `state_dict` and `load_state_dict`, an interrupted iteration resumes, even in the
    middle of an epoch, with the batches that would have followed.
    """

    def __init__(self, schedule: Schedule, make_lender: Callable[[], Lender]) -> None:
        self.schedule: Schedule = schedule
        self._make_lender = make_lender
        #: The epoch of the last batch, from 0, or the one that was set.
        self.epoch: int = 0
        #: Whether the last batch is the iteration's last.
        self.is_last: bool = False
        self._begin(0)
        self._loader: LendingLoader | None = None
        self._deliveries: Iterator[Delivery] = iter(())
        self._copies: weakref.WeakSet[Images[ImagesT]] = weakref.WeakSet()
        self._lock, self._loops = threading.Lock(), dict[int, object]()

    def __repr__(self) -> str:
        return f"<Images: {self.schedule!r}>"

    def __len__(self) -> int:
        """Batches of one iteration: of all its epochs. Raises TypeError: of a stream."""
        n = self.schedule.length()
        if n is None:
            raise TypeError("a stream has no length")
        return n

    @property
    def classes(self) -> Sequence[str]:
        """With `labels="folder"`, the names of the classes; a label is an index into it."""
        classes: Sequence[str] = getattr(self.schedule.items, "classes", ())
        return classes

    def set_epoch(self, epoch: int) -> None:
        """Begin the next iteration with this epoch; resume it if a state of it was loaded."""
        self._close()
        if not (self._resumes and self._at.epoch == epoch):
            self._begin(epoch)
        self.epoch = epoch

    def finish(self) -> None:
        """Begin the next iteration with the epoch after this one's last."""
        self._begin(self._end)
        self.epoch = self._at.epoch

    def _begin(self, epoch: int) -> None:
        self._at, self._end = Place(epoch, 0), epoch + self.schedule.epochs
        self._resumes = self._exhausted = False

    def copy(self, skip: int = 0) -> "Images[ImagesT]":
        """Another iteration, from `skip` batches behind here; closed with this one."""
        copy: Images[ImagesT] = Images(self.schedule, self._make_lender)
        copy._at = self._at._replace(batches=self._at.batches + skip)
        copy._end, copy._resumes, copy.epoch = self._end, self._resumes, self._at.epoch
        self._copies.add(copy)
        return copy

    def __enter__(self) -> "Images[ImagesT]":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Batch[ImagesT]]:
        """Continue: in mid-epoch if the last iteration was left there, else with the next epoch."""
        thread, loop = threading.get_ident(), object()
        self._loops[thread], self._exhausted = loop, False
        while self._loops[thread] is loop:
            try:
                yield next(self)
            except StopIteration:
                return
        raise UserError("another loop took batches of this one: give each an as_dataloader(images)")

    def __next__(self) -> Batch[ImagesT]:
        """The next batch; starts the threads or processes if none run.

        Raises UserError: more batches are held than `Output.hold` allows; or none had an image.
        """
        with self._lock:
            if self._exhausted or self.schedule.length() == 0:
                raise StopIteration
            try:
                return self._take(self._loader or self._open())
            except BaseException as error:
                self._close()
                if isinstance(error, StopIteration):
                    self._begin(self._end)
                    self._exhausted = True
                raise

    def _take(self, loader: LendingLoader) -> Batch[ImagesT]:
        for number in self._lender.returned():
            if number != NO_BUFFER:
                loader.release(number)
        delivery = next(self._deliveries)
        batch = delivery.batch
        items = batch.extras.given or [self.schedule.items.given[at] for at in batch.positions]
        images = self._lender.lend(batch.images, delivery.number)
        self._at, self._resumes = delivery.behind, False
        self.epoch, self.is_last = delivery.before.epoch, delivery.is_last
        # Another batch: the generator keeps the delivery until the next one.
        return replace(batch, images=images, items=items)

    def close(self) -> None:
        """End threads or processes; the next iteration starts new ones where this one stopped."""
        for copy in [*self._copies]:
            copy.close()
        self._close()

    def _close(self) -> None:
        if self._loader is not None:
            loader, self._loader, self._deliveries = self._loader, None, iter(())
            self._unclosed.detach()
            if self._process == os.getpid():
                self._lender.close()
                loader.close()

    def state_dict(self) -> dict[str, Any]:
        """Which batch comes next, and of which images in which order."""
        return {**self._at._asdict(), "end": self._end, **self.schedule.about()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue after the last batch of a state. Raises UserError: it is of other images."""
        at, end = _loaded(state, self.schedule.about())
        self._close()
        self._at, self._end, self.epoch = at, end, at.epoch
        self._resumes, self._exhausted = True, False

    def _open(self) -> LendingLoader:
        self._lender = self._make_lender()
        loader, place = self.schedule.open(self._at, self._end)
        self._loader, self._process = loader.__enter__(), os.getpid()
        self._unclosed = weakref.finalize(self, _abandoned, loader, self._process)
        order = self.schedule.order
        repeats = order.drop_last and order.world_size > 1
        skipped = () if order.rank else getattr(self.schedule.items, "skipped", ())
        taken = _taken(loader, self._at, place, skipped)
        self._deliveries = _deliver(taken, loader.release, repeats)
        for passed in islice(self._deliveries, self._at.skip):
            if passed.number != NO_BUFFER:
                loader.release(passed.number)
        return self._loader


def _taken(
    loader: LendingLoader, before: Place, place: Callable[[], Place], skipped: Sequence[str]
) -> Iterator[Delivery]:
    """All batches; the first one of an epoch names what was skipped when items were listed."""
    before = before._replace(skip=0)
    while True:
        try:
            number, batch = loader.take()
        except StopIteration:
            return
        behind = place()
        if behind.batches == 1:
            before = Place(behind.epoch, 0)
            batch.skipped += skipped
        yield Delivery(batch, number, before, behind)
        before = behind


def _abandoned(loader: LendingLoader, process: int) -> None:
    # Not joined: the garbage collector may run in one of the threads.
    if os.getpid() == process:
        loader.stop()
        text = "an iteration over open_images was neither finished nor closed: use `with`"
        warnings.warn(text, ResourceWarning, stacklevel=2)


def _deliver(
    loaded: Iterator[Delivery], release: Callable[[int], None], repeats: bool
) -> Iterator[Delivery]:
    """The batches that have an image, with the failures of those that have none.

    `repeats`: as many batches as were loaded. Raises UserError: at the end, if none had an image;
    an error of `loaded` comes behind its batches.
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


def _loaded(state: Any, ours: Mapping[str, Any]) -> tuple[Place, int]:
    """The place and the end of a state. Raises UserError: it is of other images or settings."""
    if not isinstance(state, Mapping) or not {*Place._fields, "end", *ours} <= {*state}:
        raise UserError("this is not a state of open_images: give what state_dict() returned")
    order, there = ours["order"], state["order"]
    if not isinstance(there, Mapping) or set(there) != set(order):
        raise UserError("this state is for another kind of items: a list, or a stream")
    differing = [name for name in order if there[name] != order[name]]
    if differing:
        was, now = (
            ", ".join(f"{name}={side[name]!r}" for name in differing)[:60]
            for side in (there, order)
        )
        raise UserError(f"this state is for {was}; this iteration has {now}")
    if state["data"] != ours["data"]:
        raise UserError("this state is for other images, or for the same ones in another order")
    at = Place(*(state[name] for name in Place._fields))
    # Another rank has shards of its own, which are read from the first to the same batch.
    return at if state["rank"] == ours["rank"] else Place(*at[:3]), state["end"]


def _id_of(item: Any, position: int) -> str:
    name, where, _ = parse_item(item)
    if name is not None:
        return name
    return os.fsdecode(where) if isinstance(where, str | os.PathLike) else f"{position}"
