"""The actions of Amazon SQS on queues in memory, without a network or a clock.

`Queues.call(action, parameters, now)` is one call of the API (version 2012-11-05), parameters and
answer as in its JSON. The answer depends on the state, the parameters and the time alone, ids and
receipt handles included: the same calls at the same times restore the state. It has what the
service, the ladder and their tests call, and no more: of wrong calls, it refuses those that their
timing can lead to.

Source: https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/
"""

from collections.abc import Callable, Mapping

from harness.testbed.queues import Json, Queue, SqsError

ACCOUNT = "000000000000"
_ARN = f"arn:aws:sqs:us-east-1:{ACCOUNT}:"


class Queues:
    """All queues of one account in one region."""

    def __init__(self) -> None:
        self._queues: dict[str, Queue] = {}

    def call(self, action: str, params: Json, now: float) -> Json:
        """One call of the API at `now` (Unix seconds). Queue URLs in the answer have no host.

        Raises SqsError: as AWS answers; no message has changed.
        """
        if action == "CreateQueue":
            return self._create(params, now)
        queue = self.queue(params)
        if action == "GetQueueUrl":
            return {"QueueUrl": f"/{ACCOUNT}/{queue.name}"}
        single = action.removesuffix("Batch")
        function = _ON_QUEUE.get(single)
        if function is None:
            raise SqsError("UnsupportedOperation", f"{action} is not supported.")
        if single == action:
            return function(self, queue, params, now)
        return _batch(params, lambda entry: function(self, queue, entry, now))

    def queue(self, params: Json) -> Queue:
        """The queue that a call names, by URL or by name."""
        name = params.get("QueueName") or params["QueueUrl"].rpartition("/")[2]
        if name not in self._queues:
            raise SqsError("QueueDoesNotExist", "The specified queue does not exist.")
        return self._queues[name]

    def _create(self, params: Json, now: float) -> Json:
        """A new queue; one of this name stays as it is."""
        name = params["QueueName"]
        attributes = {key: str(value) for key, value in params.get("Attributes", {}).items()}
        self._queues.setdefault(name, Queue(name, attributes, now))
        return {"QueueUrl": f"/{ACCOUNT}/{name}"}

    def _get_attributes(self, queue: Queue, params: Json, now: float) -> Json:
        values: Json = {
            "ApproximateNumberOfMessages": queue.show(now),
            "ApproximateNumberOfMessagesNotVisible": queue.n_in_flight,
            "QueueArn": _ARN + queue.name,
            "VisibilityTimeout": queue.visibility_s,
        }
        if queue.policy:
            values["RedrivePolicy"] = queue.attributes["RedrivePolicy"]
        names = params["AttributeNames"]
        wanted = {k: str(value) for k, value in values.items() if k in names or "All" in names}
        return {"Attributes": wanted}

    def _send(self, queue: Queue, params: Json, now: float) -> Json:
        message = queue.send(params["MessageBody"], params.get("MessageAttributes") or {})
        return {"MessageId": message.id, "MD5OfMessageBody": message.body_md5}

    def _receive(self, queue: Queue, params: Json, now: float) -> Json:
        most = params.get("MaxNumberOfMessages", 1)
        hidden_s = params.get("VisibilityTimeout", queue.visibility_s)
        dead = self._queues.get(queue.policy.get("deadLetterTargetArn", "").removeprefix(_ARN))
        limit = int(queue.policy.get("maxReceiveCount", 0))
        taken: list[int] = []
        for number in queue.take(now):
            message = queue.messages[number]
            if dead and message.n_received >= limit:
                dead.add(queue.remove(number))
                continue
            message.n_received += 1
            queue.hide(number, now + hidden_s)
            taken.append(number)
            if len(taken) == most:
                break
        messages = [_delivery(queue, number, params) for number in taken]
        return {"Messages": messages} if messages else {}

    def _delete(self, queue: Queue, params: Json, now: float) -> Json:
        number = queue.number_of(params["ReceiptHandle"])
        if number is not None:
            queue.remove(number)
        return {}

    def _change_visibility(self, queue: Queue, params: Json, now: float) -> Json:
        handle = params["ReceiptHandle"]
        number = queue.number_of(handle)
        queue.show(now)
        if number is None:
            reason = "Message does not exist or is not available for visibility timeout change."
            text = f"Value {handle} for parameter ReceiptHandle is invalid. Reason: {reason}"
            raise SqsError("InvalidParameterValue", text)
        if queue.messages[number].hidden_until_s is None:
            raise SqsError("MessageNotInflight", "The specified message isn't in flight.")
        queue.hide(number, now + params["VisibilityTimeout"])
        return {}


_ON_QUEUE: Mapping[str, Callable[[Queues, Queue, Json, float], Json]] = {
    "GetQueueAttributes": Queues._get_attributes,
    "SendMessage": Queues._send,
    "ReceiveMessage": Queues._receive,
    "DeleteMessage": Queues._delete,
    "ChangeMessageVisibility": Queues._change_visibility,
}


def _batch(params: Json, call_single: Callable[[Json], Json]) -> Json:
    """Call with each entry; an entry fails alone."""
    answer: Json = {"Successful": [], "Failed": []}
    for entry in params["Entries"]:
        identity = {"Id": entry["Id"]}
        try:
            answer["Successful"].append(identity | call_single(entry))
        except SqsError as error:
            why = {"SenderFault": True, "Code": error.code, "Message": str(error)}
            answer["Failed"].append(identity | why)
    return answer


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
