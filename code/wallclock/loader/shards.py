"""Images in larger files, as streams of items: tars as webdataset writes them, Parquet tables.

The samples of a tar are the consecutive members of one name up to its first dot, as webdataset has
it (https://github.com/webdataset/webdataset, "The WebDataset Format"). An item is a dict: `id`,
`image` (bytes), `label` where there is a `.cls`, and each other member by its extension.
"""

import json
import os
import re
import tarfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from pathlib import PurePosixPath
from random import Random
from typing import Any
from urllib.request import urlopen

from wallclock.errors import UserError, first_line, import_extra
from wallclock.fetch.filesystems import filesystem_of, is_url
from wallclock.fetch.folder import EXTENSIONS, is_image_name
from wallclock.fetch.s3 import S3Error, connect, list_objects
from wallclock.fetch.sources import Source
from wallclock.loader.items import ListedItems

_TARS = (".tar", ".tar.gz", ".tgz")
_RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}")
_TIMEOUT_S = 60.0
#: POSIX pax: two 512-byte blocks of zeros.
_END_OF_TAR = 1024
#: Columns that may hold an image, and rows that are read at a time.
_COLUMNS, _ROWS = ("image", "img", "bytes", "path", "url"), 256


def is_tar(name: Any) -> bool:
    """Whether a path or a URL names a tar."""
    return isinstance(name, str | os.PathLike) and os.fspath(name).lower().endswith(_TARS)


def is_parquet(name: Any) -> bool:
    """Whether a path names a Parquet file."""
    return isinstance(name, str | os.PathLike) and os.fspath(name).lower().endswith(".parquet")


def expand(name: str) -> list[str]:
    """The shards that a name stands for: `train-{000..127}.tar`; digits keep their width."""
    match = _RANGE.search(name)
    if match is None:
        return [name]
    first, last = match.groups()
    numbers = range(int(first), int(last) + 1)
    before, after = name[: match.start()], name[match.end() :]
    return [f"{before}{number:0{len(first)}}{rest}" for number in numbers for rest in expand(after)]


class Shards:
    """Files that each hold many items, divided among ranks.

    Args:
        names: paths or URLs.
        read: the items of one.

    Raises UserError: there are fewer files than ranks.
    """

    def __init__(
        self,
        names: Sequence[str],
        read: Callable[[str], Iterator[Any]],
        shuffle: bool,
        seed: int,
        rank: int,
        world_size: int,
    ) -> None:
        if len(names) < world_size:
            raise UserError(
                f"{len(names)} shards for {world_size} ranks: make at least one for each rank"
            )
        self._names, self._read = names, read
        self._shuffle, self._seed = shuffle, seed
        self._rank, self._world_size = rank, world_size

    def __call__(self, epoch: int) -> Iterator[Any]:
        """The items of this rank's files, in the order of the epoch."""
        names = list(self._names)
        if self._shuffle:
            Random((self._seed << 40) | epoch).shuffle(names)
        for name in names[self._rank :: self._world_size]:
            yield from self._read(name)


def read_tar(name: str) -> Iterator[dict[str, Any]]:
    """The samples of a tar that have an image, in its order.

    Raises UserError: it cannot be opened, or is damaged; it names the file.
    """
    try:
        with closing(_open(name)) as opened:
            file: Any = _Tail(opened)
            is_empty = True
            with tarfile.open(fileobj=file, mode="r|*") as tar:
                for sample in _samples(_members(tar)):
                    is_empty = False
                    yield sample
            if is_empty:
                raise UserError(f"{name}: no member has an image's extension")
            # tarfile takes a tar that was cut between two members for a whole one.
            if name.lower().endswith(".tar") and not file.ends_as_a_tar():
                raise tarfile.ReadError("its end is missing")
    except (OSError, EOFError, tarfile.TarError, S3Error) as error:
        raise UserError(f"{name}: {first_line(error)}; is it a whole tar?") from error


class _Tail:
    """A file of which the last bytes are remembered."""

    def __init__(self, file: Any) -> None:
        self._file, self._last = file, b""

    def read(self, size: int) -> bytes:
        data: bytes = self._file.read(size)
        self._last = (self._last + data)[-_END_OF_TAR:]
        return data

    def ends_as_a_tar(self) -> bool:
        """Whether it ends with two blocks of zeros; reads the rest."""
        while self.read(1 << 16):
            pass
        return self._last == bytes(_END_OF_TAR)


