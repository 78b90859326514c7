"""HTTP connections that another thread can cut off: the GETs on them then fail at once.

A GET of a silent server otherwise ends after the time limit of a read. Redirects to an address in
UTF-8 that is not percent-encoded are followed, as browsers do.
"""

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from weakref import WeakSet

import urllib3


class Connections:
    """A pool for many threads. `options` are those of `urllib3.PoolManager`."""

    def __init__(self, **options: Any) -> None:
        self.pool = urllib3.PoolManager(**options)
        self._sockets: WeakSet[socket.socket] = WeakSet()
        self._lock = threading.Lock()
        self._is_cut = False
        self.pool.pool_classes_by_scheme = {
            scheme: _reporting(pool_class, self._add)
            for scheme, pool_class in self.pool.pool_classes_by_scheme.items()
        }

    def cut_off(self) -> None:
        """Shut down what is connected, and what will be."""
        with self._lock:
            self._is_cut = True
            for connection in self._sockets:
                _shut_down(connection)

    def _add(self, connection: socket.socket) -> None:
        with self._lock:
            self._sockets.add(connection)
            if self._is_cut:
                _shut_down(connection)


def _reporting(pool_class: Any, report: Callable[[socket.socket], None]) -> Any:
    """The same class of pools, whose connections report their sockets."""

    class Connection(pool_class.ConnectionCls):  # type: ignore[misc]
        def connect(self) -> None:
            super().connect()
            # Not the connection: it forgets its socket while a last answer is read from it.
            report(self.sock)

        def getresponse(self) -> Any:
            response = super().getresponse()
            location = response.headers.get("Location", "")
            if not location.isascii():
                # http.client takes headers for Latin-1. What is no UTF-8 stays as it is.
                with suppress(UnicodeError):
                    response.headers["Location"] = location.encode("latin-1").decode()
            return response

    return type("Pool", (pool_class,), {"ConnectionCls": Connection})


def _shut_down(connection: socket.socket) -> None:
    # Of TCP alone: TLS's own would change what the reading thread holds. Closing wakes no reader.
    with suppress(OSError):
        socket.socket.shutdown(connection, socket.SHUT_RDWR)
