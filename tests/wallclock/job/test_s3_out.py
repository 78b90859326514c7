"""OUT in a bucket: the rows of a folder, whatever is killed, late or at the same part."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from botocore.exceptions import ClientError
from moto.s3.responses import S3Response

from tests.conftest import ROOT
from tests.killing import Job, kill_at_random
from tests.wallclock.job import test_on_ray as on_cluster
from tests.wallclock.job.conftest import DAMAGED, QUICK, Content, N, World, content
from tests.wallclock.job.test_growth import SMALL, write
from tests.wallclock.job.test_killed import PHASED, vectors
from wallclock.errors import UserError
from wallclock.job import embed
from wallclock.job.stores.s3 import S3
from wallclock.job.verify import verify

KILLS = int(os.environ.get("WALLCLOCK_KILLS", "5"))


def names(bucket: str) -> list[str]:
    return sorted(S3.named(bucket).names(""))


def everything(bucket: str) -> dict[str, bytes]:
    return {name: S3.named(bucket).read(name) for name in names(bucket) if name != ".lock"}


def plain(name: str) -> str:
    """Without the attempt."""
    return re.sub(r"\.[0-9a-f]{12}\.", ".", name)


# --- the job ------------------------------------------------------------------------------------


def test_what_was_not_reached(world: World, images: Path, bucket: str, reference: Content) -> None:
    """The next run takes it up; what an attempt left that was not the first does not count."""
    world.change("03.jpg", "20.jpg")
    assert embed(images, bucket, **QUICK).unreached == 2
    late = "_unreached/part-00002.0123456789ab.jsonl"
    S3.named(bucket).write(late, b'{"id": "zero.jpg", "runs": 1}\n')
    world.change()
    outcome = embed(images, bucket, **QUICK)
    assert (outcome.unreached, outcome.counts["parts"]) == (0, 3)
    assert sorted(world.read) == ["03.jpg", "20.jpg"]
    assert content(bucket) == reference
    assert late not in names(bucket)
    assert verify(bucket, n=4).faults == ()


@pytest.mark.slow
def test_as_in_a_folder(bucket: str, images: Path, tmp_path: Path) -> None:
    """Bytes of the parts and failures; a second start."""
    settings = QUICK
    embed(images, tmp_path / "out", **settings)
    outcome = embed(images, bucket, **settings)
    counts = {"vectors": N - DAMAGED, "failures": DAMAGED, "skipped": 0, "parts": 3}
    assert outcome.counts == counts | {"unreached": 0, "gone": 0}
    assert str(embed(images, bucket, **settings)).startswith("complete already: 39 vectors")
    uploaded = {plain(name): data for name, data in everything(bucket).items()}
    for path in (tmp_path / "out").rglob("part-*"):
        assert uploaded[path.relative_to(tmp_path / "out").as_posix()] == path.read_bytes()
    assert (len(uploaded), json.loads(uploaded["_dataset.json"])["complete"]) == (11, True)


@pytest.mark.slow
def test_copied(bucket: str, images: Path, reference: Content, tmp_path: Path) -> None:
    """From a bucket to a folder and back, as `aws s3 sync` does it, without metadata."""
    settings = QUICK
    embed(images, bucket, **settings)
    for name, data in everything(bucket).items():
        (tmp_path / "copy" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "copy" / name).write_bytes(data)
        S3.named(f"{bucket}/back").write(plain(name), data)
    for earlier in (bucket, str(tmp_path / "copy"), f"{bucket}/back"):
        assert content(earlier) == reference
        assert str(embed(images, earlier, **settings)).startswith("complete already")
    assert verify(bucket, n=9).faults == ()


@pytest.mark.parametrize("metadata", [True, False])
def test_a_damaged_object_is_made_again(
    metadata: bool, bucket: str, images: Path, reference: Content
) -> None:
    """Without its metadata, which name its checksums, it is damaged whatever its bytes are."""
    settings = QUICK
    embed(images, bucket, **settings)
    row, store = "part-00001.parquet", S3.named(bucket)
    about = store._head(row)["Metadata"] if metadata else {}
    data = store.read(row)
    flipped = data[:9000] + bytes([data[9000] ^ 1]) + data[9001:]
    for damaged in (flipped, data[:-99]) if metadata else (data,):
        store._call("put_object", row, Body=damaged, Metadata=about)
        (fault,) = verify(bucket, n=9).faults
        name = row if metadata else "_checksums/part-00001.json"
        assert f"{bucket}/{name} is damaged: " in fault
        is_unseen = metadata and damaged is flipped
        assert str(embed(images, bucket, **settings)).startswith("complete") == is_unseen
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


# --- one line -----------------------------------------------------------------------------------


def refuse(code: str, status: int) -> Callable[..., Any]:
    def request(self: Any, name: str, parameters: Any) -> Any:
        answer: Any = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
        raise ClientError(answer, name)

    return request


def test_refused_in_one_line(bucket: str, images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(reason: str, bucket: str = bucket) -> None:
        with pytest.raises(UserError, match=reason) as caught:
            embed(images, bucket, **QUICK)
        assert "\n" not in str(caught.value)

    refused("names no bucket", "s3://")
    refused("NoSuchBucket.*create the bucket", "s3://absent/x")
    S3.named(bucket).write("thesis.txt", b"mine")
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


# --- processes ----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_killed_at_random(bucket: str, images: Path, tmp_path: Path) -> None:
    """WALLCLOCK_KILLS moments."""
    settings = {**QUICK, "service_ms": 20, "workers": 1}
    words = [f"{name}={value}" for name, value in settings.items()]

    def place(folder: Path) -> str:
        return f"{bucket}/{folder.name}"

    job = Job(
        lambda to: [sys.executable, "-c", PHASED, "embed", str(images), place(to), *words],
        lambda to: vectors(place(to)),
        env={"PYTHONPATH": str(ROOT / "code")},
    )
    report = kill_at_random(job, tmp_path, seed=7, rounds=KILLS, kills=1)
    print(report)
    assert report.exactly_once, report
    assert report.kills.total() >= KILLS // 2, report


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
    env = {**os.environ, "PYTHONPATH": str(ROOT / "code")}
    for kill in range(8):
        write(src, {at: 100 * kill + at + 100 for at in (2, 5)})
        before, at = content(place), kill % 4 if in_bucket else kill
        argv = [sys.executable, "-c", REPLACING, f"{at}", "embed", str(src), str(place), *words]
        ended = subprocess.run(argv, env=env, capture_output=True, check=False)
        assert ended.returncode == -signal.SIGKILL, ended
        if in_bucket:  # the row file's PUT is the last; a folder is put right by the next start
            assert content(place) == before
        embed(src, place, **settings)
        assert verify(place, n=9).faults == ()
        embed(src, tmp_path / f"right-{kill}", **settings)
        assert content(place) == content(tmp_path / f"right-{kill}")


@on_cluster.needs_ray
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_on_a_cluster(bucket: str, images: Path, reference: Content) -> None:
    """Killed once as a whole; when it goes on, one of its actors."""
    settings = {**on_cluster.SLOW, "cluster": "local", "workers": 1}
    for parts in (3, 6):
        process = on_cluster.start(images, bucket, settings)
        while sum(name.startswith("part-") for name in names(bucket)) < parts:
            assert process.poll() is None, process.communicate()
            time.sleep(0.2)
        below = psutil.Process(process.pid).children(recursive=True)
        if parts == 3:
            for part_of_job in (psutil.Process(process.pid), *below):
                part_of_job.kill()
            process.communicate()
        else:
            actors = [child for child in below if "ray::Actor" in " ".join(child.cmdline())]
            actors[0].kill()
            assert re.search("an actor on .* was lost", on_cluster.finish(process))
    assert content(bucket) == reference
    written = [name.split(".")[0] for name in names(bucket) if "part-" in name]
    assert len({*written}) == len(written)
