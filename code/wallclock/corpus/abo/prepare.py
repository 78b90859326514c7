"""Corpus `abo`: from a list to images that are here, whole, and listed.

    <cache>/abo-<key>/images.csv.gz                          the catalogue, as it came
                      licence/                               the bucket's licence files, licence.json
                      small_256-first70-seed0.list.csv       the sample; .list.json: its digest
                      small_256-first70-seed0.csv            the manifest
                      small_256-first70-seed0.journal        what arrived since the manifest was written
                      small_256/<two hex digits>/<name>.jpg  the images
                      small_256-first70-seed0.tar/           packed, if the layout asks for it

A run that finds everything here sends no request.
"""

from __future__ import annotations

import csv
import fcntl
import io
import json
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from wallclock.corpus import manifest as manifests
from wallclock.corpus.abo import cost, journal, licence, ondisk, pack, plan
from wallclock.corpus.abo.fetch import Target, fetch, make_folder
from wallclock.corpus.abo.pacing import CONTACT_S, pause_s, unreachable
from wallclock.corpus.abo.store import Address, GoneError, Receipt, Store, TransientError
from wallclock.corpus.manifest import Item, Manifest
from wallclock.corpus.readers import MARKER
from wallclock.errors import UserError
from wallclock.files import digest_of, pretty_json, sha256_file, write_bytes, write_text
from wallclock.spec import CorpusSpec, Slice

Progress = Callable[[int, int, str], None]

KIND = "abo"


@runtime_checkable
class CountsBytes(Protocol):
    """A progress that can show MB/s too."""

    def add_bytes(self, n: int) -> None:
        """So many more bytes have arrived."""


@dataclass(frozen=True)
class _Place:
    """Where one list's files are."""

    base: Path
    name: str
    image_set: str

    @property
    def root(self) -> Path:
        return self.base / self.image_set

    def file(self, suffix: str) -> Path:
        return self.base / f"{self.name}{suffix}"


#: Seconds until the catalogue or a licence file, 6 MB at most, is given up, retries included.
_PATIENCE_S = 600.0

#: Lists that were hashed in this process, by manifest: how many of their rows.
_verified: dict[Path, int] = {}


def folder(spec: CorpusSpec, cache: Path) -> Path:
    """Where this store's images are kept: other limits or another store are another folder."""
    return cache / f"abo-{digest_of([spec.endpoint, spec.bucket, vars(spec.limits)])[:12]}"


def prepare(spec: CorpusSpec, image_set: str, n: int, cache: Path, progress: Progress) -> Slice:
    """Bring the first `n` of a set's list onto the disk, and name them in the layout that is asked for.

    Raises:
        UserError: the store cannot be reached or holds too few, no space, or another run is at it.
    """
    prefixes = spec.prefixes[image_set]
    place = _Place(folder(spec, cache), f"{image_set}-first{prefixes}-seed{spec.seed}", image_set)
    with _alone(place.base):
        make_folder(place.root)
        files = _files(spec, place, n, progress)
        path = place.file(".csv")
        if spec.source == "remote":
            path, files, storage = _remote(spec, place, files)
            return replace(files.first(n).slice(path), storage=storage)
        if spec.layout != "files":
            path = place.file(f".{spec.layout}.csv")
            verify = spec.verify and _verified.get(path, 0) < n
            files = pack.ensure(files, spec.layout, path, verify, progress)
            _verified[path] = max(n, _verified.get(path, 0)) if spec.verify else 0
        return replace(files.first(n).slice(path), storage=spec.layout)


