"""The `synthetic` corpus on disk: images rendered once, cached, listed."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

from wallclock.corpus import manifest as manifests
from wallclock.corpus import render
from wallclock.corpus.manifest import Item, Manifest
from wallclock.corpus.validate import validate
from wallclock.files import sha256_bytes, write_bytes
from wallclock.spec import CorpusSpec, Slice

Progress = Callable[[int, int, str], None]

#: Images rendered between two saves of the manifest, which is what a killed run loses at most.
_CHUNK = 512


def prepare(spec: CorpusSpec, image_set: str, n: int, cache: Path, progress: Progress) -> Slice:
    """Make sure that the first `n` images of a set are on disk; return them.

    Image i is a function of the seed, the set and i alone, so a larger `n` adds to what is there.
    A file that is missing or has another size than when it was made is rendered again.
    """
    version = f"synthetic-v{render.GENERATOR}-seed{spec.seed}"
    if spec.progressive_share:
        version += f"-progressive{spec.progressive_share:g}"
    root = cache / version / image_set
    path = cache / version / f"{image_set}.csv"
    known = manifests.load_or_none(path, root)
    items = list(known.items) if known else []
    stale = [i for i, item in enumerate(items[:n]) if not _intact(root / item.path, item)]
    todo = stale + list(range(len(items), n))
    if todo:
        _render_all(spec, image_set, root, path, items, todo, progress)
    manifest = Manifest("synthetic", image_set, root, tuple(items[:n]))
    return manifest.slice(path)


def _render_all(
    spec: CorpusSpec,
    image_set: str,
    root: Path,
    path: Path,
    items: list[Item],
    todo: Sequence[int],
    progress: Progress,
) -> None:
    make = partial(_render, spec, image_set, root)
    # spawn: the parent has threads (the progress display), which fork would copy in mid-air.
    context = multiprocessing.get_context("spawn")
    workers = min(os.cpu_count() or 1, len(todo))
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_follow_parent) as pool:
        for start in range(0, len(todo), _CHUNK):
            chunk = todo[start : start + _CHUNK]
            for done, (index, item) in enumerate(
                zip(chunk, pool.map(make, chunk, chunksize=4), strict=True), 1
            ):
                items[index : index + 1] = [item]
                progress(start + done, len(todo), f"rendering {image_set}")
            manifests.save(Manifest("synthetic", image_set, root, tuple(items)), path)


def _follow_parent() -> None:
    """Leave Ctrl-C to the parent, and end when it ends, killed or not."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def leave() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=leave, daemon=True).start()


def _render(spec: CorpusSpec, image_set: str, root: Path, index: int) -> Item:
    data = render.render(spec.seed, image_set, index, spec.progressive_share)
    identity = render.image_id(spec.seed, image_set, index)
    name = f"{identity[:2]}/{identity}.jpg"
    # No flush to disk each: a lost file is rendered again.
    write_bytes(root / name, data, sync=False)
    header = validate(data, spec.limits)
    # The modification time is left out: the manifest is the same on every machine.
    return Item(
        identity,
        name,
        len(data),
        header.width,
        header.height,
        sha256_bytes(data),
        header.format,
        header.process,
        header.components,
        mtime_ns=0,
    )


def _intact(path: Path, item: Item) -> bool:
    try:
        return path.stat().st_size == item.bytes
    except OSError:
        return False
