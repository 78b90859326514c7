"""A small ABO behind moto's S3 server, behind nginx, and behind a proxy that breaks things."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest

from tests.corpus.abo import bucket
from tests.corpus.abo import nginx as servers
from tests.corpus.abo.fault_proxy import FaultProxy
from wallclock.corpus import manifest as manifests
from wallclock.corpus import prepare
from wallclock.corpus.manifest import Manifest
from wallclock.spec import CorpusSpec, Slice

#: Images in the small ABO.
N = 40


@pytest.fixture(scope="session")
def objects() -> dict[str, bytes]:
    return bucket.objects(N)


@pytest.fixture(scope="session")
def moto_port() -> Iterator[int]:
    """moto's server over HTTP, empty."""
    (port,) = servers.free_ports(1)
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-m",
        "moto.server",
        "-H",
        "127.0.0.1",
        "-p",
        str(port),
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        assert servers.answers(port, 30)
        yield port
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="session")
def moto(moto_port: int, objects: dict[str, bytes]) -> int:
    """The port of moto's server with the small ABO in it."""
    fill(moto_port, bucket.NAME, objects)
    return moto_port


def fill(port: int, name: str, objects: dict[str, bytes], acl: str = "public-read") -> None:
    """Put objects into a bucket, over S3's protocol, for everybody to read."""
    keys: dict[str, Any] = {
        "aws_access_key_id": "test",
        "aws_secret_access_key": "test",
        "region_name": "us-east-1",
    }
    client = boto3.session.Session(**keys).client("s3", endpoint_url=f"http://127.0.0.1:{port}")
    client.create_bucket(Bucket=name)
    for key, data in objects.items():
        client.put_object(Bucket=name, Key=key, Body=data, ACL=acl)
    client.close()


@pytest.fixture(scope="session")
def nginx(
    objects: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[servers.Nginx]:
    """nginx with the same tree."""
    if servers.find() is None:
        pytest.skip(f"no nginx here: {servers.INSTALL_HINT}")
    base = tmp_path_factory.mktemp("nginx")
    bucket.write(objects, base / "tree")
    for folder in (base, *base.parents[:2]):
        folder.chmod(0o755)
    with servers.Nginx(base / "tree", bucket.NAME, base / "work", listed="images/small/") as server:
        yield server


@pytest.fixture
def proxy(moto: int) -> Iterator[FaultProxy]:
    """A proxy in front of moto that breaks nothing yet."""
    with FaultProxy(moto) as made:
        yield made


class Corpus:
    """Prepares `corpus=abo` from an endpoint, as an experiment does."""

    def __init__(self, cache: Path, endpoint: str) -> None:
        self.cache = cache
        self.shown: list[tuple[int, int, str]] = []
        self.settings: dict[str, Any] = {
            **{
                "endpoint": endpoint,
                "bucket": bucket.NAME,
                "region": "us-east-1",
                "threads": 16,
                "attempts": 3,
            },
            **{
                "connect_timeout_s": 5.0,
                "read_timeout_s": 10.0,
                "prefixes": {"small_256": 70, "original": 50},
            },
        }

    def spec(self, **changes: Any) -> CorpusSpec:
        return CorpusSpec("abo", **{**self.settings, **changes})

    def slice(self, image_set: str = "small_256", n: int = N, **changes: Any) -> Slice:
        return prepare.prepare(
            self.spec(**changes),
            image_set,
            n,
            self.cache,
            lambda done, total, what: self.shown.append((done, total, what)),
        )

    def __call__(self, image_set: str = "small_256", n: int = N, **changes: Any) -> Manifest:
        made = self.slice(image_set, n, **changes)
        found = manifests.load(Path(made.manifest)).first(n)
        assert found.digest() == made.digest
        return found

    @property
    def folder(self) -> Path:
        (found,) = self.cache.glob("abo-*")
        return found


@pytest.fixture
def corpus(proxy: FaultProxy, tmp_path: Path) -> Corpus:
    """The small ABO through the proxy, into an empty cache."""
    return Corpus(tmp_path / "corpora", proxy.endpoint)


@pytest.fixture(autouse=True)
def _as_new(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one test hashed says nothing about the next one's files."""
    monkeypatch.setattr("wallclock.corpus.abo.prepare._verified", {})
    # Pauses as a local store needs them.
    monkeypatch.setattr("wallclock.corpus.abo.pacing._LONGEST_PAUSE_S", 0.1)
    monkeypatch.setattr("wallclock.corpus.abo.fetch._PASS_PAUSE_S", 0.1)
    monkeypatch.setattr("wallclock.corpus.abo.fetch._FAREWELL_S", 0.1)


def intact(found: Manifest, objects: dict[str, bytes]) -> bool:
    """Whether every row's file holds the store's bytes."""
    folder = {"small_256": "images/small/", "original": "images/original/"}[found.image_set]
    return all(
        (found.root / item.path).read_bytes() == objects[folder + item.path] for item in found.valid
    )
