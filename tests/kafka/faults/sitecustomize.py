"""Faults at named points, for processes with this folder on their PYTHONPATH: Python imports this file when it starts.

``FAULT_POINT`` names the point, and ``FAULT_PLACE`` the request (``partition:offset``). The first process that reaches
the point writes its pid to the file ``FAULT_MARKER``, and sends itself the signal ``FAULT_SIGNAL``. Points:

``before_start``    the task may start, and its handler has not been called
``in_task``         the handler has begun
``finished``        the handler has returned, and its result has not been read
``after_produce``   the client has the answer; in a transaction: the answer is in the log, and the transaction is open
``after_delivery``  the answer's delivery is confirmed, or the offsets are in the transaction; no commit was requested
``after_commit``    the broker has confirmed a commit that covers the answered request

The point ``coordinator_away`` is different: for ``FAULT_SECONDS`` from the process's second assignment on, the client
gets no reply to requests for committed offsets.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import os
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from importlib.machinery import ModuleSpec
    from types import ModuleType

POINT = os.environ.get("FAULT_POINT", "")
_partition, _, _offset = os.environ.get("FAULT_PLACE", "0:0").partition(":")
PLACE = int(_partition), int(_offset)
_produced = False  # this process has given the answer to its client
_delivered = False  # the delivery of the answer is confirmed
_questions: list[float] = []  # times of the requests for committed offsets


def reach(point: str, place: tuple[int, int] = PLACE) -> None:
    """Send the signal if this is the point and the request of the fault, and no process has sent it before."""
    if point != POINT or place != PLACE:
        return
    try:
        marker = os.open(os.environ["FAULT_MARKER"], os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    except FileExistsError:
        return
    os.write(marker, str(os.getpid()).encode())
    os.close(marker)
    # To this thread. After a signal to the process, another thread may have to wake up, and this one runs meanwhile.
    signal.pthread_kill(threading.get_ident(), signal.Signals[os.environ.get("FAULT_SIGNAL", "SIGKILL")])


# -- the handler


def patch_loader(module: ModuleType) -> None:
    """Wrap the handler that ``worker.handlers.loader`` loads."""
    load = module.load

    def loaded(*arguments: Any, **options: Any) -> Any:
        handler = load(*arguments, **options)

        def handle(request: Any, context: Any, **kwargs: Any) -> Any:
            place = tuple(context.origin)[1:]
            reach("before_start", place)
            result = handler(request, context, **kwargs)
            reach("finished", place)
            return result

        return handle

    module.load = loaded  # type: ignore[attr-defined]


def patch_work(module: ModuleType) -> None:
    """Wrap the part of ``work``, the handler of the tests, that runs after its start is recorded."""
    act = module._act

    def acting(payload: str, context: Any, **options: Any) -> Any:
        reach("in_task", tuple(context.origin)[1:])
        return act(payload, context, **options)

    module._act = acting  # type: ignore[attr-defined]


# -- the clients


def patch_clients(module: ModuleType) -> None:
    """Replace the clients of ``confluent_kafka`` by ones with the points."""
    module.Producer = _producer(module.Producer)  # type: ignore[attr-defined]
    module.Consumer = _consumer(module.Consumer)  # type: ignore[attr-defined]


def _answers(topic: str, value: bytes | None) -> bool:
    """Return whether this record is the answer to the request of the fault."""
    if topic != os.environ["KAFKA_ACK_TOPIC"] or not value:
        return False
    from worker.pb.task_pb2 import Response  # noqa: PLC0415 - long after the interpreter's start

    origin = Response.FromString(value).origin
    return (origin.partition, origin.offset) == PLACE


def _producer(parent: Any) -> Any:
    class Producer(parent):  # type: ignore[misc]
        """A producer that recognizes the answer to the request."""

        def __init__(self, configuration: dict[str, Any]) -> None:
            self._transactional = "transactional.id" in configuration
            super().__init__(configuration)

        def produce(
            self,
            topic: str,
            value: bytes | None = None,
            key: bytes | None = None,
            partition: int = -1,
            on_delivery: Callable[..., None] | None = None,
            **more: Any,
        ) -> None:
            ours = _answers(topic, value)
            callback = _reporting(on_delivery) if ours else on_delivery
            super().produce(topic, value, key, partition, callback, **more)
            if ours:
                globals()["_produced"] = True
                if POINT == "after_produce" and self._transactional:
                    self.flush(30)  # the answer is in the log, in an open transaction
                reach("after_produce")

        def send_offsets_to_transaction(self, *arguments: Any) -> None:
            super().send_offsets_to_transaction(*arguments)
            if _produced:
                reach("after_delivery")

        def commit_transaction(self, *arguments: Any) -> None:
            super().commit_transaction(*arguments)
            if _produced:
                reach("after_commit")

    return Producer


def _reporting(callback: Callable[..., None] | None) -> Callable[..., None]:
    def reporting(error: Any, message: Any) -> None:
        if error is None:
            globals()["_delivered"] = True
            reach("after_delivery")
        if callback is not None:
            callback(error, message)

    return reporting


def _consumer(parent: Any) -> Any:
    from confluent_kafka import KafkaError, KafkaException  # noqa: PLC0415 - long after the interpreter's start

    class Consumer(parent):  # type: ignore[misc]
        """A consumer that recognizes commits after the answer."""

        def __init__(self, configuration: dict[str, Any]) -> None:
            callback = configuration.get("on_commit")
            super().__init__({**configuration, "on_commit": _committed(callback)} if callback else configuration)

        def committed(self, positions: Any, timeout: float = -1) -> Any:
            if POINT == "coordinator_away" and _is_away():
                time.sleep(min(1.0, timeout))
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
            return super().committed(positions, timeout)

    return Consumer


def _is_away() -> bool:
    """Return whether the coordinator gives no replies at this time."""
    _questions.append(time.monotonic())
    second = _questions[1] if len(_questions) > 1 else float("inf")
    return time.monotonic() - second < float(os.environ["FAULT_SECONDS"])


def _committed(callback: Callable[..., None]) -> Callable[..., None]:
    def committed(error: Any, positions: Any) -> None:
        if error is None and _delivered and _covers(positions):
            reach("after_commit")
        callback(error, positions)

    return committed


def _covers(positions: Any) -> bool:
    """Return whether these positions say that the request is answered."""
    return any(at.partition == PLACE[0] and _unanswered(at) > PLACE[1] for at in positions)


def _unanswered(position: Any) -> int:
    """Return the first offset without an answer. Under at-most-once the position is higher, and its metadata say so."""
    from worker.core.commit_metadata import decode  # noqa: PLC0415 - long after the interpreter's start

    started = decode(position.metadata or "", position.offset).unanswered_from
    return int(position.offset if started is None else started)


# -- patching the modules when they are imported

PATCHES = {"worker.handlers.loader": patch_loader, "work": patch_work, "confluent_kafka": patch_clients}


class _Finder(importlib.abc.MetaPathFinder):
    """A finder that uses the other finders to find a module, and patches the module after its execution."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name not in PATCHES:
            return None
        sys.meta_path.remove(self)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            sys.meta_path.insert(0, self)
        if spec is not None and spec.loader is not None:
            _patch_after(spec.loader, PATCHES[name])
        return spec


def _patch_after(loader: Any, patch: Callable[[ModuleType], None]) -> None:
    execute = loader.exec_module

    def executed(module: ModuleType) -> None:
        execute(module)
        patch(module)

    loader.exec_module = executed


if POINT:
    sys.meta_path.insert(0, _Finder())
