"""The samples of a tar, as webdataset names them (https://github.com/webdataset/webdataset).

A name is cut at its first dot before a letter: `a.jpg`, `a.cls` and `a.seg.png` are fields of the
sample `a`, `v1.0.jpg` is of `v1.0`; the members of a sample follow one another. Where none of them
is an image by all that follows the cut, they are cut at the last dot instead: `st.petersburg.jpg`;
but `a.0.npy` among members of `a` is its field `0.npy`.

What is wrong with a member is its sample's failure. What is neither the image of a sample nor a
field beside one is skipped, and named.
"""

import json
import os
import posixpath
import re
import struct
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, NamedTuple, TypeAlias

from wallclock.errors import ImageError, image_errors
from wallclock.fetch.folder import EXTENSIONS, id_of, is_image_name
from wallclock.fetch.sources import failure
from wallclock.loader.items import Record
from wallclock.outside import printable

_BLOCK = tarfile.BLOCKSIZE
#: Bytes that are read at a time; the most of a header about another one, and of the end.
READ, _MOST = 1 << 16, 1 << 20
#: Headers about the next one with a text alone, and what that is; pax has records.
_TEXTS = {tarfile.GNUTYPE_LONGNAME: "path", tarfile.GNUTYPE_LONGLINK: "linkpath"}
_RECORDS = (tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE)
#: Name, size, checksum, type and prefix of a header; of `_PLAIN` types, nothing else matters.
_HEADER = struct.Struct("100s24x12s12x8sc188x155s12x")
_ADLER, _PLAIN = 65521, {tarfile.REGTYPE, tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME}
#: Types of members that have no content, and why; a folder is no failure. Any other is a file.
_WITHOUT_DATA: dict[bytes, str | None] = {
    tarfile.DIRTYPE: None,
    tarfile.SYMTYPE: "a link, which is not followed; write the tar with --dereference",
    tarfile.LNKTYPE: "a hard link, which is not followed; write the tar with --hard-dereference",
    **dict.fromkeys((tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE), "no regular file"),
}
#: Members with the same beginning of their names that are held until they are divided.
_MOST_HELD = 64
_CUT = re.compile(r"(\.*[^.].*?)\.([^\W\d].*)", re.DOTALL)
_INTEGER, _LENGTH = re.compile(r"[+-]?[0-9]+"), re.compile(rb"([0-9]{1,9}) ")
#: Fields that are texts, and how their names end.
_TEXT_FIELDS = ("json", "cls", "txt", "text", "transcript")
_TEXT_ENDS = tuple(f".{field}" for field in _TEXT_FIELDS)


class Span(NamedTuple):
    """Bytes in a file: what a member of a tar is; a call reads them."""

    file: str
    offset: int
    size: int

    def __call__(self) -> bytes:
        """Raise ImageError: they cannot be read, or are not there."""
        try:
            with open(self.file, "rb", buffering=0) as file:
                data = os.pread(file.fileno(), self.size, self.offset)
        except OSError as error:
            raise failure(error) from error
        if len(data) < self.size:
            raise ImageError("read", f"{self.file} ends before it: it is not what was listed")
        return data


#: Path and content of a member: bytes, or where they are; why it has none; or None, of a folder.
Member: TypeAlias = tuple[str, bytes | Span | str | None]


