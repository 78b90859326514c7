"""A queue of Amazon SQS, or of a server with its JSON protocol, from the event loop.

Credentials, region and signatures are boto3's. Its client is not used: it blocks, so that every
call would need a thread, and takes several times the CPU time of the call.
"""

import asyncio
import logging
import os
import re
import ssl
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import islice
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import boto3
import orjson
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from wallclock.errors import UsageError, UserError, first_line
from wallclock.fetch.retries import is_transient
from wallclock.service.interface import ItemError
from wallclock.service.leases import Message
from wallclock.service.logs import event

#: Entries of a batch call, at most; also messages of a receive.
TEN = 10
_JSON = "application/x-amz-json-1.0"
#: Seconds of a call, beside those that a receive waits for messages; and to connect.
_TIMEOUT = aiohttp.ClientTimeout(30, sock_connect=5)
_REGION = re.compile(r"(?:^|\.)sqs[.-](?:fips\.)?([a-z0-9-]+)\.")
#: SQS allows ten attributes on a message.
_MAX_ATTRIBUTES = 10
#: Codes of refusals that pass, and what mends the others.
_PASSING = re.compile("Throttl|OverLimit|TooMany|Timeout")
_CURES = (
    (re.compile("Denied|HTTP 403"), "allow {action} to these credentials"),
    (re.compile("DoesNotExist|NonExistent|HTTP 404"), "check the queue's URL"),
    (re.compile("Client|Token|Signature|HTTP 401"), "renew the credentials"),
    (re.compile(""), "check the queue's settings"),
)


class QueueError(Exception):
    """The queue is unreachable, or busy; it is worth trying again later."""

    #: Of each entry of a batch call that ends so, as in `Queue.delete`.
    outcome: bool | None = None


class QueueRefusal(QueueError):  # noqa: N818 - a decision
    """The queue has refused a call, and would refuse it again. In one line: why, and its cure."""

    outcome: bool | None = False

    def __init__(self, action: str, code: str, text: str) -> None:
        self.action: str = action
        self.code: str = code
        cure = next(cure for codes, cure in _CURES if codes.search(code))
        right = action.removesuffix("Batch")
        super().__init__(f"{code}: {text or 'no reason given'}; {cure.format(action=right)}")


