"""The mailbox of the process executor. Children wake the poll thread themselves."""

from __future__ import annotations

import contextlib
import os
import select
from collections import deque
from typing import TYPE_CHECKING

from worker.core.model import OK
from worker.executors.mailbox import Mailbox
from worker.executors.reports import MailboxSink
from worker.executors.thread import MAX_WAITING_BYTES
from worker.isolation import seam

if TYPE_CHECKING:
    from worker.core.model import Outcome
    from worker.executors.port import Expired


class ChildMailbox(Mailbox):
    """A mailbox whose wakeup is an eventfd. Every child has it, so no thread of this process is involved."""

    def __init__(self) -> None:
        super().__init__()
        self.wakeup = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._poll = select.poll()
        self._poll.register(self.wakeup, select.POLLIN)

    def notify(self) -> None:
        """See ``Mailbox``."""
        with contextlib.suppress(BlockingIOError):  # a child wrote garbage to it, which makes it readable
            os.eventfd_write(self.wakeup, 1)

    def wait(self, timeout: float) -> None:
        """See ``Mailbox``."""
        if self._poll.poll(max(0.0, timeout) * 1000):
            os.eventfd_read(self.wakeup)


class Outbox:
    """Results for the poll thread, and the memory that they hold. Use it under the executor's lock."""

    def __init__(self, mailbox: Mailbox) -> None:
        self.sink = MailboxSink(mailbox.post, mailbox.notify)  # of progress and checkpoints
        self.expired: deque[Expired] = deque()  # tasks that were cancelled at a limit; see ``Executor.check``
        self._mailbox = mailbox
        self._waiting_bytes = 0

    @property
    def full(self) -> bool:
        """Return whether too many results wait, so that reports stay in the pipe and the child has to wait."""
        return self._waiting_bytes >= MAX_WAITING_BYTES and not self._mailbox.is_empty

    def post(self, outcome: Outcome) -> None:
        """Post an outcome. If it is not good, no further task of its ordering group starts."""
        if outcome.verdict is not OK:
            seam.block(outcome.task)
        size = len(outcome.result)
        self._waiting_bytes = size if self._mailbox.is_empty else self._waiting_bytes + size
        self._mailbox.post(outcome)

    def notify(self) -> None:
        """Wake the poll thread."""
        self._mailbox.notify()
