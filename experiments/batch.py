"""Does a larger batch help when Pillow feeds it?

Method. The baseline recipe with batch sizes from 1 to 256, end to end, as `t4`. A batch that does
not fit the GPU's memory is a row with status `oom`, and the sweep goes on.
"""

from experiments import _end_to_end

RANK = 120
CSV = "batch-sweep.csv"
TABLES = {CSV: _end_to_end.COLUMNS}

cells = _end_to_end.sweep("batch", "batch_size", "batch_sizes")
tables = _end_to_end.tables(CSV)
