"""The `synthetic` corpus on disk: images rendered once, cached, listed."""

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path

from harness.corpora import ProgressHook, render
from harness.corpora import manifest as manifests
from harness.corpora.manifest import Item, Manifest
from harness.digests import sha256_bytes
from harness.spec import CorpusSpec, Slice
from wallclock.check import validate
from wallclock.files import write_bytes

#: Images rendered between two saves of the manifest: what a killed run loses at most.
_CHUNK = 512


def prepare(spec: CorpusSpec, image_set: str, n: int, cache: Path, progress: ProgressHook) -> Slice:
    """Make sure that the first `n` images of a set are on disk; return them.

    Image i is a function of the seed, the set and i alone, so a larger `n` adds to what is there.
    A file that is missing or has another size than its row is rendered again.
    """
    version = f"synthetic-v{render.GENERATOR}-seed{spec.seed}"
    if spec.progressive_share:
        version += f"-progressive{spec.progressive_share:g}"
    root = cache / version / image_set
    path = cache / version / f"{image_set}.csv"
    saved = manifests.load_or_none(path, root)
    items = list(saved.items) if saved else []
    missing = [i for i in range(n) if i >= len(items) or not _intact(root, items[i])]
    make = partial(_render, spec, image_set, root)
    # Rendering spends its time in Pillow, which releases the GIL.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for start in range(0, len(missing), _CHUNK):
            chunk = missing[start : start + _CHUNK]
            for done, item in enumerate(pool.map(make, chunk), start + 1):
                index = missing[done - 1]
                items[index : index + 1] = [item]
                progress(done, len(missing), f"rendering {image_set}")
            manifests.save(Manifest("synthetic", image_set, root, tuple(items)), path)
    return Manifest("synthetic", image_set, root, tuple(items[:n])).slice(path)


def _render(spec: CorpusSpec, image_set: str, root: Path, index: int) -> Item:
    data = render.render(spec.seed, image_set, index, spec.progressive_share)
    identity = render.image_id(spec.seed, image_set, index)
    path = f"{identity[:2]}/{identity}.jpg"
    # Not flushed to disk one by one: a lost file is rendered again.
    write_bytes(root / path, data, sync=False)
    # No modification time: the manifest is the same on every machine.
    item = Item(identity, path, len(data), sha256=sha256_bytes(data))
    return item.with_header(validate(data, spec.limits))


def _intact(root: Path, item: Item) -> bool:
    with suppress(OSError):
        return (root / item.path).stat().st_size == item.bytes
    return False
