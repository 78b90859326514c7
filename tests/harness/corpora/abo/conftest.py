"""A small ABO behind moto's S3 server, and behind a store that breaks responses."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto.server import ThreadedMotoServer

from harness.corpora import manifest as manifests
from harness.corpora import prepare
from harness.corpora.manifest import Manifest
from harness.spec import CorpusSpec, Slice
from tests.harness.corpora.abo import bucket
from tests.harness.corpora.abo.faulty_store import FaultyStore

#: Images in the small ABO.
N = 40
OBJECTS = bucket.objects(N)
#: All of its images, in both sets.
ALL = {"small_256": 70, "original": 70}


@pytest.fixture(scope="session")
def moto() -> Iterator[str]:
    """The endpoint of moto's server with the small ABO in it."""
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    endpoint = f"http://127.0.0.1:{server.get_host_and_port()[1]}"
    fill(endpoint, bucket.NAME, OBJECTS)
    yield endpoint
    server.stop()


def fill(endpoint: str, name: str, objects: Mapping[str, bytes], acl: str = "public-read") -> None:
    """Put objects into a bucket of moto's, readable by everybody."""
    session = boto3.session.Session("test", "test", region_name="us-east-1")
    client = session.client("s3", endpoint_url=endpoint)
    client.create_bucket(Bucket=name)
    for key, data in objects.items():
        client.put_object(Bucket=name, Key=key, Body=data, ACL=acl)
    client.close()


@pytest.fixture
def store() -> Iterator[FaultyStore]:
    """A store that breaks nothing yet."""
    with FaultyStore(OBJECTS) as store:
        yield store


class Corpus:
    """Prepares `corpus=abo` from an endpoint, as an experiment does."""

    def __init__(self, cache: Path, endpoint: str) -> None:
        self.cache = cache
        self.progress: list[tuple[int, int, str]] = []
        prefixes = {"small_256": 70, "original": 50}
        self.settings: dict[str, Any] = {
            "endpoint": endpoint,
            "bucket": bucket.NAME,
            "region": "us-east-1",
            "threads": 16,
            "attempts": 3,
            "read_timeout_s": 10.0,
            "prefixes": prefixes,
        }

    def spec(self, **changes: Any) -> CorpusSpec:
        return CorpusSpec("abo", **(self.settings | changes))

    def slice(self, image_set: str = "small_256", n: int = N, **changes: Any) -> Slice:
        spec = self.spec(**changes)
        return prepare.prepare(spec, image_set, n, self.cache, self._count)

    def __call__(self, image_set: str = "small_256", n: int = N, **changes: Any) -> Manifest:
        prepared = self.slice(image_set, n, **changes)
        manifest = manifests.load(Path(prepared.manifest)).head(n)
        assert manifest.digest() == prepared.digest
        return manifest

    def _count(self, done: int, total: int, step: str) -> None:
        self.progress.append((done, total, step))

    @property
    def folder(self) -> Path:
        (folder,) = self.cache.glob("abo-*")
        return folder


@pytest.fixture
def corpus(store: FaultyStore, tmp_path: Path) -> Corpus:
    """The small ABO in an empty cache."""
    return Corpus(tmp_path / "corpora", store.endpoint)


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Back off as a local store allows."""
    monkeypatch.setattr("wallclock.fetch.retries.backoff_s", lambda attempt: 0.02)


def intact(manifest: Manifest, objects: Mapping[str, bytes] = OBJECTS) -> bool:
    """Whether every row's file contains the store's bytes."""
    folder = {"small_256": "images/small/", "original": "images/original/"}[manifest.image_set]
    return all(
        (manifest.root / item.path).read_bytes() == objects[folder + item.path]
        for item in manifest.valid
    )
