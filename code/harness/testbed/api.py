"""The actions of Amazon SQS on queues in memory, without a network or a clock.

`Queues.call(action, parameters, now)` is one call of the API (version 2012-11-05), parameters and
answer as in its JSON. The answer depends on the state, the parameters and the time alone, ids and
receipt handles included: the same calls at the same times restore the state. What changes, lists,
empties or deletes a queue is left out; so are FIFO queues, tags, permissions and encryption.

Source: https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/
"""

import json
import re
from base64 import b64decode
from collections.abc import Callable, Mapping
from contextlib import suppress
from hashlib import md5
from typing import Any

from harness.testbed.queues import MAX_VISIBILITY_S, NUMBERS, Json, Queue, SqsError

ACCOUNT = "000000000000"
_ARN = f"arn:aws:sqs:us-east-1:{ACCOUNT}:"
_MAX_BATCH_BYTES = 1 << 20
_NAME = re.compile(r"[\w-]{1,80}", re.ASCII)


class Queues:
    """All queues of one account in one region."""

    def __init__(self) -> None:
        self._queues: dict[str, Queue] = {}

    def call(self, action: str, params: Json, now: float) -> Json:
        """One call of the API at `now` (Unix seconds). Queue URLs in the answer have no host.

        Raises SqsError: as AWS answers; no message has changed.
        """
        if action in _ON_ACCOUNT:
            return _ON_ACCOUNT[action](self, params, now)
        single = action.removesuffix("Batch")
        function = _ON_QUEUE.get(single)
        if function is None or (single != action and single not in _BATCHES):
            raise SqsError("UnsupportedOperation", f"{action} is not supported.")
        queue = self.queue(params)
        if single == action:
            return function(self, queue, params, now)

        def call_single(entry: Json) -> Json:
            return function(self, queue, entry, now)

        return _batch(params, call_single)

    def queue(self, params: Json) -> Queue:
        """The queue that a call names, by URL or by name."""
        name = params.get("QueueName") or _need(params, "QueueUrl").rpartition("/")[2]
        if name not in self._queues:
            raise SqsError("QueueDoesNotExist", "The specified queue does not exist.")
        return self._queues[name]

    def _create(self, params: Json, now: float) -> Json:
        name = _need(params, "QueueName")
        if not _NAME.fullmatch(name):
            raise _invalid(name, "QueueName", "1 to 80 letters, digits, hyphens or underscores")
        attributes = self._parse_attributes(params)
        queue = self._queues.setdefault(name, Queue(name, attributes, now))
        existing = self._attributes(queue, now)
        if any(existing.get(key, "") != value for key, value in attributes.items()):
            raise SqsError("QueueNameExists", "It exists with a different value of an attribute.")
        return {"QueueUrl": _path(name)}

    def _parse_attributes(self, params: Json) -> dict[str, str]:
        """The attributes of a call, each of which must be known and valid."""
        attributes = {key: str(value) for key, value in (params.get("Attributes") or {}).items()}
        for key, value in attributes.items():
            if key == "RedrivePolicy":
                self._check_policy(value)
                continue
            if key not in NUMBERS:
                raise SqsError("InvalidAttributeName", f"Unknown Attribute {key}.")
            _, low, high = NUMBERS[key]
            if not value.isdecimal() or not low <= int(value) <= high:
                raise SqsError("InvalidAttributeValue", f"Invalid value for the parameter {key}.")
        return attributes

    def _check_policy(self, text: str) -> None:
        with suppress(ValueError, TypeError, KeyError, AttributeError):
            policy = json.loads(text or "{}")
            if not policy or (
                policy["deadLetterTargetArn"].removeprefix(_ARN) in self._queues
                and 1 <= int(policy["maxReceiveCount"]) <= 1000
            ):
                return
        reason = "it names no queue, or maxReceiveCount is not 1 to 1000"
        raise _invalid(text, "RedrivePolicy", reason)

    def _url(self, params: Json, now: float) -> Json:
        return {"QueueUrl": _path(self.queue(params).name)}

    def _attributes(self, queue: Queue, now: float) -> dict[str, str]:
        """All attributes of a queue that has them, as text."""
        values: Json = {
            "ApproximateNumberOfMessages": queue.show(now),
            "ApproximateNumberOfMessagesDelayed": queue.n_delayed,
            "ApproximateNumberOfMessagesNotVisible": queue.n_in_flight,
            "CreatedTimestamp": int(queue.created_s),
            "LastModifiedTimestamp": int(queue.created_s),
            "QueueArn": _ARN + queue.name,
        }
        values |= {name: queue.number(name) for name in NUMBERS}
        if queue.redrive():
            values["RedrivePolicy"] = queue.attributes["RedrivePolicy"]
        return {key: str(value) for key, value in values.items()}

    def _get_attributes(self, queue: Queue, params: Json, now: float) -> Json:
        attributes = self._attributes(queue, now)
        names = params.get("AttributeNames") or []
        for name in names:
            if name not in attributes and name not in ("All", "RedrivePolicy"):
                raise SqsError("InvalidAttributeName", f"Unknown Attribute {name}.")
        wanted = {key: value for key, value in attributes.items() if key in names or "All" in names}
        return {"Attributes": wanted} if wanted else {}

    def _send(self, queue: Queue, params: Json, now: float) -> Json:
        body = _need(params, "MessageBody")
        limit = queue.number("MaximumMessageSize")
        if len(body.encode()) > limit:
            raise _invalid("(too long)", "MessageBody", f"it must be shorter than {limit} bytes")
        attributes = params.get("MessageAttributes") or {}
        delay_s = _number(params, "DelaySeconds", queue.number("DelaySeconds"), 0, 900)
        digest = _digest(attributes)
        message = queue.send(body, attributes, now, delay_s)
        return {"MessageId": message.id, "MD5OfMessageBody": message.body_md5} | digest

    def _receive(self, queue: Queue, params: Json, now: float) -> Json:
        most = _number(params, "MaxNumberOfMessages", 1, 1, 10)
        default_s = queue.number("VisibilityTimeout")
        hidden_s = _number(params, "VisibilityTimeout", default_s, 0, MAX_VISIBILITY_S)
        wait_s(queue, params)
        policy = queue.redrive()
        dead = self._queues.get(policy.get("deadLetterTargetArn", "").removeprefix(_ARN))
        limit = float("inf") if dead is queue else int(policy.get("maxReceiveCount", 0))
        taken: list[int] = []
        for number in queue.take(now):
            message = queue.messages[number]
            if dead and message.n_received >= limit:
                dead.add(queue.remove(number))
                continue
            message.n_received += 1
            message.received_s = now
            message.first_received_s = message.first_received_s or now
            queue.hide(number, now + hidden_s)
            taken.append(number)
            if len(taken) == most:
                break
        messages = [_delivery(queue, number, params) for number in taken]
        return {"Messages": messages} if messages else {}

    def _delete(self, queue: Queue, params: Json, now: float) -> Json:
        number = queue.number_of(_need(params, "ReceiptHandle"))
        if number is not None:
            queue.remove(number)
        return {}

    def _change_visibility(self, queue: Queue, params: Json, now: float) -> Json:
        handle = _need(params, "ReceiptHandle")
        _need(params, "VisibilityTimeout")
        seconds = _number(params, "VisibilityTimeout", 0, 0, MAX_VISIBILITY_S)
        number = queue.number_of(handle)
        queue.show(now)
        if number is None:
            reason = "Message does not exist or is not available for visibility timeout change."
            raise _invalid(handle, "ReceiptHandle", reason)
        message = queue.messages[number]
        if message.hidden_until_s is None:
            raise SqsError("MessageNotInflight", "The specified message isn't in flight.")
        if now + seconds - message.received_s > MAX_VISIBILITY_S:
            reason = f"The total is beyond the limit [{MAX_VISIBILITY_S} seconds]"
            raise _invalid(seconds, "VisibilityTimeout", reason)
        queue.hide(number, now + seconds)
        return {}


