"""The executor's thread starts submitted tasks in order, or returns them without a start."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.unit.poll_thread import LONG, OTHER, PollThread, next_event
from tests.unit.support import a_task
from worker.core.lease import Lease
from worker.core.model import Outcome, Verdict
from worker.core.ordering_group import OrderingGroup
from worker.errors import ExitCode, WorkerError
from worker.executors.port import ExecutorDiedError, ExecutorFailed

if TYPE_CHECKING:
    from worker.core.model import Task
    from worker.executors.port import Event


# ---------------------------------------------------------------- starts


def test_tasks_are_started_in_the_order_in_which_they_were_submitted(poll_thread: PollThread) -> None:
    poll_thread.submit(1, 2)
    poll_thread.submit(3)
    assert poll_thread.collect(3) == [(1, "OK"), (2, "OK"), (3, "OK")]
    assert poll_thread.runner.started == [1, 2, 3]


@pytest.mark.parametrize("verdict", [Verdict.FAILED, Verdict.REJECTED, Verdict.DROPPED])
def test_no_task_of_an_ordering_group_starts_after_an_unsuccessful_attempt(
    poll_thread: PollThread, verdict: Verdict
) -> None:
    """Later tasks of the group come back without a start, so that they do not overtake it. Other groups continue."""
    other: OrderingGroup[Task] = OrderingGroup()
    poll_thread.runner.verdicts[1] = poll_thread.runner.verdicts[9] = verdict
    rows = ((1, poll_thread.group), (7, other), (9, None), (10, None))
    poll_thread.executor.submit([a_task(offset=offset, lease=poll_thread.lease, group=group) for offset, group in rows])
    poll_thread.submit(2, 3)
    expected = [(1, verdict.name), (7, "OK"), (9, verdict.name), (10, "OK"), (2, "NOT_STARTED"), (3, "NOT_STARTED")]
    assert poll_thread.collect(6) == expected
    assert poll_thread.group.blocked
    assert not other.blocked


def test_the_ordering_group_is_blocked_before_the_outcome_is_posted(
    poll_thread: PollThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the poll thread could submit the next task in between."""
    blocked: list[bool] = []
    post = poll_thread.mailbox.post

    def look(event: Event) -> None:
        blocked.append(poll_thread.group.blocked)
        post(event)

    monkeypatch.setattr(poll_thread.mailbox, "post", look)
    poll_thread.runner.verdicts[1] = Verdict.FAILED
    poll_thread.submit(1)
    assert poll_thread.collect(1) == [(1, "FAILED")]
    assert blocked == [True]


def test_no_task_starts_under_a_lease_that_is_leaving(poll_thread: PollThread) -> None:
    """This applies to every ordering. The next owner runs the task."""
    poll_thread.lease.leave()
    poll_thread.executor.submit([a_task(offset=1, lease=poll_thread.lease), a_task(offset=7, lease=Lease(OTHER))])
    assert poll_thread.collect(2) == [(1, "NOT_STARTED"), (7, "OK")]


def test_nothing_starts_after_it_was_closed(poll_thread: PollThread) -> None:
    """The running task finishes. Waiting tasks come back, even those that are submitted later."""
    poll_thread.runner.hold(1)
    poll_thread.submit(1, 2)
    assert poll_thread.runner.begun[1].wait(LONG)
    poll_thread.executor.closed = True
    poll_thread.runner.gates[1].set()
    poll_thread.submit(3)
    assert poll_thread.collect(3) == [(1, "OK"), (2, "NOT_STARTED"), (3, "NOT_STARTED")]


def test_tasks_that_have_not_started_can_be_withdrawn(poll_thread: PollThread) -> None:
    """They are withdrawn in order, and only under the given claims. The others run in their order."""
    other = Lease(OTHER)
    poll_thread.runner.hold(1)
    poll_thread.submit(1)
    assert poll_thread.runner.begun[1].wait(LONG)
    poll_thread.submit(2, 3)
    poll_thread.submit(7, 8, lease=other)
    poll_thread.submit(4)
    assert [task.record.offset for task in poll_thread.executor.withdraw([poll_thread.lease])] == [2, 3, 4]
    poll_thread.runner.gates[1].set()
    assert poll_thread.collect(3) == [(1, "OK"), (7, "OK"), (8, "OK")]
    assert poll_thread.executor.withdraw([poll_thread.lease, other]) == []


# ---------------------------------------------------------------- errors of the thread


class SetUpError(WorkerError):
    exit_code = ExitCode.SETTINGS_INVALID


@pytest.mark.parametrize("error", [KeyError("x"), SystemExit(3), SetUpError("set up wrongly")])
def test_an_error_that_ends_the_thread_is_posted(
    poll_thread: PollThread, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    """The poll thread ends the process with this error. An error of the worker keeps its exit code."""

    def die(_task: Task) -> Outcome:
        raise error

    monkeypatch.setattr(poll_thread.runner, "run", die)
    poll_thread.submit(1)
    event = next_event(poll_thread.mailbox)
    assert isinstance(event, ExecutorFailed)
    if isinstance(error, WorkerError):
        assert event.error is error
    else:
        assert isinstance(event.error, ExecutorDiedError)
        assert event.error.exit_code is ExitCode.THREAD_DIED
        assert type(error).__name__ in str(event.error)
    poll_thread.executor._thread.join(LONG)
    assert not poll_thread.executor._thread.is_alive()
