"""Calls about groups, on a separate thread, because the poll thread must never wait for a coordinator."""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING, NamedTuple, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Callable

    from worker.kafka.ports import GroupClient

T = TypeVar("T")


class _Call(NamedTuple):
    request: Callable[[GroupClient], object]
    then: Callable[[object], None]


class GroupCalls:
    """Run calls one after another. The thread and its client are created for the first one. Used on the poll thread."""

    def __init__(self, make: Callable[[], GroupClient], notify: Callable[[], None]) -> None:
        self._make = make
        self._notify = notify
        self._calls: queue.SimpleQueue[_Call] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[tuple[_Call, object]] = queue.SimpleQueue()
        self._failure: BaseException | None = None
        self._thread: threading.Thread | None = None

    def send(self, request: Callable[[GroupClient], T], then: Callable[[T], None]) -> None:
        """Run ``request`` on the thread. A later ``serve`` passes its result to ``then``."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="group-calls", daemon=True)
            self._thread.start()
        self._calls.put(_Call(request, cast("Callable[[object], None]", then)))

    def serve(self, _now: float) -> None:
        """Pass on the results. Raise any exception that a request raised."""
        if self._failure is not None:
            raise self._failure
        while not self._answers.empty():
            call, result = self._answers.get()
            call.then(result)

    def _run(self) -> None:
        try:
            client = self._make()
            while True:
                call = self._calls.get()
                self._answers.put((call, call.request(client)))
                self._notify()
        except BaseException as error:  # noqa: BLE001 - raised on the poll thread
            self._failure = error
            self._notify()
