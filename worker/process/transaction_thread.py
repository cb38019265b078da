"""The thread that waits for transactions, so that the poll thread does not have to."""

from __future__ import annotations

import queue
import threading
import time
from typing import TYPE_CHECKING

import structlog

from worker.errors import ClientFatalError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from worker.core.model import Partition
    from worker.kafka.ports import Ended, Position, Transaction, Transactor

# No call of the client gets more than 3 s. Calls that take longer end after 10 s (socket.timeout.ms). One of them
# sometimes never returns after a broker outage (librdkafka issue 5456).
HUNG_SECONDS = 15.0
MOST_HUNG = 3  # each leaves a thread and a client behind; after this many the process is replaced

log = structlog.get_logger("transactions")


class TransactionThread:
    """Commit one transaction at a time. Used on the poll thread; ``notify`` is called from another one."""

    def __init__(self, make: Callable[[], Transactor], notify: Callable[[], None]) -> None:
        self.busy = False
        self._make = make
        self._notify = notify
        self._hung = 0
        self._sent_at = 0.0
        self._transaction: Transaction | None = None  # the last one that was sent
        self._worker = _Worker(make(), notify, None)

    @property
    def positions(self) -> Mapping[Partition, Position]:
        """Return the positions of the transaction that was sent last."""
        return {} if self._transaction is None else self._transaction.positions

    def send(self, transaction: Transaction) -> None:
        """Begin to commit this transaction. The previous one must have ended."""
        self.busy, self._transaction, self._sent_at = True, transaction, time.monotonic()
        self._worker.requests.put(transaction)

    def ended(self, timeout: float) -> Ended | None:
        """Return how the transaction ended, waiting at most ``timeout`` seconds. Raise what the client raised."""
        worker = self._worker
        if worker.failure is not None:
            raise worker.failure
        if not self.busy:
            return None
        try:
            ending = worker.endings.get(timeout=timeout) if timeout > 0 else worker.endings.get_nowait()
        except queue.Empty:
            self._give_up_if_hung()
            return None
        self.busy = False
        return ending

    def close(self) -> None:
        """Free the client, unless a transaction is under way: then it is freed when the process ends."""
        if not self.busy:
            self._worker.transactor.close()

    def _give_up_if_hung(self) -> None:
        """Abandon the thread of a call that does not return. Another client determines whether it was committed."""
        if time.monotonic() - max(self._sent_at, self._worker.transactor.called_at) < HUNG_SECONDS:
            return
        self._hung += 1
        log.warning("transaction.hung", seconds=HUNG_SECONDS)
        if self._hung >= MOST_HUNG:
            raise ClientFatalError("the transactional producer does not return from its calls")
        self._worker.transactor.close()  # if its call returns after all, it must not fence its successor
        self._sent_at = time.monotonic()
        self._worker = _Worker(self._make(), self._notify, self._transaction)


class _Worker:
    """One thread and its client. ``unfinished`` is a transaction that an earlier client left undecided."""

    def __init__(self, transactor: Transactor, notify: Callable[[], None], unfinished: Transaction | None) -> None:
        self.transactor = transactor
        self.requests: queue.SimpleQueue[Transaction] = queue.SimpleQueue()
        self.endings: queue.Queue[Ended] = queue.Queue()  # see ``Mailbox.wait``
        self.failure: BaseException | None = None
        self._notify = notify
        self._unfinished = unfinished
        threading.Thread(target=self._run, name="transactions", daemon=True).start()

    def _run(self) -> None:
        try:
            if self._unfinished is None:
                self.transactor.open()
            else:
                self._end(self.transactor.find_out(self._unfinished))
            while True:
                self._end(self.transactor.commit(self.requests.get()))
        except BaseException as error:  # noqa: BLE001 - raised on the poll thread
            self.failure = error
            self._notify()

    def _end(self, ending: Ended) -> None:
        self.endings.put(ending)
        self._notify()
