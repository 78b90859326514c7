"""Predict a pipeline's throughput from what its stages cost: pure functions, no torch, no files::

    costs = StageCosts(read_s=5e-5, decode_s=4.6e-4, resize_s=8.8e-4, normalize_s=7.6e-4)
    step = StepTime.fit([(1, 0.0118), (64, 0.242)])
    pipeline = Pipeline(costs, step, Machine(cores=16), JobSetup(workers=4, batch_size=64))
    pipeline.predict().img_per_s, pipeline.bottleneck()          # 264, "accelerator"

`costs` defines the inputs, `queueing` a queue of finite depth under variance, `model` the
prediction for a complete pipeline, `intervals` how far it, or a change's gain, may be off,
`advice` what would make a job faster.
"""

from wallclock.predict.costs import JobSetup, Machine, StageCosts, StepTime, check
from wallclock.predict.intervals import GAIN_ERROR, RATE_ERROR, Gain, gain
from wallclock.predict.model import Pipeline

__all__ = [
    "GAIN_ERROR",
    "RATE_ERROR",
    "Gain",
    "JobSetup",
    "Machine",
    "Pipeline",
    "StageCosts",
    "StepTime",
    "check",
    "gain",
]
