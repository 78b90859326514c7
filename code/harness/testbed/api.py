"""The actions of Amazon SQS on queues in memory, without a network or a clock.

`Queues.call(action, parameters, now)` is one call of the API (version 2012-11-05), parameters and
answer as in its JSON. The answer depends on the state, the parameters and the time alone, ids and
receipt handles included: the same calls at the same times restore the state. It has what the
service, the ladder and their tests call, and no more.

Source: https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/
"""

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from harness.testbed.queues import MAX_VISIBILITY_S, Json, Queue, SqsError

ACCOUNT = "000000000000"
_ARN = f"arn:aws:sqs:us-east-1:{ACCOUNT}:"
#: Of a message, and of a batch.
_MAX_BYTES = 1 << 20


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
        attributes = {key: str(value) for key, value in (params.get("Attributes") or {}).items()}
        for key, value in attributes.items():
            if key == "RedrivePolicy":
                self._check_policy(value)
            elif key != "VisibilityTimeout":
                raise SqsError("InvalidAttributeName", f"Unknown Attribute {key}.")
        queue = self._queues.setdefault(name, Queue(name, attributes, now))
        existing = self._attributes(queue, now)
        if any(existing.get(key, "") != value for key, value in attributes.items()):
            raise SqsError("QueueNameExists", "It exists with a different value of an attribute.")
        return {"QueueUrl": _path(name)}

    def _check_policy(self, text: str) -> None:
        with suppress(ValueError, TypeError, KeyError, AttributeError):
            policy = json.loads(text)
            if (
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
            "ApproximateNumberOfMessagesNotVisible": queue.n_in_flight,
            "QueueArn": _ARN + queue.name,
            "VisibilityTimeout": queue.visibility_s,
        }
        if queue.redrive():
            values["RedrivePolicy"] = queue.attributes["RedrivePolicy"]
        return {key: str(value) for key, value in values.items()}

    def _get_attributes(self, queue: Queue, params: Json, now: float) -> Json:
        names = params.get("AttributeNames") or []
        attributes = self._attributes(queue, now)
        wanted = {key: value for key, value in attributes.items() if key in names or "All" in names}
        return {"Attributes": wanted} if wanted else {}

    def _send(self, queue: Queue, params: Json, now: float) -> Json:
        body = _need(params, "MessageBody")
        if len(body.encode()) > _MAX_BYTES:
            raise _invalid("(too long)", "MessageBody", f"it is longer than {_MAX_BYTES} bytes")
        message = queue.send(body, params.get("MessageAttributes") or {})
        return {"MessageId": message.id, "MD5OfMessageBody": message.body_md5}

    def _receive(self, queue: Queue, params: Json, now: float) -> Json:
        most = _number(params, "MaxNumberOfMessages", 1, 1, 10)
        hidden_s = _number(params, "VisibilityTimeout", queue.visibility_s, 0, MAX_VISIBILITY_S)
        wait_s(params)
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


def wait_s(params: Json) -> int:
    """How many seconds a `ReceiveMessage` waits for a message."""
    return _number(params, "WaitTimeSeconds", 0, 0, 20)


def _batch(params: Json, call_single: Callable[[Json], Json]) -> Json:
    """Call with each entry; an entry fails alone."""
    entries = params.get("Entries") or []
    ids = [_need(entry, "Id") for entry in entries]
    bodies = [entry.get("MessageBody", "").encode() for entry in entries]
    mistakes = {
        "EmptyBatchRequest": not ids,
        "TooManyEntriesInBatchRequest": len(ids) > 10,
        "BatchEntryIdsNotDistinct": len(set(ids)) < len(ids),
        "BatchRequestTooLong": sum(map(len, bodies)) > _MAX_BYTES,
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


def _delivery(queue: Queue, number: int, params: Json) -> Json:
    """A message as `ReceiveMessage` answers it, with the attributes that were asked for."""
    message = queue.messages[number]
    answer: Json = {
        "MessageId": message.id,
        "ReceiptHandle": queue.handle(number),
        "Body": message.body,
        "MD5OfBody": message.body_md5,
    }
    if message.attributes and "All" in (params.get("MessageAttributeNames") or []):
        answer["MessageAttributes"] = message.attributes
    counted = "ApproximateReceiveCount"
    if counted in (params.get("MessageSystemAttributeNames") or []):
        answer["Attributes"] = {counted: str(message.n_received)}
    return answer
