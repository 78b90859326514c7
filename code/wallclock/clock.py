"""The stages' names, and when the garbage collector may run."""

import gc

#: The stages before the device, and those that move a batch through it.
LOADING_STAGES = ("read", "decode", "resize", "normalize", "assemble")
DEVICE_STAGES = ("h2d", "forward", "d2h")
#: The nine stages, in the order an image passes them.
STAGES = (*LOADING_STAGES, *DEVICE_STAGES, "serialize")

#: Containers that may be new until the youngest are looked at; Python's own limit is 700.
_COLLECTED_AFTER = 5_000


def collect_rarely() -> None:
    """Collect garbage less often: images are many objects that live for seconds, without cycles."""
    gc.set_threshold(_COLLECTED_AFTER, *gc.get_threshold()[1:])
