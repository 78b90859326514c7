"""How many DataLoader workers does the job need?

Method. libjpeg-turbo's decode and OpenCV's resize, batch 64, FP32, with 0 to 16 workers, end to
end, as `t4`. With 0 workers the main process loads and embeds alternately.
"""

from experiments import _end_to_end

RANK = 110
SENTENCE_RANK = 9
CSV = "workers-sweep.csv"
TABLES = {CSV: _end_to_end.COLUMNS}

cells = _end_to_end.sweep("workers", "workers", "workers")
tables = _end_to_end.tables(CSV)