class Queue:
    """One queue. Call `open` first, in the event loop, and `close` at the end.

    `visibility_s`: for how long a delivery hides a message; 0: as the queue's attribute says.
    Raises UsageError: it is no queue's URL; UserError: there are no credentials.
    """

    #: Of its RedrivePolicy: URL of the dead-letter queue, and deliveries of a message at most.
    dead_letter: str = ""
    max_receives: int = 1

    def __init__(self, url: str, visibility_s: int) -> None:
        self.url: str = url
        self.visibility_s: int = visibility_s
        self.credentials: Any
        self.region: str
        self._endpoint, self.credentials, self.region = _access(url)
        #: Whether the last call was answered; None before the first.
        self.reachable: bool | None = None
        #: Hears of each refusal.
        self.on_refusal: Callable[[QueueRefusal], None] = lambda refusal: None

    @cached_property
    def _session(self) -> aiohttp.ClientSession:
        # trust_env would read ~/.netrc, too, in a thread and for every call.
        parts = urlsplit(self._endpoint)
        direct = proxy_bypass(str(parts.hostname))
        proxy = None if direct else getproxies().get(parts.scheme)
        trusted = ssl.create_default_context(cafile=os.environ.get("AWS_CA_BUNDLE"))
        connector = aiohttp.TCPConnector(ssl=trusted)
        return aiohttp.ClientSession(connector=connector, timeout=_TIMEOUT, proxy=proxy)

    async def open(self) -> None:
        """Read visibility timeout and dead-letter queue. Raises UserError: none, or no queue."""
        try:
            answer = await self._call("GetQueueAttributes", AttributeNames=["All"])
            attributes = answer.get("Attributes", {})
            self.visibility_s = self.visibility_s or int(attributes["VisibilityTimeout"])
            if policy := orjson.loads(attributes.get("RedrivePolicy") or "{}"):
                self.max_receives = int(policy["maxReceiveCount"])
                name = policy["deadLetterTargetArn"].rpartition(":")[2]
                # It is of the same region and account.
                self.dead_letter = f"{self.url.rstrip('/').rpartition('/')[0]}/{name}"
        except QueueError as error:
            cure = "" if isinstance(error, QueueRefusal) else "; check the URL"
            raise UserError(f"{self.url}: {error}{cure}") from error
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise UserError(f"{self.url} does not answer like a queue; check the URL") from error
        if not self.dead_letter:
            raise UserError(f"{self.url} has no dead-letter queue: give it a RedrivePolicy")
        if not self.visibility_s:
            raise UserError("the queue's visibility timeout is 0: set visibility_s=30")

    async def receive(self, most: int, wait_s: int) -> list[Message]:
        """Up to ten messages; waits for the first one up to `wait_s`. Raises QueueError."""
        answer = await self._call(
            "ReceiveMessage",
            MaxNumberOfMessages=min(most, TEN),
            WaitTimeSeconds=wait_s,
            VisibilityTimeout=self.visibility_s,
            MessageSystemAttributeNames=["ApproximateReceiveCount", "MessageGroupId"],
            MessageAttributeNames=["All"],
        )
        return [
            Message(
                id=received["MessageId"],
                handle=received["ReceiptHandle"],
                body=received["Body"],
                n_received=int(received.get("Attributes", {}).get("ApproximateReceiveCount", 1)),
                attributes=received.get("MessageAttributes"),
                group=received.get("Attributes", {}).get("MessageGroupId", ""),
            )
            for received in answer.get("Messages") or ()
        ]

    async def delete(self, handles: Sequence[str]) -> list[bool | None]:
        """Delete up to ten. Per handle: True, None (try again), False (refused). Or QueueError."""
        return await self._batch("DeleteMessageBatch", [{"ReceiptHandle": h} for h in handles])

    async def hide(self, changes: Sequence[tuple[str, int]]) -> list[bool | None]:
        """Hide up to ten (handle, seconds) from now on; 0 returns one. As `delete`."""
        entries = [{"ReceiptHandle": h, "VisibilityTimeout": seconds} for h, seconds in changes]
        return await self._batch("ChangeMessageVisibilityBatch", entries)

    async def _batch(self, action: str, entries: list[dict[str, Any]]) -> list[bool | None]:
        numbered = [{"Id": str(number), **entry} for number, entry in enumerate(entries)]
        answer = await self._call(action, Entries=numbered)
        outcomes: list[bool | None] = [None] * len(entries)
        for entry in answer.get("Successful") or ():
            outcomes[int(entry["Id"])] = True
        for entry in answer.get("Failed") or ():
            outcomes[int(entry["Id"])] = False if entry.get("SenderFault") else None
        return outcomes

    async def bury(self, message: Message, error: ItemError) -> None:
        """Send a message to the dead-letter queue with stage and reason. Raises QueueError."""
        why = {"wallclock.stage": error.stage, "wallclock.reason": error.reason}
        texts = {k: {"DataType": "String", "StringValue": v or "-"} for k, v in why.items()}
        kept = islice((message.attributes or {}).items(), _MAX_ATTRIBUTES - len(texts))
        values: dict[str, Any] = {"MessageAttributes": {**dict(kept), **texts}}
        if self.dead_letter.endswith(".fifo"):
            values["MessageGroupId"] = message.group or message.id
            values["MessageDeduplicationId"] = message.id
        await self._call(
            "SendMessage", QueueUrl=self.dead_letter, MessageBody=message.body, **values
        )

    async def _call(self, action: str, **values: Any) -> Any:
        """One call; the log says once that the queue is gone, and once it is back."""
        body = orjson.dumps({"QueueUrl": self.url} | values)
        try:
            headers = await self._signed(action, body)
            async with self._session.post(self._endpoint, data=body, headers=headers) as response:
                answer = await response.read()
                if response.status != 200:
                    raise _error(action, response.status, answer)
                parsed = orjson.loads(answer)
        except QueueRefusal as refusal:
            self._answered()
            self.on_refusal(refusal)
            raise
        except Exception as error:  # also what a source of credentials raises
            reason = first_line(error)
            if self.reachable:
                event(logging.WARNING, "queue unreachable", action=action, reason=reason)
            self.reachable = False
            raise QueueError(reason) from error
        self._answered()
        return parsed

    def _answered(self) -> None:
        if self.reachable is False:
            event(logging.WARNING, "queue reachable again")
        self.reachable = True

    async def _signed(self, action: str, body: bytes) -> dict[str, str]:
        """The headers of a call."""
        get_credentials = self.credentials.get_frozen_credentials
        if getattr(self.credentials, "refresh_needed", bool)():  # temporary ones: a call for them
            await asyncio.to_thread(get_credentials)
        headers = {"Content-Type": _JSON, "X-Amz-Target": f"AmazonSQS.{action}"}
        request = AWSRequest("POST", self._endpoint, headers, body)
        SigV4Auth(get_credentials(), "sqs", self.region).add_auth(request)
        return dict(request.headers)

    async def close(self) -> None:
        """Make no more calls; one that is on its way is cut off."""
        await self._session.close()


def _access(url: str) -> tuple[str, Any, str]:
    """The endpoint of a queue's URL, credentials and region. Raises UserError: it has none."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or not parts.path.strip("/"):
        raise UsageError(
            f"{url}: give a queue's URL, https://sqs.REGION.amazonaws.com/ACCOUNT/NAME"
        )
    session, region = boto3.session.Session(), _REGION.search(parts.hostname)
    of_amazon = parts.hostname.endswith((".amazonaws.com", ".amazonaws.com.cn"))
    if of_amazon or {"AWS_ACCESS_KEY_ID", "AWS_PROFILE"} & os.environ.keys():
        credentials = session.get_credentials()
    else:
        # A server of one's own: without this, boto3 would look for keys on the network.
        credentials = Credentials("local", "local")
    if credentials is None:
        raise UserError(f"{url}: no AWS credentials; set AWS_PROFILE, or AWS_ACCESS_KEY_ID and key")
    name = region[1] if region else session.region_name or "us-east-1"
    return f"{parts.scheme}://{parts.netloc}/", credentials, name


def _error(action: str, status: int, answer: bytes) -> QueueError:
    """What an answer that is not 200 means."""
    try:
        error = orjson.loads(answer)
        code = error["__type"].rpartition("#")[2]
        text = " ".join(str(error.get("message") or error.get("Message")).split()).rstrip(".")
    except (ValueError, TypeError, KeyError, AttributeError):
        code, text = f"HTTP {status}", ""
    if status < 400 or is_transient(status) or _PASSING.search(code):
        return QueueError(f"{code}: {text}")
    return QueueRefusal(action, code, text)