_ON_ACCOUNT: Mapping[str, Callable[[Queues, Json, float], Json]] = {
    "CreateQueue": Queues._create,
    "GetQueueUrl": Queues._url,
}
_ON_QUEUE: Mapping[str, Callable[[Queues, Queue, Json, float], Json]] = {
    "GetQueueAttributes": Queues._get_attributes,
    "SendMessage": Queues._send,
    "ReceiveMessage": Queues._receive,
    "DeleteMessage": Queues._delete,
    "ChangeMessageVisibility": Queues._change_visibility,
}
_BATCHES = {"SendMessage", "DeleteMessage", "ChangeMessageVisibility"}


def wait_s(queue: Queue, params: Json) -> int:
    """How many seconds a `ReceiveMessage` waits for a message."""
    default_s = queue.number("ReceiveMessageWaitTimeSeconds")
    return _number(params, "WaitTimeSeconds", default_s, 0, 20)


def _batch(params: Json, call_single: Callable[[Json], Json]) -> Json:
    """Call with each entry; an entry fails alone."""
    entries = params.get("Entries") or []
    ids = [_need(entry, "Id") for entry in entries]
    bodies = [entry.get("MessageBody", "").encode() for entry in entries]
    mistakes = {
        "EmptyBatchRequest": not ids,
        "TooManyEntriesInBatchRequest": len(ids) > 10,
        "InvalidBatchEntryId": not all(map(_NAME.fullmatch, ids)),
        "BatchEntryIdsNotDistinct": len(set(ids)) < len(ids),
        "BatchRequestTooLong": sum(map(len, bodies)) > _MAX_BATCH_BYTES,
    }
    for code, is_made in mistakes.items():
        if is_made:
            raise SqsError(code, "A batch has 1 to 10 entries, distinct ids, and 1 MiB at most.")
    answer: Json = {"Successful": [], "Failed": []}
    for entry in entries:
        try:
            answer["Successful"].append({"Id": entry["Id"]} | call_single(entry))
        except SqsError as error:
            answer["Failed"].append(
                {
                    "Id": entry["Id"],
                    "SenderFault": True,
                    "Code": error.query_code,
                    "Message": str(error),
                }
            )
    return answer


