"""The parts of GumGum's service from its rungs, and the rungs' rates from those parts.

R. Moarref, "Simple Ways to Save Big in Computer Vision Inference" (GumGum, 2020), measured a module
that takes image URLs from a queue on a g4dn.2xlarge (T4, 8 vCPU): 3 requests per second on one
thread, 9 with threads for I/O, 21 with preprocessing in parallel, 28 in batches of 8. Each rung
takes one part off the main thread, so that the differences are the parts:

    I/O          1/3 - 1/9     = 222.2 ms    downloads and callbacks of one request
    preprocess   1/9 - 1/21    =  63.5 ms
    step of 1    1/21          =  47.6 ms    = a + b
    step of 8    8/28          = 285.7 ms    = a + 8 b, so a = 13.6 ms and b = 34.0 ms

The source does not say how I/O divides into downloads and callbacks, nor how much of the step is
the device's. Of the latter it gives a bound. The GPU's utilization at rung 1 was in single digits:
at 9 % its part of a request is at most 30 of the 47.6 ms, and the rest is work of the main thread
(copies, framework, results). Were all of it the device's (14.3 %), no service could pass 1/b = 29.4
requests per second on that device. `duty`, the utilization at rung 1, is therefore an assumption,
and what rung 5 reaches depends on it alone: rungs 1 to 4 do both parts on one thread.

The CPU's utilization, 75 % at rung 4, is 214 ms of a core for a request, more than the 111 ms that
rung 2 leaves for preprocessing and the step together: what spent the rest is not in the source and
not in these parts. It fits the single digits of rung 1 (8 %). With it, 37 requests per second would
fill 8 vCPUs: a further doubling also takes a cheaper preprocessing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf

from harness.pipeline_model import JobSetup, Machine, Pipeline, StageCosts, StepTime

#: Requests per second of rungs 1 to 4, and the batch of rung 4.
PRINTED = (3.0, 9.0, 21.0, 28.0)
BATCH = 8
#: Of the machine; the rungs' threads for downloads and for callbacks.
VCPUS = 8
DOWNLOADERS = 10
CALLERS = 3


@dataclass(frozen=True)
class Parts:
    """Seconds of a request: downloaded, called back, preprocessed; the main thread's step.

    `duty`: the device's utilization at rung 1. `device_share`: its share of the step.
    """

    download_s: float
    callback_s: float
    preprocess_s: float
    step: StepTime
    duty: float
    device_share: float

    @property
    def device(self) -> StepTime:
        """The device's part of the step."""
        step, share = self.step, self.device_share
        return StepTime(step.fixed_s * share, step.per_image_s * share)

    @property
    def host_s(self) -> float:
        """The host's part of the step of one request."""
        return self.step.batch_s(1) * (1 - self.device_share)


def parts(
    callback_s: float, duty: float, printed: Sequence[float] = PRINTED, batch: int = BATCH
) -> Parts:
    """The parts that give the rungs' printed rates.

    Raises:
        ValueError: rates that do not rise, callbacks longer than all I/O, or a device that is busy
            longer than the step takes.
    """
    alone, threads, parallel, batched = (1 / rate for rate in printed)
    transfer_s, preprocess_s = alone - threads, threads - parallel
    per_image = (batch * batched - parallel) / (batch - 1)
    share = duty * alone / parallel
    if not (0 < callback_s < transfer_s and 0 < share <= 1 + 1e-9 and preprocess_s > 0):
        raise ValueError(f"callback_s={callback_s}, duty={duty}: no parts give {printed}")
    step = StepTime(parallel - per_image, per_image)
    rest_s = transfer_s - callback_s
    return Parts(rest_s, callback_s, preprocess_s, step, duty, min(share, 1.0))


def rate(rung: int, request: Parts, workers: int = VCPUS, batch: int = BATCH) -> float:
    """Requests per second of a rung, by the predictor of images.

    Rungs 5 and 6 do the host's part of the step in the threads that preprocess, as for a batch of
    one; their downloads and callbacks are as many as it takes.
    """
    machine, step = Machine(workers), request.step
    costs = StageCosts(decode_s=request.preprocess_s)
    setup = JobSetup(0, 1, "serial")
    supply = min(DOWNLOADERS / request.download_s, CALLERS / request.callback_s)
    if rung == 1:
        costs = replace(costs, read_s=request.download_s + request.callback_s)
        supply = inf
    elif rung in (3, 4):
        setup = JobSetup(workers, batch if rung == 4 else 1, "dataloader")
    elif rung >= 5:
        costs = replace(costs, assemble_s=request.host_s)
        step = request.device
        supply = inf
        setup = JobSetup(workers, batch, "threads")
    return min(supply, Pipeline(costs, step, machine, setup).rate())
