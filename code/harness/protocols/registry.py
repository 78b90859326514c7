"""Protocols by name: the module that measures each, and the code that its records depend on.

What several experiments measure with is in this package; any other protocol is a function of its
experiment's `measure.py`, which says in `cells.py` what else it times. Experiments are looked up by
name: they import the harness, not the other way round.

A record's key has one digest of that code, so that a run that is resumed never reuses what another
loop measured. It covers `TIMED`, the protocol's own module, and what that runs beside. It leaves
out what no timed loop runs, such as the runner, the tables, trace, and for a loader's cell the
embedding job: a fix there in the middle of a ten-hour run leaves its records valid.
"""

from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module, util

#: Modules and packages that any cell may run while its clock does.
TIMED = (
    "harness.corpora.manifest",
    "harness.corpora.readers",
    "harness.decoders",
    "harness.digests",
    "harness.disturbance",
    "harness.engines.assemble",
    "harness.engines.dataloader",
    "harness.engines.dataset",
    "harness.engines.event_clock",
    "harness.engines.inference",
    "harness.engines.loader",
    "harness.engines.loaders",
    "harness.engines.pipeline",
    "harness.engines.positions",
    "harness.engines.serial",
    "harness.engines.writer",
    "harness.measures",
    "harness.processes",
    "harness.profiler",
    "harness.protocols.fidelity",
    "harness.protocols.loop",
    "harness.protocols.protocol",
    "harness.protocols.sink_check",
    "harness.resizers",
    "harness.runtimes",
    "harness.sinks",
    "harness.telemetry",
    "wallclock.budget",
    "wallclock.check",
    "wallclock.clock",
    "wallclock.errors",
    "wallclock.fetch",
    "wallclock.files",
    "wallclock.formats",
    "wallclock.infer",
    "wallclock.isobmff",
    "wallclock.jpeg",
    "wallclock.loader",
    "wallclock.machine",
    "wallclock.native",
    "wallclock.orientation",
    "wallclock.outside",
    "wallclock.preprocess",
    "wallclock.stages",
    "wallclock.summary",
    "wallclock.tiff",
)

_JOB = ("harness.jobs", "wallclock.job", "wallclock.predict", "wallclock.progress")

#: Protocol → its module in this package, then what it times beside `TIMED`.
PROTOCOLS: Mapping[str, tuple[str, ...]] = {
    "batch_transfer": ("costs",),
    "contention": ("costs",),
    "fidelity": ("fidelity",),
    "floor": ("serial",),
    "job": ("job", *_JOB, "harness.corpora.distinct"),
    "loading": ("throughput", "harness.engines.third_party"),
    "serial": ("serial",),
    "step": ("costs",),
    "storage": ("storage",),
    "throughput": ("throughput",),
}


def module_of(protocol: str, experiment: str) -> str:
    """The module that defines a protocol of an experiment's cells."""
    if protocol in PROTOCOLS:
        return f"{__package__}.{PROTOCOLS[protocol][0]}"
    return f"experiments.{experiment}.measure"


def is_known(protocol: str, experiment: str) -> bool:
    """Whether there is a module for it; older records may have protocols that are gone."""
    with suppress(ModuleNotFoundError):
        return util.find_spec(module_of(protocol, experiment)) is not None
    return False


def timed_by(protocol: str, experiment: str) -> tuple[str, ...]:
    """All code that a cell's record depends on: module and package names, sorted."""
    if protocol in PROTOCOLS:
        beside = PROTOCOLS[protocol][1:]
    else:
        beside = getattr(import_module(f"experiments.{experiment}.cells"), "TIMED", ())
    return tuple(sorted({*TIMED, module_of(protocol, experiment), *beside}))
