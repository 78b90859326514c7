"""Protocol name → function, imported when a cell needs it: a decoder's cell loads no torch."""

from __future__ import annotations

from importlib import import_module

from wallclock.errors import check_name
from wallclock.measure.protocol import MeasureFunction

#: Module of each protocol where it is not the protocol's own name.
_MODULES = {
    "agreement": "decoders",
    "ceiling": "ceilings",
    "decode": "decoders",
    "floor": "serial",
    "load_n": "loading",
    "profiler": "profilers",
    "runtime": "runtimes",
}
PROTOCOLS = (
    *_MODULES,
    *("batch_transfer", "contention", "fidelity", "image_stats", "layers", "loading", "serial"),
    *("serialization", "step", "throughput"),
)


def find(name: str) -> MeasureFunction:
    """The function that measures a cell of this protocol."""
    check_name(name, PROTOCOLS, "protocol")
    module = import_module(f"wallclock.measure.{_MODULES.get(name, name)}")
    measure: MeasureFunction = getattr(module, name)
    return measure