def _invalid(value: object, name: str, reason: str) -> SqsError:
    text = f"Value {value} for parameter {name} is invalid. Reason: {reason}"
    return SqsError("InvalidParameterValue", text)


def _need(params: Json, name: str) -> Any:
    if params.get(name) in (None, ""):
        raise SqsError("MissingParameter", f"The request must contain the parameter {name}.")
    return params[name]


def _number(params: Json, name: str, default: int, low: int, high: int) -> int:
    value = params.get(name)
    if value is None:
        return default
    if not isinstance(value, int) or not low <= value <= high:
        raise _invalid(value, name, f"Must be between {low} and {high}, if provided.")
    return value


def _path(name: str) -> str:
    return f"/{ACCOUNT}/{name}"


def _digest(attributes: Json) -> dict[str, str]:
    """MD5 of a message's attributes, if it has any.

    Source: the SQS developer guide, "Calculating the MD5 message digest for message attributes".
    """
    if not attributes:
        return {}
    digest = md5()
    for name, attribute in sorted(attributes.items()):
        kind = str(attribute.get("DataType", ""))
        if kind.partition(".")[0] not in ("String", "Number", "Binary"):
            raise _invalid(kind, "DataType", "The prefixes are Binary, Number, and String.")
        if kind.startswith("Binary"):
            value, transport = b64decode(attribute.get("BinaryValue") or ""), b"\2"
        else:
            value, transport = (attribute.get("StringValue") or "").encode(), b"\1"
        for prefix, part in ((b"", name.encode()), (b"", kind.encode()), (transport, value)):
            digest.update(prefix + len(part).to_bytes(4, "big") + part)
    return {"MD5OfMessageAttributes": digest.hexdigest()}


def _delivery(queue: Queue, number: int, params: Json) -> Json:
    """A message as `ReceiveMessage` answers it, with the attributes that were asked for."""
    message = queue.messages[number]
    wanted = params.get("MessageAttributeNames") or []
    prefixes = tuple(name[:-2] for name in wanted if name.endswith(".*"))
    attributes = {
        name: value
        for name, value in message.attributes.items()
        if name in wanted or "All" in wanted or name.startswith(prefixes)
    }
    names = (params.get("MessageSystemAttributeNames") or []) + (params.get("AttributeNames") or [])
    system = {
        "SenderId": ACCOUNT,
        "SentTimestamp": f"{message.sent_s * 1e3:.0f}",
        "ApproximateReceiveCount": str(message.n_received),
        "ApproximateFirstReceiveTimestamp": f"{message.first_received_s * 1e3:.0f}",
    }
    system = {name: value for name, value in system.items() if name in names or "All" in names}
    answer: Json = {
        "MessageId": message.id,
        "ReceiptHandle": queue.handle(number),
        "Body": message.body,
        "MD5OfBody": message.body_md5,
    }
    answer |= _digest(attributes)
    if attributes:
        answer["MessageAttributes"] = attributes
    if system:
        answer["Attributes"] = system
    return answer
