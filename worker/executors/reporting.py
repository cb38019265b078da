"""Reports to the poll thread that the executor's thread cannot continue."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from worker.errors import WorkerError
from worker.executors.port import ExecutorDiedError, ExecutorFailed

if TYPE_CHECKING:
    from collections.abc import Callable

    from worker.executors.mailbox import Mailbox

log = structlog.get_logger("executor")


def run_reporting(work: Callable[[], None], mailbox: Mailbox) -> None:
    """Run the body of the executor's thread. An exception goes to the poll thread, which ends the process with it."""
    try:
        work()
    except WorkerError as error:
        _report(error, mailbox)
    except BaseException as error:
        log.exception("process.failed", code=int(ExecutorDiedError.exit_code))
        _report(ExecutorDiedError(f"the executor's thread died: {type(error).__name__}: {error}"), mailbox)


def _report(error: WorkerError, mailbox: Mailbox) -> None:
    mailbox.post(ExecutorFailed(error))
    mailbox.notify()
