"""What a job embeds: a folder, a list, a bucket or a folder of its own thumbnails, by position.

A million images are three columns of Arrow, 100 MB, and no million objects.
"""

import io
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, TypeVar
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.compute as pc

from wallclock.errors import SourceError, UserError, first_line
from wallclock.fetch import folder
from wallclock.fetch.s3 import S3Error, connect, list_objects
from wallclock.fetch.sources import Source
from wallclock.formats import HEAD_BYTES, KINDS, sniff
from wallclock.job import versions
from wallclock.job.dataset import ABOUT, THUMBNAILS, Dataset, open_existing
from wallclock.job.texts import CHUNK, add_to_digest, repeated
from wallclock.job.thumbnails import Member, members

#: Columns of a list that may say where an image is; the first that is there counts.
WHERE = ("path", "url", "uri", "where", "file")
#: Seconds without a byte of a list behind a URL, and its most bytes.
_LIST_TIMEOUT_S, _LIST_BYTES = 30.0, 1 << 30
T = TypeVar("T")


@dataclass(frozen=True)
class Items(Sequence[Source]):
    """The images of a job in order.

    `ids`, `where`, `versions`: Arrow columns of string, binary and string. `root` goes before each
    `where`. A version changes with the image's bytes: size and time of a file, a store's ETag;
    empty where nothing is known. `open_one` makes the source where it is neither path nor URL.
    `carried`: a list's other columns, an Arrow table of as many rows; None where it has none.
    `others`: the files beside them that are no images, by name; hidden files are not counted.
    """

    ids: Any
    where: Any
    versions: Any
    root: bytes = b""
    open_one: Callable[[str], Any] | None = None
    carried: Any = None
    others: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: Any) -> Any:  # a Source, or the Items of a slice
        if isinstance(index, slice):
            columns = self.ids[index], self.where[index], self.versions[index]
            carried = self.carried
            if carried is not None:
                first, last, _ = index.indices(len(self))
                carried = carried.slice(first, max(last - first, 0))
            ids, places, versions = columns
            return replace(self, ids=ids, where=places, versions=versions, carried=carried)
        where = os.fsdecode(self.root + self.where[index].as_py())
        identity = self.ids[index].as_py()
        return Source(identity, self.open_one(where) if self.open_one else where)

    def digest(self) -> str:
        """sha256 over ids, places and versions, in order."""
        digest = sha256(self.root)
        for column in (self.ids, self.where, self.versions):
            add_to_digest(digest, column)
        return digest.hexdigest()


def list_items(src: str, limit: int | None = None) -> Items:
    """List the images of a source, or the first `limit` of them; see the README for what it can be.

    Raises SourceError: there is none, it cannot be read, or an id is there twice; UserError: a URL
    or a bucket that does not answer.
    """
    scheme = urlsplit(src).scheme
    if scheme == "s3":
        items = _bucket(src, limit)
    elif scheme in ("http", "https"):
        base = src.rpartition("/")[0].encode() + b"/"
        items = _table(src, io.BytesIO(_fetched(src)), base, limit)
    else:
        path = Path(src).expanduser().resolve()
        if not path.exists():
            raise SourceError(f"{src} does not exist; give a folder, a list, s3://… or http://…")
        if path.is_dir():
            items = _folder(path, limit)
        else:
            with _open_list(src, path) as file:
                items = _table(src, file, os.fsencode(path.parent) + b"/", limit)
    if not len(items):
        raise SourceError(f"no image in {src}: no {KINDS} file, no line of a list")
    if twice := repeated(items.ids):
        times = f"{src} has the id {twice[0]!r} {twice[1]} times"
        raise SourceError(f"{times}; give each image an id of its own")
    return items


def _chunks(rows: Iterable[T], most: int) -> Iterator[list[T]]:
    waiting = iter(rows)
    while some := list(islice(waiting, most)):
        yield some


