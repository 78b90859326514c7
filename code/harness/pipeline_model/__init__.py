"""Predict a pipeline's throughput from what its stages cost: pure functions, no torch, no files::

    costs = StageCosts(read_s=5e-5, decode_s=4.6e-4, resize_s=8.8e-4, normalize_s=7.6e-4)
    step = StepTime.fit([(1, 0.0118), (64, 0.242)])
    pipeline = Pipeline(costs, step, Machine(cores=16), JobSetup(workers=4, batch_size=64))
    pipeline.predict().img_per_s, pipeline.bottleneck()          # 264, "accelerator"

`costs` defines the inputs, `queueing` a queue of finite depth under variance, `model` the
prediction for a complete pipeline. `wallclock.predict.pace` has the part of it that the product
needs, without variance, storage and streams: a test compares the two.
"""

from harness.pipeline_model.costs import JobSetup, Machine, StageCosts, StepTime, check
from harness.pipeline_model.model import Pipeline

__all__ = ["JobSetup", "Machine", "Pipeline", "StageCosts", "StepTime", "check"]
