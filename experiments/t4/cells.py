"""How fast is the job as one would first write it?

Method. The paper's baseline: Pillow's decode and resize in four DataLoader workers, batch 32, FP32,
parquet out, small images. Steady state: the clock starts when the warm-up batches are through and
stops when the file is complete. Stage seconds are busy time, summed over the processes that spent
it, so they can exceed the wall time; `wait_s` is the main process waiting for a batch. GPU and CPU
use are sampled at 10 Hz. The spans of the first repeat's first batches are the upper half of
figure 6.
"""

from experiments import end_to_end

RANK = 70
CSV = "t4-baseline-stages.csv"
TIMELINE_CSV = "timeline-baseline.csv"
TABLES = {CSV: end_to_end.COLUMNS, TIMELINE_CSV: end_to_end.TIMELINE_COLUMNS}

cells = end_to_end.one_recipe("t4")
tables = end_to_end.tables(CSV, TIMELINE_CSV)
