"""Every call as Chrome trace events, for https://ui.perfetto.dev or chrome://tracing."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from wallclock.trace.collect import File, name_of, read
from wallclock.trace.inside import layout
from wallclock.trace.run import Ended


def write_events(folder: Path, ended: Ended, path: Path) -> None:
    """Write the calls that the threads' rings hold: of each thread the last 16,384."""
    with path.open("w", encoding="utf-8") as output:
        output.write('{"displayTimeUnit":"ms","traceEvents":[\n')
        for number, event in enumerate(_events(folder, ended)):
            output.write(",\n" if number else "")
            json.dump(event, output, separators=(",", ":"))
        output.write("\n]}\n")


def _events(folder: Path, ended: Ended) -> Iterator[dict[str, Any]]:
    for path in sorted(folder.glob(f"*{layout.EVENTS}")):
        file = read(path.with_suffix(layout.COUNTERS))
        if file is not None:
            yield from _events_of_process(file, path, ended.started_ns)


def _events_of_process(file: File, path: Path, zero_ns: int) -> Iterator[dict[str, Any]]:
    pid = file.words[layout.PID]
    with path.open("rb") as rings:
        # The overflow has no ring: its threads had no region.
        for index, region in enumerate(file.regions[: file.words[layout.REGIONS_USED]]):
            yield _event("M", pid, index, "thread_name", args={"name": name_of(region)})
            rings.seek(index * layout.RING_WORDS * layout.WORD)
            ring = memoryview(rings.read(layout.RING_WORDS * layout.WORD)).cast("q")
            for at in range(1, 1 + layout.EVENT_WORDS * min(ring[0], layout.N_EVENTS), 3):
                slot, started, stopped = ring[at : at + layout.EVENT_WORDS]
                function = file.functions[slot]
                event = _event("X", pid, index, function.name, cat=function.stage)
                # Viewers take microseconds.
                event["ts"] = (started - zero_ns) / 1e3
                event["dur"] = (stopped - started) / 1e3
                yield event


def _event(phase: str, pid: int, tid: int, name: str, **more: Any) -> dict[str, Any]:
    return {"ph": phase, "pid": pid, "tid": tid, "name": name, **more}