def _open(name: str) -> Any:
    if name.startswith("s3://"):
        bucket, _, key = name.removeprefix("s3://").partition("/")
        client = connect(name, read_timeout_s=_TIMEOUT_S)
        try:
            return client.boto.get_object(Bucket=bucket, Key=key)["Body"]
        except client.errors as error:
            raise OSError(first_line(error)) from error
    if name.startswith(("http://", "https://")):
        return urlopen(name, timeout=_TIMEOUT_S)
    if is_url(name):
        filesystem, path = filesystem_of(name)
        return filesystem.open(path, "rb")
    return open(name, "rb")


def _members(tar: tarfile.TarFile) -> Iterator[tuple[str, bytes]]:
    for member in tar:
        file = tar.extractfile(member) if member.isfile() else None
        if file is not None:
            yield member.name, file.read()


def _samples(members: Iterable[tuple[str, bytes]]) -> Iterator[dict[str, Any]]:
    sample: dict[str, Any] = {}
    for name, data in members:
        path = PurePosixPath(name)
        stem, _, extension = path.name.partition(".")
        if stem.startswith("__"):  # webdataset's own
            continue
        key = str(path.with_name(stem))
        if sample and sample["id"] != key:
            if "image" in sample:
                yield sample
            sample = {}
        sample["id"] = key
        _add(sample, extension.lower(), data)
    if "image" in sample:
        yield sample


def _add(sample: dict[str, Any], extension: str, data: bytes) -> None:
    if f".{extension}" in EXTENSIONS and "image" not in sample:
        sample["image"] = data
    elif extension == "cls":
        sample["label"] = int(data)
    elif extension == "json":
        sample[extension] = json.loads(data)
    elif extension in ("txt", "text", "transcript"):
        sample[extension] = data.decode("utf-8")
    else:
        sample[extension] = data


def read_parquet(name: str) -> Iterator[dict[str, Any]]:
    """The rows of a Parquet table as dicts, of which one column has the image.

    That is `image`, `img`, `bytes`, `path` or `url`: bytes, a path, or as datasets stores an image.

    Raises UserError: it cannot be read, or has no such column; it names the file.
    """
    parquet = import_extra("pyarrow.parquet", name, "embed")
    try:
        with _table_file(name) as file, parquet.ParquetFile(file) as table:
            names = table.schema_arrow.names
            if not set(names) & set(_COLUMNS):
                columns = ", ".join(names)
                raise UserError(f"{name} has {columns}: one column must be image, path or url")
            for rows in table.iter_batches(_ROWS):
                yield from rows.to_pylist()
    except (OSError, ValueError) as error:
        raise UserError(f"{name}: {first_line(error)}") from error


def _table_file(name: str) -> AbstractContextManager[Any]:
    """What pyarrow opens: a path, which it reads by itself, or a file behind a URL, by fsspec."""
    if not is_url(name):
        return nullcontext(name)
    filesystem, path = filesystem_of(name)
    return closing(filesystem.open(path, "rb"))


class UrlItems(ListedItems):
    """The images below a URL, by their extensions; their ids are their URLs.

    Raises UserError: it cannot be listed, or has no image there.
    """

    def __init__(self, url: str) -> None:
        names = _list_bucket(url) if url.startswith("s3://") else _list_filesystem(url)
        if not names:
            raise UserError(f"no image under {url}")
        super().__init__(names)

    def has_files(self) -> bool:
        """See `ListedItems`."""
        return False

    def __getitem__(self, index: Any) -> Any:
        url = self.given[index]
        return Source(url, url, url)


def _list_bucket(url: str) -> list[str]:
    bucket, _, prefix = url.removeprefix("s3://").partition("/")
    client = connect(url)
    try:
        objects = list_objects(client.call, Bucket=bucket, Prefix=prefix)
        return [f"s3://{bucket}/{item['Key']}" for item in objects if is_image_name(item["Key"])]
    except S3Error as error:
        raise UserError(f"{url}: {error}; check AWS_…") from error
    finally:
        client.close()


def _list_filesystem(url: str) -> list[str]:
    if url.startswith(("http://", "https://")):
        raise UserError(f"{url}: http cannot be listed; give a list of URLs, or a .tar")
    filesystem, path = filesystem_of(url)
    try:
        names = sorted(filesystem.find(path))
    except OSError as error:
        raise UserError(f"{url}: {first_line(error)}") from error
    return [str(filesystem.unstrip_protocol(name)) for name in names if is_image_name(name)]
