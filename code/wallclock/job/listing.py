"""What a job embeds: a folder, a list, a bucket or a folder of its own thumbnails, by position.

A million images are three columns of Arrow, 100 MB, and no million objects.
"""

import io
import json
import os
import tarfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.compute as pc

from wallclock.errors import UserError, first_line
from wallclock.fetch import folder
from wallclock.fetch.s3 import S3Error, connect, list_objects
from wallclock.fetch.sources import Source
from wallclock.formats import KINDS

#: Columns of a list that may say where an image is; the first that is there counts.
WHERE = ("path", "url", "uri", "where", "file")
#: Seconds without a byte of a list behind a URL, and its most bytes.
_LIST_TIMEOUT_S, _LIST_BYTES = 30.0, 1 << 30
#: Items that become columns at once: a bound on the objects in memory.
_CHUNK = 65_536

#: An image: id, where it is (a path in the system's bytes, or a URL), version.
_Row = tuple[str, bytes, str]


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
            for at in range(0, len(column), _CHUNK):
                digest.update(repr(column[at : at + _CHUNK].to_pylist()).encode())
        return digest.hexdigest()


def list_items(src: str, limit: int | None = None) -> Items:
    """List the images of a source; see the README for what it can be.

    Raises UserError: there is none, it cannot be read, or an id is there twice.
    """
    scheme = urlsplit(src).scheme
    if scheme == "s3":
        items = _bucket(src)
    elif scheme in ("http", "https"):
        items = _table(src, _fetched(src), src.rpartition("/")[0].encode() + b"/")
    else:
        path = Path(src).expanduser().resolve()
        if not path.exists():
            raise UserError(f"{src} does not exist; give a folder, a list, s3://… or http://…")
        base = os.fsencode(path.parent) + b"/"
        items = _folder(path) if path.is_dir() else _table(src, path.read_bytes(), base)
    if limit is not None:
        items = items[:limit]
    if not len(items):
        raise UserError(f"no image in {src}: no {KINDS} file, no line of a list")
    if len(pc.unique(items.ids)) < len(items):
        counts = pc.value_counts(items.ids)
        twice = counts.filter(pc.greater(counts.field("counts"), 1))[0].as_py()
        raise UserError(f"{src} has the id {twice['values']!r} {twice['counts']} times")
    return items


def _columns(
    rows: Iterable[_Row], root: bytes, open_one: Callable[[str], Any] | None = None
) -> Items:
    """Rows as columns, without ever having an object for each."""
    types, waiting = (pa.string(), pa.binary(), pa.string()), iter(rows)
    chunks: list[list[Any]] = [[], [], []]
    while pending := list(islice(waiting, _CHUNK)):
        for chunk, values, kind in zip(chunks, zip(*pending, strict=True), types, strict=True):
            chunk.append(pa.array(values, kind))
    ids, where, versions = (
        pa.chunked_array(column, kind) for column, kind in zip(chunks, types, strict=True)
    )
    return Items(ids, where, versions, root, open_one)


def _folder(root: Path) -> Items:
    if tars := sorted(root.glob("part-*.tar")):
        return _columns(members(tars), os.fsencode(root) + b"/", Member)
    listing = folder.list_folder(root)
    rows = (
        (folder.id_of(n), os.fsencode(n), version_of(os.path.join(root, n))) for n in listing.names
    )
    others = tuple(map(folder.id_of, listing.others))
    return replace(_columns(rows, os.fsencode(root) + b"/"), others=others)


def version_of(path: str | bytes) -> str:
    """Size and modification time, which rsync and git trust, too; empty for a URL or no file."""
    with suppress(OSError, ValueError):
        status = os.stat(path)
        return f"{status.st_size}-{status.st_mtime_ns}"
    return ""


def members(tars: Iterable[Path]) -> Iterator[_Row]:
    """The images of tars that `keep=thumbnails` wrote: `<key>.jpg`, with its id in `<key>.json`."""
    for path in tars:
        with tarfile.open(path) as tar:
            images = {}
            for member in tar:
                key, _, extension = member.name.rpartition(".")
                if extension != "json":
                    images[key] = f"{path.name}@{member.offset_data}+{member.size}".encode()
                elif (file := tar.extractfile(member)) and key in images:
                    about = json.load(file)
                    yield about["id"], images.pop(key), about["sha256"]


