"""What a job embeds: a folder, a list, a bucket or a folder of its own thumbnails, by position.

A million images are three columns of Arrow, 100 MB, and no million objects.
"""

import gzip
import io
import os
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from hashlib import blake2b, sha256
from itertools import islice
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, BinaryIO
from urllib.parse import urlsplit

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from wallclock.errors import SourceError, UserError, import_extra
from wallclock.fetch import folder
from wallclock.fetch.filesystems import is_url, may_name, place_of
from wallclock.fetch.retries import RequestError
from wallclock.fetch.s3 import connect, list_objects
from wallclock.fetch.sources import Source
from wallclock.formats import HEAD_BYTES, KINDS, sniff
from wallclock.job.dataset import ABOUT, THREADS, THUMBNAILS, Dataset, open_existing
from wallclock.job.lists import read_list
from wallclock.job.texts import (
    CHUNK,
    add_to_digest,
    chunks,
    public,
    public_ids,
    public_places,
    repeated,
)
from wallclock.job.thumbnails import Member, members
from wallclock.loader.items import Unreadable
from wallclock.outside import printable, values_without_secrets, without_secrets
from wallclock.recipe import Limits

#: A name below a list from elsewhere: no root, no scheme however it is spelled, no control code.
_BELOW = re.compile(r"(?!\s*([/\\]|[\w+.%-]*(:|%3a)))[^\x00-\x1f\x7f]+", re.IGNORECASE)
_REFUSED = "a list from elsewhere names http, https and s3 URLs, and what lies below it"
#: Of a list behind a URL: the most bytes, and tries.
_LIST_BYTES = 1 << 30
_TRIES = 4
_GZIP = b"\x1f\x8b"
#: Files that a thread looks up at once.
_FILES = 512


@dataclass(frozen=True)
class Items(Sequence[Source]):
    """The images of a job in order. Only `where` has the secrets of URLs.

    `ids`, `where`, `versions`: Arrow columns of string, binary and string. `root`, of a folder or a
    bucket, goes before each `where`. A version changes with the image's bytes: size and time of a
    file, a store's ETag, or the URL of a list; empty where nothing is known. `open_one` makes the
    source where it is neither path nor URL.
    `carried`: a list's other columns, an Arrow table of as many rows; None where it has none.
    `others`: by name what was skipped beside them: files that are no images, and hidden ones.
    `faults`: by position why a list's row names no image; reading it fails for that reason.
    `origin`: the address that a list from elsewhere came from (`Limits.origin`).
    `is_whole`: whether the source has no other images, as far as is known.
    """

    ids: Any
    where: Any
    versions: Any
    root: bytes = b""
    open_one: Callable[[str], Any] | None = None
    carried: Any = None
    others: tuple[str, ...] = ()
    faults: Mapping[int, str] = field(default_factory=dict)
    origin: str | None = None
    is_whole: bool = True

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: Any) -> Any:
        if why := self.faults.get(index):
            return Source(self.ids[index].as_py(), Unreadable(why))
        where = os.fsdecode(self.root + self.where[index].as_py())
        identity = self.ids[index].as_py()
        return Source(identity, self.open_one(where) if self.open_one else where)

    def digest(self) -> str:
        """sha256 over ids, places and versions, in order: the same where URLs are signed anew."""
        digest = sha256(self.root)
        where = self.where if self.root else public_places(self.where)
        for column in (self.ids, where, self.versions):
            add_to_digest(digest, column)
        return digest.hexdigest()

    def take(self, rows: npt.NDArray[np.int64]) -> "Items":
        """Some of them, in this order."""
        ids, where, versions, carried = (
            None if column is None else column.take(rows)
            for column in (self.ids, self.where, self.versions, self.carried)
        )
        why = enumerate(map(self.faults.get, rows.tolist()) if self.faults else ())
        faults = {at: fault for at, fault in why if fault}
        return replace(
            self, ids=ids, where=where, versions=versions, carried=carried, faults=faults
        )

    def with_values(self) -> "Items":
        """The same, but a version changes with the other columns, too, where there are any."""
        if self.carried is None:
            return self
        parts = []
        for at in range(0, len(self), CHUNK):
            columns = (column[at : at + CHUNK] for column in (self.versions, self.carried))
            texts = [
                version and f"{version} {blake2b(repr(row).encode(), digest_size=8).hexdigest()}"
                for version, row in zip(*(some.to_pylist() for some in columns), strict=True)
            ]
            parts.append(pa.array(texts, pa.string()))
        return replace(self, versions=pa.chunked_array(parts, pa.string()))


