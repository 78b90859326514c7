"""A queue of Amazon SQS, or of a server with its protocol, through boto3 in a few threads."""

import asyncio
import logging
import os
import random
import re
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from typing import Any, Generic, TypeVar
from urllib.parse import urlsplit

import boto3
import orjson
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from wallclock.errors import UserError, first_line
from wallclock.service.leases import Message
from wallclock.service.logs import event
from wallclock.service.module import ItemError

T = TypeVar("T")

#: Entries of a batch call, at most; also messages of a receive.
TEN = 10
_REGION = re.compile(r"(?:^|\.)sqs[.-](?:fips\.)?([a-z0-9-]+)\.")
#: SQS allows ten attributes on a message, and a reason is read by people.
_MAX_ATTRIBUTES, _MAX_REASON = 10, 1_000


class QueueError(Exception):
    """The queue is unreachable or has refused a call; it is worth trying again later."""


class Queue:
    """One queue. Call `open` first.

    Args:
        url: its URL; the host is the endpoint.
        visibility_s: for how long a delivery hides a message; 0: as the queue's attribute says.
        dead_letter: URL of the dead-letter queue, if not the one of the queue's RedrivePolicy.
        max_receives: deliveries before a message is given up, if the queue has no RedrivePolicy.
        pulls: receives at a time; they have threads of their own, for they wait for messages.
    """

    def __init__(
        self, url: str, visibility_s: int, dead_letter: str, max_receives: int, pulls: int
    ) -> None:
        self.url, self.visibility_s = url, visibility_s
        self.dead_letter, self.max_receives = dead_letter, max_receives
        self._client = _connect(url, pulls + TEN)
        self._pulls = ThreadPoolExecutor(pulls, "queue-receive")
        self._calls = ThreadPoolExecutor(TEN, "queue-call")
        #: Whether the last call was answered; None before the first.
        self.reachable: bool | None = None

    async def open(self) -> None:
        """Read the queue's visibility timeout and where its dead letters go.

        Raises UserError: no such queue, it cannot be reached, or it has no dead-letter queue.
        """
        try:
            answer = await self._call("get_queue_attributes", AttributeNames=["All"])
            attributes = answer.get("Attributes", {})
            self.visibility_s = self.visibility_s or int(attributes["VisibilityTimeout"])
            policy = orjson.loads(attributes.get("RedrivePolicy") or "{}")
            self.max_receives = int(policy.get("maxReceiveCount", self.max_receives))
            arn = policy.get("deadLetterTargetArn", "").split(":")
            if not self.dead_letter and len(arn) == 6:
                names = {"QueueName": arn[5], "QueueOwnerAWSAccountId": arn[4]}
                found = await self._call("get_queue_url", QueueUrl=None, **names)
                self.dead_letter = found["QueueUrl"]
        except QueueError as error:
            raise UserError(f"{self.url}: {error}; check the URL and the credentials") from error
        if not self.dead_letter:
            fix = "give it a RedrivePolicy, or set dead_letter=URL"
            raise UserError(f"{self.url} has no dead-letter queue for what fails: {fix}")
        if not self.visibility_s:
            raise UserError("the queue's visibility timeout is 0: set visibility_s=30")

    async def receive(self, most: int, wait_s: int) -> list[Message]:
        """Up to ten messages; waits for the first one up to `wait_s`. Raises QueueError."""
        answer = await self._call(
            "receive_message",
            self._pulls,
            MaxNumberOfMessages=min(most, TEN),
            WaitTimeSeconds=wait_s,
            VisibilityTimeout=self.visibility_s,
            MessageSystemAttributeNames=["ApproximateReceiveCount"],
            MessageAttributeNames=["All"],
        )
        return [
            Message(
                id=one["MessageId"],
                handle=one["ReceiptHandle"],
                body=one["Body"],
                n_received=int(one.get("Attributes", {}).get("ApproximateReceiveCount", 1)),
                attributes=one.get("MessageAttributes"),
            )
            for one in answer.get("Messages", [])
        ]

    async def delete(self, handles: Sequence[str]) -> list[bool | None]:
        """Delete up to ten. Per handle: True, None (try again), False (refused for good).

        Raises QueueError: the whole call failed.
        """
        return await self._batch("delete_message_batch", [{"ReceiptHandle": h} for h in handles])

    async def hide(self, changes: Sequence[tuple[str, int]]) -> list[bool | None]:
        """Hide up to ten (handle, seconds) from now on; 0 returns one. As `delete`."""
        entries = [{"ReceiptHandle": h, "VisibilityTimeout": seconds} for h, seconds in changes]
        return await self._batch("change_message_visibility_batch", entries)

    async def _batch(self, action: str, entries: list[dict[str, Any]]) -> list[bool | None]:
        numbered = [{"Id": str(number), **entry} for number, entry in enumerate(entries)]
        answer = await self._call(action, Entries=numbered)
        outcomes: list[bool | None] = [None] * len(entries)
        for one in answer.get("Successful", []):
            outcomes[int(one["Id"])] = True
        for one in answer.get("Failed", []):
            outcomes[int(one["Id"])] = False if one.get("SenderFault") else None
        return outcomes

    async def bury(self, message: Message, error: ItemError) -> None:
        """Send a message to the dead-letter queue with stage and reason. Raises QueueError."""
        why = {"wallclock.stage": error.stage, "wallclock.reason": error.reason[:_MAX_REASON]}
        texts = {k: {"DataType": "String", "StringValue": v or "-"} for k, v in why.items()}
        kept = islice((message.attributes or {}).items(), _MAX_ATTRIBUTES - len(texts))
        attributes = {**dict(kept), **texts}
        await self._call(
            "send_message",
            QueueUrl=self.dead_letter,
            MessageBody=message.body,
            MessageAttributes=attributes,
        )

    async def _call(
        self, action: str, pool: ThreadPoolExecutor | None = None, **values: Any
    ) -> Any:
        """One call in a thread; the log says once that the queue is gone, and once it is back."""
        values = {"QueueUrl": self.url} | values
        values = {name: value for name, value in values.items() if value is not None}
        call = partial(getattr(self._client, action), **values)
        try:
            loop = asyncio.get_running_loop()
            answer = await loop.run_in_executor(pool or self._calls, call)
        except (BotoCoreError, ClientError) as error:
            if self.reachable:
                event(logging.WARNING, "queue unreachable", action=action, reason=first_line(error))
            self.reachable = False
            raise QueueError(first_line(error)) from error
        if self.reachable is False:
            event(logging.WARNING, "queue reachable again")
        self.reachable = True
        return answer

    def close(self) -> None:
        """Make no more calls; one that is on its way is not waited for."""
        for pool in (self._pulls, self._calls):
            pool.shutdown(wait=False, cancel_futures=True)


