"""The native module with each of its sets of inner loops; and memory behind which there is none."""

import ctypes
import mmap
import os
import shutil
import subprocess
from collections.abc import Callable, Container, Iterator, Mapping
from pathlib import Path
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


def check_by_fuzzer(
    target: str, left_out: Container[str], files: Mapping[str, bytes], folder: Path
) -> None:
    """No sanitizer has a complaint of what libFuzzer makes of these files."""
    if shutil.which("clang") is None:
        pytest.skip("libFuzzer is a part of clang")
    code = Path(native.__file__).parent
    sources = [path for path in code.glob("*.c") if path.name not in left_out]
    sources.append(Path(__file__).with_name(target))
    options = ["-std=gnu11", "-O1", "-g", "-fwrapv", "-ffp-contract=off", f"-I{code}"]
    options += ["-fsanitize=fuzzer,address,undefined", "-fno-sanitize-recover=undefined"]
    fuzzer, seeds, found = folder / "fuzzer", folder / "seeds", folder / "found"
    subprocess.run(["clang", *options, *sources, "-lm", "-o", fuzzer], check=True)
    seeds.mkdir()
    found.mkdir()
    for name, data in files.items():
        (seeds / name).write_bytes(data)
    limits = ["-runs=300000", "-max_len=8192", "-timeout=20", f"-artifact_prefix={folder}/"]
    done = subprocess.run([fuzzer, *limits, found, seeds], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