def list_items(src: str, limit: int | None = None, limits: Limits | None = None) -> Items:
    """List the images of a source, or the first `limit` of them; see the README for what it can be.

    `limits`: how a list behind a URL is asked for.

    Raises SourceError: there is none, it cannot be read, or an id is there twice; UserError: a URL
    or a bucket that does not answer.
    """
    src = place_of(src)
    scheme = urlsplit(src).scheme
    if scheme == "s3":
        items = _bucket(src, limit)
    elif scheme in ("http", "https"):
        with TemporaryFile() as file:
            origin = _fetch(src, file, limits or Limits())
            host, name = urlsplit(src).netloc, urlsplit(src).path
            base = f"{scheme}://{host}{name.rpartition('/')[0]}/".encode()
            items = _list(src, name, file, base, limit, origin)
    else:
        path = Path(os.path.realpath(os.path.expanduser(src.replace("\0", "\\x00"))))
        if not os.path.exists(path):
            raise SourceError(f"{src} does not exist; give a folder, a list, s3://… or http://…")
        if path.is_dir():
            items = _folder(path, limit)
        else:
            with _open_list(src, path) as opened:
                items = _list(src, path.name, opened, os.fsencode(path.parent) + b"/", limit)
    items = replace(items, is_whole=items.is_whole and limit is None)
    if not len(items):
        raise SourceError(f"no image in {src}: no {KINDS} file, no line of a list")
    if twice := repeated(items.ids):
        times = f"{src} has the id '{printable(twice[0])}' {twice[1]} times"
        raise SourceError(f"{times}; give each image an id of its own")
    if items.root:  # names of files and objects are no URLs
        return items
    table = items.carried
    if table is not None:
        fields = [x.with_metadata(values_without_secrets(x.metadata)) for x in table.schema]
        table = pa.table([*map(public, table.columns)], schema=pa.schema(fields))
    return replace(items, ids=public_ids(items.ids, items.where), carried=table)


def _thumbnails(dataset: Dataset, root: bytes, limit: int | None) -> Items:
    rows = islice(members(dataset), limit)
    parts = [tuple(zip(*some, strict=True)) for some in chunks(rows)]
    ids = pa.chunked_array([ids for ids, _, _ in parts], pa.string())
    where = pa.chunked_array([places for _, places, _ in parts], pa.binary())
    hashes = pa.chunked_array([hashes for _, _, hashes in parts], pa.string())
    return Items(ids, where, hashes, root, Member)


def _folder(path: Path, limit: int | None) -> Items:
    root = os.fsencode(path) + b"/"
    if path.name == THUMBNAILS and (path.parent / ABOUT).is_file():
        dataset = open_existing(path.parent)
        if dataset and dataset.with_files(THUMBNAILS):
            return _thumbnails(dataset, root, limit)
    listing = folder.FolderListing(path)
    parts = [pa.array(map(os.fsencode, names), pa.binary()) for names in chunks(listing)]
    if listing.unreadable:  # they have their places among the names
        parts.append(pa.array(map(os.fsencode, listing.unreadable), pa.binary()))
        unsorted = pa.chunked_array(parts, pa.binary())
        parts = unsorted.take(pc.sort_indices(unsorted)).chunks
    where = pa.chunked_array(parts, pa.binary())[:limit]
    ids = pa.chunked_array([_ids_of_names(chunk) for chunk in where.chunks], pa.string())
    others = tuple(map(folder.id_of, listing.others))
    is_whole = not listing.unreadable
    return Items(ids, where, _versions(where, root), root, others=others, is_whole=is_whole)


def _ids_of_names(names: Any) -> Any:
    """The ids of files; where all names are UTF-8, the same memory."""
    with suppress(pa.ArrowInvalid):
        ids = names.cast(pa.string())
        if not pc.any(pc.match_substring(ids, "\\x")).as_py():
            return ids
    return pa.array([folder.id_of(os.fsdecode(name)) for name in names.to_pylist()])


def version_of(path: bytes) -> str:
    """Size and modification time, which rsync and git trust, too; empty where there is no file.

    Of a URL what is public of it.
    """
    if b"://" in path and is_url(url := path.decode("utf-8", "backslashreplace")):
        return without_secrets(url)
    try:
        status = os.stat(path)
    except (OSError, ValueError):  # `suppress` would cost as much as the call
        return ""
    return f"{status.st_size}-{status.st_mtime_ns}"


def _versions(where: Any, root: bytes = b"") -> Any:
    """A column of the versions of files and URLs."""

    def look_up(at: int) -> Any:
        paths = where[at : at + _FILES].to_pylist()
        return pa.array([version_of(root + path) for path in paths], pa.string())

    with ThreadPoolExecutor(THREADS) as pool:
        columns = [*pool.map(look_up, range(0, len(where), _FILES))]
    return pa.chunked_array(columns, pa.string())


