"""Lists of images in files, in the format that the extension declares.

Damage in a row is that row's fault; only what is wrong with the file as a whole is an error.
"""

import csv
import io
import json
import os
import re
import sys
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, BinaryIO, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from wallclock.errors import SourceError, first_line, reason_of
from wallclock.job.texts import CHUNK, chunks
from wallclock.loader.items import IMAGE_KEYS

#: Columns of a list that may say where an image is; the first that is there counts.
WHERE = ("path", "url", "uri", "where", "file", "image", "img")
#: Columns of a table that may have the bytes of images.
_DATA = tuple(name for name in IMAGE_KEYS if name not in WHERE[:2])
_TABLES, _OBJECTS = (".csv", ".tsv"), (".jsonl", ".ndjson", ".json")
_ARROW, _PARQUET = (".arrow", ".feather"), (".parquet", ".pq")
_FORMATS = (*_TABLES, *_OBJECTS, *_PARQUET, *_ARROW, ".txt", ".lst", "")
_ENCODINGS = {b"\xef\xbb\xbf": "utf-8-sig", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
#: Bytes that are looked at for marks.
_HEAD = 1024
#: The most characters of a line or a record, and bytes of JSON, which is read at once.
_MOST_LINE, _MOST_JSON = 1 << 20, 1 << 29
#: Arrow's names of types that may be places; a column without a value may be, too.
_TEXT = re.compile(r"(dictionary<values=)?(large_)?(string|binary)(_view)?\b(?!\[)|null$")
#: A line that is no path.
_OBJECT = re.compile(rb'(\xef\xbb\xbf)?\s*\{\s*"')
#: The column that says why a row is damaged; one without values, where images were left out.
_DAMAGE, _IMAGES = "\0damage", "\0images"
#: Rows that a byte of a Parquet or Arrow file stands for at most.
_ROWS_A_BYTE = 4


class Listed(NamedTuple):
    """The rows of a list.

    `ids`, `where`: Arrow columns of text; a row without an id has its place's. Of a table that has
    images itself there are no places (None), and an id may be null. `carried`: a table of the other
    columns. `faults`: by position why a row names no image.
    """

    ids: Any
    where: Any
    carried: Any
    faults: dict[int, str]


def read_list(src: str, name: str, file: BinaryIO, limit: int | None) -> Listed:
    """Read a list, called `name`, or its first `limit` rows.

    Raises SourceError: its format is not known, it is damaged, or it has no column of places.
    """
    extension = os.path.splitext(name)[1].lower()
    try:
        return _listed(_read(extension, file)[:limit])
    except UnicodeDecodeError as error:
        where = f"byte 0x{error.object[error.start]:02x} is not {error.encoding.upper()}"
        raise SourceError(f"{src}: {where}, perhaps Windows-1252; save it as UTF-8") from error
    except Exception as error:  # a damaged table gives rise to any
        raise SourceError(f"{src} cannot be read as a list: {reason_of(error)}") from error


def _read(extension: str, file: BinaryIO) -> Any:
    """The table in a file."""
    head = file.read(_HEAD)
    file.seek(0)
    if head.startswith(b"PAR1") or extension in _PARQUET:
        return _without_images(pq.ParquetFile(file, page_checksum_verification=True), file)
    if head.startswith(b"ARROW1"):
        return _without_images(pa.ipc.open_file(file), file)
    if extension in _ARROW:
        return _without_images(pa.ipc.open_stream(file), file)
    if extension not in _FORMATS:
        known = ", ".join(_FORMATS[:-1])
        raise ValueError(f"{extension} is none of its formats, which are {known}")
    if extension in _OBJECTS or _OBJECT.match(head):  # at once: a column's type is that of all rows
        rows, most = _objects(file, head), sys.maxsize
    else:
        rows, most = _rows(_lines(file, head), extension in _TABLES), CHUNK
    tables = [table_of(some) for some in chunks(rows, most)]
    return pa.concat_tables(tables or [pa.table({"path": []})], promote_options="permissive")


def _without_images(reader: Any, file: BinaryIO) -> Any:
    """The table of a Parquet or Arrow file; in the place of its images the column `_IMAGES`."""
    is_parquet = isinstance(reader, pq.ParquetFile)
    schema = reader.schema_arrow if is_parquet else reader.schema
    names = [field.name for field in schema if not _has_images(field)]
    size = os.fstat(file.fileno()).st_size
    if is_parquet:
        batches = reader.iter_batches(columns=names)
    elif hasattr(reader, "get_batch"):
        batches = map(reader.get_batch, range(reader.num_record_batches))
    else:
        batches = reader
    n_rows, parts = 0, []
    for batch in batches:
        n_rows += len(batch)
        if n_rows > _ROWS_A_BYTE * size:
            raise ValueError(f"more than {_ROWS_A_BYTE * size:,} rows in {size:,} bytes")
        parts.append(batch.select(names))
    table = pa.Table.from_batches(parts, pa.schema([schema.field(name) for name in names]))
    if not is_parquet:  # Arrow trusts what it reads
        table.validate(full=True)
    return table.append_column(_IMAGES, pa.nulls(n_rows)) if len(names) < len(schema) else table


def _has_images(field: Any) -> bool:
    kind = field.type
    is_struct = pa.types.is_struct(kind) and kind.get_field_index("bytes") >= 0
    return field.name.strip().lower() in _DATA and (is_struct or "binary" in str(kind))


# --- text ---------------------------------------------------------------------------------------


def _lines(file: BinaryIO, head: bytes, most: int = _MOST_LINE) -> Iterator[str]:
    """The lines of a text, with their ends: LF or CR LF, and nothing else."""
    encoding = next((name for mark, name in _ENCODINGS.items() if head.startswith(mark)), "utf-8")
    if encoding == "utf-8" and b"\0" in head:
        raise ValueError("zero bytes, as UTF-16 without a byte-order mark has; save it as UTF-8")
    with io.TextIOWrapper(file, encoding, newline="\n") as text:
        while line := text.readline(most + 1):
            if len(line) > most:
                raise ValueError(f"a line of more than {most:,} characters")
            yield line


def _header(line: str) -> tuple[str, list[str]]:
    """The delimiter and the names that a first line most likely has."""
    names = {mark: [*map(_plain, line.split(mark))] for mark in ",\t;"}
    mark = max(names, key=lambda mark: (not {*WHERE}.isdisjoint(names[mark]), len({*names[mark]})))
    return mark, names[mark]


def _rows(lines: Iterator[str], is_table: bool) -> Iterator[dict[str, Any]]:
    """A place a line, or the records below a header; a column without a name is left out."""
    first = next(lines, "")
    lines = chain([first], lines)
    mark, found = _header(first)
    if not is_table and {*WHERE}.isdisjoint(found):
        places = (line.strip(" \t\r\n") for line in lines)
        yield from ({"path": place} for place in places if place)
        return
    records = filter(None, _records(lines, mark))
    names = next(records, [])
    _check_distinct([name for name in names if name])
    for fields in records:
        if len(fields) == len(names):
            yield {name: value for name, value in zip(names, fields, strict=True) if name}
            continue
        damage = f"{len(fields)} fields, the header has {len(names)}"
        yield {**dict.fromkeys(filter(None, names)), _DAMAGE: damage}


def _records(lines: Iterator[str], mark: str) -> Iterator[Sequence[str]]:
    """The fields of each record. Raises ValueError: its quotes are not those of CSV."""
    n_taken = 0

    def feed() -> Iterator[str]:
        nonlocal n_taken
        for line in lines:
            n_taken += len(line)
            if n_taken > _MOST_LINE:
                raise ValueError(f"a record of more than {_MOST_LINE:,} characters")
            yield line

    reader, ended = csv.reader(feed(), delimiter=mark, strict=True), 0
    try:
        for fields in reader:
            n_taken, ended = 0, reader.line_num
            yield fields
    except csv.Error as error:
        raise ValueError(f"the record in line {ended + 1}: {error}") from error


def _objects(file: BinaryIO, head: bytes) -> Iterator[dict[str, Any]]:
    """The object of each line, or of an array of them."""
    if file.seek(0, io.SEEK_END) > _MOST_JSON:
        raise ValueError(f"more than {_MOST_JSON:,} bytes of JSON; write CSV or Parquet")
    file.seek(0)
    has_lines = not head.lstrip(b" \t\r\n\0\xef\xbb\xbf\xff\xfe").startswith(b"[")
    lines = _lines(file, head, _MOST_LINE if has_lines else _MOST_JSON)
    first = next(filter(str.strip, lines), "")
    lines = chain([first], lines)
    is_array = first.lstrip().startswith("[")
    for value in json.loads("".join(lines)) if is_array else filter(str.strip, lines):
        try:
            row = value if is_array else json.loads(value)
            yield row if row and isinstance(row, dict) else {_DAMAGE: "no JSON object"}
        except (ValueError, RecursionError) as error:
            yield {_DAMAGE: f"no JSON: {first_line(error)}"}


def table_of(rows: Sequence[dict[str, Any]]) -> Any:
    """Rows as an Arrow table."""
    names = dict.fromkeys(chain.from_iterable(rows))
    return pa.table({name: _column([row.get(name) for row in rows]) for name in names})


def _column(values: list[Any]) -> Any:
    """An Arrow column; of text where values are of several types."""
    try:
        if bool in (kinds := {*map(type, values)}) and float in kinds:
            raise TypeError  # Arrow takes True for 1.0
        return pa.array(values)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        texts = [x if isinstance(x, str | None) else json.dumps(x) for x in values]
        encoded = [text and text.encode("utf-8", "backslashreplace") for text in texts]
        return pa.array(encoded, pa.binary()).cast(pa.string())


# --- columns ------------------------------------------------------------------------------------


def _plain(name: str) -> str:
    return name.strip(' \t\r\n"').lower()


def _check_distinct(names: Sequence[str]) -> None:
    """Raise ValueError where two names differ in case or blanks alone."""
    seen = dict[str, str]()
    for name in names:
        if (plain := _plain(name)) in seen:
            raise ValueError(f"the columns {seen[plain]!r} and {name!r} have one name; rename one")
        seen[plain] = name


def _listed(table: Any) -> Listed:
    damage = {}
    if _DAMAGE in table.column_names:
        reasons = enumerate(table[_DAMAGE].to_pylist())
        damage = {row: f"row {row + 1}: {why}" for row, why in reasons if why}
        table = table.drop_columns(_DAMAGE)
    names = table.column_names
    _check_distinct(names)
    at = {_plain(name): number for number, name in enumerate(names)}
    place = next((name for name in WHERE if name in at), None)
    if not names and 0 in damage:
        raise ValueError(damage[0])
    if _IMAGES in names:
        ids = _as_text(table, at["id"]) if "id" in at else pa.nulls(len(table), pa.string())
        others = [at[name] for name in at if name not in ("id", _IMAGES)]
        return Listed(ids, None, _others(table, others), {})
    if place is None:
        has = f"no column of {', '.join(WHERE)}; it has {names}"
        raise ValueError(f"{has}; call the one of the places path")
    kind = str(table[at[place]].type)
    if not _TEXT.match(kind):
        raise ValueError(f"the column {names[at[place]]} has the type {kind}; give text")
    where = _as_text(table, at[place])
    empty = pc.indices_nonzero(where.is_null()).to_pylist()
    faults = {row: f"row {row + 1} has no {names[at[place]]}" for row in empty} | damage
    ids = _as_text(table, at["id"]) if "id" in at else where
    if ids.null_count:
        numbers = pa.array([f"row {row + 1}" for row in range(len(table))], pa.string())
        ids = pc.coalesce(ids, where, numbers)
    others = _others(table, [number for name, number in at.items() if name not in ("id", place)])
    return Listed(ids, where.fill_null(""), others, faults)


def _as_text(table: Any, at: int) -> Any:
    """A column as text, null where it is empty; what is not UTF-8 in it as \\xNN."""
    column = table[at]
    kind = column.type
    try:
        values = column.cast(kind.value_type) if pa.types.is_dictionary(kind) else column
        texts = values.cast(pa.string())
    except pa.ArrowException as error:
        why = f"the column {table.column_names[at]} is not text ({kind})"
        raise ValueError(f"{why}: {first_line(error)}") from error
    try:
        texts.validate(full=True)  # a column that is called text may have any bytes
    except pa.ArrowInvalid:
        some = texts.cast(pa.binary()).to_pylist()
        decoded = [data and data.decode("utf-8", "backslashreplace") for data in some]
        texts = pa.chunked_array([decoded], pa.string())
    is_empty = pc.equal(texts, "")
    nothing = pa.scalar(None, pa.string())
    return pc.if_else(is_empty, nothing, texts) if pc.any(is_empty).as_py() else texts


def _others(table: Any, numbers: Sequence[int]) -> Any:
    """Other columns, without metadata; their views as plain texts, of which Arrow can take rows."""
    table = table.select(numbers)
    plain = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
    kinds = [field.with_type(plain.get(field.type, field.type)) for field in table.schema]
    table.validate(full=True)  # Parquet's numbers of values, and what is called text
    return table.cast(pa.schema(kinds))
