"""The `synthetic` corpus on disk: images rendered once, cached, listed."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

from wallclock.corpus import Progress, render
from wallclock.corpus import manifest as manifests
from wallclock.corpus.manifest import Item, Manifest
from wallclock.corpus.validate import validate
from wallclock.files import sha256_bytes, write_bytes
from wallclock.spec import CorpusSpec, Slice

#: Images rendered between two saves of the manifest: what a killed run loses at most.
_CHUNK = 512


def prepare(spec: CorpusSpec, image_set: str, n: int, cache: Path, progress: Progress) -> Slice:
    """Make sure that the first `n` images of a set are on disk; return them.

    Image i is a function of the seed, the set and i alone, so a larger `n` adds to what is there.
    A file that is missing or has another size than its row is rendered again.
    """
    version = f"synthetic-v{render.GENERATOR}-seed{spec.seed}"
    if spec.progressive_share:
        version += f"-progressive{spec.progressive_share:g}"
    root, path = cache / version / image_set, cache / version / f"{image_set}.csv"
    saved = manifests.load_or_none(path, root)
    items = list(saved.items) if saved else []
    stale = [i for i, item in enumerate(items[:n]) if not _intact(root, item)]
    missing = stale + list(range(len(items), n))
    if missing:
        make = partial(_render, spec, image_set, root)
        # spawn: the parent has threads (the progress display), which fork would copy mid-operation.
        context = multiprocessing.get_context("spawn")
        workers = min(os.cpu_count() or 1, len(missing))
        with ProcessPoolExecutor(workers, context, _exit_with_parent) as pool:
            for start in range(0, len(missing), _CHUNK):
                chunk = missing[start : start + _CHUNK]
                rendered = zip(chunk, pool.map(make, chunk, chunksize=4), strict=True)
                for done, (index, item) in enumerate(rendered, start + 1):
                    items[index : index + 1] = [item]
                    progress(done, len(missing), f"rendering {image_set}")
                manifests.save(Manifest("synthetic", image_set, root, tuple(items)), path)
    return Manifest("synthetic", image_set, root, tuple(items[:n])).slice(path)


def _exit_with_parent() -> None:
    """Leave Ctrl-C to the parent, and exit when it exits, killed or not."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def _render(spec: CorpusSpec, image_set: str, root: Path, index: int) -> Item:
    data = render.render(spec.seed, image_set, index, spec.progressive_share)
    identity = render.image_id(spec.seed, image_set, index)
    path = f"{identity[:2]}/{identity}.jpg"
    # Not flushed to disk one by one: a lost file is rendered again.
    write_bytes(root / path, data, sync=False)
    # No modification time: the manifest is the same on every machine.
    item = Item(identity, path, len(data), sha256=sha256_bytes(data))
    return validate(data, spec.limits).annotate(item)


def _intact(root: Path, item: Item) -> bool:
    try:
        return (root / item.path).stat().st_size == item.bytes
    except OSError:
        return False
