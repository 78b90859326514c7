"""Predict a pipeline's throughput from what its stages cost: pure functions, no torch, no files.

    costs = StageCosts(read_s=5e-5, decode_s=4.6e-4, resize_s=8.8e-4, normalize_s=7.6e-4)
    step = fit_step_time([(1, 0.0118), (64, 0.242)])
    expected = predict(costs, step, Machine(cores=16), JobSetup(workers=4, batch_size=64))
    expected.img_per_s, expected.bottleneck                      # 264, "accelerator"

`costs` defines the inputs, `analytic` the textbook's formulas for a batch of bytes, `queueing` a
queue of finite depth under variance, `model` the prediction for a complete pipeline.
"""

from wallclock.predict.analytic import Feed, Overlap, amdahl, feed, overlap
from wallclock.predict.costs import (
    BatchTransfer,
    JobSetup,
    Machine,
    StageCosts,
    StepTime,
    fit_step_time,
)
from wallclock.predict.model import (
    UNCERTAINTY,
    Prediction,
    crossover_batch,
    predict,
    workers_to_saturate,
)
from wallclock.predict.queueing import simulate

__all__ = [
    "UNCERTAINTY",
    "BatchTransfer",
    "Feed",
    "JobSetup",
    "Machine",
    "Overlap",
    "Prediction",
    "StageCosts",
    "StepTime",
    "amdahl",
    "crossover_batch",
    "feed",
    "fit_step_time",
    "overlap",
    "predict",
    "simulate",
    "workers_to_saturate",
]
