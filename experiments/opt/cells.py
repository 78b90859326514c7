"""How fast is it with the paper's "all wins": libjpeg-turbo, eight workers, batch 64, FP16?

Method. As `t4`, with the optimized recipe. Its pixels and vectors are compared with Pillow's in
FP32, untimed: OpenCV's bilinear resize does not antialias, so part of the speedup is work left out,
and the row says how far the output moved (`psnr_db`, `cosine`).
"""

from experiments import end_to_end
from experiments.sentences import MeasuredRows, mock_note, ratio
from experiments.t4 import cells as t4
from harness.drawing.format import digits
from harness.drawing.labels import SHORT_SETS

RANK = 80
SENTENCE_RANK = 3
CSV = "optimized-end-to-end.csv"
TIMELINE_CSV = "timeline-optimized.csv"
TABLES = {CSV: end_to_end.COLUMNS, TIMELINE_CSV: end_to_end.TIMELINE_COLUMNS}

#: What rows have in common that are compared, beside their recipes.
_ALIKE = ("image_set", "corpus", "weights", "service_ms", "device")

cells = end_to_end.one_recipe("opt")
tables = end_to_end.tables(CSV, TIMELINE_CSV)


def sentence(rows: MeasuredRows) -> str:
    """The optimized recipe, versus the baseline where that ran under the same conditions."""
    row = rows.first(CSV)
    if row is None:
        return ""
    rate = f"{digits(row['img_per_s'])} images per second{mock_note(row)}"
    text = f"on {SHORT_SETS[row['image_set']]} the optimized recipe embeds {rate}"
    base = rows.first(t4.CSV)
    if base and all(row[name] == base[name] for name in _ALIKE):
        return f"{text}, {ratio(row, base)} the baseline"
    return text
