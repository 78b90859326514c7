"""Images in larger files, as streams of items: tars as webdataset writes them, tables of Arrow."""

import io
import os
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from importlib import import_module
from itertools import accumulate, count, islice, repeat
from random import Random
from shutil import copyfileobj
from tempfile import TemporaryFile
from typing import Any
from urllib.parse import urlsplit

from wallclock.errors import ImageError, UserError, first_line, image_errors, import_extra
from wallclock.fetch.s3 import list_images
from wallclock.fetch.urls import REMOTE, UNKNOWN, is_url, place_of
from wallclock.loader.items import IMAGE_KEYS, ListedItems, Names, Record, Unreadable, as_source
from wallclock.loader.order import Place
from wallclock.loader.tars import READ, TarMembers, read_samples
from wallclock.recipe import Limits

#: The numbers of shards in a name.
RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}")
#: What a compressed tar begins with → the module that reads it.
_PACKED = {b"\x1f\x8b": "gzip", b"BZh": "bz2"}
_ARROW_MARK = b"ARROW1"
#: The bytes of a table whose columns are read at once; the rows that become objects at a time, each
#: of which may be a long one; and the columns of which something is made.
_AT_ONCE, _ROWS, _KNOWN = 1 << 25, 32, {*IMAGE_KEYS, "id", "label", "cls"}
#: Bytes that are read at a time where members are listed: the last one of a member, and a header.
_HEADERS = 1 << 10


def expand(name: str) -> list[str]:
    """The shards that a name stands for: `train-{000..127}.tar`; digits keep their width."""
    match = RANGE.search(name)
    if match is None:
        return [name]
    first, last = match.groups()
    numbers = range(int(first), int(last) + 1)
    before, after = name[: match.start()], name[match.end() :]
    return [f"{before}{number:0{len(first)}}{rest}" for number in numbers for rest in expand(after)]


@dataclass(frozen=True)
class Shards:
    """Files that each hold many items, divided among ranks.

    `names`: paths or URLs. `read`: the items of one from a row on; it adds to a list what it skips
    before each. Raises UserError: there are fewer files than ranks.
    """

    names: Sequence[str]
    read: Callable[[str, list[str], int], Iterator[Any]]
    shuffle: bool
    seed: int
    rank: int
    world_size: int

    def __post_init__(self) -> None:
        if (n := len(self.names)) < self.world_size:
            fix = "make at least one for each rank"
            raise UserError(f"{n} shards for {self.world_size} ranks: {fix}")

    def __call__(self, start: Place) -> Iterator[Any]:
        """This rank's items in the epoch's order; None: before `start`. Raises UserError."""
        names = list(self.names)
        if self.shuffle:
            Random((self.seed << 40) | start.epoch).shuffle(names)
        names = names[self.rank :: self.world_size]
        yield from repeat(None, start.items)
        held, skipped, first = None, list[str](), start.row
        for shard, name in enumerate(names[start.shard :], start.shard):
            for row, item in enumerate(self.read(name, skipped, first), first + 1):
                if held is not None:
                    yield held
                held, item.behind = item, (shard, row)
                if skipped:
                    held.skipped, skipped[:] = [*skipped], []
            first = 0
        if held is not None:
            held.skipped += skipped  # behind the last item, which has waited for it
            yield held
        elif not start.items:
            but = f", but {skipped[0]}" if skipped else ""
            raise UserError(f"{names[0]}: no image in it{but}")


def read_tar(
    name: str,
    skipped: list[str],
    first: int = 0,
    *,
    limits: Limits,
    opened: Any = None,
    lists: bool = False,
) -> Iterator[Record]:
    """The samples of a tar that have an image, in its order, from number `first` on; see `tars`.

    `opened`: by `open_shard`. `lists`: of a local tar that is not compressed, images are given as a
    `tars.Span`. Raises UserError: it cannot be opened, or is damaged; with its last good member.
    """
    members: TarMembers | None = None
    try:
        raw = opened or open_shard(name, limits)
        with closing(io.BufferedReader(raw, _HEADERS if lists else READ)) as file:
            head = file.peek()
            if head.startswith(b"\xfd7zXZ"):
                raise ValueError("it is packed by xz, which may take 4 GB to unpack: use gzip")
            packed = next((kind for mark, kind in _PACKED.items() if head.startswith(mark)), None)
            seeks = not (packed or is_url(name))
            stream = import_module(packed).open(file) if packed else file
            members = TarMembers(stream, limits.max_bytes, seeks, name if lists and seeks else "")
            samples = read_samples(name, members, skipped)
            if first:
                next(islice(samples, first, first), None)
                skipped.clear()
            yield from samples
    except UserError:
        raise
    except Exception as error:  # of tarfile, zlib, lzma, a store: each has its own kinds
        behind = members.behind if members else ""
        raise UserError(f"{name}: {first_line(error)}{behind}; is it a whole tar?") from error


def open_shard(name: str, limits: Limits) -> Any:
    """A file or URL, to be read from its start to its end."""
    if not is_url(name):
        return open(name, "rb", buffering=0)
    if not name.startswith(REMOTE):
        raise UserError(f"{name}: {UNKNOWN}")
    import_extra("pycurl", name, "s3")
    from wallclock.fetch.remote_file import RemoteFile

    return RemoteFile(name, limits)


