"""Ray in this process: an actor's call runs when it is waited for."""

import pickle
import traceback
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace
from typing import Any


class LostError(Exception):
    """What Ray raises for a call whose actor is lost."""


class TaskError(Exception):
    """What Ray raises for a call that raised `cause`."""

    def __init__(self, cause: Exception) -> None:
        super().__init__("".join(traceback.format_exception(cause)))
        self.cause = cause


class FakeRay:
    """Nodes by host, each with its CPUs; `calls`: (host, method, arguments) of each actor's call.

    `around`: what a call runs in; it may raise `LostError`.
    """

    def __init__(self, **cpus: int) -> None:
        self.cpus = cpus
        self.calls: list[tuple[str, str, tuple[Any, ...]]] = []
        self.around: Callable[..., AbstractContextManager[Any]] = lambda *_: nullcontext()
        strategies = SimpleNamespace(NodeAffinitySchedulingStrategy=lambda node, soft: node)
        self.util = SimpleNamespace(scheduling_strategies=strategies)
        self.exceptions = SimpleNamespace(RayError=(LostError, TaskError), RayTaskError=TaskError)

    def shards(self, host: str) -> list[int]:
        """Those that a node was given."""
        calls = [args[0] for at, method, args in self.calls if (at, method) == (host, "embed")]
        return [shard for shards in calls for shard in shards]

    def is_initialized(self) -> bool:
        return True

    def nodes(self) -> list[dict[str, Any]]:
        return [
            {
                "NodeID": host,
                "NodeManagerHostname": host,
                "Alive": True,
                "Resources": {"CPU": float(cpus)},
            }
            for host, cpus in self.cpus.items()
        ]

    def put(self, value: Any) -> bytes:
        return pickle.dumps(value)

    def remote(self, kind: Any) -> Any:
        def options(scheduling_strategy: str, **_: Any) -> Any:
            return SimpleNamespace(
                remote=lambda *given: _Handle(self, scheduling_strategy, kind(*given))
            )

        return SimpleNamespace(options=options)

    def wait(self, calls: Sequence["_Call"], **_: Any) -> tuple[list["_Call"], list["_Call"]]:
        first, *others = calls
        first.run()
        return [first], others

    def get(self, reference: Any) -> Any:
        if isinstance(reference, bytes):
            return pickle.loads(reference)
        if isinstance(reference.outcome, Exception):
            raise reference.outcome
        return reference.outcome

    def kill(self, actor: Any) -> None:
        """Its calls are not waited for any more."""


class _Handle:
    """An actor as its driver has it."""

    def __init__(self, ray: FakeRay, host: str, actor: Any) -> None:
        self._ray, self._host, self._actor = ray, host, actor

    def __getattr__(self, method: str) -> Any:
        call = getattr(self._actor, method)
        return SimpleNamespace(remote=lambda *given: _Call(self._ray, self._host, call, given))


class _Call:
    def __init__(self, ray: FakeRay, host: str, call: Any, given: tuple[Any, ...]) -> None:
        self._ray, self._host, self._call, self._given = ray, host, call, given
        self.outcome: Any = None

    def run(self) -> None:
        seen = self._host, self._call.__name__, self._given
        self._ray.calls.append(seen)
        try:
            with self._ray.around(*seen):
                self.outcome = self._call(*self._given)
        except LostError as error:
            self.outcome = error
        except Exception as error:  # noqa: BLE001 - as Ray does
            self.outcome = TaskError(error)