def _thumbnails(dataset: Dataset, root: bytes, limit: int | None) -> Items:
    rows = islice(members(dataset), limit)
    parts = [tuple(zip(*some, strict=True)) for some in _chunks(rows, CHUNK)]
    ids = pa.chunked_array([ids for ids, _, _ in parts], pa.string())
    where = pa.chunked_array([places for _, places, _ in parts], pa.binary())
    hashes = pa.chunked_array([hashes for _, _, hashes in parts], pa.string())
    return Items(ids, where, hashes, root, Member)


def _folder(path: Path, limit: int | None) -> Items:
    root = os.fsencode(path) + b"/"
    if path.name == THUMBNAILS and (path.parent / ABOUT).is_file():
        dataset = open_existing(path.parent)
        if dataset and dataset.with_thumbnails():
            return _thumbnails(dataset, root, limit)
    listing = folder.FolderListing(path)
    chunks = [pa.array(map(os.fsencode, names), pa.binary()) for names in _chunks(listing, CHUNK)]
    if listing.unreadable:  # they have their places among the names
        chunks.append(pa.array(map(os.fsencode, listing.unreadable), pa.binary()))
        unsorted = pa.chunked_array(chunks, pa.binary())
        chunks = unsorted.take(pc.sort_indices(unsorted)).chunks
    where = pa.chunked_array(chunks, pa.binary())[:limit]
    ids = pa.chunked_array([_ids_of_names(chunk) for chunk in where.chunks], pa.string())
    others = tuple(map(folder.id_of, listing.others))
    return Items(ids, where, _versions(where, root), root, others=others)


def _ids_of_names(names: Any) -> Any:
    """The ids of files; where all names are UTF-8, the same memory."""
    try:
        ids = names.cast(pa.string())
    except pa.ArrowInvalid:
        is_escaped = True
    else:
        is_escaped = pc.any(pc.match_substring(ids, "\\x")).as_py()
    if is_escaped:
        return pa.array([folder.id_of(os.fsdecode(name)) for name in names.to_pylist()])
    return ids


def _versions(where: Any, root: bytes = b"") -> Any:
    """A column of the versions of files, which are looked up a chunk at a time."""
    with ThreadPoolExecutor(versions.THREADS) as pool:
        parts = (where[at : at + CHUNK] for at in range(0, len(where), CHUNK))
        chunks = [versions.versions_of(pool, part.combine_chunks(), root) for part in parts]
    return pa.chunked_array(chunks, pa.string())


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


def _is_text(kind: Any) -> bool:
    """Whether a column of this type may say where images are; one without a value may, too."""
    if pa.types.is_dictionary(kind):
        return _is_text(kind.value_type)
    types = pa.types
    tests = (types.is_string, types.is_large_string, types.is_string_view, types.is_null)
    binary = (types.is_binary, types.is_large_binary, types.is_binary_view)
    return any(test(kind) for test in (*tests, *binary))


def _as_text(src: str, table: Any, name: str) -> Any:
    """A column as text. Raises SourceError: its type, or a value of it, cannot be text."""
    column = table[name]
    kind = column.type
    try:
        values = column.cast(kind.value_type) if pa.types.is_dictionary(kind) else column
        return values.cast(pa.string())
    except pa.ArrowException as error:
        why = f"{src}: the column {name} is no text ({kind}): {first_line(error)}"
        raise SourceError(why) from error


