"""Runs attempts inside transactions of an offset store, which holds results and offsets together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from worker.codec import decode_request
from worker.core.model import Failure, Outcome, Verdict
from worker.errors import Reject
from worker.handlers.attempt import AttemptRunner
from worker.handlers.context import Context
from worker.handlers.judging import judge
from worker.handlers.task_view import view_of
from worker.stores.port import RefusedError, StaleOffsetError, StoredAnswer, StoreError, StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable

    from worker.core.model import Task
    from worker.formats import DecodeRequest
    from worker.handlers.context import Reports
    from worker.handlers.loader import Handler
    from worker.handlers.task_view import TaskView
    from worker.stores.port import OffsetStore, StoreTransaction

AGAIN_SECONDS = 5.0  # between attempts while the store cannot be reached
STORE_UNAVAILABLE = "StoreUnavailable"  # the failure of such an attempt; if it has started, its commit may be applied


class StoredContext(Context):
    """A context with a transaction of the store, which begins when the handler first uses it."""

    __slots__ = ("opened",)

    def __init__(self, view: TaskView, opened: StoreTransaction, reports: Reports) -> None:
        super().__init__(view, None, reports)
        self.opened = opened

    def send(self, payload: str, key: str | bytes | None = None, topic: str | None = None) -> None:
        """Raise an error: the result is committed in the store first, and a crash would lose the follow-up request."""
        del payload, key, topic
        raise Reject("context.send cannot be used with WORKER_OFFSET_STORE: write the request with the result instead")

    @property
    def transaction(self) -> Any:
        """See ``Context``."""
        return self.opened.handle


class StoredAttemptRunner(AttemptRunner):
    """A runner whose good results are committed in the store before they are answered."""

    def __init__(
        self,
        handler: Handler,
        kwargs: dict[str, Any],
        max_attempts: int,
        store: OffsetStore,
        too_large: Callable[[Outcome], Failure | None],
        timeout: float = 0.0,
        decode: DecodeRequest = decode_request,
    ) -> None:
        super().__init__(handler, kwargs, max_attempts, timeout, decode)
        self._store = store
        self._too_large = too_large

    def _not_started(self, outcome: Outcome) -> Outcome:
        """Return the stored outcome of an expired request if the commit of an earlier attempt was applied after all."""
        if outcome.verdict is not Verdict.EXPIRED:
            return outcome
        opened = self._open(outcome.task)
        if isinstance(opened, Outcome):
            return opened
        opened.rollback()
        return outcome

    def _prepare(self, task: Task, deadline: float | None) -> Context | Outcome:
        """See ``AttemptRunner``. Raises StoreError when the store cannot be used as it is set up."""
        opened = self._open(task)
        if isinstance(opened, Outcome):
            return opened
        task.attempt += 1
        return StoredContext(view_of(task, deadline, self._decode), opened, self)

    def _open(self, task: Task) -> StoreTransaction | Outcome:
        """Begin a transaction, or return the outcome of a task that is already done or for which that fails."""
        record = task.record
        try:
            return self._store.begin(record.partition, record.offset)
        except StaleOffsetError:
            before = self._answered_before(task)
            if before.verdict is Verdict.FAILED and before.retry_after is None:
                task.attempt += 1
            return before
        except StoreUnavailableError as error:
            return _unavailable(task, error)
        except RefusedError as error:
            task.attempt += 1
            return Outcome(task, Verdict.FAILED, failure=Failure("StoreRefused", str(error)))
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001 - a defect of the user's store is a failed attempt
            outcome = Outcome(task, Verdict.FAILED)
            judge(outcome, error)
            task.attempt += 1
            return outcome

    def _conclude(self, outcome: Outcome, context: Context) -> None:
        if not isinstance(context, StoredContext):
            return
        if outcome.verdict is Verdict.OK and (failure := self._too_large(outcome)) is not None:
            # Checked before the commit, because a request that becomes a dead letter must have no effect.
            outcome.verdict, outcome.failure, outcome.result = Verdict.REJECTED, failure, b""
        if outcome.verdict is not Verdict.OK or not outcome.task.claim.valid:
            context.opened.rollback()
            if outcome.failure is not None and outcome.failure.type == StoreUnavailableError.__name__:
                self._postpone(outcome)
            return
        try:
            context.opened.commit(_stored(outcome))
        except StaleOffsetError:
            before = self._answered_before(outcome.task)
            outcome.verdict, outcome.result, outcome.failure = before.verdict, before.result, before.failure
        except StoreUnavailableError as error:
            outcome.verdict, outcome.failure = Verdict.FAILED, Failure(STORE_UNAVAILABLE, str(error))
            self._postpone(outcome)
        except RefusedError as error:
            outcome.verdict, outcome.failure = Verdict.FAILED, Failure("StoreRefused", str(error))
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001 - as above
            judge(outcome, error)

    @staticmethod
    def _postpone(outcome: Outcome) -> None:
        """Postpone the task: the store has failed, so the attempt does not count."""
        outcome.task.attempt -= 1
        outcome.retry_after = AGAIN_SECONDS

    def _answered_before(self, task: Task) -> Outcome:
        """Return the stored outcome of a request that another process, or an attempt that seemed to fail, completed."""
        offset = task.record.offset
        try:
            stored = next(iter(self._store.answers(task.record.partition, offset, offset + 1)), None)
        except StoreUnavailableError as error:
            return _unavailable(task, error)
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001 - as in _prepare
            outcome = Outcome(task, Verdict.FAILED)
            judge(outcome, error)
            return outcome
        if stored is None:  # dead-lettered or expired, and answered by the process that did it
            return Outcome(task, Verdict.DONE)
        return outcome_of(stored, task)


def _unavailable(task: Task, error: StoreUnavailableError) -> Outcome:
    """Return the outcome of an attempt that never started. Another follows after a while."""
    failure = Failure(STORE_UNAVAILABLE, str(error))
    return Outcome(task, Verdict.FAILED, failure=failure, retry_after=AGAIN_SECONDS)


def _stored(outcome: Outcome) -> StoredAnswer:
    task = outcome.task
    return StoredAnswer(
        offset=task.record.offset,
        key=task.record.key,
        result=outcome.result,
        sequence=outcome.sequence,
        attempt=task.attempt,
        started_ns=outcome.started_ns,
        finished_ns=outcome.finished_ns,
        cpu_seconds=outcome.cpu_seconds,
    )


def outcome_of(stored: StoredAnswer, task: Task) -> Outcome:
    """Return the good outcome that the store has."""
    task.attempt = stored.attempt
    return Outcome(
        task,
        Verdict.OK,
        result=stored.result,
        sequence=stored.sequence,
        started_ns=stored.started_ns,
        finished_ns=stored.finished_ns,
        run_seconds=(stored.finished_ns - stored.started_ns) / 1e9,
        cpu_seconds=stored.cpu_seconds,
    )
