"""A dataset in a bucket, `s3://bucket/prefix`: with the methods of `folder.Folder`.

A part is there once its row file is, which is one PUT with `If-None-Match: *`: of two, the server
refuses one; it is replaced by one with `If-Match`. The part's other files are uploaded before it,
with the attempt in their names, as `_failures/part-00000.3f2a9c01b7d4.jsonl`; the row file's
metadata names attempt and files.

A bucket has no lock: two jobs may do the same work, of which each part counts once. So what was
uploaded for a part is removed only once another attempt has committed the part.
"""

import io
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeAlias
from uuid import uuid4

from wallclock.errors import UserError
from wallclock.fetch.retries import RefusedError, RequestError
from wallclock.fetch.s3 import NO_CREDENTIALS, Client, NoBucketError, connect, list_objects
from wallclock.job.stores.folder import FOLDERS, LOCK, Folder, full_disk

#: The folders of a part's files, each with its slash.
_PLACES = ["", *[f"{folder}/" for folder in FOLDERS]]
_OF_ATTEMPT = re.compile(rf"(?:{'|'.join(_PLACES)})(part-\d+)\.([0-9a-f]{{12}})\..*")
_THREADS = 16
#: An ETag that no object has.
_NO_ETAG = f'"{"0" * 32}"'
#: Bytes of an object that one PUT takes at most.
_MOST = 5 << 30
#: What to do about a status; 0: no answer.
_FIXES = {
    0: "check the network and AWS_ENDPOINT_URL; run the same command to resume",
    301: "set AWS_DEFAULT_REGION to the bucket's",
    403: "the credentials need s3:ListBucket, GetObject, PutObject and DeleteObject there",
    404: "create the bucket, or check its name and AWS_ENDPOINT_URL",
    501: "a job needs conditional writes; write to a folder",
}


