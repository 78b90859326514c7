"""Names with the addresses that a test gives them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import pycurl
import pytest

from wallclock.fetch.transfers import Transfers


@contextmanager
def resolving(addresses_of: Callable[[str], list[str]]) -> Iterator[None]:
    """In all transfers, a name has these addresses; it is looked up for each request."""
    prepare = Transfers._prepare

    def prepared(self: Transfers, curl: Any, transfer: Any) -> None:
        prepare(self, curl, transfer)
        parts = urlsplit(transfer.request.url)
        host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
        curl.setopt(pycurl.RESOLVE, [f"{host}:{port}:{','.join(addresses_of(host))}"])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Transfers, "_prepare", prepared)
        yield