def read_table(
    name: str, skipped: list[str], first: int = 0, *, limits: Limits
) -> Iterator[Record]:
    """The rows of a Parquet or Arrow table, from row `first` on, one of whose columns is the image.

    A table behind a URL names no file of this machine, and is copied into a temporary file.
    Raises UserError: it cannot be read, or has no column of `items.IMAGE_KEYS`; it names the file.
    """
    numbers, is_arrow = count(first), name.lower().endswith((".arrow", ".feather"))
    read = _arrow_rows if is_arrow else _parquet_rows
    try:
        with ExitStack() as opened:
            columns: list[str] = []
            file: Any = name
            if is_url(name):
                file = opened.enter_context(closing(open_shard(name, limits)))
                remote, file = file, opened.enter_context(TemporaryFile())
                copyfileobj(remote, file, READ)
            for rows in read(file, first, opened):
                columns = columns or _known_names(name, rows.schema.names)
                for row, failure in _rows_of(rows.rename_columns(columns)):
                    at = as_source(row, next(numbers)).where
                    reason = at.reason if isinstance(at, Unreadable) else ""
                    if is_url(name) and isinstance(at, str) and not place_of(at).startswith(REMOTE):
                        row = {"id": row.get("id", at)}
                        reason = "a table from elsewhere names URLs of http, https and s3"
                    yield Record(row, name, failure or reason)
    except UserError:
        raise
    except Exception as error:  # a damaged table gives rise to any
        raise UserError(f"{name}: {first_line(error)}") from error


def _parquet_rows(file: Any, first: int, opened: ExitStack) -> Iterator[Any]:
    """Record batches of a Parquet table from a row on; whole row groups are passed over unread."""
    parquet = import_extra("pyarrow.parquet", "a table", "embed")
    size = os.path.getsize(file) if isinstance(file, str) else file.seek(0, os.SEEK_END)
    # Read piece by piece: by default Arrow reads whole row groups ahead, and keeps them. Of a
    # piece, though, a damaged header may say that it has 2 GB, which Arrow then takes.
    pieces = {"pre_buffer": False, "buffer_size": READ if size > _AT_ONCE else 0}
    table = opened.enter_context(parquet.ParquetFile(file, **pieces))
    about, groups = table.metadata, range(table.num_row_groups)
    ends = [*accumulate(about.row_group(group).num_rows for group in groups)]
    left = groups[bisect_right(ends, first) :]
    start = ends[left[0] - 1] if left and left[0] else 0
    yield from _from_row(first - start, table.iter_batches(_ROWS, row_groups=[*left]))


def _arrow_rows(file: Any, first: int, opened: ExitStack) -> Iterator[Any]:
    """The same of an Arrow file or stream; datasets writes streams."""
    arrow = import_extra("pyarrow", "a table", "embed")
    if isinstance(file, str):
        # Of what is not compressed only the rows in use take memory.
        file = opened.enter_context(arrow.memory_map(os.fsencode(file)))
    file.seek(0)
    is_file = file.read(len(_ARROW_MARK)) == _ARROW_MARK
    file.seek(0)
    if is_file:
        table = arrow.ipc.open_file(file)
        batches = map(table.get_batch, range(table.num_record_batches))
    else:
        batches = arrow.ipc.open_stream(file)
    for batch in _from_row(first, batches):
        yield from (batch[at : at + _ROWS] for at in range(0, len(batch), _ROWS))


def _from_row(first: int, batches: Iterable[Any]) -> Iterator[Any]:
    for batch in batches:
        if first < len(batch):
            yield batch[first:]
        first = max(0, first - len(batch))


def _rows_of(batch: Any) -> list[tuple[dict[str, Any], str]]:
    """Rows, and why one has a known column without a value. Of others, Arrow's value will do."""
    with suppress(Exception):  # not UTF-8, a date that Python has not, a time zone that is unknown
        return [(row, "") for row in batch.to_pylist()]
    return [_row_of(batch.schema.names, values) for values in zip(*batch.columns, strict=True)]


def _row_of(names: Sequence[str], values: Sequence[Any]) -> tuple[dict[str, Any], str]:
    row, failure = {}, ""
    for name, value in zip(names, values, strict=True):
        try:
            row[name] = _value(value)
        except ImageError as error:
            row[name] = value
            if name in _KNOWN:
                row[name], failure = None, f"{name}: {error.reason}"
    return {"id": row.get("id")} if failure else row, failure


_value = image_errors("read", "Arrow", lambda value: value.as_py())


def _known_names(file: str, columns: list[str]) -> list[str]:
    listed = ", ".join(columns)
    names = [plain if (plain := name.strip().lower()) in _KNOWN else name for name in columns]
    if {*names}.isdisjoint(IMAGE_KEYS):
        raise UserError(f"{file} has {listed}: one column must be image, path or url")
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UserError(f"{file} has {listed}: leave one column {twice}")
    return names


#: What reads the files of such names.
_READERS: dict[tuple[str, ...], Callable[..., Iterator[Any]]] = {
    (".tar", ".tar.gz", ".tgz"): read_tar,
    (".parquet", ".pq", ".arrow", ".feather"): read_table,
}


def shards_of(items: Any) -> tuple[list[str], Callable[..., Iterator[Any]] | None]:
    """The names of tars or of tables, and what reads one; None: the items are something else."""
    names = [items] if isinstance(items, str | os.PathLike) else items
    for ends, read in _READERS.items() if isinstance(names, list | tuple) and names else ():
        if all(isinstance(n, str | os.PathLike) and f"{n}".lower().endswith(ends) for n in names):
            return [name for item in names for name in expand(place_of(os.fspath(item)))], read
    return [], None


class UrlItems(ListedItems):
    """The images below a URL, by their extensions; their ids are their URLs. Raises UserError."""

    def __init__(self, url: str) -> None:
        if not url.startswith("s3://"):
            raise UserError(f"{url} cannot be listed; give s3://…, a list of URLs, or a .tar")
        root = f"s3://{urlsplit(url).netloc}/"
        names = Names(root + item["Key"] for item in list_images(url, []))
        if not names:
            raise UserError(f"no image under {url}")
        super().__init__(names)
