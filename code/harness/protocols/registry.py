"""Protocols by name: the module that measures each, and the code that its records depend on.

A record's key has one digest of that code, so that a run that is resumed never reuses what another
loop measured. It covers `TIMED`, the protocol's own module, and what that runs beside. It leaves
out what no timed loop runs, such as the runner, the tables, trace, and for a loader's cell the
embedding job: a fix there in the middle of a ten-hour run leaves its records valid.
"""

from collections.abc import Mapping

from wallclock.errors import check_name

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
    "harness.engines.loaders",
    "harness.engines.pipeline",
    "harness.engines.positions",
    "harness.engines.serial",
    "harness.engines.writer",
    "harness.measures",
    "harness.processes",
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

_OTHERS_LOADERS = ("harness.engines.third_party",)
_JOB = ("harness.jobs", "wallclock.job", "wallclock.predict", "wallclock.progress")
_SERVICE = ("harness.ladder", "harness.testbed", "wallclock.predict", "wallclock.service")
_TRAINING = ("harness.protocols.costs", "harness.protocols.runtimes")

#: Protocol → its module in this package, then what it times beside `TIMED`.
PROTOCOLS: Mapping[str, tuple[str, ...]] = {
    "agreement": ("fidelity",),
    "batch_transfer": ("costs",),
    "ceiling": ("ceilings",),
    "cluster": ("cluster", *_JOB, "harness.systems"),
    "contention": ("costs",),
    "copies": ("copies", "harness.corpora.copies"),
    "decode": ("ceilings",),
    "fidelity": ("fidelity",),
    "floor": ("serial",),
    "formats": ("formats",),
    "forms": ("storage", "harness.corpora.pack", "harness.testbed"),
    "image_stats": ("fidelity", "harness.corpora.image_stats"),
    "job": ("job", *_JOB, "harness.corpora.distinct"),
    "ladder": ("ladder", *_SERVICE),
    "layers": ("runtimes",),
    "loading": ("throughput", *_OTHERS_LOADERS),
    "nms": ("nms",),
    "profiler": ("serial",),
    "redelivery": ("ladder", *_SERVICE),
    "runtime": ("runtimes",),
    "serial": ("serial",),
    "serialization": ("ceilings",),
    "stage_fix": ("stage_fix",),
    "step": ("costs",),
    "storage": ("storage",),
    "throughput": ("throughput",),
    "train": ("train", *_TRAINING),
    "train_step": ("train", *_TRAINING),
}


def module_of(protocol: str) -> str:
    """The module that defines a protocol. Raises UserError: there is no such protocol."""
    module, *_ = PROTOCOLS[check_name(protocol, PROTOCOLS, "protocol")]
    return f"{__package__}.{module}"


def timed_by(protocol: str) -> tuple[str, ...]:
    """All code that a protocol's records depend on: module and package names, sorted.

    Raises:
        UserError: there is no such protocol.
    """
    module = module_of(protocol)
    return tuple(sorted({*TIMED, module, *PROTOCOLS[protocol][1:]}))
