"""A server of images that can be slow, broken, or lie about their length."""

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from aiohttp import web

from harness.testbed.faults import Faults, FaultyServer, reset
from harness.testbed.serving import send_parts

#: Parts in which a slow body is sent.
_PARTS = 20
#: What was written before a reset has left by then.
_BEFORE_RESET_S = 0.001
_JPEG = {"Content-Type": "image/jpeg"}
_RANGE = re.compile(r"bytes=(\d+)-(\d+)")


class ImageServer(FaultyServer):
    """Answers GET of `/<path>` with the files of a folder, which it holds in memory."""

    def __init__(self, folder: Path, **options: Any) -> None:
        super().__init__(**options)
        files = (path for path in sorted(folder.rglob("*")) if path.is_file())
        self._images = {
            f"/{path.relative_to(folder).as_posix()}": path.read_bytes() for path in files
        }

    async def answer(self, request: web.BaseRequest, faults: Faults) -> web.StreamResponse:
        """The image or the range of it that is asked for, a redirect, or 404."""
        if faults.redirects > 0:
            return self._redirect(request, faults)
        image = self._images.get(request.path)
        if image is None:
            return web.Response(status=404)
        if wanted := _RANGE.fullmatch(request.headers.get("Range", "")):
            part = image[int(wanted[1]) : int(wanted[2]) + 1]
            return web.Response(status=206, body=part, headers=_JPEG)
        self.counts["images"] += 1
        length = len(image) + faults.extra_bytes
        is_cut = self.happens("cuts", faults.cut_rate)
        if not (faults.body_s or faults.extra_bytes or is_cut):
            self.counts["bytes"] += len(image)
            return web.Response(body=image, headers=_JPEG)
        image = image[: len(image) // 2 if is_cut else max(length, 0)]
        parts = self._parts(image, faults.body_s, request if is_cut else None)
        return await send_parts(request, parts, max(length, 0), _JPEG)

    async def _parts(
        self, image: bytes, seconds: float, cut: web.BaseRequest | None
    ) -> AsyncIterator[bytes]:
        """The image evenly over so long; then a request that is cut is reset."""
        n_parts = _PARTS if seconds else 1
        step = -(-len(image) // n_parts) or 1
        for start in range(0, len(image), step):
            await asyncio.sleep(seconds / n_parts)
            part = image[start : start + step]
            self.counts["bytes"] += len(part)
            yield part
        if cut is not None:
            await asyncio.sleep(_BEFORE_RESET_S)
            reset(cut)

    def _redirect(self, request: web.BaseRequest, faults: Faults) -> web.Response:
        self.counts["redirects"] += 1
        if faults.redirects == 1 and faults.redirect_to:
            location = faults.redirect_to
        else:
            query = {**request.query, "redirects": faults.redirects - 1}
            location = f"{request.path}?{urlencode(query)}"
        return web.Response(status=302, headers={"Location": location})
