"""Protocol name → module and function, imported when a cell needs it: a decoder cell loads no torch."""

from __future__ import annotations

from importlib import import_module

from wallclock.errors import check_name
from wallclock.measure.protocol import Protocol

_PROTOCOLS = {
    "serial": ("serial", "serial"),
    "floor": ("serial", "floor"),
    "image_stats": ("image_stats", "image_stats"),
    "layers": ("layers", "layers"),
    "decode": ("decoders", "decode"),
    "agreement": ("decoders", "agreement"),
    "fidelity": ("fidelity", "fidelity"),
    "contention": ("contention", "contention"),
    "batch_transfer": ("batch_transfer", "batch_transfer"),
    "step": ("step", "step"),
    "profiler": ("profilers", "profiler"),
    "runtime": ("runtimes", "runtime"),
    "serialization": ("serialization", "serialization"),
    "throughput": ("throughput", "throughput"),
    "loading": ("loading", "loading"),
    "load_n": ("loading", "load_n"),
    "ceiling": ("ceilings", "ceiling"),
}


def find(name: str) -> Protocol:
    """The function that measures a cell of this protocol."""
    check_name(name, _PROTOCOLS, "protocol")
    module, function = _PROTOCOLS[name]
    found: Protocol = getattr(import_module(f"wallclock.measure.{module}"), function)
    return found
