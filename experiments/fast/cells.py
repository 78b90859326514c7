"""How fast is it when nothing is left on the table: scaled decode, threads, uint8 batches?

Method. As `opt`, with the recipe `fast`. Each image is decoded no larger than its fidelity needs,
resized with Pillow's antialiasing filter, and written where the device fetches it from; the device
normalizes. The recipe claims to antialias, so the gate is stricter than the optimized recipe's: on
no image more than `max_loss_db` below full decode with OpenCV's area average, and never below the
optimized recipe on the same image.
"""

from experiments import end_to_end

RANK = 90
CSV = "fast-end-to-end.csv"
TABLES = {CSV: end_to_end.COLUMNS}

cells = end_to_end.one_recipe("fast")
tables = end_to_end.tables(CSV)
