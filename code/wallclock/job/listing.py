"""What a job embeds: a folder, a list, a bucket, tars or tables."""

import gzip
import io
import json
import os
import re
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from functools import partial
from hashlib import sha256
from itertools import accumulate, islice
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, BinaryIO
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from wallclock.errors import VERSION, SourceError, UserError, import_extra
from wallclock.fetch import folder
from wallclock.fetch.s3 import list_images
from wallclock.fetch.urls import REMOTE, is_url, place_of
from wallclock.formats import HEAD_BYTES, KINDS, sniff
from wallclock.job.dataset import THREADS
from wallclock.job.items import Items
from wallclock.job.lists import Listed, read_list
from wallclock.job.records import PLACE, Rows, Stream, is_tar, list_tar, span_of, together
from wallclock.job.stores.s3 import Store
from wallclock.job.texts import CHUNK, chunks, public, public_ids, repeated
from wallclock.loader.shards import shards_of
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
#: Tars and tables behind URLs that are listed at a time.
_REMOTE = 8
#: A listing that OUT keeps, behind its sha256, while shards have the same names and versions.
_KEPT, _ABOUT, _VERSION = "_listing", b"wallclock", "\0version"
_SHA256 = sha256().digest_size


def list_items(
    src: str, limit: int | None = None, limits: Limits | None = None, out: Store | None = None
) -> Items:
    """List the images of a source, or the first `limit` of them.

    `limits`: how a list behind a URL is asked for. `out`: where a listing may be kept. Raises
    SourceError: there is none, it cannot be read, or an id is there twice; UserError: a URL or a
    bucket that does not answer.
    """
    src, limits = place_of(src), limits or Limits()
    scheme, path = urlsplit(src).scheme, _path(src)
    names = [name if is_url(name) else str(_path(name)) for name in shards_of(src)[0]]
    if scheme not in ("s3", "http", "https") and path.is_dir():
        items = _folder(path, limit)
    elif names and out and limit is None and (found := _kept(out, names, limits)):
        items = found
    elif names and (is_tar(src) or len(names) > 1 or scheme == "s3"):
        items = _shards(names, limit, limits)
    elif scheme == "s3":
        items = _bucket(src, limit)
    else:
        with _opened(src, limits) as (file, remote):
            origin = remote and remote.address
            name = path.name if origin is None else urlsplit(src).path
            listed = read_list(src, name, file, limit)
        if listed.where is None:
            rows = _rows(listed, 0, remote and remote.etag)
            items = _joined([src if remote else str(path)], [rows], limits)
        else:
            root = os.fsencode(path.parent) + b"/"
            if origin is not None:
                root = f"{scheme}://{urlsplit(src).netloc}{name.rpartition('/')[0]}/".encode()
            items = _list(listed, root, origin)
    items = replace(items, is_whole=items.is_whole and limit is None)
    if not len(items):
        raise SourceError(f"no image in {src}: no {KINDS} file, no line of a list")
    if len(several := repeated(items.ids)):
        name, n = several[0]["values"].as_py(), several[0]["counts"]
        times = f"{src} has the id '{printable(name)}' {n} times"
        raise SourceError(f"{times}; give each image an id of its own")
    if items.root:  # names of files and objects are no URLs
        return items
    fields = [x.with_metadata(values_without_secrets(x.metadata)) for x in items.carried.schema]
    carried = pa.table([*map(public, items.carried.columns)], schema=pa.schema(fields))
    return replace(items, ids=public_ids(items.ids, items.where), carried=carried)


def _folder(path: Path, limit: int | None) -> Items:
    root = os.fsencode(path) + b"/"
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
    """Of a file size and modification time, of a URL what is public of it; else empty."""
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


def _path(src: str) -> Path:
    return Path(os.path.realpath(os.path.expanduser(src.replace("\0", "\\x00"))))


# --- tars and tables of images ------------------------------------------------------------------


