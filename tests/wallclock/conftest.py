"""Fixtures that several parts of the product share: tiny images, a store of S3."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from moto.s3.responses import S3Response
from moto.server import ThreadedMotoServer

from tests.harness.corpora.abo.conftest import fill
from tests.harness.engines.conftest import tiny as tiny


@pytest.fixture(scope="module")
def s3_server() -> Iterator[str]:
    """moto's server with a bucket. It looks and stores in two steps, which S3 does in one."""
    one_at_a_time, put = threading.Lock(), S3Response.put_object

    def atomic(self: S3Response) -> Any:
        with one_at_a_time:
            return put(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(S3Response, "put_object", atomic)
        server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
        server.start()
        endpoint = f"http://127.0.0.1:{server.get_host_and_port()[1]}"
        fill(endpoint, "bucket", {})
        yield endpoint
        server.stop()


@pytest.fixture
def s3(s3_server: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The server's address, which is in the environment, with keys."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    return s3_server
