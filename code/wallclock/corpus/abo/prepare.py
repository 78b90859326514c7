"""Corpus `abo`: from a list to images that are on the disk, complete and listed.

    <cache>/abo-<key>/images.csv.gz                          the catalogue
                      licence/                               the licence files, licence.json
                      small_256-first70-seed0.list.csv       the sample; .list.json: its digest
                      small_256-first70-seed0.csv            the manifest
                      small_256-first70-seed0.journal        what arrived since the manifest
                      small_256/<two hex digits>/<name>.jpg  the images
                      small_256-first70-seed0.tar/           packed, if `corpus.layout` says so

A run whose images are all there sends no request.
"""

from __future__ import annotations

import fcntl
import itertools
import json
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from wallclock.corpus import Progress
from wallclock.corpus import manifest as manifests
from wallclock.corpus.abo import local, pack, plan
from wallclock.corpus.abo.fetch import Job, fetch
from wallclock.corpus.abo.plan import Catalogue, Entry
from wallclock.corpus.abo.store import PermanentError, Store, StoreConfig
from wallclock.corpus.manifest import Item, Manifest
from wallclock.corpus.readers import MARKER
from wallclock.errors import UserError
from wallclock.files import digest_of, pretty_json, write_bytes, write_text
from wallclock.spec import CorpusSpec, Slice

#: Rows whose files were hashed in this process, by manifest.
_verified: dict[Path, int] = {}


@dataclass(frozen=True)
class _List:
    """One list's settings and files."""

    spec: CorpusSpec
    image_set: str
    base: Path

    @property
    def prefixes(self) -> int:
        return self.spec.prefixes[self.image_set]

    @property
    def root(self) -> Path:
        return self.base / self.image_set

    def file(self, suffix: str) -> Path:
        return self.base / f"{self.image_set}-first{self.prefixes}-seed{self.spec.seed}{suffix}"

    def check_pinned(self, rows: Sequence[Entry | Item]) -> None:
        """Compare with the digest that the settings pin for this list, if any."""
        name = f"{self.image_set}-{len(rows)}"
        pinned = self.spec.lists.get(name)
        if pinned is not None and str(pinned) != (digest := plan.list_digest(rows)):
            raise UserError(
                f"the list {name} has the digest {digest}, corpus.lists says {pinned}: another "
                "catalogue, seed or number of prefixes"
            )


def prepare(spec: CorpusSpec, image_set: str, n: int, cache: Path, progress: Progress) -> Slice:
    """Bring the first `n` of a set's list onto the disk, in the configured layout.

    Raises:
        UserError: the store is unreachable or holds too few, no space, or another run is active.
    """
    images = _List(spec, image_set, local.folder(spec, cache))
    with _exclusive_lock(images.base):
        local.make_folder(images.root)
        path, storage = images.file(".csv"), spec.layout
        files = _files(images, n, progress)
        if spec.source == "remote":
            path, files, storage = _remote(images, files)
        elif spec.layout != "files":
            path = images.file(f".{spec.layout}.csv")
            verify = spec.verify and _verified.get(path, 0) < n
            files = pack.ensure(files, spec.layout, path, verify, progress)
            _verified[path] = max(n, _verified.get(path, 0)) if spec.verify else 0
        return replace(files.head(n).slice(path), storage=storage)


def _files(images: _List, n: int, progress: Progress) -> Manifest:
    """The manifest of the image files, at least `n` rows of it, all of them on the disk."""
    path, journal = images.file(".csv"), images.file(".journal")
    saved = manifests.load_or_none(path, images.root)
    before = saved.items if saved else ()
    known = {item.path: item for item in before} | local.read_journal(journal)
    verify = images.spec.verify and _verified.get(path, 0) < n
    listed = [item.path for item in before[:n]]
    items = local.verified(known, listed, images.root, verify)
    if saved is not None and len(items) == n and not journal.exists():
        images.check_pinned(before[:n])
        _verified[path] = n if verify else _verified.get(path, 0)
        return saved
    with closing(Store(StoreConfig.of(images.spec))) as store:
        catalogue = _catalogue(images, store)
        entries = catalogue.sample(images.image_set, n)
        images.check_pinned(entries)
        _write_list(images, catalogue, min(max(n, len(before)), len(catalogue.entries)))
        local.fetch_licence(store, images.base / "licence")
        paths = [entry.path for entry in entries]
        others = [path for path in paths if path not in items]
        items |= local.verified(known, others, images.root, verify)
        missing = [entry for entry in entries if entry.path not in items]
        if images.image_set != "original":
            # The catalogue's sizes are the originals'.
            missing = [replace(entry, width=0, height=0) for entry in missing]
        needed = local.space_for(images.image_set, len(missing))
        local.check_space(images.base, needed, f"{len(missing):,} images of {images.image_set}")
        counter = itertools.count(n - len(missing) + 1)
        # A progress bar that shows MB/s counts bytes too.
        add_bytes = getattr(progress, "add_bytes", lambda n_bytes: None)
        job = Job(store, plan.FOLDERS[images.image_set], images.root, images.spec.limits)
        with local.open_journal(journal) as append:

            def arrived(rows: Sequence[Item]) -> None:
                # A refusal is final only at the end: if the store failed, the next run retries.
                append([item for item in rows if item.failed_stage != "read"])
                for item in rows:
                    progress(next(counter), n, f"fetching {images.image_set}")
                    add_bytes(item.bytes)

            items |= fetch(job, missing, arrived)
    # An earlier, longer list keeps its rows.
    tail = before[n:] if listed == paths else ()
    rows = tuple(items[path] for path in paths) + tail
    manifest = Manifest("abo", images.image_set, images.root, rows)
    manifests.save(manifest, path)
    journal.unlink(missing_ok=True)
    _verified[path] = n if verify else 0
    return manifest