def _shards(names: Sequence[str], limit: int | None, limits: Limits) -> Items:
    """The images of tars, or of tables. Raises SourceError: one of them is not there."""
    shards, left = list[Rows](), limit
    if limit is None and is_url(names[0]):
        with ThreadPoolExecutor(_REMOTE) as pool:
            numbers = range(len(names))
            shards += pool.map(lambda at: _list_shard(names[at], at, None, limits), numbers)
        return _joined(names, shards, limits)
    for number, name in enumerate(names):
        shards.append(_list_shard(name, number, left, limits))
        if left is not None and (left := left - len(shards[-1].table)) == 0:
            break
    return _joined(names, shards, limits)


def _list_shard(name: str, number: int, limit: int | None, limits: Limits) -> Rows:
    if is_tar(name):
        return list_tar(name, number, limit, limits)
    with _opened(name, limits) as (file, remote):
        listed = read_list(name, urlsplit(name).path if is_url(name) else name, file, limit)
    if listed.where is not None:
        raise SourceError(f"{name} has no column with the bytes of images; give one list alone")
    return _rows(listed, number, remote and remote.etag)


def _rows(listed: Listed, number: int, etag: str | None) -> Rows:
    places = (f"{number}@{row}".encode() for row in range(len(listed.ids)))
    table = pa.table({"id": listed.ids, PLACE: pa.array(places, pa.binary())})
    for column in listed.carried.column_names:
        table = table.append_column(column, listed.carried[column])
    return Rows(table, listed.faults, etag)


def _joined(names: Sequence[str], shards: Sequence[Rows], limits: Limits) -> Items:
    """The images of shards, one shard after the other."""
    sizes = [len(rows.table) for rows in shards]
    firsts = [0, *accumulate(sizes)]
    faults = {
        first + row: why
        for first, rows in zip(firsts, shards, strict=False)
        for row, why in rows.faults.items()
    }
    table = together([rows.table for rows in shards])
    ids, where, carried = table["id"], table[PLACE], table.drop_columns(["id", PLACE])
    if ids.null_count:
        ids = pc.coalesce(ids, pa.array([f"{at}" for at in range(len(ids))]))
    if len(several := repeated(ids).field("values")):
        files = _of_shards([os.path.basename(name) for name in names[: len(sizes)]], sizes)
        below = pc.binary_join_element_wise(files, ids, "/")
        ids = pc.if_else(pc.is_in(ids, value_set=several), below, ids)
    is_stream = not pc.all(pc.match_substring(where, "+")).as_py()
    etags = [rows.etag for rows in shards]
    pairs = zip(names, etags, strict=False)
    versions = [version_of(os.fsencode(x)) if etag is None else etag for x, etag in pairs]
    return Items(
        ids,
        where,
        _of_shards(versions, sizes),
        open_one=None if is_stream else partial(span_of, names),
        carried=carried,
        others=tuple(name for rows in shards for name in rows.others),
        faults=faults,
        is_whole=all(rows.is_whole for rows in shards),
        stream=Stream(names, limits, versions) if is_stream else None,
    )


def _kept(out: Store, names: Sequence[str], limits: Limits) -> Items | None:
    """What OUT has kept of these shards; None: nothing, or of others, or they have changed."""
    try:
        data = out.read(_KEPT)
    except OSError:
        return None
    if sha256(data[_SHA256:]).digest() != data[:_SHA256]:
        return None
    table = pq.read_table(pa.BufferReader(data[_SHA256:]))
    about = json.loads(table.schema.metadata[_ABOUT])
    if about["shards"] != _named(names, limits):
        return None
    with ThreadPoolExecutor(THREADS) as pool:
        if about["versions"] != [*pool.map(partial(_version_now, limits=limits), names)]:
            return None
    return Items(
        table["id"],
        table[PLACE],
        table[_VERSION],
        carried=table.drop_columns(["id", PLACE, _VERSION]).replace_schema_metadata(),
        others=tuple(about["others"]),
        faults=dict(about["faults"]),
        stream=Stream(names, limits, about["versions"]),
    )


def _version_now(name: str, limits: Limits) -> str:
    if not name.startswith(REMOTE):
        return version_of(os.fsencode(name))
    from wallclock.fetch.remote_file import RemoteFile

    with suppress(OSError), closing(RemoteFile(name, limits, _TRIES, ahead=1)) as remote:
        remote.read(1)
        return remote.etag
    return ""


