"""`python -m paper doctor`: what a run of the study would miss on this machine, and what to do.

All that `wallclock doctor` finds, and what only the study needs, with the numbers of the paper that
go missing for it. It downloads nothing.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from harness import doctor
from paper import claims
from paper.claims import Claim
from paper.resolve import has_weights
from wallclock import machine
from wallclock.checkpoint import DEFAULT
from wallclock.doctor import Finding
from wallclock.doctor import examine as examine_product

_Concerns = Callable[[Claim], bool]


def _needs_turbojpeg(claim: Claim) -> bool:
    return any("turbojpeg" in row or csv.startswith("optimized") for csv, row, _ in claim.cells())


#: What may be missing → the numbers that are then not run, or may not be.
_LOST: Mapping[str, _Concerns] = {
    "libturbojpeg": _needs_turbojpeg,
    "ONNX Runtime": lambda claim: "runtime=onnxruntime" in f"{claim.row} {claim.base_row}",
    "shared memory": lambda claim: claim.experiment in ("t4", "opt", "batch", "workers"),
    "GPU memory": lambda claim: "batch_size=256" in claim.row,
}


def examine(out: Path, *, quick: bool) -> Iterator[Finding]:
    """What the product needs, then what the study does.

    Args:
        out: the folder that the run writes to.
        quick: of the quick run, whose images are generated.
    """
    # The study's own look at shared memory asks for more.
    yield from (finding for finding in examine_product() if finding.what not in _LOST)
    yield _judged(quick=quick)
    yield _weights(quick=quick)
    for finding in doctor.examine(out, has_abo=not quick):
        if finding.cure and finding.what in _LOST:
            lost = _counted(_LOST[finding.what])
            finding = replace(finding, state=f"{finding.state}; not run for it: {lost}")
        yield finding


def _counted(concerns: _Concerns) -> str:
    """'32 of the paper's 112 numbers (opt 7, serial 9)'."""
    papers = [claim for claim in claims.load(claims.CLAIMS) if claim.source == claims.PAPER]
    names = [claim.experiment for claim in papers if concerns(claim)]
    by_experiment = ", ".join(f"{name} {names.count(name)}" for name in dict.fromkeys(names))
    return f"{len(names)} of the paper's {len(papers)} numbers ({by_experiment})"


def _judged(*, quick: bool) -> Finding:
    """How many numbers this machine can judge: see `claims`."""
    gpus = machine.gpus()
    is_t4 = bool(gpus) and "T4" in gpus[0]["name"].split()
    met = {"any": True, "cuda": bool(gpus), "abo": not quick, "t4-gpu": is_t4}
    met["t4"] = is_t4 and not quick and machine.usable_cores() >= 16
    judged = _counted(lambda claim: met[claim.needs]).partition(" (")[0]
    return Finding("can judge", judged)


def _weights(*, quick: bool) -> Finding:
    if has_weights(DEFAULT):
        return Finding("weights", f"{DEFAULT.hub_id}, pretrained")
    if quick:
        return Finding("weights", "random ones, of the same speed")
    return Finding("weights", f"{DEFAULT.hub_id} is not here yet: make data asks huggingface.co")
