"""How fast is it with the paper's "all wins": libjpeg-turbo, eight workers, batch 64, FP16?

Method. As `t4`, with the optimized recipe. Its pixels and vectors are compared with Pillow's in
FP32, untimed: OpenCV's bilinear resize does not antialias, so part of the speedup is work left out,
and the row says how far the output moved (`psnr_db`, `cosine`).
"""

from experiments import _end_to_end

RANK = 80
SENTENCE_RANK = 4
CSV = "optimized-end-to-end.csv"
TIMELINE_CSV = "timeline-optimized.csv"
TABLES = {CSV: _end_to_end.COLUMNS, TIMELINE_CSV: _end_to_end.TIMELINE_COLUMNS}

cells = _end_to_end.one_recipe("opt")
tables = _end_to_end.tables(CSV, TIMELINE_CSV)
sentence = _end_to_end.sentence_of(CSV)
