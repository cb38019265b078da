"""Faults at named points, for processes with this folder on their PYTHONPATH: Python imports this file when it starts.

``FAULT_POINT`` names the point, ``FAULT_PLACE`` the request (``partition:offset``), ``FAULT_SIGNAL`` the signal that
the process sends itself there, once over all processes: ``FAULT_MARKER`` is the file it makes, with its pid. Points:

``before_start``    the task may start, its handler has not been called
``in_task``         the handler has begun
``finished``        the handler has returned, and nobody has seen the result
``after_produce``   the answer was handed to the client; in a transaction: it is in the log, and the transaction is open
``after_delivery``  the answer's delivery is confirmed, or the offsets are in the transaction; no commit was asked for
``after_commit``    a commit that came after the answer is confirmed

One fault is none of these: with the point ``coordinator_away`` the client has no answer to questions about committed
offsets for ``FAULT_SECONDS``, from the process's second assignment on.
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
_produced = False  # this process has handed the answer to its client
_delivered = False  # and knows that it has arrived
_questions: list[float] = []  # when the client was asked for committed offsets


def reach(point: str, place: tuple[int, int] = PLACE) -> None:
    """The process comes by a point."""
    if point != POINT or place != PLACE:
        return
    try:
        marker = os.open(os.environ["FAULT_MARKER"], os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    except FileExistsError:
        return
    os.write(marker, str(os.getpid()).encode())
    os.close(marker)
    # To this very thread: of a whole process, another one may have to wake up first, and this one goes on meanwhile.
    signal.pthread_kill(threading.get_ident(), signal.Signals[os.environ.get("FAULT_SIGNAL", "SIGKILL")])


# -- the handler


def patch_loader(module: ModuleType) -> None:
    """``worker.handlers.loader``: the handler it loads is wrapped."""
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
    """``work``, the handler of the tests: it notes its start, and then acts."""
    act = module._act

    def acting(payload: str, context: Any, **options: Any) -> Any:
        reach("in_task", tuple(context.origin)[1:])
        return act(payload, context, **options)

    module._act = acting  # type: ignore[attr-defined]


# -- the clients


def patch_clients(module: ModuleType) -> None:
    """``confluent_kafka``: its clients are replaced by ones that pass the points."""
    module.Producer = _producer(module.Producer)  # type: ignore[attr-defined]
    module.Consumer = _consumer(module.Consumer)  # type: ignore[attr-defined]


def _answers(topic: str, value: bytes | None) -> bool:
    """Whether this is the answer to the request in question."""
    if topic != os.environ["KAFKA_ACK_TOPIC"] or not value:
        return False
    from worker.pb.task_pb2 import Response  # noqa: PLC0415 - long after the interpreter's start

    origin = Response.FromString(value).origin
    return (origin.partition, origin.offset) == PLACE


def _producer(parent: Any) -> Any:
    class Producer(parent):  # type: ignore[misc]
        """Looks for the answer to the request."""

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
                    self.flush(30)  # in the log, in an open transaction
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
        """Looks for commits after the answer."""

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
    """Whether the coordinator has no answers just now."""
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
    """Whether these positions say that the request is answered."""
    return any(at.partition == PLACE[0] and _unanswered(at) > PLACE[1] for at in positions)


def _unanswered(position: Any) -> int:
    """The first request without an answer: at most once, the offset runs ahead, and its metadata says how far."""
    from worker.core.commit_metadata import decode  # noqa: PLC0415 - long after the interpreter's start

    started = decode(position.metadata or "", position.offset).unanswered_from
    return int(position.offset if started is None else started)


# -- finding the modules as they are imported

PATCHES = {"worker.handlers.loader": patch_loader, "work": patch_work, "confluent_kafka": patch_clients}


class _Finder(importlib.abc.MetaPathFinder):
    """Lets the others find a module, and patches it when it has been executed."""

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