@dataclass
class TarMembers:
    """The members of a tar, in its order, with normalized paths; one at a time is in memory.

    `file`: gives as many bytes as it is asked for, until it ends. `most`: bytes of a member.
    `seeks`: whether what is skipped need not be read. `spans`: the path of the file, of which only
    headers and texts are read. (tarfile takes damage for the end, and headers of any length.)
    Iterating raises TarError or ValueError: it is damaged.
    """

    file: BinaryIO
    most: int
    seeks: bool
    spans: str = ""
    _last: str = ""
    _at: int = 0

    @property
    def behind(self) -> str:
        """Says which whole member was the last."""
        return f", behind {printable(id_of(self._last))}" if self._last else ""

    def __iter__(self) -> Iterator[Member]:
        """Read it."""
        for info in self._headers():
            path = posixpath.normpath(info.name)
            has_data = info.type not in _WITHOUT_DATA
            content = self._content(info, path) if has_data else _WITHOUT_DATA[info.type]
            self._last = path
            yield path, content

    def _content(self, info: tarfile.TarInfo, path: str) -> bytes | Span | str:
        why = ""
        if info.issparse():
            why = "a sparse file; write the tar without --sparse"
        elif not 0 <= info.size <= self.most:
            why = f"{info.size:,} bytes, over the limit of {self.most:,}"
        # Of such a member it is only said where it is.
        is_span = bool(self.spans) and not path.lower().endswith(_TEXT_ENDS)
        place = Span(self.spans, self._at, info.size)
        data = self._read(info.size, 0 if why or is_span else self.most)
        return why or (place if is_span else data)

    def _headers(self) -> Iterator[tarfile.TarInfo]:
        """The header of each member, before its data."""
        said, n_said = dict[str, str](), 0
        while (block := self._read(_BLOCK)).strip(b"\0"):
            info = _info(block)
            if info.type in (*_TEXTS, *_RECORDS):
                n_said += info.size
                if n_said > _MOST:
                    raise tarfile.ReadError(f"a header of {n_said:,} bytes")
                said |= _said(info.type, self._read(info.size))
                continue
            if info.type == tarfile.XGLTYPE:  # about all members
                self._read(info.size, 0)
                continue
            if info.type == tarfile.GNUTYPE_SPARSE:
                said["GNU.sparse"], more = "", block[482]
                while more:  # headers, of the places of its data
                    more = self._read(_BLOCK)[504]
            if any(key.startswith("GNU.sparse") for key in said):
                info.sparse = b""
            info.name = said.get("GNU.sparse.name") or said.get("path") or info.name
            info.size = int(said.get("size", info.size))
            yield info
            said, n_said = {}, 0
        end = self._read(_BLOCK) + self.file.read(_MOST)
        if not self._last or end.strip(b"\0") or self.file.read(1):
            raise tarfile.ReadError("nothing is in it, or more lies behind its end")

    def _read(self, size: int, most: int = _MOST) -> bytes:
        """The next bytes, of whole blocks; if they are more than `most`, they are skipped."""
        data = self.file.read(size) if 0 <= size <= most else b""
        left = size + -size % _BLOCK - len(data)
        self._at += len(data) + left
        if self.seeks and left > _BLOCK:
            self.file.seek(left - 1, os.SEEK_CUR)
            left = 1
        while left > 0:
            if not (piece := self.file.read(min(left, READ))):
                raise tarfile.ReadError("it ends early")
            left -= len(piece)
        return data


def _info(block: bytes) -> tarfile.TarInfo:
    """A header as tarfile reads it; an ordinary one in a fifth of the time."""
    name, size, checksum, kind, prefix = _HEADER.unpack(block)
    try:
        # The sum of all bytes, as the header has it, which counts its own as spaces; and Adler-32.
        total = int(checksum.rstrip(b"\0 "), 8) + sum(checksum) - sum(b" " * 8)
        if kind in _PLAIN and (1 + total) % _ADLER == zlib.adler32(block) & 0xFFFF:
            name, _, _ = name.partition(b"\0")
            if prefix[0]:
                name = prefix.partition(b"\0")[0] + b"/" + name
            info = tarfile.TarInfo(name.decode("utf-8", "surrogateescape"))
            info.type, info.size = kind, int(size.rstrip(b"\0 "), 8)
            return info
    except ValueError:
        pass
    return tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")


def _said(kind: bytes, data: bytes) -> dict[str, str]:
    """What a header says about the next one, as pax has it: records `23 path=some/name.jpg`."""
    if kind in _TEXTS:
        return {_TEXTS[kind]: data.partition(b"\0")[0].decode("utf-8", "surrogateescape")}
    said, at = dict[str, str](), 0
    while at < len(data):
        start = _LENGTH.match(data, at)
        end = at + int(start[1]) if start else 0
        if not start or not start.end() < end <= len(data):
            raise tarfile.ReadError("a damaged pax header")
        record = data[start.end() : end - 1].decode("utf-8", "surrogateescape")
        key, _, value = record.partition("=")
        said[key], at = value, end
    return said