def _connect(url: str, connections: int) -> Any:
    """A boto3 client for a queue's URL. Raises UserError: it is none."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or not parts.path.strip("/"):
        raise UserError(f"{url}: give a queue's URL, https://sqs.REGION.amazonaws.com/ACCOUNT/NAME")
    region = _REGION.search(parts.hostname)
    keys = {}
    of_amazon = parts.hostname.endswith((".amazonaws.com", ".amazonaws.com.cn"))
    if not (of_amazon or {"AWS_ACCESS_KEY_ID", "AWS_PROFILE"} & os.environ.keys()):
        # A server of one's own: without this, boto3 would look for keys on the network.
        keys = {"aws_access_key_id": "local", "aws_secret_access_key": "local"}
    session = boto3.session.Session(**keys)
    config = Config(
        # We try again ourselves, and know for how long that is worth it.
        retries={"total_max_attempts": 1},
        max_pool_connections=connections,
        connect_timeout=5,
        read_timeout=30,
        parameter_validation=False,
    )
    name = region[1] if region else session.region_name or "us-east-1"
    endpoint = f"{parts.scheme}://{parts.netloc}"
    return session.client("sqs", name, endpoint_url=endpoint, config=config)


class Grouped(Generic[T]):
    """Collects entries and hands them on in tens, or after a few milliseconds.

    Args:
        action: a batch call about up to ten entries; tries again itself, and never raises.
        wait_s: from the first entry until a group is sent though it is not full.
    """

    def __init__(self, action: Callable[[list[T]], Awaitable[None]], wait_s: float = 0.01) -> None:
        self._action, self._wait_s = action, wait_s
        self._entries: list[T] = []
        self._timer: asyncio.TimerHandle | None = None
        self._calls: set[asyncio.Task[None]] = set()

    def add(self, entry: T) -> None:
        """Send an entry soon."""
        self._entries.append(entry)
        if len(self._entries) == TEN:
            self._send()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._wait_s, self._send)

    def _send(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None
        if self._entries:
            call = asyncio.ensure_future(self._action(self._entries))
            self._entries = []
            self._calls.add(call)
            call.add_done_callback(self._calls.discard)

    async def flush(self) -> None:
        """Send what is left, and wait for every call."""
        self._send()
        while self._calls:
            await asyncio.wait(set(self._calls))

    def close(self) -> None:
        """Give up."""
        self._entries = []
        self._send()
        for call in self._calls:
            call.cancel()


def pause_s(attempt: int, first_s: float = 0.1, most_s: float = 5.0) -> float:
    """Seconds before the next try: doubled with each attempt (from 0) up to a limit, jittered."""
    return random.uniform(0.5, 1) * min(most_s, first_s * (1 << min(attempt, 30)))
