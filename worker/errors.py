"""Exit codes, the errors that have them, and the exceptions that a handler may raise."""

from __future__ import annotations

import enum


class ExitCode(enum.IntEnum):
    """The exit codes of ``worker run`` and, where noted, of a worker process."""

    DRAINED = 0
    SUPERVISOR_CRASHED = 1
    SETTINGS_INVALID = 2
    HANDLER_UNLOADABLE = 3
    BROKER_UNREACHABLE = 4
    CRASH_LOOP = 5
    DRAIN_TIMED_OUT = 6
    # Only of a worker process; the supervisor restarts it.
    PROCESS_CRASHED = 70
    CLIENT_FATAL = 71
    THREAD_DIED = 72
    STORE_UNREACHABLE = 73
    UNSTARTABLE = 74  # the kernel refused another process


class WorkerError(Exception):
    """An error with an exit code and one clear line for the user."""

    exit_code = ExitCode.SUPERVISOR_CRASHED


class SettingsError(WorkerError):
    """The settings are invalid."""

    exit_code = ExitCode.SETTINGS_INVALID


class HandlerError(WorkerError):
    """The handler cannot be loaded or called."""

    exit_code = ExitCode.HANDLER_UNLOADABLE


def ended_by_handler(reference: str, status: int) -> HandlerError:
    """Return the error for a handler whose import, or set-up hook, has ended the process with this exit code."""
    return HandlerError(f"WORKER_HANDLER={reference}: loading it ended the process with exit code {status}")


class BrokerError(WorkerError):
    """The broker or a topic cannot be reached."""

    exit_code = ExitCode.BROKER_UNREACHABLE


class ClientFatalError(WorkerError):
    """The Kafka client of this process has failed permanently. The process must be replaced."""

    exit_code = ExitCode.CLIENT_FATAL


class Reject(Exception):  # noqa: N818 - a verdict a handler raises, and its name is part of the contract
    """Raised by a handler: this request can never succeed. It goes to the dead-letter topic at once."""

    def __init__(self, reason: str = "rejected by the handler") -> None:
        super().__init__(reason)


class Retry(Exception):  # noqa: N818 - a verdict a handler raises, and its name is part of the contract
    """Raised by a handler: try this request again after ``after`` seconds (None: the usual back-off)."""

    def __init__(self, reason: str = "the handler requested a retry", *, after: float | None = None) -> None:
        super().__init__(reason)
        self.after = after


class Cancelled(Exception):  # noqa: N818 - raised for the handler, and its name is part of the interface
    """Raised by ``context.cancelled.raise_if_set()``: the handler stops because its task was cancelled."""
