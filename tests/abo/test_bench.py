"""The benchmark's parts: nginx serves and lists as S3 does, the proxy breaks what it says."""

from __future__ import annotations

import http.client
import time

import boto3
from botocore import UNSIGNED
from botocore.config import Config

from benchmarks.nginx import Nginx
from tests.abo import bucket
from tests.abo.conftest import Corpus, N, intact


def test_nginx_answers_gets_and_listings(nginx: Nginx, objects: dict[str, bytes]) -> None:
    client = boto3.client(
        "s3", endpoint_url=nginx.endpoint, region_name="us-east-1", config=Config(signature_version=UNSIGNED)
    )
    listed = client.list_objects_v2(Bucket=bucket.NAME, Prefix="images/small/")["Contents"]
    small = {key: data for key, data in objects.items() if key.startswith("images/small/")}
    assert {one["Key"]: one["Size"] for one in listed} == {key: len(data) for key, data in small.items()}
    key = next(iter(small))
    answer = client.get_object(Bucket=bucket.NAME, Key=key)
    assert answer["Body"].read() == small[key]
    assert answer["ETag"] in {one["ETag"] for one in listed}
    client.close()


def test_its_second_port_adds_the_delay(nginx: Nginx) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", nginx.slow_port)
    path = f"/{bucket.NAME}/README.md"
    for _ in range(3):
        began = time.monotonic()
        connection.request("GET", path)
        answer = connection.getresponse()
        assert answer.read() == bucket.README
        assert answer.status == 200
        assert 0.018 < time.monotonic() - began < 0.5
    connection.request("GET", path + "x")
    assert connection.getresponse().status == 404
    connection.close()


def test_the_corpus_from_nginx(nginx: Nginx, corpus: Corpus, objects: dict[str, bytes]) -> None:
    for endpoint in (nginx.endpoint, nginx.slow_endpoint):
        corpus.cache = corpus.cache.parent / endpoint[-5:]
        found = corpus(endpoint=endpoint)
        assert len(found.sound) == N
        assert intact(found, objects)
        assert all(item.etag for item in found.items)
