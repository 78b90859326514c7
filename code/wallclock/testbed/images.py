"""A server of images that can be slow, broken, or lie about their length."""

import asyncio
from pathlib import Path
from typing import Any

from aiohttp import web

from wallclock.testbed.faults import Faults, FaultyServer, reset

#: Parts in which a slow body is sent.
_PARTS = 20


class ImageServer(FaultyServer):
    """Answers GET of `/<path>` with the files of a folder, which it holds in memory."""

    def __init__(self, folder: Path, **options: Any) -> None:
        super().__init__(**options)
        files = (path for path in sorted(folder.rglob("*")) if path.is_file())
        self._images = {
            f"/{path.relative_to(folder).as_posix()}": path.read_bytes() for path in files
        }

    async def answer(self, request: web.BaseRequest, faults: Faults) -> web.StreamResponse:
        """The image, a redirect, or 404."""
        if faults.redirects > 0:
            return self._redirect(request, faults)
        image = self._images.get(request.path)
        if image is None:
            return web.Response(status=404)
        self.counts["images"] += 1
        length, cut = len(image) + faults.extra_bytes, self.happens("cuts", faults.cut_rate)
        if not (faults.body_s or faults.extra_bytes or cut):
            self.counts["bytes"] += len(image)
            return web.Response(body=image, content_type="image/jpeg")
        image = image[: len(image) // 2 if cut else max(length, 0)]
        response = web.StreamResponse(headers={"Content-Type": "image/jpeg"})
        response.content_length = length
        await response.prepare(request)
        parts = _PARTS if faults.body_s else 1
        step = -(-len(image) // parts) or 1
        for start in range(0, len(image), step):
            await asyncio.sleep(faults.body_s / parts)
            part = image[start : start + step]
            self.counts["bytes"] += len(part)
            await response.write(part)
        if cut:
            return reset(request)
        if length > len(image):
            response.force_close()
        await response.write_eof()
        return response

    def _redirect(self, request: web.BaseRequest, faults: Faults) -> web.Response:
        self.counts["redirects"] += 1
        query = {**request.query, "redirects": str(faults.redirects - 1)}
        onward = str(request.rel_url.with_query(query))
        last = faults.redirects == 1 and faults.redirect_to
        return web.Response(status=302, headers={"Location": last or onward})
