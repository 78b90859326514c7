"""An HTTP endpoint in front of the service: a picture's URL in, the service's result out.

python -m examples.picture_api QUEUE_URL [--port 8000] [--seconds 30]

`POST /pictures` with {"url": …, "parameters"?: …} sends a message to the queue and waits for its
callback, which the service POSTs to `/done` of the same server. The answer is the callback's body:
200 with a result, 422 with stage and reason of a failure (the service needs notify_failures=true).
Without a callback in time it is 504, with too many that wait 503. The standard library, and boto3
for the queue. Where WALLCLOCK_CALLBACK_SECRET is set, callbacks must be signed with it.
"""

import argparse
import json
import os
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import Empty, Full, Queue
from typing import Any

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from wallclock.service.callbacks import SECRET, SIGNATURE, verify_signature

_MAX_BODY_BYTES = 1 << 20
#: Of silence while a request is read.
_READ_S = 10.0

Answer = tuple[int, Mapping[str, Any]]


class Pictures:
    """Requests that wait for their callbacks.

    Args:
        send: puts a message's body into the queue.
        callback_url: of this server's `/done`, as the service reaches it.
        seconds: that a request waits at most.
        most: requests that wait at a time.
    """

    def __init__(
        self, send: Callable[[str], object], callback_url: str, seconds: float, most: int
    ) -> None:
        self._send, self.callback_url = send, callback_url
        self._seconds = seconds
        self._places = threading.BoundedSemaphore(most)
        #: Id → where the callback's body goes.
        self._waiting: dict[str, Queue[Mapping[str, Any]]] = {}

    def ask(self, body: bytes) -> Answer:
        """Send a picture to the service and wait: status and body of the answer."""
        request = _read_object(body)
        if request is None or not isinstance(request.get("url"), str):
            return 400, {"error": "the body is no JSON object with a url"}
        if not self._places.acquire(blocking=False):
            return 503, {"error": "too many requests wait"}
        # Nobody can guess it, so that nobody else can answer.
        identity = uuid.uuid4().hex
        answer = self._waiting[identity] = Queue(1)
        try:
            message = {"id": identity, "url": request["url"], "callback_url": self.callback_url}
            self._send(json.dumps(message | {"parameters": request.get("parameters") or {}}))
            called_back = answer.get(timeout=self._seconds)
        except Empty:
            return 504, {"id": identity, "error": f"no result within {self._seconds:g} s"}
        except (BotoCoreError, ClientError) as error:
            return 502, {"error": f"the queue: {error}"}
        finally:
            del self._waiting[identity]
            self._places.release()
        return (422 if "error" in called_back else 200), called_back

    def done(self, body: bytes, signature: str) -> Answer:
        """Take a callback. One that comes late or twice is accepted, or it would come again."""
        secret = os.environ.get(SECRET, "")
        if secret and not verify_signature(
            secret, signature, self.callback_url, body, now=time.time()
        ):
            return 403, {"error": "not signed by who knows the secret"}
        called_back = _read_object(body)
        if called_back is None:
            return 400, {"error": "the body is no JSON object"}
        waiting = self._waiting.get(str(called_back.get("id")))
        if waiting is not None:
            with suppress(Full):
                waiting.put_nowait(called_back)
        return 200, {}


def _read_object(body: bytes) -> Mapping[str, Any] | None:
    try:
        value = json.loads(body)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


class PictureServer(ThreadingHTTPServer):
    """Listens once it is made; `pictures` is set before `serve_forever`."""

    daemon_threads = True
    request_queue_size = 128
    pictures: Pictures

    def __init__(self, host: str, port: int) -> None:
        super().__init__((host, port), _Handler)


class _Handler(BaseHTTPRequestHandler):
    """The requests of one connection, in a thread of its own."""

    server: PictureServer

    protocol_version = "HTTP/1.1"
    timeout = _READ_S

    def do_POST(self) -> None:
        """Called for each POST."""
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > _MAX_BODY_BYTES:
            self.close_connection = True  # the body is not read
            self._answer(413, {"error": f"send Content-Length, at most {_MAX_BODY_BYTES} bytes"})
            return
        body = self.rfile.read(int(length))
        if self.path == "/pictures":
            self._answer(*self.server.pictures.ask(body))
        elif self.path == "/done":
            self._answer(*self.server.pictures.done(body, self.headers.get(SIGNATURE, "")))
        else:
            self._answer(404, {"error": "POST /pictures"})

    def _answer(self, status: int, value: Mapping[str, Any]) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        with suppress(ConnectionError):  # the client is gone
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


def main(words: Sequence[str] | None = None) -> None:
    """Answer until interrupted."""
    parser = argparse.ArgumentParser(
        "python -m examples.picture_api",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("queue", help="URL of the queue that wallclock serve works on")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--callback-url", help="of /done, as the service reaches it")
    parser.add_argument("--seconds", type=float, default=30, help="that a request waits")
    parser.add_argument("--most", type=int, default=100, help="requests that wait at a time")
    chosen = parser.parse_args(words)
    try:
        queue = boto3.client("sqs")
    except BotoCoreError as error:
        parser.error(f"{error} Set AWS_DEFAULT_REGION, or a profile.")

    def send(body: str) -> object:
        return queue.send_message(QueueUrl=chosen.queue, MessageBody=body)

    with suppress(KeyboardInterrupt), PictureServer(chosen.host, chosen.port) as server:
        url = f"http://{chosen.host}:{server.server_port}"
        callback_url = chosen.callback_url or f"{url}/done"
        server.pictures = Pictures(send, callback_url, chosen.seconds, chosen.most)
        print(f"POST {url}/pictures", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
