"""nvImageCodec's CPU decoders behind torch's DataLoader; it does not resize, so torch does.

https://docs.nvidia.com/cuda/nvimagecodec/py_api.html: a `Decoder` with `CPU_ONLY` backends runs its
libjpeg-turbo without a GPU, at full scale. One in each worker, with one thread: its own pool takes
one core less than the machine has. It applies EXIF orientation by default; disabled here. With a
GPU it decodes there inside DALI, which `dali_gpu` measures.
"""

from typing import Any

import numpy as np

from harness.engines.third_party._torch import Load, antialiased, dataloader
from harness.peers import import_or_unavailable
from wallclock.stages.decode import PixelArray


def _make(px: int, variant: str) -> Load:
    library = import_or_unavailable("nvidia.nvimgcodec")
    parameters = library.DecodeParams(apply_exif_orientation=False)
    decoder: Any = None

    def load(data: bytes, row: PixelArray) -> None:
        nonlocal decoder
        if decoder is None:  # in the worker: a fork would not copy its threads
            decoder = library.Decoder(
                device_id=library.NVIMGCODEC_DEVICE_CPU_ONLY,
                max_num_cpu_threads=1,
                backends=[library.Backend(library.BackendKind.CPU_ONLY)],
            )
        image = decoder.decode(library.CodeStream(data), params=parameters)
        row[...] = antialiased(np.asarray(image), px)

    return load


LOADER = dataloader(
    "nvimagecodec",
    "DataLoader + nvImageCodec",
    _make,
    {"": "Decoder(CPU_ONLY), interpolate(bilinear, antialias)"},
    ("nvidia-nvimgcodec-cu13",),
)
