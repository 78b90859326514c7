"""Accelerators that are not here: cited peaks, and what follows from them and the paper's T4.

On a T4 a network takes what the paper measured for DINOv2-small at batch 64, in proportion to its
floating-point operations. On another accelerator that rate is multiplied by the smaller, or by the
larger, of two ratios to the T4's: peak FLOP/s of the dtype and memory bandwidth. At an equal
distance from the roofline (Williams et al., 2009) the truth is between. Nothing here tests it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cache

from experiments.common import Cell
from experiments.predict.costs import Costs, NoCostsError, around_forward
from harness import provenance
from harness.pipeline_model import Pipeline, StepTime
from harness.table import read_table

_CSV = provenance.ROOT / "data" / "paper" / "accelerators.csv"
#: The paper's value of each claim; of these the T4's rates.
_CLAIMS = provenance.ROOT / "data" / "paper" / "claims.csv"
#: Of DINOv2-small at 224 px, as `harness.protocols.costs.step` counts them.
DINOV2_SMALL_FLOPS = 12_247_123_968
#: Of a float32 pixel, of a uint8 one, of a component of a vector.
_PIXEL_BYTES = {"host": 12, "device": 3}
_COMPONENT_BYTES = 4


@dataclass(frozen=True)
class Accelerator:
    """Of a line of `data/paper/accelerators.csv`. `vcpus`: of its instance, beside one of them."""

    accelerator: str
    fp16_tflops: float
    fp32_tflops: float
    memory_gb_per_s: float
    pcie_gb_per_s: float
    vcpus: int

    def rates(self, dtype: str) -> tuple[float, float]:
        """The lower and the higher estimate for DINOv2-small, images per second; equal on a T4.

        Raises:
            NoCostsError: no peak of that dtype is cited.
        """
        if dtype not in ("fp16", "fp32"):
            raise NoCostsError(f"no rate of the {self.accelerator} in {dtype} is cited")
        t4 = load()["T4"]
        claims = {line["id"]: line["paper_value"] for line in read_table(_CLAIMS)}
        t4_rate = claims[f"runtime-pytorch-{dtype}"]
        peaks = (f"{dtype}_tflops", "memory_gb_per_s")
        low, high = sorted(t4_rate * getattr(self, peak) / getattr(t4, peak) for peak in peaks)
        return low, high


@cache
def load() -> Mapping[str, Accelerator]:
    """All by name, the T4 first."""
    names = [field.name for field in fields(Accelerator)]
    lines = ({name: line[name] for name in names} for line in read_table(_CSV))
    return {line["accelerator"]: Accelerator(**line) for line in lines}


def pipelines(
    costs: Costs, cell: Cell, there: Accelerator, cores: int
) -> tuple[Pipeline, Pipeline]:
    """An end-to-end cell at the accelerator's lower and at its higher rate, beside `cores` cores.

    Cores are like those here: loading and the sink cost what they cost here, and loaders slow each
    other down as here with as many for each core. Copies go at the bus's peak.

    Raises:
        NoCostsError: a cost was not measured, or no peak is cited.
    """
    here = costs.pipeline(replace(cell, protocol="loading"))
    step = costs.step_record(replace(cell.recipe, device="cpu", dtype="fp32"), cell.model)
    relative = step.values["flops_per_image"] / DINOV2_SMALL_FLOPS
    bus = 1e9 * there.pcie_gb_per_s
    pixels = cell.model.input_px**2
    spent = {
        "h2d_s": _PIXEL_BYTES[cell.recipe.normalize_on] * pixels / bus,
        "d2h_s": _COMPONENT_BYTES * cell.model.dim / bus,
        "serialize_s": around_forward(step)["serialize_s"],
    }
    per_core_here = cores / here.machine.cores
    slowdown = tuple((max(1, round(n * per_core_here)), by) for n, by in here.machine.contention)
    costs_there = replace(here.costs, **spent)
    machine = replace(here.machine, cores=cores, gpu=True, contention=slowdown)
    low, high = (
        replace(here, costs=costs_there, step=StepTime(0.0, relative / rate), machine=machine)
        for rate in there.rates(cell.recipe.dtype)
    )
    return low, high