def _table(src: str, file: BinaryIO, root: bytes, limit: int | None) -> Items:
    """A list: Parquet or CSV with columns id and path (or url …), or a path or URL a line."""
    import pyarrow.csv as pacsv
    import pyarrow.parquet as pq

    try:
        is_parquet = file.read(4) == b"PAR1"
        file.seek(0)
        if is_parquet:
            table = pq.read_table(file, page_checksum_verification=True)
        elif urlsplit(src).path.lower().endswith(".csv"):
            strings = pacsv.ConvertOptions(
                column_types=dict.fromkeys(("id", *WHERE), pa.string()), strings_can_be_null=False
            )
            table = pacsv.read_csv(file, convert_options=strings)
        else:
            table = pa.table({"path": _lines(file)})
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise SourceError(f"{src} cannot be read as a list: {first_line(error)}") from error
    name = next((name for name in WHERE if name in table.column_names), None)
    if name is None:
        columns = f"no column of {', '.join(WHERE)}; it has {table.column_names}"
        raise SourceError(f"{src}: {columns}; call the one of the places path")
    for column in ("id", name):
        if table.column_names.count(column) > 1:
            raise SourceError(f"{src} has the column {column} twice; rename one of them")
    if not _is_text(table[name].type):
        raise SourceError(f"{src}: the column {name} has the type {table[name].type}; give text")
    table = table[:limit]
    where = _as_text(src, table, name)
    ids = _as_text(src, table, "id") if "id" in table.column_names else where
    for column, values in (("id", ids), (name, where)):
        if values.null_count or pc.any(pc.equal(values, "")).as_py():
            raise SourceError(f"{src}: a row without {column}")
    places = _places(where, root)
    others = [at for at, column in enumerate(table.column_names) if column not in ("id", name)]
    carried = _without_views(table.select(others)) if others else None
    return Items(ids, places, _versions(places), carried=carried)


def _without_views(table: Any) -> Any:
    """A table without metadata; its views as plain texts, of which Arrow can take rows."""
    plain = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
    kinds = [field.with_type(plain.get(field.type, field.type)) for field in table.schema]
    return table.cast(pa.schema(kinds))


def _lines(file: BinaryIO) -> Any:
    """The lines of a text file that are not empty, without the blanks around them."""
    chunks = []
    with io.TextIOWrapper(file, "utf-8") as text:
        for some in _chunks(text, CHUNK):
            lines = [line.strip() for line in "".join(some).splitlines()]
            chunks.append(pa.array([line for line in lines if line], pa.string()))
    return pa.chunked_array(chunks, pa.string())


def _places(where: Any, root: bytes) -> Any:
    """The places of a list, in the system's bytes; a relative one is below the list's folder."""
    # A list from elsewhere names no file of this machine.
    absolute = r"^[a-z0-9]+://" if b"://" in root else r"^(/|[a-z0-9]+://)"
    if pc.all(pc.match_substring_regex(where, absolute)).as_py():
        return where.cast(pa.binary())  # the same memory
    chunks = []
    for at in range(0, len(where), CHUNK):
        part = where[at : at + CHUNK].combine_chunks()
        joined = pc.binary_join_element_wise(os.fsdecode(root), part, "")
        is_absolute = pc.match_substring_regex(part, absolute)
        chunks.append(pc.if_else(is_absolute, part, joined).cast(pa.binary()))
    return pa.chunked_array(chunks, pa.binary())


def _fetched(url: str) -> bytes:
    """A list behind a URL, in one GET."""
    import urllib3

    try:
        with urllib3.PoolManager(timeout=_LIST_TIMEOUT_S) as pool:
            answer = pool.request("GET", url, preload_content=False)
            data: bytes = answer.read(_LIST_BYTES)
            is_complete = answer.status == 200 and not answer.read(1)
            answer.close()
        if is_complete:
            return data
        problem = f"status {answer.status}, or over {_LIST_BYTES:,} bytes"
    except urllib3.exceptions.HTTPError as error:
        problem = first_line(error)
    raise UserError(f"{url} cannot be fetched: {problem}")


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
            images = (item for item in objects if _is_image_key(item["Key"], others))
            for some in _chunks(islice(images, limit), CHUNK):
                ids.append(pa.array([item["Key"] for item in some], pa.string()))
                etags.append(pa.array([item["ETag"].strip('"') for item in some], pa.string()))
    except S3Error as error:
        raise UserError(f"{src} cannot be listed: {error.detail}") from error
    keys, versions = pa.chunked_array(ids, pa.string()), pa.chunked_array(etags, pa.string())
    root = f"s3://{bucket}/".encode()
    return Items(keys, keys.cast(pa.binary()), versions, root, others=tuple(others))


def _is_image_key(key: str, others: list[str]) -> bool:
    """Whether a key is an image's; what is neither that, hidden, nor a folder joins `others`."""
    if folder.is_image_name(key):
        return True
    name = key.rpartition("/")[2]
    if name and not name.startswith("."):
        others.append(key)
    return False
