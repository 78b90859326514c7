"""NVIDIA DALI's hybrid decoding (`mixed`: nvJPEG) and its resize on the GPU, left there."""

from contextlib import AbstractContextManager

from harness.engines.third_party._interface import LoaderSpec, Stream, ThirdPartyLoader
from harness.engines.third_party.dali import DISTRIBUTION, open_stream
from wallclock import machine
from wallclock.errors import Unavailable


def _open(spec: LoaderSpec) -> AbstractContextManager[Stream]:
    if not machine.gpus():
        raise Unavailable("no NVIDIA GPU is here")
    if not spec.on_gpu:
        raise Unavailable("it delivers to the GPU, and this run's batches end in host memory")
    return open_stream(spec, "mixed")


LOADER = ThirdPartyLoader("dali-gpu", "DALI (GPU)", _open, (DISTRIBUTION,))
