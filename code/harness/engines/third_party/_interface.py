"""What a third-party loader declares, and the steps that several of them share."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib import metadata
from typing import Any, TypeAlias

#: Positions in the list of files, and their images: uint8 (n, px, px, 3), valid until the next
#: ones; an array, or a tensor on the GPU.
DecodedBatch: TypeAlias = tuple[Sequence[int], Any]


@dataclass(frozen=True)
class LoaderSpec:
    """The task: these files, endlessly, in batches of square images, by so many workers.

    `on_gpu`: batches go on to a GPU, from pinned memory, or are left there by who decodes there.
    """

    files: Sequence[str]
    input_px: int
    batch_size: int
    workers: int
    variant: str = ""
    on_gpu: bool = False


@dataclass(frozen=True)
class Stream:
    """An open loader.

    `version`: of the library underneath. `settings`: its configuration in words. `prefetched`:
    batches that may be ready ahead of their turn. `burst`: batches that arrive together.
    """

    version: str
    settings: str
    prefetched: int
    batches: Iterator[DecodedBatch]
    burst: int = 1


@dataclass(frozen=True)
class ThirdPartyLoader:
    """All that is to be said of one loader; its library is imported when it is opened.

    `label` is its name in figures. `distributions` are those whose versions its timing depends on.
    `variants` are the ways of use that its documentation shows, `workers_per_core` the numbers of
    workers that its users choose: each is measured.
    """

    name: str
    label: str
    open: Callable[[LoaderSpec], AbstractContextManager[Stream]]
    distributions: tuple[str, ...] = ()
    variants: tuple[str, ...] = ("",)
    workers_per_core: tuple[int, ...] = (1,)


def version(distribution: str) -> str:
    """Name and version of an installed distribution, as `spdl-io 0.8.0`."""
    return f"{distribution} {metadata.version(distribution)}"


def cycle(n: int, batch_size: int) -> Iterator[list[int]]:
    """Positions 0 to n - 1 again and again, in full batches, endlessly."""
    start = 0
    while True:
        yield [(start + i) % n for i in range(batch_size)]
        start = (start + batch_size) % n
