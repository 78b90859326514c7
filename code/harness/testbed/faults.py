"""Faults that a server makes when it is told to, and the counts of what it did."""

import asyncio
import random
import socket
import struct
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import orjson
from aiohttp import web

from wallclock.errors import UserError, check_name

#: GET: the counts, and what a server adds to them; with `?counts` these alone. PUT with a JSON
#: object of faults: change these.
CONTROL = "/testbed"


@dataclass(frozen=True)
class Faults:
    """How a server misbehaves. Rates are of requests, 0 to 1; the query of a URL sets them for one.

    `?error_rate=1&status=404` is an error for certain; `?redirects=3` three, then the image.
    """

    latency_s: float = 0  # before the first byte of any answer
    error_rate: float = 0
    status: int = 503  # of the errors
    reset_rate: float = 0  # the connection is reset before it is answered
    cut_rate: float = 0  # it is reset amid the image; or in place of an answer, after accepting
    body_s: float = 0  # an image's bytes arrive evenly over so long
    extra_bytes: int = 0  # Content-Length minus the image's; below 0 the image is cut off
    redirects: int = 0
    redirect_to: str = ""  # where the last one leads; default: to the image

    def with_changes(self, values: Mapping[str, Any]) -> "Faults":
        """With other values, text or numbers. Raises UserError: no such fault."""
        types: dict[str, Any] = {field.name: field.type for field in fields(self)}
        new = {name: types[check_name(name, types, "fault")](values[name]) for name in values}
        return replace(self, **new)


class FaultyServer:
    """Delays, errors and resets; a subclass answers the other requests.

    Args:
        faults: of every request whose URL says nothing else; may be replaced at any time.
        seed: of the draws that rates need.
    """

    def __init__(self, faults: Faults = Faults(), seed: int = 0) -> None:
        self.faults = faults
        self.counts = Counter[str]()
        self._random = random.Random(seed)

    def stats(self) -> dict[str, Any]:
        """The counts, for a client in another process."""
        return dict(self.counts)

    async def answer(self, request: web.BaseRequest, faults: Faults) -> web.StreamResponse:
        """A request that is neither an error nor reset."""
        raise NotImplementedError

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """One request."""
        faults = self.faults
        await request.read()  # all of it, whatever the answer
        try:
            if request.path == CONTROL:
                if request.method == "PUT":
                    self.faults = faults.with_changes(await request.json())
                stats = self.counts if "counts" in request.query else self.stats()
                return web.Response(body=orjson.dumps(stats))
            faults = faults.with_changes(request.query)
        except UserError as error:
            return web.Response(status=400, text=str(error))
        self.counts["requests"] += 1
        if faults.latency_s:
            await asyncio.sleep(faults.latency_s)
        if self.happens("resets", faults.reset_rate):
            return reset(request)
        if self.happens("errors", faults.error_rate):
            return web.Response(status=faults.status)
        return await self.answer(request, faults)

    def happens(self, kind: str, rate: float) -> bool:
        """Draw whether a fault happens, and count it."""
        happens = self._random.random() < rate
        self.counts[kind] += happens
        return happens


def reset(request: web.BaseRequest) -> web.Response:
    """Close a request's connection with a TCP reset; the response is not sent."""
    if request.transport is not None:
        connection: socket.socket = request.transport.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        request.transport.abort()
    return web.Response()