class Member(io.RawIOBase):
    """An image in a tar, `<path>@<offset>+<bytes>`; opened when it is read."""

    def __init__(self, where: str) -> None:
        self._path, _, span = where.rpartition("@")
        self._offset, self._size = map(int, span.split("+"))

    def read(self, size: int = -1) -> bytes:
        """All of it."""
        with open(self._path, "rb") as file:
            return os.pread(file.fileno(), self._size, self._offset)


def _table(src: str, data: bytes, root: bytes) -> Items:
    """A list: Parquet or CSV with columns id and path (or url …), or a path or URL a line."""
    import pyarrow.csv as pacsv
    import pyarrow.parquet as pq

    try:
        if data[:4] == b"PAR1":
            table = pq.read_table(io.BytesIO(data))
        elif urlsplit(src).path.lower().endswith(".csv"):
            strings = pacsv.ConvertOptions(
                column_types=dict.fromkeys(("id", *WHERE), pa.string()), strings_can_be_null=False
            )
            table = pacsv.read_csv(io.BytesIO(data), convert_options=strings)
        else:
            lines = [line.strip() for line in data.decode().splitlines()]
            table = pa.table({"path": pa.array([line for line in lines if line], pa.string())})
    except (pa.ArrowInvalid, pa.ArrowTypeError, UnicodeDecodeError) as error:
        raise UserError(f"{src} cannot be read as a list: {first_line(error)}") from error
    name = next((name for name in WHERE if name in table.column_names), None)
    if name is None:
        raise UserError(f"{src}: no column of {', '.join(WHERE)}; it has {table.column_names}")
    for column in ("id", name):
        if table.column_names.count(column) > 1:
            raise UserError(f"{src} has the column {column} twice; rename one of them")
    where = table[name].cast(pa.string())
    ids = table["id"].cast(pa.string()) if "id" in table.column_names else where
    for column, values in (("id", ids), (name, where)):
        if values.null_count or pc.any(pc.equal(values, "")).as_py():
            raise UserError(f"{src}: a row without {column}")
    # A relative place is relative to its list; a list from elsewhere names no file of this machine.
    absolute = r"^[a-z0-9]+://" if b"://" in root else r"^(/|[a-z0-9]+://)"
    joined = pc.binary_join_element_wise(os.fsdecode(root), where, "")
    places = pc.if_else(pc.match_substring_regex(where, absolute), where, joined).cast(pa.binary())
    parts = (places[at : at + _CHUNK].to_pylist() for at in range(0, len(places), _CHUNK))
    versions = [pa.array(map(version_of, part), pa.string()) for part in parts]
    others = [at for at, column in enumerate(table.column_names) if column not in ("id", name)]
    carried = table.select(others).replace_schema_metadata(None) if others else None
    return Items(ids, places, pa.chunked_array(versions, pa.string()), carried=carried)


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


def _bucket(src: str) -> Items:
    """The images below `s3://bucket/prefix`, by their names' extensions; their ids: the keys."""
    parts = urlsplit(src)
    try:
        with closing(connect(src)) as client:
            objects = list_objects(client.call, Bucket=parts.netloc, Prefix=parts.path.lstrip("/"))
            others: list[str] = []
            images = (item for item in objects if _is_image_key(item["Key"], others))
            rows = ((item["Key"], item["Key"].encode(), item["ETag"].strip('"')) for item in images)
            items = _columns(rows, f"s3://{parts.netloc}/".encode())
            return replace(items, others=tuple(others))
    except S3Error as error:
        raise UserError(f"{src} cannot be listed: {error.detail}") from error


def _is_image_key(key: str, others: list[str]) -> bool:
    """Whether a key is an image's; what is neither that, hidden, nor a folder joins `others`."""
    if folder.is_image_name(key):
        return True
    name = key.rpartition("/")[2]
    if name and not name.startswith("."):
        others.append(key)
    return False
