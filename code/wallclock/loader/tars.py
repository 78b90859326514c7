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
import tarfile
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, TypeAlias

from wallclock.errors import ImageError, image_errors
from wallclock.fetch.folder import EXTENSIONS, id_of, is_image_name
from wallclock.loader.items import Record

#: Members with the same beginning of their names that are held until they are divided.
_MOST_HELD = 64
_CUT = re.compile(r"(\.*[^.].*?)\.([^\W\d].*)", re.DOTALL)
_INTEGER = re.compile(r"[+-]?[0-9]+")
#: Path and content of a member: bytes; why it has none; or None, of a folder.
Member: TypeAlias = tuple[str, bytes | str | None]


def read_members(tar: tarfile.TarFile, descriptor: int | None) -> Iterator[Member]:
    """The members of a tar that is read as a stream, with normalized paths.

    `descriptor`: of its file, where links to earlier members are read; None: nowhere.
    """
    places: dict[str, tuple[int, int]] = {}
    is_stored = descriptor is not None and getattr(tar.fileobj, "comptype", "") == "tar"
    for info in tar:
        path = posixpath.normpath(info.name)
        content: bytes | str | None = None if info.isdir() else "no regular file"
        if file := tar.extractfile(info) if info.isfile() else None:
            content = file.read()
            if is_stored and not info.issparse():
                places[path] = info.size, info.offset_data
        elif info.issym() or info.islnk():
            folder = posixpath.dirname(path) if info.issym() else ""
            target = posixpath.normpath(posixpath.join(folder, info.linkname))
            content = f"a link to {id_of(target)}, which is no earlier member of a local .tar"
            if descriptor is not None and target in places:
                places[path] = places[target]
                content = os.pread(descriptor, *places[path])
        yield path, content


class _Part(NamedTuple):
    """A member of a sample."""

    key: str
    field: str
    path: str
    content: bytes | str


def read_samples(tar: str, members: Iterable[Member], skipped: list[str]) -> Iterator[Record]:
    """The samples that have an image; the names of what is skipped before them go to `skipped`."""
    parts: list[_Part] = []
    for path, content in members:
        folder, name = posixpath.split(path)
        cut = _CUT.fullmatch(name)
        if content is None or cut is None or name.startswith("._") or "__MACOSX" in folder:
            skipped.append(_name(tar, path))
            continue
        key, stem = posixpath.join(folder, cut[1]), path.rpartition(".")[0]
        is_full = len(parts) >= _MOST_HELD and parts[-1].path.rpartition(".")[0] != stem
        if is_full or (parts and not f"{key}.".startswith(f"{parts[0].key}.")):
            yield from _records(tar, parts, skipped)
            parts = []
        parts.append(_Part(key, cut[2], path, content))
    yield from _records(tar, parts, skipped)


def _records(tar: str, parts: list[_Part], skipped: list[str]) -> Iterator[Record]:
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
    images: dict[str, bytes] = {}
    failure = ""
    for part in parts:
        name, field = _name(tar, part.path), part.field.lower()
        if field in images:
            yield Record(named, tar, f"{name}: a second member of this name")
            continue
        if is_image_name(part.path) and not _is_image(field):
            skipped.append(name)
        into: dict[str, Any] = images if _is_image(field) else fields
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


def _parse(field: str, content: bytes | str) -> Any:
    if isinstance(content, str):
        raise ImageError("read", content)
    if field == "json":
        return json.loads(content)
    if field not in ("cls", "txt", "text", "transcript"):
        return content
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
