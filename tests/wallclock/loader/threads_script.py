"""A pass of engine `threads` in a process of its own, for tests that interrupt it.

`python threads_script.py FOLDER SEED SECONDS`: loads the folder's JPEGs again and again
into a sink; after SECONDS it gets a SIGINT. Prints `interrupted` if the interrupt ended the pass.
"""

import importlib
import os
import random
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from harness.corpora.manifest import Item, Manifest
from harness.engines.loaders import open_threads
from harness.engines.writer import open_writer
from harness.spec import Recipe
from wallclock.recipe import ModelSpec


def main() -> None:
    # A background job of a script ignores it, and so does what that starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    folder = Path(sys.argv[1])
    seed = int(sys.argv[2])
    seconds = float(sys.argv[3])
    rng = random.Random(seed)
    items = [
        Item(path.name, path.name, path.stat().st_size, 16, 12, "", "jpeg", "baseline", 3, 0)
        for path in sorted(folder.glob("*.jpg"))
    ]
    manifest = Manifest("folder", "original", folder, tuple(items))
    model = ModelSpec("null", "none", input_px=8)
    batch, workers = rng.choice([1, 3, 8, 20]), rng.choice([1, 2, 5])
    recipe = Recipe("test", "simplejpeg", "opencv", "area", workers=workers, normalize_on="device")
    positions = [list(range(start, start + batch)) for start in range(0, 10**6, batch)]
    pause = rng.choice([0.0, 0.0, 0.002])

    def write(ids: Any, vectors: Any) -> None:
        time.sleep(pause)

    # cv2 swallows an interrupt during its import (`except:` in its __init__.py).
    for library in ("cv2", "simplejpeg"):
        importlib.import_module(library)
    print("ready", flush=True)
    interrupt = threading.Timer(seconds, lambda: os.kill(os.getpid(), signal.SIGINT))
    interrupt.daemon = True
    try:
        interrupt.start()
        with (
            open_threads(manifest, recipe, model, positions) as loader,
            open_writer(write, lambda: None, in_thread=True) as sink,
        ):
            for loaded in loader:
                vectors = loaded.images.reshape(len(loaded.ids), -1).astype("float32")
                sink.put(loaded.ids, vectors, 0)
    except KeyboardInterrupt:
        names = [thread.name for thread in threading.enumerate()]
        alive = [name for name in names if name.startswith(("loader", "sink"))]
        print("interrupted" if not alive else f"still alive: {alive}", flush=True)


if __name__ == "__main__":
    main()
