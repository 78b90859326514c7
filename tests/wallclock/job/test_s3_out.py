"""OUT in a bucket: the rows of a folder, whatever is killed, late or at the same part."""

import os
import re
import signal
import sys
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from botocore.exceptions import ClientError
from moto.s3.responses import S3Response

from tests.running import run_python
from tests.wallclock.job.conftest import QUICK, Content, World, content, part
from tests.wallclock.job.test_growth import SMALL, write
from wallclock.errors import UserError
from wallclock.job import embed
from wallclock.job.dataset import Dataset
from wallclock.job.part import Part
from wallclock.job.stores.s3 import S3, at
from wallclock.job.verify import verify


def names(bucket: str) -> list[str]:
    return sorted(at(bucket).names(""))


def everything(bucket: str) -> dict[str, bytes]:
    return {name: at(bucket).read(name) for name in names(bucket) if name != ".lock"}


def plain(name: str) -> str:
    """Without the attempt."""
    return re.sub(r"\.[0-9a-f]{12}\.", ".", name)


def test_what_was_not_reached(world: World, images: Path, bucket: str, reference: Content) -> None:
    """The next run takes it up; what an attempt left that was not the first does not count."""
    world.change("03.jpg", "20.jpg")
    assert embed(images, bucket, **QUICK).unreached == 2
    late = "_unreached/part-00002.0123456789ab.jsonl"
    at(bucket).write(late, b'{"id": "zero.jpg", "runs": 1}\n')
    world.change()
    outcome = embed(images, bucket, **QUICK)
    assert (outcome.unreached, outcome.counts["parts"]) == (0, 3)
    assert sorted(world.read) == ["03.jpg", "20.jpg"]
    assert content(bucket) == reference
    assert late not in names(bucket)
    assert verify(bucket, n=4).faults == ()


@pytest.mark.slow
def test_copied(bucket: str, images: Path, reference: Content, tmp_path: Path) -> None:
    """From a bucket to a folder and back, as `aws s3 sync` does it, without metadata."""
    embed(images, bucket, **QUICK)
    for name, data in everything(bucket).items():
        (tmp_path / "copy" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "copy" / name).write_bytes(data)
        at(f"{bucket}/back").write(plain(name), data)
    for earlier in (bucket, str(tmp_path / "copy"), f"{bucket}/back"):
        assert content(earlier) == reference
        assert str(embed(images, earlier, **QUICK)).startswith("complete already")
    assert verify(bucket, n=9).faults == ()


