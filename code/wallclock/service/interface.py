"""What a user of the service writes: a `Module` with two methods. Requests, and how they fail."""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import orjson

from wallclock.errors import UserError
from wallclock.outside import printable


class ItemError(Exception):
    """One message failed in a stage, with a reason of one line.

    `permanent`: another attempt would fail too, so the message goes to the dead-letter queue at
    once; otherwise it is retried, until the queue's maxReceiveCount. An `ImageError` is permanent.
    """

    def __init__(self, stage: str, reason: str, permanent: bool = False) -> None:
        self.stage: str = stage
        self.permanent: bool = permanent
        # A queue takes neither control characters nor what is no Unicode text.
        self.reason: str = printable(" ".join(reason.split()))
        super().__init__(f"{stage}: {self.reason}")


@dataclass(frozen=True, slots=True)
class Request:
    """`{"id"?, "url", "callback_url", "parameters"?}` of a message; without an id, its own."""

    id: str
    url: str
    callback_url: str
    parameters: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def parse(cls, message_id: str, body: str) -> "Request":
        """The request in a message's body; other keys are ignored. Raises ItemError, permanent."""
        try:
            given = orjson.loads(body)
        except orjson.JSONDecodeError as error:
            raise ItemError("parse", f"the body is not JSON: {error}", True) from error
        if not isinstance(given, dict):
            raise ItemError("parse", "the body is not a JSON object", True)
        values = {"id": message_id, "parameters": {}, **given}
        kinds: dict[str, type] = {"id": str, "url": str, "callback_url": str, "parameters": dict}
        for name, kind in kinds.items():
            value = values.get(name)
            if not isinstance(value, kind) or (kind is str and not value):
                what = "an object" if kind is dict else "a text"
                raise ItemError("parse", f"'{name}' is missing or not {what}", True)
        return cls(*[values[name] for name in kinds])


class Module(ABC):
    """The work on images; pulling, downloading, batching, callbacks and errors are the service's.

    The parameters of `__init__`, each with a default, are the module's settings: `name=value` of
    `wallclock serve`, converted to the type of the default. One with the name of a setting of the
    service (`batch`, `workers`) gets that setting's value. It is made once, before the first pull.
    """

    @abstractmethod
    def preprocess(self, image: bytes, request: Request) -> np.ndarray:
        """One image as an array; all arrays have the same shape and dtype.

        Runs in several threads at once; libraries that decode release Python's lock.
        Raises ImageError: the image is damaged or unsafe; only this message fails.
        """

    @abstractmethod
    def process(self, batch: np.ndarray) -> Sequence[Any]:
        """One result per row of `batch` (n, *the shape of one array): JSON or a numpy array.

        A result that is an ImageError or ItemError is the failure of that message alone. An
        argument `parameters` gets the `Request.parameters` of each row. Runs in one thread. If it
        raises, each row is tried again alone.
        """


def takes_parameters(module: Module) -> bool:
    """Whether `process` has the argument `parameters`. Raises UserError: it takes no batch."""
    try:
        signature = inspect.signature(module.process)
        takes = "parameters" in signature.parameters
        signature.bind(None, **({"parameters": ()} if takes else {}))
    except (TypeError, ValueError) as error:  # ValueError: it has no signature that can be read
        fix = "its arguments are batch and, where it needs them, parameters"
        raise UserError(f"{type(module).__name__}.process: {error}; {fix}") from error
    return takes
