"""The same libraries in the standard library's thread pool: thirty lines around their functions.

https://docs.python.org/3/library/concurrent.futures.html: decoder, resize and file reads release
the GIL, so that threads use all cores, share memory and need no worker processes. A batch is an
array, each image writes its row, and two batches are ahead. Variants are those of
`dataloader_scaled`.
"""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import local

from harness.engines.third_party import dataloader_scaled
from harness.engines.third_party._interface import (
    DecodedBatch,
    LoaderSpec,
    Stream,
    ThirdPartyLoader,
    cycle,
)
from wallclock.stages.decode import PixelArray

_AHEAD = 2


@contextmanager
def _open(spec: LoaderSpec) -> Iterator[Stream]:
    import torch

    torch.set_num_threads(1)  # of each resize: the pool's threads take the cores
    per_thread = local()

    def prepare() -> None:
        per_thread.load = dataloader_scaled.load_function(spec.input_px, spec.variant)

    def load(path: str, row: PixelArray) -> None:
        per_thread.load(Path(path).read_bytes(), row)

    def batches(pool: ThreadPoolExecutor) -> Iterator[DecodedBatch]:
        shape = (spec.batch_size, spec.input_px, spec.input_px, 3)
        begun: deque[tuple[list[int], PixelArray, list[Future[None]]]] = deque()
        for positions in cycle(len(spec.files), spec.batch_size):
            images = torch.empty(shape, dtype=torch.uint8, pin_memory=spec.on_gpu).numpy()
            paths = (spec.files[position] for position in positions)
            tasks = [pool.submit(load, path, row) for path, row in zip(paths, images, strict=True)]
            begun.append((positions, images, tasks))
            if len(begun) > _AHEAD:
                positions, images, tasks = begun.popleft()
                for task in tasks:
                    task.result()
                yield positions, images

    how = (
        f"ThreadPoolExecutor({spec.workers}), {_AHEAD} batches ahead, uint8; "
        f"{dataloader_scaled.VARIANTS[spec.variant]}"
    )
    pool = ThreadPoolExecutor(spec.workers, initializer=prepare)
    try:
        yield Stream(dataloader_scaled.name_libraries(), how, _AHEAD + 1, batches(pool))
    finally:
        pool.shutdown(cancel_futures=True)


LOADER = ThirdPartyLoader(
    "thread-pool",
    "Thread pool, same libraries",
    _open,
    ("simplejpeg",),
    tuple(dataloader_scaled.VARIANTS),
    workers_per_core=(1, 4),
)