def _catalogue(images: _List, store: Store) -> Catalogue:
    """The catalogue on the disk, or downloaded now."""
    path = images.base / "images.csv.gz"
    source = path.with_name("images.csv.gz.json")
    digest = local.read_json(source).get("sha256", "")
    if not local.has_digest(path, digest):
        try:
            data, info = store.download(plan.KEY, plan.MAX_PACKED_BYTES)
        except PermanentError as error:
            raise UserError(
                f"{store.config.host} has no {plan.KEY} in {store.config.bucket} ({error}); check "
                "corpus.endpoint and corpus.bucket"
            ) from error
        write_bytes(path, data)
        digest, config = info.sha256, store.config
        origin = {"host": config.host, "bucket": config.bucket, "key": plan.KEY}
        write_text(source, pretty_json({**origin, "sha256": digest, "etag": info.etag}))
    try:
        return plan.load(path, digest, images.prefixes, images.spec.seed)
    except UserError:
        source.unlink()  # the next run downloads it again
        raise


def _write_list(images: _List, catalogue: Catalogue, n: int) -> None:
    """Write the longest list so far next to the data."""
    entries = catalogue.entries[:n]
    # Ids and paths are plain words: no value needs quotes.
    rows = "".join(f"{entry.id},{entry.path}\n" for entry in entries)
    write_text(images.file(".list.csv"), "image_id,path\n" + rows)
    summary = {"image_set": images.image_set, "n_images": n, "digest": plan.list_digest(entries)}
    summary |= {"prefixes": images.prefixes, "seed": images.spec.seed, "n_rows": catalogue.n_rows}
    refused = {"n_refused_rows": catalogue.n_refused, "first_refused_row": catalogue.first_refused}
    summary |= {"available": len(catalogue.entries), **refused}
    write_text(images.file(".list.json"), pretty_json(summary))


def _remote(images: _List, files: Manifest) -> tuple[Path, Manifest, str]:
    """The same list, read from the store; the local copy, which validated it, is not read."""
    root = images.file(".remote")
    config = asdict(StoreConfig.of(images.spec))
    prefix = plan.FOLDERS[images.image_set]
    write_text(root / MARKER, pretty_json({"layout": "remote", "prefix": prefix, "store": config}))
    path = images.file(".remote.csv")
    remote = replace(files, root=root)
    manifests.save(remote, path)
    return path, remote, f"remote:{digest_of(config)[:12]}"


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
        for leftover in (*base.glob(".*.tmp"), *base.glob("*/.*.tmp")):
            leftover.unlink(missing_ok=True)
        yield


def remarks(spec: CorpusSpec, image_set: str, n: int, cache: Path) -> list[str]:
    """Lines about a set's first `n`: the list's digest, refused rows, the licence."""
    images = _List(spec, image_set, local.folder(spec, cache))
    summary = json.loads(images.file(".list.json").read_text(encoding="utf-8"))
    digest = plan.list_digest(manifests.load(images.file(".csv")).items[:n])
    lines = [
        f"  list {image_set}-{n}: {digest}, of {summary['available']:,} images in the first "
        f"{summary['prefixes']} prefixes, seed {summary['seed']}"
    ]
    refused = summary["n_refused_rows"]
    if refused:
        first = summary["first_refused_row"]
        lines.append(f"  {refused:,} catalogue rows refused; the first, {first}")
    licence = local.credit(spec, cache)
    if licence:
        lines.append(f"  licence: {licence['licence']} ({licence['relied_on']})")
    return lines
