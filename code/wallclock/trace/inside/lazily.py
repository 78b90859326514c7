"""Libraries whose decoders have many names, or are loaded when they are first asked for."""

from types import ModuleType
from typing import Any

from . import notes
from .patch import noted, replace
from .tracer import Call, Tracer


def patch_imagecodecs(tracer: Tracer, module: Any) -> None:
    """`imagecodecs` loads a codec when it is first asked for; wrap what it gives then."""
    load = getattr(module, "__getattr__", None)
    if load is None:
        return

    def __getattr__(name: str) -> Any:  # noqa: N807
        value = load(name)
        if callable(value) and (name.endswith("_decode") or name in ("imread", "imdecode")):
            note = notes.decoded_file if name == "imread" else notes.decoded_data
            value = noted(tracer, value, tracer.slot("decode", f"imagecodecs.{name}"), note)
            setattr(module, name, value)
        return value

    module.__getattr__ = __getattr__
    for name in list(vars(module)):
        if name.endswith("_decode"):
            _wrap(tracer, module, name, notes.decoded_data)


def patch_kornia_rs(tracer: Tracer, module: ModuleType) -> None:
    """Functions `read_image_*` take a path, `decode_image_*` bytes."""
    for name in list(vars(module)):
        if name.startswith("read_image"):
            _wrap(tracer, module, name, notes.decoded_file)
        elif name.startswith("decode_image"):
            _wrap(tracer, module, name, notes.decoded_data)
        elif name == "resize":
            _wrap(tracer, module, name, notes.resized_array, "resize")


def _wrap(
    tracer: Tracer, module: ModuleType, name: str, note: notes.Note, stage: str = "decode"
) -> None:
    def wrap(original: Call) -> Call:
        return noted(tracer, original, tracer.slot(stage, f"{module.__name__}.{name}"), note)

    replace(tracer, module, name, wrap)
