"""Checks before the first worker process starts, each in a short-lived child process: Kafka and the handler.

The supervisor itself never has a Kafka client and never imports the handler.
"""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import structlog

from worker.core.deadline import Deadline
from worker.errors import BrokerError, HandlerError, SettingsError, WorkerError, ended_by_handler
from worker.kafka.facts import Facts
from worker.process.status_block import SIZE, StatusBlock
from worker.supervisor import render
from worker.supervisor.child import Child, shared_buffer

if TYPE_CHECKING:
    from worker.settings import Settings
    from worker.supervisor.replica_status import ReplicaStatus
    from worker.supervisor.signals import Signals

TICK = 1.0
HANDLER_AFTER = 2.0  # seconds of waiting for Kafka after which the handler is checked meanwhile
MARGIN = 30.0  # seconds beyond the limit of preflight after which the child processes are killed
REAP_PAUSE = 0.01  # between two looks at a killed process, in seconds

_ERRORS: dict[int, type[WorkerError]] = {error.exit_code: error for error in (SettingsError, HandlerError, BrokerError)}

log = structlog.get_logger("supervisor")


class _Result(NamedTuple):
    """How a child process ended, and the snapshot it left."""

    exit_status: int
    snapshot: dict[str, Any]


class _Check:
    """One check in its child process."""

    def __init__(self, settings: Settings, name: str, target: str, *about: object) -> None:
        self._buffer = shared_buffer(SIZE)
        self._child = Child(name, target, *about, self._buffer, settings.log_level, settings.log_format)

    def result(self) -> _Result | None:
        """Return the result; None while the check runs."""
        status = self._child.ended()
        return None if status is None else _Result(status, StatusBlock(self._buffer).read() or {})

    def kill(self) -> None:
        self._child.signal(signal.SIGKILL)

    def close(self) -> None:
        """Kill and reap the process if it runs."""
        while self.result() is None:
            self.kill()
            time.sleep(REAP_PAUSE)


def check_handler(settings: Settings) -> None:
    """Load the handler in a child process, for ``worker doctor``. Raise HandlerError if that is not possible.

    The import may end the process, or leave a thread that keeps it from ending.
    """
    check = _start_handler_check(settings)
    try:
        while (result := check.result()) is None:
            time.sleep(REAP_PAUSE)
    finally:
        check.close()
    _judge_handler(settings, result)
    if "loaded" not in result.snapshot:
        raise HandlerError(f"WORKER_HANDLER={settings.handler}: loading it {_ended_by(result.exit_status)}")


def _start_handler_check(settings: Settings) -> _Check:
    target = "worker.process.handler_check:answer"
    return _Check(settings, "handler-check", target, settings.handler, settings.handler_kwargs)


def _judge_handler(settings: Settings, result: _Result) -> None:
    if "failure" in result.snapshot:
        raise HandlerError(result.snapshot["failure"]["message"])
    if "loaded" not in result.snapshot and result.exit_status >= 0:
        raise ended_by_handler(settings.handler, result.exit_status)


class StartChecks:
    """Every worker process loads the handler anyway. It is checked here too if Kafka is not there at once.

    So a handler that cannot be loaded is reported without Kafka, and a start with Kafka does not import it twice.
    """

    def __init__(self, settings: Settings, signals: Signals, status: ReplicaStatus) -> None:
        self._settings = settings
        self._signals = signals
        self._status = status
        self._target = render.target(settings)
        now = time.monotonic()
        self._deadline = Deadline.after(self._target.connect_timeout + MARGIN, now)
        self._handler_due = Deadline.after(HANDLER_AFTER, now)
        self._handler: _Check | None = None
        self._stopped = False  # by a signal

    def run(self) -> Facts | None:
        """Return the facts about the broker, or None if a stop signal came first. Raise WorkerError if the replica
        cannot start.
        """
        try:
            result = self._preflight()
            if result is not None and result.exit_status < 0 and not self._deadline.passed(time.monotonic()):
                # The client library crashed during a broker outage: seen once in hundreds of starts.
                reason = f"the preflight process {_ended_by(result.exit_status)}: trying again"
                log.warning("preflight.waiting", reason=reason)
                result = self._preflight()
            return None if result is None else self._facts(result)
        finally:
            if self._handler is not None:
                self._handler.close()

    def _preflight(self) -> _Result | None:
        """Run one preflight process. Return None if a stop signal came first. Raise HandlerError if it still waits and
        the handler cannot be loaded.
        """
        check = _Check(self._settings, "preflight", "worker.supervisor.preflight:answer", self._target)
        try:
            while (result := check.result()) is None:
                if self._is_over():
                    check.kill()
                elif self._handler_due.passed(self._status.turned):
                    self._look_at_handler()
                self._signals.wait(TICK)
        finally:
            check.close()
        return None if self._stopped else result

    def _is_over(self) -> bool:
        self._status.turned = time.monotonic()
        self._stopped = self._stopped or bool(self._signals.take())
        return self._stopped or self._deadline.passed(self._status.turned)

    def _facts(self, result: _Result) -> Facts:
        try:
            return _facts_of(result)
        except BrokerError:
            while not self._look_at_handler() and not self._is_over():
                self._signals.wait(TICK)
            raise

    def _look_at_handler(self) -> bool:
        """Return whether the handler is checked. Raise HandlerError if it cannot be loaded."""
        settings = self._settings
        if self._handler is None:
            self._handler = _start_handler_check(settings)
        result = self._handler.result()
        if result is None:
            return False
        _judge_handler(settings, result)
        return True


def _facts_of(result: _Result) -> Facts:
    status, snapshot = result
    if "facts" in snapshot:
        return Facts(**snapshot["facts"])
    if "failure" in snapshot:
        raise _ERRORS.get(status, WorkerError)(snapshot["failure"]["message"])
    kind = BrokerError if status < 0 else WorkerError
    raise kind(f"the preflight process {_ended_by(status)} before it had checked the broker; see the log above")


def _ended_by(status: int) -> str:
    return f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
