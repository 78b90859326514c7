"""What a timed pass wrote, read back and compared with the same images embedded serially.

The reference takes the recipe's own decoder and resizer in this thread, normalizes on the host and
runs the network in FP32, eagerly, one batch after the other: no ring, no stream, no graph, no
compilation, no thread that writes. A difference is therefore the timed path's, not the decoder's,
and what FP16 or BF16 round. Weights may be random: both sides have the same.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from harness import sinks
from harness.corpora.manifest import Manifest
from harness.protocols import fidelity
from harness.spec import Recipe
from wallclock.recipe import ModelSpec
from wallclock.summary import cosine

#: Images whose vectors are compared: a network takes a tenth of a second for one on a CPU.
IMAGES = {"cuda": 64, "cpu": 8}


def check_sink(
    path: Path,
    batches: Sequence[Sequence[int]],
    failures: Sequence[Mapping[str, str]],
    manifest: Manifest,
    recipe: Recipe,
    model: ModelSpec,
) -> dict[str, Any]:
    """Compare the file of a closed sink with what the pass had to write.

    Args:
        batches: positions of the pass' images in `manifest.valid`; past the end they start over.
        failures: of images of the pass, which have no vector.

    Returns values for the record: `sink_faults`, how many vectors are missing, are not of the pass
    or there too often, or not finite, in words. Of all vectors of `IMAGES` images, evenly spread
    over the corpus: `sink_checked`, how many they are; `sink_cosine_min` with the serial vectors,
    and `sink_max_abs_diff`.
    """
    ids, vectors = sinks.read(path)
    items, written = manifest.valid, set(ids)
    expected = Counter(items[at % len(items)].id for batch in batches for at in batch)
    accounted_for = Counter(ids) + Counter(failure["id"] for failure in failures)
    counts = {
        "missing": (expected - accounted_for).total(),
        "unexpected": (accounted_for - expected).total(),
        "not finite": sum(failure["stage"] == "forward" for failure in failures),
    }
    values: dict[str, Any] = {"sink_faults": [f"{n} {what}" for what, n in counts.items() if n]}
    there = [item for item in items if item.id in written]
    # Not the first ones: a ring or a stream goes wrong once it is full. The last batch is padded.
    spread = np.linspace(0, len(there) - 1, min(IMAGES[recipe.device], len(there)))
    chosen = tuple(there[round(at)] for at in spread)
    serially = replace(
        recipe, engine="serial", dtype="fp32", runtime="pytorch", compile="none", batch_size=32
    )
    images = fidelity.resized(serially, model, replace(manifest, items=chosen), {})
    if images:
        right = dict(zip(images, fidelity.embed(model, serially, [*images.values()]), strict=True))
        rows = [row for row, name in enumerate(ids) if name in right]
        reference = np.stack([right[ids[row]] for row in rows])
        ours = vectors[rows]
        values |= {
            "sink_checked": len(rows),
            "sink_cosine_min": float(cosine(ours, reference).min()),
            "sink_max_abs_diff": float(np.abs(ours - reference).max()),
        }
    return values
