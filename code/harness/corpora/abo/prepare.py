"""Corpus `abo`: from a list to images that are on the disk, complete and listed.

    <cache>/abo-<key>/images.csv.gz                          the catalogue
                      small_256-first70-seed0.csv            the manifest: the sample's ids, files
                      small_256-first70-seed0.journal        what arrived since the manifest
                      small_256/<two hex digits>/<name>.jpg  the images

A run whose images are all there sends no request.
"""

import fcntl
import itertools
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from harness.corpora import ProgressHook, check_space
from harness.corpora import manifest as manifests
from harness.corpora.abo import fetch, plan
from harness.corpora.abo.plan import Catalogue
from harness.corpora.abo.store import CorpusStore
from harness.corpora.manifest import Item, Manifest
from harness.digests import digest_of
from harness.spec import CorpusSpec, Slice
from wallclock.errors import UserError
from wallclock.fetch.retries import PermanentError
from wallclock.files import write_bytes

#: Bytes an object, on average, over samples of the real bucket (the originals' larger sample), and
#: half a block of 4 KiB, which a file system loses with each file.
OBJECT_BYTES = {"small_256": 7_400 + 2_048, "original": 378_000 + 2_048}

#: What the bucket says; the dataset's paper says CC BY-NC 4.0.
LICENCE = "CC BY 4.0"
#: The credit that the README asks for.
ATTRIBUTION = (
    "Credit for the data, including all images and 3d models, must be given to: Amazon.com. Credit "
    "for building the dataset, archives and benchmark sets must be given to: Matthieu Guillaumin "
    "(Amazon.com), Thomas Dideriksen (Amazon.com), Kenan Deng (Amazon.com), Himanshu Arora "
    "(Amazon.com), Jasmine Collins (UC Berkeley) and Jitendra Malik (UC Berkeley)"
)


@dataclass(frozen=True)
class _List:
    """One list's settings and files."""

    spec: CorpusSpec
    image_set: str
    cache: Path

    @property
    def base(self) -> Path:
        """This store's folder: another store, or other limits, is another folder."""
        store = [self.spec.endpoint, self.spec.bucket, self.spec.image_limits]
        return self.cache / f"abo-{digest_of(store)[:12]}"

    @property
    def root(self) -> Path:
        return self.base / self.image_set

    @property
    def prefixes(self) -> int:
        return self.spec.prefixes[self.image_set]

    def file(self, suffix: str) -> Path:
        return self.base / f"{self.image_set}-first{self.prefixes}-seed{self.spec.seed}{suffix}"

    def catalogue(self) -> Catalogue:
        return plan.load(self.base / "images.csv.gz", self.prefixes, self.spec.seed)


def prepare(spec: CorpusSpec, image_set: str, n: int, cache: Path, progress: ProgressHook) -> Slice:
    """Bring the first `n` of a set's list onto the disk.

    Raises:
        UserError: the store is unreachable or holds too few, no space, or another run is active.
    """
    images = _List(spec, image_set, cache)
    with _exclusive_lock(images.base):
        fetch.make_folder(images.root)
        return _files(images, n, progress).head(n).slice(images.file(".csv"))


def _files(images: _List, n: int, progress: ProgressHook) -> Manifest:
    """The manifest of the image files, at least `n` rows of it, all of them on the disk."""
    path = images.file(".csv")
    journal = images.file(".journal")
    verify = images.spec.verify
    saved = manifests.load_or_none(path, images.root)
    before = saved.items if saved else ()
    rows_by_path = {item.path: item for item in before} | fetch.read_journal(journal)
    listed = [item.path for item in before[:n]]
    items = fetch.intact_items(rows_by_path, listed, images.root, verify)
    if saved is not None and len(items) == n and not journal.exists():
        return saved
    with closing(CorpusStore(images.spec)) as store:
        entries = _catalogue(images, store).sample(images.image_set, n)
        paths = [entry.path for entry in entries]
        others = [path for path in paths if path not in items]
        items |= fetch.intact_items(rows_by_path, others, images.root, verify)
        missing = [entry for entry in entries if entry.path not in items]
        # A sample may be above the average.
        needed = 1.1 * len(missing) * OBJECT_BYTES[images.image_set]
        check_space(images.base, needed, f"{len(missing):,} images of {images.image_set}")
        counter = itertools.count(n - len(missing) + 1)
        prefix = plan.FOLDERS[images.image_set]
        limits = images.spec.limits
        with open(journal, "ab", buffering=0) as file:

            def arrived(row: Item) -> None:
                # A refusal is final only at the end: if the store failed, the next run retries.
                if row.failed_stage != "read":
                    fetch.append(file, [row])
                progress(next(counter), n, f"fetching {images.image_set}")

            items |= fetch.Fetch(store, prefix, images.root, limits, missing).run(arrived)
    # An earlier, longer list keeps its rows.
    tail = before[n:] if listed == paths else ()
    rows = tuple(items[path] for path in paths) + tail
    manifest = Manifest("abo", images.image_set, images.root, rows)
    manifests.save(manifest, path)
    journal.unlink(missing_ok=True)
    return manifest


def _catalogue(images: _List, store: CorpusStore) -> Catalogue:
    """The catalogue on the disk if it is intact (gzip has a checksum), or downloaded now."""
    path = images.base / "images.csv.gz"
    if path.exists():
        with suppress(UserError):
            return images.catalogue()
    try:
        data = store.download(plan.KEY, plan.MAX_PACKED_BYTES)
    except PermanentError as error:
        raise UserError(
            f"{store.host} has no {plan.KEY} in {store.spec.bucket} ({error}); check "
            "corpus.endpoint and corpus.bucket"
        ) from error
    write_bytes(path, data)
    return images.catalogue()


@contextmanager
def _exclusive_lock(base: Path) -> Iterator[None]:
    """Keep a second run out of the folder."""
    base.mkdir(parents=True, exist_ok=True)
    with (base / ".lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UserError(
                f"another run is active in {base}; wait for it, or set out= elsewhere"
            ) from error
        # Left by a run that was killed between writing and renaming.
        for leftover in base.glob(".*.tmp"):
            leftover.unlink(missing_ok=True)
        yield


def credit(spec: CorpusSpec) -> dict[str, str]:
    """Source, licence and attribution."""
    source = f"{spec.endpoint or 'https://s3.amazonaws.com'}/{spec.bucket}"
    return {"source": source, "licence": LICENCE, "attribution": ATTRIBUTION}


def remarks(spec: CorpusSpec, image_set: str, n: int, cache: Path) -> list[str]:
    """Lines about a set's first `n`: the list's digest, refused rows, the licence."""
    images = _List(spec, image_set, cache)
    catalogue = images.catalogue()
    digest = plan.list_digest(manifests.load(images.file(".csv")).items[:n])
    lines = [
        f"  list {image_set}-{n}: {digest}, of {len(catalogue.entries):,} images in the first "
        f"{catalogue.prefixes} prefixes, seed {spec.seed}"
    ]
    if catalogue.n_refused:
        refused = f"{catalogue.n_refused:,} catalogue rows refused"
        lines.append(f"  {refused}; the first, {catalogue.first_refused}")
    lines.append(f"  licence: {LICENCE}")
    return lines
