"""The thread that waits for transactions, so that the poll thread does not have to."""

from __future__ import annotations

import queue
import threading
import time
from typing import TYPE_CHECKING

import structlog

from worker.errors import ClientFatalError

if TYPE_CHECKING:
    from collections.abc import Callable

    from worker.kafka.ports import Ended, Transaction, Transactor

# No call of the client is given longer than 3 s, and those that take longer than they are given take 10 s
# (socket.timeout.ms). One of them sometimes never returns after an outage of the broker (librdkafka issue 5456).
HUNG_SECONDS = 15.0
MOST_HUNG = 3  # each leaves a thread and a client behind, so then it is the process that is replaced

log = structlog.get_logger("transactions")


class Courier:
    """Takes one transaction at a time to the broker. Poll thread; ``ring`` is called from another one."""

    def __init__(self, make: Callable[[], Transactor], ring: Callable[[], None]) -> None:
        self.busy = False
        self._make = make
        self._ring = ring
        self._hung = 0
        self._sent_at = 0.0
        self._transaction: Transaction | None = None
        self._errand = _Errand(make(), ring, None)

    def send(self, transaction: Transaction) -> None:
        """Take it there; the one before must have ended."""
        self.busy, self._transaction, self._sent_at = True, transaction, time.monotonic()
        self._errand.orders.put(transaction)

    def ended(self, timeout: float) -> Ended | None:
        """How the transaction ended, waiting at most ``timeout`` seconds for it. Raises what the client raised."""
        errand = self._errand
        if errand.failure is not None:
            raise errand.failure
        if not self.busy:
            return None
        try:
            ending = errand.endings.get(timeout=timeout) if timeout > 0 else errand.endings.get_nowait()
        except queue.Empty:
            self._give_up_if_hung()
            return None
        self.busy = False
        return ending

    def close(self) -> None:
        """Free the client, unless a transaction is under way: then the end of the process does that."""
        if not self.busy:
            self._errand.transactor.close()

    def _give_up_if_hung(self) -> None:
        """A call that does not come back is left to its thread; another client finds out what became of it."""
        if time.monotonic() - max(self._sent_at, self._errand.transactor.called_at) < HUNG_SECONDS:
            return
        self._hung += 1
        log.warning("transaction.hung", seconds=HUNG_SECONDS)
        if self._hung >= MOST_HUNG:
            raise ClientFatalError("the transactional producer does not come back from its calls")
        self._sent_at = time.monotonic()
        self._errand = _Errand(self._make(), self._ring, self._transaction)


class _Errand:
    """One thread and its client. ``unfinished`` is a transaction that another one of our name has left undecided."""

    def __init__(self, transactor: Transactor, ring: Callable[[], None], unfinished: Transaction | None) -> None:
        self.transactor = transactor
        self.orders: queue.SimpleQueue[Transaction] = queue.SimpleQueue()
        self.endings: queue.SimpleQueue[Ended] = queue.SimpleQueue()
        self.failure: BaseException | None = None
        self._ring = ring
        self._unfinished = unfinished
        threading.Thread(target=self._run, name="courier", daemon=True).start()

    def _run(self) -> None:
        try:
            if self._unfinished is None:
                self.transactor.open()
            else:
                self._end(self.transactor.find_out(self._unfinished))
            while True:
                self._end(self.transactor.commit(self.orders.get()))
        except BaseException as error:  # noqa: BLE001 - raised on the poll thread
            self.failure = error
            self._ring()

    def _end(self, ending: Ended) -> None:
        self.endings.put(ending)
        self._ring()
