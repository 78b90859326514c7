#!/usr/bin/env python3
"""README's ratios once more, from a reference's raw records, by nothing of this project.

    python3 scripts/recompute.py data/reference/amd-epyc-2-cores

For each set of images: the median, over repeats, of our rate over another system's in the same
repeat, and the least and the greatest of them. Rates are images over wall seconds.
"""

import json
import sys
import tarfile
from collections import defaultdict
from statistics import median

DECIBELS = 40.0  # of the worst image, against Pillow's: who reaches less is no rival
BUSY = 0.05  # of the cores: a repeat in which others used more has no ratio

rates = defaultdict(lambda: defaultdict(dict))  # images -> (system, setup) -> repeat -> rate
least_db, wall_s, cells = {}, {}, {}
with tarfile.open(f"{sys.argv[1]}/records.tar.xz") as records:
    for member in records:
        _, _, file = member.name.rpartition("frontier/")
        key, _, name = file.partition("/")
        if name == "samples.json" and "frontier/" in member.name:
            wall_s[key] = sum(json.load(records.extractfile(member)).get("wall", [])) / 1e9
        elif name == "record.json" and "frontier/" in member.name:
            cells[key] = json.load(records.extractfile(member))
for key, record in sorted(cells.items()):
    cell, values = record["cell"], record["values"]
    params, corpus = cell["params"], cell["corpus"]
    other = "search" in params or params["subset"] != "all" or params["system"].endswith("-crop")
    if record["status"] != "ok" or other:
        continue
    images = params.get("folder") or f"{corpus['kind']} {corpus['image_set']}"
    loader = params["system"], params["setup"]
    calm = values["other_cores"] <= max(0.1, BUSY * record["environment"]["machine"]["cores"])
    rates[images][loader][cell["repeat"]] = (values["n_loaded"] / wall_s[key], calm)
    if "fidelity" in values:
        least_db[images, loader] = values["fidelity"]["psnr_db_min"]
for images, loaders in rates.items():
    faithful = [name for name in loaders if least_db[images, name] >= DECIBELS]
    ranked = sorted(faithful, key=lambda name: -median(r for r, _ in loaders[name].values()))
    ours = loaders[next(name for name in ranked if name[0] == "ours")]
    rivals = [name for name in ranked if not name[0].startswith("ours")]
    for name in rivals[:1] + [name for name in rivals[1:] if name[0] in ("pil", "pil-draft")]:
        pairs = []
        for repeat, (rate, calm) in loaders[name].items():
            ours_too, ours_calm = ours.get(repeat, (0, False))
            pairs += [ours_too / rate] * (calm and ours_calm)
        low, middle, high = min(pairs), median(pairs), max(pairs)
        print(f"{images}: {middle:.6g} [{low:.6g}-{high:.6g}] x {name[0]}, n = {len(pairs)}")