def keep(store: Store, items: Items) -> None:
    """Keep in OUT what was listed of tars and tables, where all of them have a version."""
    stream = items.stream
    if not (stream and items.is_whole and all(stream.versions)):
        return
    about = {
        "shards": _named(stream.names, stream.limits),
        "versions": stream.versions,
        "faults": [*items.faults.items()],
        "others": items.others,
    }
    table = pa.table({"id": items.ids, PLACE: items.where, _VERSION: items.versions})
    for name in items.carried.column_names:
        table = table.append_column(items.carried.field(name), items.carried[name])
    said = json.dumps(values_without_secrets(about)).encode()
    sink = pa.BufferOutputStream()
    pq.write_table(table.replace_schema_metadata({_ABOUT: said}), sink)
    data = sink.getvalue().to_pybytes()
    store.write(_KEPT, sha256(data).digest() + data)


def _named(names: Sequence[str], limits: Limits) -> list[Any]:
    return [VERSION, limits.max_bytes, *values_without_secrets(list(names))]


def _of_shards(values: Sequence[str], sizes: Sequence[int]) -> Any:
    """A column that has the same value for all rows of a shard."""
    columns = [pa.repeat(value, n) for value, n in zip(values, sizes, strict=True)]
    return pa.chunked_array(columns, pa.string())


# --- lists --------------------------------------------------------------------------------------


@contextmanager
def _opened(src: str, limits: Limits) -> Iterator[tuple[BinaryIO, Any]]:
    """The file of a list or table, and the `RemoteFile` that it came from. Raises SourceError."""
    if is_url(src):
        with TemporaryFile() as file:
            remote = _fetch(src, file, limits)
            yield file, remote
        return
    path = _path(src)
    if not os.path.exists(path):
        raise SourceError(f"{src} does not exist; give a folder, a list, s3://… or http://…")
    if not path.is_file():  # a device or a pipe may have no end
        raise SourceError(f"{src} is neither a folder nor a regular file; give a list as a file")
    try:
        opened = path.open("rb")
        head = opened.read(HEAD_BYTES)
    except OSError as error:
        raise SourceError(f"{src} cannot be read: {error.strerror}") from error
    with opened:
        if sniff(head):
            raise SourceError(f"{src} is an image; give its folder, or a list that names it")
        opened.seek(0)
        yield opened, None


def _list(listed: Listed, root: bytes, origin: str | None) -> Items:
    ids, where, carried, faults = listed
    parts = (where[at : at + CHUNK].to_pylist() for at in range(0, len(where), CHUNK))
    placed = [pa.array([_place(text, root) for text in part], pa.binary()) for part in parts]
    places = pa.chunked_array(placed, pa.binary())
    refused = pc.indices_nonzero(pc.equal(places, b"")).to_pylist()
    faults = {row: f"row {row + 1}: {_REFUSED}" for row in refused} | faults
    return Items(ids, places, _versions(places), carried=carried, faults=faults, origin=origin)


def _place(text: str, root: bytes) -> bytes:
    """A place of a list, in bytes; empty: a list behind the URL `root` may not name it."""
    place = place_of(text)
    if b"://" not in root:
        is_whole = is_url(place) or place.startswith("/")
    elif not (is_whole := place.startswith(REMOTE)) and not _BELOW.fullmatch(place):
        return b""
    return os.fsencode(place) if is_whole or not place else root + os.fsencode(place)


def _fetch(url: str, into: BinaryIO, limits: Limits) -> Any:
    """Write a list behind a URL into a file; returns the `RemoteFile`, closed."""
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
        return remote


def _bucket(src: str, limit: int | None) -> Items:
    """The images below `s3://bucket/prefix`, by their names' extensions; their ids: the keys."""
    ids, etags, others = list[Any](), list[Any](), list[str]()
    for some in chunks(islice(list_images(src, others), limit)):
        ids.append(pa.array([item["Key"] for item in some], pa.string()))
        etags.append(pa.array([item["ETag"].strip('"') for item in some], pa.string()))
    keys, versions = pa.chunked_array(ids, pa.string()), pa.chunked_array(etags, pa.string())
    root = f"s3://{urlsplit(src).netloc}/".encode()
    return Items(keys, keys.cast(pa.binary()), versions, root, others=tuple(others))