def _files(spec: CorpusSpec, place: _Place, n: int, progress: Progress) -> Manifest:
    """The manifest of the image files, at least `n` rows of it, all of them here."""
    path = place.file(".csv")
    saved = manifests.load_or_none(path, place.root)
    before = saved.items if saved else ()
    known = {item.path: item for item in before} | journal.read(place.file(".journal"))
    verify = spec.verify and _verified.get(path, 0) < n
    here = ondisk.sound(known, [item.path for item in before[:n]], place.root, verify)
    if saved is not None and len(here) == n and not place.file(".journal").exists():
        _check_list(spec, place, _pairs(before[:n]))
        _verified[path] = n if verify else _verified.get(path, 0)
        return saved
    with closing(Store(Address.of(spec))) as store:
        sample = _sample(spec, store, place, n, len(before))
        licence.fetch(_getter(store), place.base / "licence", f"{store.address.host}/{spec.bucket}")
        paths = [entry.path for entry in sample.entries]
        here |= ondisk.sound(known, [one for one in paths if one not in here], place.root, verify)
        targets = [
            _target(entry, place.image_set) for entry in sample.entries if entry.path not in here
        ]
        _check_disk(place, len(targets))
        report = _reporter(n - len(targets), n, f"fetching {place.image_set}", progress)
        with journal.Journal(place.file(".journal")) as book:
            here |= fetch(store, targets, place.root, spec.limits, book, report)
    rows = tuple(here[path] for path in paths)
    # What an earlier, longer list had beyond this one is not forgotten.
    tail = before[n:] if [item.path for item in before[:n]] == paths else ()
    made = Manifest(KIND, place.image_set, place.root, rows + tail)
    manifests.save(made, path)
    journal.remove(place.file(".journal"))
    _verified[path] = n if verify else 0
    return made


def _sample(spec: CorpusSpec, store: Store, place: _Place, n: int, n_before: int) -> plan.Sample:
    """The list, from the catalogue that is here or is fetched now; the longest one is written beside the data."""
    path = place.base / "images.csv.gz"
    about = path.with_name("images.csv.gz.json")
    if not _as_it_came(path, about):
        data, receipt = _getter(store)(plan.KEY, plan.MAX_PACKED_BYTES)
        write_bytes(path, data)
        source = {"host": store.address.host, "bucket": spec.bucket, "key": plan.KEY}
        write_text(about, pretty_json({**source, "sha256": receipt.sha256, "etag": receipt.etag}))
    prefixes = spec.prefixes[place.image_set]
    try:
        catalogue = plan.load(path, prefixes)
    except UserError:
        about.unlink()  # the next run asks for it again
        raise
    sample = plan.sample(catalogue, place.image_set, prefixes, spec.seed, n)
    _check_list(spec, place, _pairs(sample.entries))
    longest = plan.sample(
        catalogue, place.image_set, prefixes, spec.seed, min(max(n, n_before), sample.available)
    )
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows(
        [("image_id", "path"), *_pairs(longest.entries)]
    )
    write_text(place.file(".list.csv"), text.getvalue())
    counts = {
        "n_images": len(longest.entries),
        "available": sample.available,
        "n_rows": catalogue.n_rows,
    }
    refused = {"n_refused_rows": catalogue.n_refused, "first_refused_row": catalogue.first_refused}
    chosen = {
        "image_set": place.image_set,
        "prefixes": prefixes,
        "seed": spec.seed,
        "digest": longest.digest,
    }
    write_text(place.file(".list.json"), pretty_json({**chosen, **counts, **refused}))
    return sample


def _pairs(rows: Iterable[plan.Entry | Item]) -> list[tuple[str, str]]:
    return [(row.id, row.path) for row in rows]


def _as_it_came(path: Path, about: Path) -> bool:
    try:
        return bool(sha256_file(path) == json.loads(about.read_text(encoding="utf-8"))["sha256"])
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _check_list(spec: CorpusSpec, place: _Place, pairs: Sequence[tuple[str, str]]) -> None:
    """Compare with the digest that the settings pin for this list, if they do."""
    name = f"{place.image_set}-{len(pairs)}"
    pinned = spec.lists.get(name)
    if pinned is not None and str(pinned) != (digest := plan.list_digest(pairs)):
        raise UserError(
            f"the list {name} has the digest {digest}, corpus.lists says {pinned}: another catalogue, seed or number "
            "of prefixes"
        )


def _getter(store: Store) -> licence.Get:
    """GETs one object into memory: retried, and given up soon where the store does not answer at all."""

    def get(key: str, limit_bytes: int) -> tuple[bytes, Receipt]:
        outcome: list[Any] = []
        # A thread of its own: the system's resolver may hang for longer than anybody waits.
        thread = threading.Thread(
            target=lambda: outcome.append(_retried(store, key, limit_bytes)), daemon=True
        )
        thread.start()
        began = time.monotonic()
        while thread.is_alive():
            thread.join(0.05)
            waited = time.monotonic() - began
            if not store.answered.is_set() and waited > CONTACT_S:
                raise unreachable(store)
            if waited > _PATIENCE_S:
                raise UserError(
                    f"{store.address.host} has not given {key} in {_PATIENCE_S:.0f} s; run the same command again"
                )
        if isinstance(outcome[0], TransientError) and not store.answered.is_set():
            raise unreachable(store)
        if isinstance(outcome[0], TransientError):
            raise UserError(
                f"{store.address.host} does not give {key}: {outcome[0]}; run the same command again"
            )
        if isinstance(outcome[0], GoneError) and key == plan.KEY:
            raise UserError(
                f"{store.address.host} has no {key} in {store.address.bucket} ({outcome[0]}); check corpus.endpoint "
                "and corpus.bucket"
            )
        if isinstance(outcome[0], BaseException):
            raise outcome[0]
        return outcome[0]  # type: ignore[no-any-return]

    return get