def _open_list(src: str, path: Path) -> BinaryIO:
    """The file of a list.

    Raises SourceError: it is a device or a pipe, which may have no end, it cannot be read, or it is
    an image.
    """
    if not path.is_file():
        raise SourceError(f"{src} is neither a folder nor a regular file; give a list as a file")
    try:
        file = path.open("rb")
        head = file.read(HEAD_BYTES)
    except OSError as error:
        raise SourceError(f"{src} cannot be read: {error.strerror}") from error
    if sniff(head):
        file.close()
        raise SourceError(f"{src} is an image; give its folder, or a list that names it")
    file.seek(0)
    return file


def _list(
    src: str, name: str, file: BinaryIO, root: bytes, limit: int | None, origin: str | None = None
) -> Items:
    ids, where, carried, faults = read_list(src, name, file, limit)
    parts = (where[at : at + CHUNK].to_pylist() for at in range(0, len(where), CHUNK))
    placed = [pa.array([_place(text, root) for text in part], pa.binary()) for part in parts]
    places = pa.chunked_array(placed, pa.binary())
    refused = pc.indices_nonzero(pc.equal(places, b"")).to_pylist()
    faults = {row: f"row {row + 1}: {_REFUSED}" for row in refused} | faults
    return Items(ids, places, _versions(places), carried=carried, faults=faults, origin=origin)


def _place(text: str, root: bytes) -> bytes:
    """A place of a list, in the system's bytes; a relative one is below the list's folder.

    Empty: the list is behind the URL `root`, and may not name it.
    """
    place = place_of(text)
    if b"://" not in root:
        is_whole = is_url(place) or place.startswith("/")
    elif not (is_whole := may_name(root.decode(), place)) and not _BELOW.fullmatch(place):
        return b""
    return os.fsencode(place) if is_whole or not place else root + os.fsencode(place)


def _fetch(url: str, into: BinaryIO, limits: Limits) -> str:
    """Write a list behind a URL into a file; the address that it came from."""
    import_extra("pycurl", url, "s3")
    from wallclock.fetch.remote_file import RemoteFile

    with closing(RemoteFile(url, limits, most_tries=_TRIES)) as remote:
        file: Any = io.BufferedReader(remote)
        try:
            if file.peek().startswith(_GZIP):  # some servers send it unasked
                file = gzip.GzipFile(fileobj=file)
            while data := file.read(CHUNK):
                into.write(data)
                if into.tell() > _LIST_BYTES:
                    raise UserError(f"{url} has more bytes than the limit of {_LIST_BYTES:,}")
            into.seek(0)
        except (OSError, EOFError, zlib.error) as error:
            raise UserError(f"{url} cannot be fetched: {error}") from error
        return remote.address


def _bucket(src: str, limit: int | None) -> Items:
    """The images below `s3://bucket/prefix`, by their names' extensions; their ids: the keys.

    With a limit, they are listed until there are as many.
    """
    parts = urlsplit(src)
    if not parts.netloc:
        raise SourceError(f"{src} names no bucket; give s3://bucket/prefix")
    bucket, prefix = parts.netloc, parts.path.lstrip("/")

    ids: list[Any] = []
    etags: list[Any] = []
    others: list[str] = []
    try:
        with closing(connect(src)) as client:
            objects = list_objects(client.call, Bucket=bucket, Prefix=prefix)
            images = (item for item in objects if _is_image_key(item["Key"], prefix, others))
            for some in chunks(islice(images, limit)):
                ids.append(pa.array([item["Key"] for item in some], pa.string()))
                etags.append(pa.array([item["ETag"].strip('"') for item in some], pa.string()))
    except RequestError as error:
        raise UserError(f"{src} cannot be listed: {error}") from error
    keys, versions = pa.chunked_array(ids, pa.string()), pa.chunked_array(etags, pa.string())
    root = f"s3://{bucket}/".encode()
    return Items(keys, keys.cast(pa.binary()), versions, root, others=tuple(others))


def _is_image_key(key: str, prefix: str, others: list[str]) -> bool:
    """Whether a key is an image's; what is not, or is hidden below the prefix, joins `others`."""
    below = key[len(prefix) :]
    if not prefix or prefix.endswith("/"):
        below = f"/{below}"
    if folder.is_image_name(key) and "/." not in below:
        return True
    if not key.endswith("/"):  # a folder's own
        others.append(key)
    return False