class _Part(NamedTuple):
    """A member of a sample."""

    key: str
    field: str
    path: str
    content: bytes | Span | str


def read_samples(tar: str, members: Iterable[Member], skipped: list[str]) -> Iterator[Record]:
    """The samples that have an image; `skipped` gets what is skipped; damage comes last."""
    parts: list[_Part] = []
    try:
        for path, content in members:
            folder, name = posixpath.split(path)
            cut = _CUT.fullmatch(name)
            if content is None or cut is None or name.startswith("._") or "__MACOSX" in folder:
                skipped.append(_name(tar, path))
                continue
            key, stem = posixpath.join(folder, cut[1]), path.rpartition(".")[0]
            is_full = len(parts) >= _MOST_HELD and parts[-1].path.rpartition(".")[0] != stem
            if is_full or (parts and not f"{key}.".startswith(f"{parts[0].key}.")):
                complete, parts = parts, []
                yield from _records(tar, complete, skipped)
            parts.append(_Part(key, cut[2], path, content))
    except Exception:
        yield from _records(tar, parts, skipped)
        raise
    yield from _records(tar, parts, skipped)


def _records(tar: str, parts: list[_Part], skipped: list[str]) -> Iterator[Record]:
    """Members that may be of one sample, divided into samples."""
    samples: dict[str, list[_Part]] = {}
    with_image = {part.key for part in parts if _is_image(part.field)}
    may_have = {part.key for part in parts if is_image_name(part.path)}
    for part in parts:
        root = parts[0].key
        if part.key not in with_image:
            if root not in with_image or part.key in may_have:
                root = part.path.rpartition(".")[0]
            part = part._replace(key=root, field=part.path[len(root) + 1 :])
        samples.setdefault(part.key, []).append(part)
    for sample in samples.values():
        if any(_is_image(part.field) for part in sample):
            yield from _record(tar, sample, skipped)
        else:
            skipped += [_name(tar, part.path) for part in sample]


def _record(tar: str, parts: list[_Part], skipped: list[str]) -> Iterator[Record]:
    """A sample with an image; and a failure for each other member of the image's name."""
    named: dict[str, Any] = {"id": id_of(parts[0].key)}
    fields: dict[str, Any] = {}
    images: dict[str, Any] = {}
    failure = ""
    for part in parts:
        name, field = _name(tar, part.path), part.field.lower()
        if field in images:
            yield Record(named, tar, f"{name}: a second member of this name")
            continue
        into = images if _is_image(field) else fields
        if into is fields and is_image_name(part.path):
            skipped.append(name)
        try:
            if field in fields or (into is images and images):
                raise ImageError("read", "a second one in one sample")
            into[field] = _value(field, part.content)
        except ImageError as error:
            failure = failure or f"{name}: {error.reason}"
    if "cls" in fields:
        fields["label"] = fields.pop("cls")
    good = {**fields, **named, "image": next(iter(images.values()), None)}
    yield Record(named, tar, failure) if failure else Record(good, tar)


def _parse(field: str, content: bytes | Span | str) -> Any:
    if isinstance(content, str):
        raise ImageError("read", content)
    if isinstance(content, Span) or field not in _TEXT_FIELDS:
        return content
    if field == "json":
        return json.loads(content)
    text = content.decode("utf-8-sig")
    if field != "cls":
        return text
    if not text.strip():
        raise ValueError("it is empty")
    return int(text) if _INTEGER.fullmatch(text.strip()) else text.strip()


_value = image_errors("read", "damaged", _parse)


def _is_image(field: str) -> bool:
    return f".{field.lower()}" in EXTENSIONS


def _name(tar: str, path: str) -> str:
    return f"{tar}/{id_of(path)}"
