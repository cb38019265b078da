"""Runs attempts inside transactions of the store that holds results and offsets together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from worker.core.model import Failure, Outcome, Verdict
from worker.handlers.context import Context
from worker.handlers.runner import Runner
from worker.stores.port import RefusedError, StaleOffsetError, StoredAnswer, StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable

    from worker.core.model import Task
    from worker.handlers.loader import Handler
    from worker.stores.port import OffsetStore, StoreTransaction

AGAIN_SECONDS = 5.0  # until a task is tried again when the store could not be reached


class StoringContext(Context):
    """A context whose ``transaction`` is the store's, taken when the handler first asks for it."""

    __slots__ = ("opened",)

    def __init__(self, task: Task, deadline: float | None, opened: StoreTransaction) -> None:
        super().__init__(task, deadline)
        self.opened = opened

    @property
    def transaction(self) -> Any:
        """See ``Context``."""
        return self.opened.handle


class StoringRunner(Runner):
    """A runner whose good results are committed in the store before they are answered."""

    def __init__(
        self,
        handler: Handler,
        kwargs: dict[str, Any],
        max_attempts: int,
        store: OffsetStore,
        too_large: Callable[[Outcome], Failure | None],
    ) -> None:
        super().__init__(handler, kwargs, max_attempts)
        self._store = store
        self._too_large = too_large

    def _prepare(self, task: Task, deadline: float | None) -> Context | Outcome:
        record = task.record
        try:
            return StoringContext(task, deadline, self._store.begin(record.partition, record.offset))
        except StaleOffsetError:
            return self._done_before(task)
        except StoreUnavailableError as error:
            outcome = Outcome(task, Verdict.FAILED, failure=Failure("StoreUnavailable", str(error)))
            outcome.retry_after = AGAIN_SECONDS
            return outcome

    def _conclude(self, outcome: Outcome, context: Context) -> None:
        if not isinstance(context, StoringContext):
            return
        if outcome.verdict is Verdict.OK and (failure := self._too_large(outcome)) is not None:
            # Known before the commit: what is a dead letter must have no effect.
            outcome.verdict, outcome.failure, outcome.result = Verdict.REJECTED, failure, b""
        if outcome.verdict is not Verdict.OK or not outcome.task.lane.open:
            context.opened.rollback()
            if outcome.failure is not None and outcome.failure.type == StoreUnavailableError.__name__:
                self._postpone(outcome)
            return
        try:
            context.opened.commit(_stored(outcome))
        except StaleOffsetError:
            done = self._done_before(outcome.task)
            outcome.verdict, outcome.result, outcome.failure = done.verdict, done.result, done.failure
        except StoreUnavailableError as error:
            outcome.verdict, outcome.failure = Verdict.FAILED, Failure("StoreUnavailable", str(error))
            self._postpone(outcome)
        except RefusedError as error:
            outcome.verdict, outcome.failure = Verdict.FAILED, Failure("StoreRefused", str(error))

    @staticmethod
    def _postpone(outcome: Outcome) -> None:
        """The store's trouble is no fault of the task: the attempt does not count."""
        outcome.task.attempt -= 1
        outcome.retry_after = AGAIN_SECONDS

    def _done_before(self, task: Task) -> Outcome:
        """What the store has of a request that was done by another process, or by an attempt thought to have failed."""
        offset = task.record.offset
        try:
            stored = next(iter(self._store.answers(task.record.partition, offset, offset + 1)), None)
        except StoreUnavailableError as error:
            failure = Failure("StoreUnavailable", str(error))
            return Outcome(task, Verdict.FAILED, failure=failure, retry_after=AGAIN_SECONDS)
        if stored is None:  # buried or expired: whoever did that has answered it
            return Outcome(task, Verdict.DONE)
        return outcome_of(stored, task)


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
    """The good outcome that the store remembers."""
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
