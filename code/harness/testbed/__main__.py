"""One server on loopback until SIGTERM: `python -m harness.testbed sqs|images|callbacks`.

Prints its URL. `PUT /testbed` changes the faults of images and callbacks, GET shows their counts.
"""

import argparse
import asyncio
import os
import sys
import threading
from contextlib import suppress
from pathlib import Path

from harness.testbed.callbacks import CallbackReceiver
from harness.testbed.faults import FaultyServer
from harness.testbed.images import ImageServer
from harness.testbed.serving import listening, run
from harness.testbed.sqs import SqsServer


def main() -> None:
    """Serve what the command line names."""
    parser = argparse.ArgumentParser(prog="harness.testbed", description=__doc__)
    parser.add_argument("server", choices=("sqs", "images", "callbacks"))
    parser.add_argument("--port", type=int, default=0, help="default: any free one")
    parser.add_argument("--journal", type=Path, help="of the queues: survives a restart")
    parser.add_argument("--folder", type=Path, default=Path(), help="of the images")
    parser.add_argument("--until-eof", action="store_true", help="end with standard input")
    args = parser.parse_args()
    if args.until_eof:
        threading.Thread(target=_exit_at_eof, daemon=True).start()
    with suppress(KeyboardInterrupt):
        run(_serve(_server(args), args.port))


def _server(args: argparse.Namespace) -> SqsServer | FaultyServer:
    if args.server == "sqs":
        return SqsServer(args.journal)
    return ImageServer(args.folder) if args.server == "images" else CallbackReceiver()


async def _serve(server: SqsServer | FaultyServer, port: int) -> None:
    async with listening(server.handle, port) as url:
        print(url, flush=True)
        await asyncio.Event().wait()


def _exit_at_eof() -> None:
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main()
