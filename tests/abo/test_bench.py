"""The benchmark's parts: nginx serves and lists as S3 does, the proxy breaks what it says."""

from __future__ import annotations

import csv
import http.client
import time

import boto3
from botocore import UNSIGNED
from botocore.config import Config

from benchmarks.fetch import COLUMNS
from benchmarks.nginx import Nginx
from tests.abo import bucket
from tests.abo.conftest import Corpus, N, intact
from tests.abo.fault_proxy import MENDABLE
from tests.conftest import ROOT

REFERENCE = ROOT / "data" / "reference" / "fetch-benchmark" / "amd-epyc-2-cores.csv"


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


def test_the_document_says_what_was_measured() -> None:
    text = " ".join((ROOT / "REPRODUCE.md").read_text(encoding="utf-8").split())
    with REFERENCE.open(encoding="utf-8", newline="") as handle:
        rows = list(csv.DictReader(handle))
    assert tuple(rows[0]) == COLUMNS
    for row in rows[:-1]:
        line = (
            f"| {row['added_ms']} ms | {row['fetcher']} | {row['threads']} | {float(row['objects_per_s']):,.0f} "
            f"| {float(row['objects_per_s_ratio']):.2f} | {float(row['cpu_ms_per_object']):.2f} "
            f"| {float(row['cpu_ratio']):.2f} | {float(row['peak_memory_mib']):.0f} |"
        )
        assert line in text
    last = rows[-1]
    assert f"broke {int(last['faulty_answers']):,} answers in {len(MENDABLE)} ways" in text
    assert f"{int(last['n_intact']):,} of {int(last['n_objects']):,} intact, {int(last['requests']):,} requests" in text
    assert f"most {float(last['peak_memory_mib']):.0f} MiB, and a second run asks for {last['requests_again']}." in text
