"""Other people's loaders, each set up as its own documentation recommends for throughput.

A peer turns files into batches of square RGB images in host memory, over and over in the order of
the list, and says what it is and how it was set. It takes no part in an embedding job; it is there to
be compared with. `make setup-peers` installs them; without one of them, it is `Unavailable`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from ctypes.util import find_library
from dataclasses import dataclass
from importlib import import_module, metadata, util
from typing import Any

import numpy as np
import numpy.typing as npt

from wallclock.errors import Unavailable, check_name

#: Positions in the list of files, and their images: uint8 (n, px, px, 3).
Batch = tuple[Sequence[int], npt.NDArray[np.uint8]]

#: What brings the peers.
FIX = "make setup-peers"


@dataclass(frozen=True)
class Job:
    """What a peer is asked for: these files, endlessly, in batches, on so many cores.

    `variant` chooses among the ways that a peer's documentation shows; empty is the first.
    """

    files: Sequence[str]
    input_px: int
    batch_size: int
    cores: int
    variant: str = ""


@dataclass(frozen=True)
class Peer:
    """A peer at work. A batch is valid until the next one is asked for."""

    #: Of the library underneath.
    version: str
    settings: str
    #: Batches that may be ready ahead of their turn: a warm-up takes as many.
    ahead: int
    batches: Iterator[Batch]
    #: Batches that come at once: of processes that each make one, as many as there are.
    burst: int = 1


Opener = Callable[[Job], AbstractContextManager[Peer]]

#: Peer → module and function.
PEERS: dict[str, tuple[str, str]] = {
    "pil": ("torch_loader", "pil"),
    "pil-draft": ("torch_loader", "pil_draft"),
    "imagecodecs": ("torch_loader", "imagecodecs"),
    "kornia-rs": ("torch_loader", "kornia"),
    "pyvips": ("torch_loader", "pyvips"),
    "torchvision": ("torch_loader", "torchvision"),
    "dali": ("dali", "cpu"),
    "dali-gpu": ("dali", "gpu"),
    "spdl": ("spdl", "spdl"),
}


#: The distributions whose versions a peer's timing depends on.
DISTRIBUTIONS = {
    "imagecodecs": ("imagecodecs",),
    "kornia-rs": ("kornia-rs",),
    "pyvips": ("pyvips", "pyvips-binary"),
    "torchvision": ("torchvision",),
    "dali": ("nvidia-dali-cuda130",),
    "dali-gpu": ("nvidia-dali-cuda130",),
    "spdl": ("spdl-io", "spdl-core"),
}


def installed(name: str) -> str:
    """What is here of a peer, for the key of its cells: one that was absent is measured once it is installed."""
    found = []
    for distribution in DISTRIBUTIONS.get(name, ()):
        try:
            found.append(version(distribution))
        except metadata.PackageNotFoundError:
            found.append(f"no {distribution}")
    if name == "spdl":
        found.append(find_library("avcodec") or "no FFmpeg")
    return ", ".join(found)


def find(name: str) -> Opener:
    """The function that opens a peer; its module imports the peer's library when it is called."""
    check_name(name, PEERS, "peer")
    module, function = PEERS[name]
    found: Opener = getattr(import_module(f"wallclock.engines.third_party.{module}"), function)
    return found


def require(module: str, *, hint: str = FIX) -> Any:
    """Import a peer's library.

    Raises:
        Unavailable: it is not installed, or it does not load; the reason names the fix.
    """
    package = module.partition(".")[0]
    if util.find_spec(package) is None:
        raise Unavailable(f"{package} is not installed: {FIX}")
    try:
        return import_module(module)
    except (ImportError, OSError, RuntimeError) as error:
        raise broken(module, error, hint) from error


def broken(module: str, error: Exception, hint: str) -> Unavailable:
    """What to say of a library that is there and does not load."""
    words = " ".join(str(error).split())
    return Unavailable(f"{module} does not load: {words[:200]}; {hint}")


def version(distribution: str) -> str:
    """Name and version of an installed distribution, as `spdl-io 0.8.0`."""
    return f"{distribution} {metadata.version(distribution)}"


def cycle(n: int, batch_size: int) -> Iterator[list[int]]:
    """Positions 0 to n - 1 over and over, in full batches, without end."""
    start = 0
    while True:
        yield [(start + i) % n for i in range(batch_size)]
        start = (start + batch_size) % n
