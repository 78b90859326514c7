"""Structured logs: one JSON object a line on standard error, with the request's id where one is."""

import logging
import time
from typing import Any

import orjson

from wallclock.outside import printable

#: Characters of a line of a field, and lines of a traceback.
_MOST, _LINES = 400, 200
_log = logging.getLogger("wallclock.service")


def event(level: int, name: str, request: str = "", **fields: Any) -> None:
    """Log one event of a request, or of the service."""
    if _log.isEnabledFor(level):
        about = {"request": request} if request else {}
        _log.log(level, name, extra={"fields": {**about, **fields}})


class _Lines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line = {
            "time": f"{at}.{record.msecs:03.0f}Z",
            "level": record.levelname.lower(),
            "event": printable(record.getMessage(), _MOST),
            **{name: _public(value) for name, value in getattr(record, "fields", {}).items()},
        }
        if record.exc_info:
            line["traceback"] = _public(self.formatException(record.exc_info))
        return orjson.dumps(line, default=lambda value: _public(str(value))).decode()


def _public(value: Any) -> Any:
    """A field without secrets and control characters; a traceback keeps its lines."""
    if isinstance(value, str):
        return "\n".join(printable(line, _MOST) for line in value.split("\n")[:_LINES])
    return value


def set_up(level: str) -> None:
    """Log lines of this level and above to standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(_Lines())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    _log.setLevel(level.upper())
