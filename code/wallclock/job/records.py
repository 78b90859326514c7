"""Images in tars and tables, as a job lists and reads them: a row for each record of the loader's.

Of a local tar the headers are listed, and an image is read where it lies. Other tars and tables are
streams, read to their end to be listed. Behind the last good record of a damaged shard stands a row
that says why.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice, repeat
from typing import Any, NamedTuple

import pyarrow as pa

from wallclock.errors import ImageError, NotReachedError, SourceError, UserError, first_line
from wallclock.fetch.folder import id_of
from wallclock.fetch.retries import PermanentError, RefusedError
from wallclock.fetch.urls import is_url
from wallclock.job.lists import table_of
from wallclock.job.texts import chunks
from wallclock.loader.items import Record, as_source
from wallclock.loader.shards import open_shard, read_table, read_tar
from wallclock.loader.tars import Span
from wallclock.outside import without_secrets
from wallclock.recipe import Limits

#: The column of places: `<number of the shard>@<offset>+<bytes>`, or of a stream `…@<row>`.
PLACE, _NOWHERE = "\0place", b"+"


class Rows(NamedTuple):
    """What a shard has.

    `table`: `id`, null where it has none, `PLACE`, and what is carried along. `faults`: by row, why
    it has no image. `etag`: of what is behind a URL, else None. `others`: names of what is skipped.
    `is_whole`: whether its end was found.
    """

    table: Any
    faults: Mapping[int, str]
    etag: str | None
    others: Sequence[str] = ()
    is_whole: bool = True


def list_tar(name: str, number: int, limit: int | None, limits: Limits) -> Rows:
    """List a tar, shard `number`, or its first `limit` records. Raises UserError: not reached."""
    skipped, damaged, faults = list[str](), list[str](), dict[int, str]()
    try:
        opened = open_shard(name, limits)
    except OSError as error:
        raise SourceError(f"{name}: {error.strerror}") from error

    def rows() -> Iterator[dict[str, Any]]:
        at = 0
        try:
            for record in read_tar(name, skipped, limits=limits, opened=opened, lists=True):
                if record.failure:
                    faults[at] = record.failure
                yield _row(record, number, at)
                at += 1
        except UserError as error:
            if is_url(name) and isinstance(error.__cause__, OSError | RefusedError):
                raise
            faults[at] = without_secrets(str(error))
            damaged.append(name)
            yield {"id": id_of(name), PLACE: _NOWHERE}

    tables = [table_of(some) for some in chunks(islice(rows(), limit))]
    empty = pa.table({"id": pa.array([], pa.string()), PLACE: pa.array([], pa.binary())})
    etag = getattr(opened, "etag", "") if is_url(name) else None
    return Rows(together([empty, *tables]), faults, etag, skipped, not damaged)


def _row(record: Record, number: int, at: int) -> dict[str, Any]:
    """The id and the place of a sample, and its label and texts."""
    image = record.get("image")
    place = f"{number}@{at}".encode()
    if isinstance(image, Span):
        place = f"{number}@{image.offset}+{image.size}".encode()
    row = {"id": record["id"], PLACE: _NOWHERE if record.failure else place}
    for name, value in record.items():
        if name == "json":
            row[name] = json.dumps(value)
        elif name not in row and isinstance(value, str | int):
            row[name] = value
    return row


def together(tables: Sequence[Any]) -> Any:
    """Tables as one; of text, where types differ. Raises SourceError: they do not fit together."""
    with suppress(pa.ArrowException):
        return pa.concat_tables(tables, promote_options="permissive")
    texts = []
    try:
        for table in tables:
            fields = [x if x.name == PLACE else x.with_type(pa.string()) for x in table.schema]
            texts.append(table.cast(pa.schema(fields)))
        return pa.concat_tables(texts, promote_options="default")
    except pa.ArrowException as error:
        raise SourceError(f"the shards have unlike columns: {first_line(error)}") from error


def span_of(names: Sequence[str], place: str) -> Span:
    """Where the image at a place lies, in one of these files."""
    number, _, extent = place.partition("@")
    offset, _, size = extent.partition("+")
    return Span(names[int(number)], int(offset), int(size))


@dataclass(frozen=True)
class Stream:
    """Shards that are read from their start to their end: their paths or URLs, and versions."""

    names: Sequence[str]
    limits: Limits
    versions: Sequence[str] = ()

    def images(self, places: Iterable[str]) -> Iterator[Any]:
        """The image at each place, `<number of the shard>@<row>`; fast where rows ascend."""
        shard, at, images = -1, 0, iter(())
        for place in places:
            number, row = map(int, place.split("@"))
            if number != shard or row < at:
                shard, at = number, row
                images = _until_damage(self.names[number], row, self.limits)
            yield next(islice(images, row - at, None))
            at = row + 1


def _until_damage(name: str, first: int, limits: Limits) -> Iterator[Any]:
    """The images of a shard from row `first` on; behind the last one that is there, failures."""
    read = partial(read_tar if is_tar(name) else read_table, limits=limits)
    error = ImageError("read", f"{without_secrets(name)} has fewer images than were listed")
    try:
        for row, record in enumerate(read(name, [], first), first):
            yield as_source(record, row).where
    except UserError as raised:
        cause = raised.__cause__
        if isinstance(cause, RefusedError):
            raise
        error = ImageError("read", without_secrets(str(raised)))
        # What is not there, or is damaged, has another type or a permanent cause.
        is_away = type(cause) is OSError and not isinstance(cause.__cause__, PermanentError)
        if is_url(name) and is_away:
            error = NotReachedError("read", error.reason)

    def fail() -> bytes:
        raise error.with_traceback(None)

    yield from repeat(fail)


def is_tar(name: str) -> bool:
    """Whether a shard is called as a tar is."""
    return name.lower().endswith((".tar", ".tar.gz", ".tgz"))
