"""The same libraries in the standard library's thread pool: thirty lines around their functions.

https://docs.python.org/3/library/concurrent.futures.html: decoder, resize and file reads release
the GIL, so that threads use all cores, share memory and need no worker processes. A task is a
batch, an array of which each image writes its row: threads meet once a batch. As many batches are
ahead as there are threads, and one more. Variants are those of `dataloader_scaled`.
"""

import io
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from threading import local

from harness.engines.third_party import dataloader_scaled
from harness.engines.third_party._interface import (
    DecodedBatch,
    LoaderSpec,
    Stream,
    ThirdPartyLoader,
    cycle,
)
from harness.engines.third_party._torch import Make
from wallclock.stages.decode import PixelArray


def thread_pool(name: str, label: str, make: Make, variants: Mapping[str, str]) -> ThirdPartyLoader:
    """The loader called `name`: threads that call what `make` returns for each of them.

    `variants`: each with its configuration in words; the first is the default.
    """

    @contextmanager
    def open_stream(spec: LoaderSpec) -> Iterator[Stream]:
        import torch

        torch.set_num_threads(1)  # of each resize: the pool's threads take the cores
        per_thread, ahead = local(), spec.workers + 1

        def prepare() -> None:
            per_thread.load = make(spec.input_px, spec.variant)

        def fill(positions: Sequence[int], images: PixelArray) -> None:
            for position, row in zip(positions, images, strict=True):
                with io.FileIO(spec.files[position]) as file:
                    data = file.readall()
                per_thread.load(data, row)

        def batches(pool: ThreadPoolExecutor) -> Iterator[DecodedBatch]:
            shape = (spec.batch_size, spec.input_px, spec.input_px, 3)
            begun: deque[tuple[list[int], PixelArray, Future[None]]] = deque()
            for positions in cycle(len(spec.files), spec.batch_size):
                images = torch.empty(shape, dtype=torch.uint8, pin_memory=spec.on_gpu).numpy()
                begun.append((positions, images, pool.submit(fill, positions, images)))
                if len(begun) > ahead:
                    positions, images, task = begun.popleft()
                    task.result()
                    yield positions, images

        how = (
            f"ThreadPoolExecutor({spec.workers}), a task a batch, {ahead} batches ahead, uint8; "
            f"{variants[spec.variant]}"
        )
        pool = ThreadPoolExecutor(spec.workers, initializer=prepare)
        try:
            libraries = dataloader_scaled.name_libraries()
            yield Stream(libraries, how, ahead + 1, batches(pool), spec.workers)
        finally:
            pool.shutdown(cancel_futures=True)

    return ThirdPartyLoader(name, label, open_stream, ("simplejpeg",), tuple(variants), (1, 4))


LOADER = thread_pool(
    "thread-pool",
    "Thread pool, same libraries",
    dataloader_scaled.load_function,
    dataloader_scaled.VARIANTS,
)