@pytest.mark.parametrize("metadata", [True, False])
def test_a_damaged_object_is_made_again(
    metadata: bool, bucket: str, images: Path, reference: Content
) -> None:
    """Without its metadata, which name its checksums, it is damaged whatever its bytes are."""
    embed(images, bucket, **QUICK)
    row, store = "part-00001.parquet", at(bucket)
    assert isinstance(store, S3)
    about = store._head(row)["Metadata"] if metadata else {}
    data = store.read(row)
    flipped = data[:9000] + bytes([data[9000] ^ 1]) + data[9001:]
    for damaged in (flipped, data[:-99]) if metadata else (data,):
        store._call("put_object", row, Body=damaged, Metadata=about)
        (fault,) = verify(bucket, n=9).faults
        name = row if metadata else "_checksums/part-00001.json"
        assert f"{bucket}/{name} is damaged: " in fault
        is_unseen = metadata and damaged is flipped
        assert str(embed(images, bucket, **QUICK)).startswith("complete") == is_unseen
    assert store.read(row) == data
    assert content(bucket) == reference
    assert verify(bucket, n=9).faults == ()


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.slow
def test_killed_before_every_change_of_the_bucket(
    bucket: str, images: Path, reference: Content, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each start gets one request further than the one before."""
    left, call = 0, S3._call

    def limited(self: S3, action: str, name: str = "", **parameters: Any) -> Any:
        nonlocal left
        if action in ("put_object", "delete_object") and name != ".lock":
            left -= 1
            if left < 0:
                raise Killed
        return call(self, action, name, **parameters)

    monkeypatch.setattr(S3, "_call", limited)
    starts = 0
    while True:
        left = starts = starts + 2
        try:
            embed(images, bucket, **{**QUICK, "shard": 25})
        except Killed:
            continue
        break
    assert starts > 3
    assert content(bucket) == reference
    of_attempts = {
        name.split(".")[1] for name in names(bucket) if name[0] != "." and name.count(".") > 1
    }
    assert len(of_attempts) == 2, names(bucket)
    assert not os.listdir(tempfile.gettempdir())


def test_two_jobs_begin_in_one_bucket(
    bucket: str, images: Path, reference: Content, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two, one describes what it is; the other one is told to look again."""
    create = S3.create

    def late(self: S3, name: str, data: bytes) -> bool:
        if name == "_dataset.json":
            monkeypatch.setattr(S3, "create", create)
            embed(images, bucket, **QUICK)
        return create(self, name, data)

    monkeypatch.setattr(S3, "create", late)
    with pytest.raises(UserError, match=f"another job has begun in {bucket}; run the same command"):
        embed(images, bucket, **{**QUICK, "shard": 5})
    assert content(bucket) == reference


def refuse(code: str, status: int) -> Callable[..., Any]:
    def request(self: Any, name: str, parameters: Any) -> Any:
        answer: Any = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
        raise ClientError(answer, name)

    return request


def test_refused_in_one_line(bucket: str, images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(reason: str, bucket: str = bucket) -> None:
        with pytest.raises(UserError, match=reason):
            embed(images, bucket, **QUICK)

    refused("names no bucket", "s3://")
    refused("NoSuchBucket.*create the bucket", "s3://absent/x")
    at(bucket).write("thesis.txt", b"mine")
    refused(r"has no _dataset.json and is not empty \(thesis.txt\)")
    with monkeypatch.context() as patch:
        patch.setattr("botocore.client.BaseClient._make_api_call", refuse("AccessDenied", 403))
        refused("AccessDenied.*the credentials need s3:ListBucket")
    with monkeypatch.context() as patch:
        put = S3Response.put_object

        def unconditional(self: S3Response) -> Any:
            self.headers = {k: v for k, v in self.headers.items() if not k.startswith("If-")}
            return put(self)

        patch.setattr(S3Response, "put_object", unconditional)
        refused("the server ignores IfNoneMatch=", f"{bucket}-other")
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "boto3", None)
        refused("needs boto3: pip install")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    refused("without credentials; set AWS_ACCESS_KEY_ID")


#: The command, killed before the n-th change of a file or an object by which it replaces a part.
REPLACING = """
import os, signal, sys, threading
from wallclock.__main__ import main
from wallclock.job.stores.folder import Folder
from wallclock.job.stores.s3 import S3

left, inside = int(sys.argv.pop(1)), threading.local()

def change(event, _):
    global left
    if event in ("os.rename", "os.rmdir", "put_object") and getattr(inside, "replaces", False):
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)

def replacing(commit):
    def call(self, staged, row, tag=""):
        inside.replaces = bool(tag)
        try:
            return commit(self, staged, row, tag)
        finally:
            inside.replaces = False
    return call

def audited(call):
    def request(self, action, *arguments, **parameters):
        sys.audit(action)
        return call(self, action, *arguments, **parameters)
    return request

for store in (Folder, S3):
    store.commit = replacing(store.commit)
S3._call = audited(S3._call)
sys.addaudithook(change)
sys.exit(main())
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("in_bucket", [False, True])
def test_killed_while_it_replaces(in_bucket: bool, bucket: str, tmp_path: Path) -> None:
    """Eight kills, each one change further; the next start makes what a new dataset would have."""
    place = bucket if in_bucket else tmp_path / "out"
    src = write(tmp_path / "in", {at: at for at in range(8)})
    (src / "bad.jpg").write_bytes(b"")
    settings = {**SMALL, "shard": 9}
    embed(src, place, **settings)
    words = [f"{name}={value}" for name, value in settings.items()]
    for kill in range(8):
        write(src, {at: 100 * kill + at + 100 for at in (2, 5)})
        before, at = content(place), kill % 4 if in_bucket else kill
        ended = run_python("-c", REPLACING, at, "embed", src, place, *words)
        assert ended.returncode == -signal.SIGKILL, ended
        if in_bucket:  # the row file's PUT is the last; a folder is put right by the next start
            assert content(place) == before
        embed(src, place, **settings)
        assert verify(place, n=9).faults == ()
        embed(src, tmp_path / f"right-{kill}", **settings)
        assert content(place) == content(tmp_path / f"right-{kill}")


def of_one_attempt(dataset: Dataset, number: int) -> str:
    """Which of the attempts a part is."""
    attempts = {*dataset.rows(number)["id"].to_pylist(), dataset.failures(number)[0]["reason"]}
    attempts |= {f"{value:g}" for value in np.unique(dataset.vectors(number))}
    (attempt,) = attempts
    return str(attempt)


def test_of_two_committers_one_wins(bucket: str) -> None:
    both = [Dataset(at(bucket)) for _ in range(2)]
    for number in range(2):
        barrier = threading.Barrier(2)

        def commit(value: int, number: int = number, barrier: Any = barrier) -> None:
            barrier.wait()
            both[value].commit(number, part(2, value))

        with ThreadPoolExecutor(2) as pool:
            [*pool.map(commit, range(2))]
        assert of_one_attempt(both[0], number) in ("0", "1")
        assert len(names(bucket)) == (number + 1) * 3


@pytest.mark.parametrize("late", [False, True])
def test_what_may_still_be_committed_is_kept(
    late: bool, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next job starts, and with `late` commits the part, while an actor is about to."""
    dataset, call = Dataset(at(bucket)), S3._call

    def slow(self: S3, action: str, name: str = "", **parameters: Any) -> Any:
        if name == "part-00000.parquet" and action == "put_object":
            monkeypatch.setattr(S3, "_call", call)
            dataset.store.remove_leftovers()
            if late:
                dataset.commit(0, part(1, 7))
                dataset.store.remove_leftovers()
        return call(self, action, name, **parameters)

    monkeypatch.setattr(S3, "_call", slow)
    dataset.commit(0, part(1, 5))
    assert of_one_attempt(dataset, 0) == ("7" if late else "5")
    assert len(names(bucket)) == 3


def test_a_commit_whose_answer_is_lost(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client sends it again and is refused: it was committed."""
    dataset, call = Dataset(at(bucket)), S3._call

    def twice(self: S3, action: str, name: str = "", **parameters: Any) -> Any:
        if action == "put_object":
            call(self, action, name, **parameters)
        return call(self, action, name, **parameters)

    monkeypatch.setattr(S3, "_call", twice)
    dataset.commit(0, part(1, 5))
    assert of_one_attempt(dataset, 0) == "5"


def test_two_writers_of_one_part(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No change is lost where both replace it at once."""
    both, meet, commit = ([Dataset(at(bucket)) for _ in range(2)], threading.Barrier(2), S3.commit)
    tags = list[str]()

    def together(self: S3, staged: Path, row: str, tag: str = "") -> bool:
        tags.append(tag)
        if len(tags) <= 2:
            meet.wait()
        return commit(self, staged, row, tag)

    def changed(value: int) -> Part:
        return replace(part(1, value), rows={**part(1, value).rows, "id": [f"{value}"]})

    old = part(2, 7)
    both[0].commit(0, replace(old, rows={**old.rows, "id": ["0", "1"]}, failures=[]))
    monkeypatch.setattr(S3, "commit", together)
    with ThreadPoolExecutor(2) as pool:
        [*pool.map(lambda at: both[at].replace(0, pa.array([f"{at}"]), changed(at)), range(2))]
    assert tags[0] == tags[1] != tags[2]
    rows = zip(both[0].rows(0)["id"].to_pylist(), both[0].vectors(0)[:, 0], strict=True)
    assert sorted(rows) == [("0", 0), ("1", 1)]
    both[0].store.remove_leftovers()
    assert len(names(bucket)) == 4
