"""Progress and checkpoints of a handler in a child process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.isolation.rig import config
from tests.unit.support import a_task
from worker.core.model import Verdict
from worker.core.task_state import CHECKPOINT_LIMIT
from worker.isolation.page import SIZE
from worker.isolation.runner import ChildRunner

if TYPE_CHECKING:
    from tests.isolation.rig import Rig


@pytest.mark.parametrize("size", [0, 1, CHECKPOINT_LIMIT])
def test_progress_and_checkpoints_arrive_before_the_outcome(rig: Rig, size: int) -> None:
    """The last progress and the checkpoint arrive, even if the checkpoint is larger than a pipe."""
    (outcome,) = rig.run(f"report {size}")
    progress = [report.progress for report in rig.reports if report.progress is not None]
    checkpoints = [report.checkpoint for report in rig.reports if report.checkpoint is not None]
    assert progress[-1] == (1.0, "step 49")
    assert checkpoints == [bytes(size)]
    assert all(report.task is outcome.task for report in rig.reports)
    assert outcome.verdict is Verdict.OK


def test_a_checkpoint_survives_its_child(rig: Rig) -> None:
    """The checkpoint was saved before the child died, so it arrives before the outcome."""
    (outcome,) = rig.run("report 300000 die")
    assert outcome.failure is not None
    assert outcome.failure.type == "ProcessDied"
    assert [report.checkpoint for report in rig.reports if report.checkpoint is not None] == [bytes(300_000)]


def test_a_late_report_is_not_taken_for_one_of_the_next_task() -> None:
    """A thread of the handler has outlived its task, and reports after the next task was numbered."""
    sent: list[bytes] = []
    runner = ChildRunner(lambda *_: None, config(), memoryview(bytearray(SIZE)).cast("Q"), 0, sent.append)
    first, second = a_task(offset=1), a_task(offset=2)
    runner.numbered = 2, second
    sink = runner.sink
    assert sink is not None
    sink.progress(first, 0.5, "")
    sink.checkpoint(first, b"of the first")
    assert sent == []
    sink.checkpoint(second, b"of the second")
    assert len(sent) == 1


def test_a_task_in_a_child_resumes_from_its_checkpoint(rig: Rig) -> None:
    """The next task has no checkpoint."""
    first, second = rig.tasks("report 1", "report 1")
    first.resume = b"\0so far"
    rig.executor.submit([first, second])
    assert [outcome.result for outcome in rig.take(2)] == [b"\0so far", b""]


def test_a_cancel_stops_only_the_task_that_it_names(rig: Rig) -> None:
    first, second = rig.submit("raise_when_cancelled", "ok")
    rig.wait_running(first)
    assert not rig.executor.cancel_task(second, "requested")
    assert rig.executor.cancel_task(first, "requested")
    stopped, other = rig.take(2)
    assert (stopped.task, stopped.verdict) == (first, Verdict.CANCELLED)
    assert (other.task, other.verdict) == (second, Verdict.OK)
