"""The native module with each of its sets of inner loops; and memory behind which there is none."""

import ctypes
import mmap
import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from wallclock import native

#: A new array of zeros of this shape, behind whose last byte is a page that cannot be read.
Guarded = Callable[..., npt.NDArray[np.uint8]]


@pytest.fixture(scope="module", params=["avx2", "generic"])
def module(request: pytest.FixtureRequest) -> Iterator[Any]:
    """The native module, with these kernels."""
    found = native.find()
    if found is None:
        pytest.skip(f"the native module is {native.described()}")
    before = os.environ.get("WALLCLOCK_KERNELS")
    os.environ["WALLCLOCK_KERNELS"] = request.param
    try:
        if found.choose_kernels() != request.param:
            pytest.skip(f"this processor has no {request.param}")
        yield found
    finally:
        del os.environ["WALLCLOCK_KERNELS"]
        if before is not None:
            os.environ["WALLCLOCK_KERNELS"] = before
        found.choose_kernels()


@pytest.fixture(scope="session")
def guarded() -> Guarded:
    libc = ctypes.CDLL(None, use_errno=True)

    def make(*shape: int) -> npt.NDArray[np.uint8]:
        size = int(np.prod(shape))
        pages = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        memory = np.frombuffer(mmap.mmap(-1, pages + mmap.PAGESIZE), np.uint8)
        behind = ctypes.c_void_p(memory.ctypes.data + pages)
        assert libc.mprotect(behind, mmap.PAGESIZE, 0) == 0
        return memory[pages - size : pages].reshape(shape)

    return make