def _retried(store: Store, key: str, limit_bytes: int) -> tuple[bytes, Receipt] | BaseException:
    last: BaseException = TransientError("not tried")
    for number in range(store.address.attempts):
        if number:
            time.sleep(pause_s(number))
        try:
            return store.get_bytes(key, limit_bytes)
        except TransientError as error:
            last = error
            if number == 2 and not store.answered.is_set():
                break  # nobody is there
        except BaseException as error:  # noqa: BLE001 - whoever waits for this thread raises it
            return error
    return last


def _target(entry: plan.Entry, image_set: str) -> Target:
    size = (entry.width, entry.height) if image_set == "original" else (0, 0)
    return Target(entry.id, entry.path, plan.FOLDERS[image_set] + entry.path, *size)


def _check_disk(place: _Place, n: int) -> None:
    needed, free = cost.disk_needed(place.image_set, n), shutil.disk_usage(place.base).free
    if needed > free:
        raise UserError(
            f"{n:,} images of {place.image_set} need {needed / 1e9:,.2f} GB in {place.base}, {free / 1e9:,.2f} GB are "
            "free; free some, set out= to another disk, or take fewer with --n"
        )


def _reporter(done: int, total: int, what: str, progress: Progress) -> Callable[[int], None]:
    count = done

    def arrived(n_bytes: int) -> None:
        nonlocal count
        count += 1
        progress(count, total, what)
        if isinstance(progress, CountsBytes):
            progress.add_bytes(n_bytes)

    return arrived


def _remote(spec: CorpusSpec, place: _Place, files: Manifest) -> tuple[Path, Manifest, str]:
    """The same list, read from the store; vetted through the local copy, which is not read."""
    root = place.file(".remote")
    address = Address.of(spec)
    about = {
        "layout": "remote",
        "folder": plan.FOLDERS[place.image_set],
        "address": asdict(address),
    }
    write_text(root / MARKER, pretty_json(about))
    path = place.file(".remote.csv")
    made = replace(files, root=root)
    manifests.save(made, path)
    return path, made, f"remote:{digest_of(asdict(address))[:12]}"


@contextmanager
def _alone(base: Path) -> Iterator[None]:
    """Keep a second run out of the folder."""
    base.mkdir(parents=True, exist_ok=True)
    with (base / ".lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UserError(
                f"another run is at work in {base}; wait for it, or set out= elsewhere"
            ) from error
        # What a run left that was killed between writing a file and renaming it.
        for leftover in (*base.glob(".*.tmp"), *base.glob("*/.*.tmp")):
            leftover.unlink(missing_ok=True)
        yield


def remarks(spec: CorpusSpec, image_set: str, n: int, cache: Path) -> list[str]:
    """What a person should know of a set's first `n`: the list's digest, refused rows, the licence."""
    base = folder(spec, cache)
    place = _Place(base, f"{image_set}-first{spec.prefixes[image_set]}-seed{spec.seed}", image_set)
    about = json.loads(place.file(".list.json").read_text(encoding="utf-8"))
    digest = plan.list_digest(_pairs(manifests.load(place.file(".csv")).items[:n]))
    lines = [
        f"  list {image_set}-{n}: {digest}, of {about['available']:,} images in the first {about['prefixes']} "
        f"prefixes, seed {about['seed']}"
    ]
    if about["n_refused_rows"]:
        lines.append(
            f"  {about['n_refused_rows']:,} catalogue rows refused; the first, {about['first_refused_row']}"
        )
    found = credit(spec, cache)
    if found:
        lines.append(f"  licence: {found['licence']} ({found['relied_on']})")
    return lines


def credit(spec: CorpusSpec, cache: Path) -> dict[str, Any]:
    """Licence and attribution, for records and the report; empty before anything was fetched."""
    return licence.credit(folder(spec, cache) / "licence")