class S3:
    """Below a prefix, which ends with a slash or is empty."""

    def __init__(self, bucket: str, prefix: str) -> None:
        self._bucket, self._prefix = bucket, prefix

    def __reduce__(self) -> Any:
        return S3, (self._bucket, self._prefix)

    @property
    def out(self) -> str:
        return f"s3://{self._bucket}/{self._prefix}".rstrip("/")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep no one out. Raises UserError: it cannot be written, or not on a condition."""
        if not self._client.credentials:
            raise UserError(f"{self.out} cannot be written without credentials; {NO_CREDENTIALS}")
        self._call("put_object", LOCK, Body=b"")
        # Conditions that do not hold: only a server that ignores them takes the object.
        for name, value in (("IfNoneMatch", "*"), ("IfMatch", _NO_ETAG)):
            if self._call("put_object", LOCK, Body=b"", **{name: value}):
                why = f"{self.out}: the server ignores {name}={value} of a PUT"
                raise UserError(f"{why}, by which a part is committed; write to a folder")
        yield

    def names(self, prefix: str) -> Iterator[str]:
        for item in list_objects(self._call, Prefix=self._prefix + prefix):
            yield item["Key"].removeprefix(self._prefix)

    def read(self, name: str) -> bytes:
        answer = self._call("get_object", name)
        if answer is None:
            raise FileNotFoundError(f"{self.out}/{name}")
        data: bytes = answer["Body"]
        return data

    def write(self, name: str, data: bytes) -> None:
        self._call("put_object", name, Body=data)

    def create(self, name: str, data: bytes) -> bool:
        return self._call("put_object", name, Body=data, IfNoneMatch="*") is not None

    def remove(self, name: str) -> None:
        self._call("delete_object", name)

    def open(self, row: str) -> Any:
        """Columns that are not read are not fetched."""
        return _Object(partial(self._call, "get_object", row), self._head(row)["ContentLength"])

    @contextmanager
    def piece(self, row: str, name: str) -> Iterator[Path | None]:
        stored = self._stored(row)
        with self.staging("") as folder:
            local = folder / Path(name).name
            if name in stored:
                local.write_bytes(self.read(stored[name]))
            yield local if name in stored else None

    def size(self, row: str, name: str) -> int | None:
        key = self._stored(row).get(name)
        answer = self._call("head_object", key) if key else None
        return int(answer["ContentLength"]) if answer else None

    def _stored(self, row: str) -> Mapping[str, str]:
        """The name of each file of a part → the name under which it is stored."""
        metadata = self._head(row)["Metadata"]
        stored = {row: row}
        if "attempt" in metadata:
            for file in metadata["files"].split():
                stored[file] = _name_of_attempt(metadata["attempt"], file)
        else:  # copied from a folder
            for place in _PLACES:
                stored |= {file: file for file in self.names(f"{place}{Path(row).stem}.")}
        return stored

    @contextmanager
    def staging(self, part: str) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(prefix="wallclock-") as folder, full_disk(Path(folder)):
            yield Path(folder)

    def tag(self, row: str) -> str:
        return str(self._head(row)["ETag"])

    def commit(self, staged: Path, row: str, tag: str = "") -> bool:
        """Raises UserError: a file is too large, or the server refuses it."""
        written = [path for path in staged.rglob("*") if path.is_file()]
        files = {path.relative_to(staged).as_posix(): path for path in written}
        if any(path.stat().st_size > _MOST for path in files.values()):
            raise UserError(f"{self.out}/{row} would have a file over 5 GB; set a smaller shard=")
        rows = files.pop(row)
        attempt = uuid4().hex[:12]
        for name, path in files.items():
            self._upload(_name_of_attempt(attempt, name), path)
        metadata = {"attempt": attempt, "files": " ".join(sorted(files))}
        condition = {"IfMatch": tag} if tag else {"IfNoneMatch": "*"}
        if self._upload(row, rows, Metadata=metadata, **condition):
            return True
        # Also where the first answer was lost and the client has sent it again: then it is ours.
        if self._head(row)["Metadata"].get("attempt") == attempt:
            return True
        for name in files:
            self._call("delete_object", _name_of_attempt(attempt, name))
        return False

    def remove_leftovers(self) -> None:
        """Remove files of attempts at parts that another attempt has committed."""
        names = [name for place in _PLACES for name in self.names(f"{place}part-")]
        matches = [*filter(None, map(_OF_ATTEMPT.fullmatch, names))]
        rows = {f"{match[1]}.parquet" for match in matches}.intersection(names)
        with ThreadPoolExecutor(_THREADS) as pool:
            heads = pool.map(self._head, rows)
            metadata = {row: head["Metadata"] for row, head in zip(rows, heads, strict=True)}
        for match in matches:
            committed = metadata.get(f"{match[1]}.parquet", {})
            if committed.get("attempt", match[2]) != match[2]:
                self._call("delete_object", match[0])

    def _upload(self, name: str, path: Path, **more: Any) -> Any:
        with path.open("rb") as body:
            return self._call("put_object", name, Body=body, **more)

    def _head(self, row: str) -> Mapping[str, Any]:
        answer: Mapping[str, Any] | None = self._call("head_object", row)
        if answer is None:
            raise UserError(f"{self.out}/{row} is gone; run the same command again")
        return answer

    def _call(self, action: str, name: str = "", **parameters: Any) -> Any:
        """A request's answer; None: no such object, or not the condition. Raises UserError."""
        if name:
            parameters["Key"] = self._prefix + name
        try:
            return self._client.call(action, Bucket=self._bucket, **parameters)
        except RefusedError as error:  # which names the fix
            raise UserError(f"{self.out}: {error}") from error
        except RequestError as error:
            if error.status in (404, 412) and not isinstance(error, NoBucketError):
                return None
            fix = _FIXES.get(error.status, "run the same command again")
            if error.status and not self._client.credentials:
                fix = NO_CREDENTIALS
            raise UserError(f"{self.out}: {error}", fix) from error

    @cached_property
    def _client(self) -> Client:
        return connect(self.out, connections=_THREADS)


#: It can be pickled; the copy does not hold the lock.
Store: TypeAlias = Folder | S3


def at(out: str | Path) -> Store:
    """The place that a user names: a folder, or `s3://bucket/prefix`."""
    if not str(out).startswith("s3:/"):
        return Folder(Path(os.path.realpath(os.path.expanduser(out))))
    bucket, _, prefix = str(out).removeprefix("s3:").lstrip("/").partition("/")
    if not bucket:
        raise UserError(f"{out} names no bucket; give s3://bucket/prefix")
    prefix = prefix.strip("/")
    return S3(bucket, f"{prefix}/" if prefix else "")


def _name_of_attempt(attempt: str, name: str) -> str:
    """'_failures/part-00000.jsonl' → '_failures/part-00000.<attempt>.jsonl'."""
    part, _, extension = name.partition(".")
    return f"{part}.{attempt}.{extension}"


class _Object(io.RawIOBase):
    """An object of so many bytes, of which pyarrow reads ranges."""

    def __init__(self, get: Any, size: int) -> None:
        self._get, self._size, self._at = get, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        starts = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}
        self._at = starts[whence] + offset
        return self._at

    def read(self, size: int = -1) -> bytes:
        end = self._size if size < 0 else min(self._at + size, self._size)
        if end <= self._at:
            return b""
        answer = self._get(Range=f"bytes={self._at}-{end - 1}")
        if answer is None:
            raise FileNotFoundError("the part was removed while it was read")
        self._at = end
        return bytes(answer["Body"])
