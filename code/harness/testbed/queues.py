"""One standard queue of Amazon SQS in memory: two heaps, and no clock of its own.

Messages are delivered oldest first and each once, which SQS allows and does not promise. Where its
reference leaves a choice:

* A receipt handle is that of the last delivery. `DeleteMessage` with it works after the visibility
  timeout too, as long as the message was not delivered again; with an older one it succeeds and
  deletes nothing (reference of DeleteMessage: "the message might not be deleted").
* `ChangeMessageVisibility` of a message that is visible again is `MessageNotInflight`; with an
  older handle, or of a deleted message, `InvalidParameterValue`.
* A handle of another queue, or what is no handle at all, is `ReceiptHandleIsInvalid`.

Source: https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/
"""

import heapq
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import md5
from typing import Any

Json = dict[str, Any]

#: For how long a delivered message is hidden, unless the queue or the call says otherwise.
_VISIBILITY_S = 30


class SqsError(Exception):
    """An answer with status 400."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(slots=True)
class Message:
    """One message. Times are Unix seconds; `hidden_until_s` is None while it can be received."""

    id: str
    body: str
    body_md5: str
    attributes: Json
    hidden_until_s: float | None = None
    n_received: int = 0


@dataclass(eq=False)
class Queue:
    """Messages by number, oldest first; a heap of the visible ones, one of the hidden ones by time.

    Entries of the heaps may be stale: of a deleted message, or of one whose time has changed.
    """

    name: str
    attributes: dict[str, str]
    created_s: float
    messages: dict[int, Message] = field(default_factory=dict)
    #: How many are hidden.
    n_in_flight: int = 0
    _visible: list[int] = field(default_factory=list)
    _hidden: list[tuple[float, int]] = field(default_factory=list)
    _n_added: int = 0

    def __post_init__(self) -> None:
        self.uid = md5(f"{self.name} {self.created_s!r}".encode()).hexdigest()
        #: For how long a delivered message is hidden.
        self.visibility_s = int(self.attributes.get("VisibilityTimeout", _VISIBILITY_S))
        #: The redrive policy; empty if there is none.
        self.policy: Json = json.loads(self.attributes.get("RedrivePolicy", "{}"))

    def send(self, body: str, attributes: Json) -> Message:
        """A new message."""
        digest = md5(f"{self.uid} {self._n_added}".encode()).hexdigest()
        identity = "-".join((digest[:8], digest[8:12], digest[12:16], digest[16:20], digest[20:]))
        message = Message(identity, body, md5(body.encode()).hexdigest(), attributes)
        self.add(message)
        return message

    def add(self, message: Message) -> None:
        """Append a message."""
        number = self._n_added
        self._n_added += 1
        self.messages[number] = message
        heapq.heappush(self._visible, number)

    def hide(self, number: int, until_s: float) -> None:
        """Let a message be received again from `until_s` on."""
        message = self.messages[number]
        if message.hidden_until_s is None:
            self.n_in_flight += 1
        message.hidden_until_s = until_s
        heapq.heappush(self._hidden, (until_s, number))

    def show(self, now: float) -> int:
        """Make visible what is due; the number of messages that are visible."""
        while self._hidden and self._hidden[0][0] <= now:
            until_s, number = heapq.heappop(self._hidden)
            message = self.messages.get(number)
            if message is not None and message.hidden_until_s == until_s:
                message.hidden_until_s = None
                self.n_in_flight -= 1
                heapq.heappush(self._visible, number)
        return len(self.messages) - self.n_in_flight

    def due_s(self) -> float:
        """When a hidden message may be visible again; infinity if there is none."""
        return self._hidden[0][0] if self._hidden else float("inf")

    def remove(self, number: int) -> Message:
        """Take a message out."""
        message = self.messages.pop(number)
        if message.hidden_until_s is not None:
            self.n_in_flight -= 1
        return message

    def take(self, now: float) -> Iterator[int]:
        """The visible messages, oldest first; the caller hides or removes each that it takes."""
        self.show(now)
        while self._visible:
            number = heapq.heappop(self._visible)
            if number in self.messages:
                yield number

    def handle(self, number: int) -> str:
        """The receipt handle of a message's last delivery."""
        return f"{self.uid}-{number}-{self.messages[number].n_received}"

    def number_of(self, handle: str) -> int | None:
        """The message whose last delivery a receipt handle is of; None: of an earlier delivery.

        Raises SqsError: it is no handle of this queue.
        """
        uid, _, rest = handle.partition("-")
        number = rest.partition("-")[0]
        if uid != self.uid or not number.isdecimal():
            raise SqsError("ReceiptHandleIsInvalid", "The input receipt handle is invalid.")
        is_last = int(number) in self.messages and self.handle(int(number)) == handle
        return int(number) if is_last else None
