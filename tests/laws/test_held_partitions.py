"""Single cases of the model of partitions: held partitions, and a record that is delivered twice."""

from __future__ import annotations

import pytest

from tests.laws.model_state import HOLD_SECONDS
from tests.laws.partition_model import FENCED, Model
from worker.core.assignment import Assignment
from worker.core.dispatch import DispatchRule
from worker.core.model import Partition, Record, Verdict
from worker.core.offsets import OffsetError


def test_a_record_that_is_delivered_twice_is_skipped() -> None:
    """Otherwise it would be answered twice. A log may have an offset twice, and a client may go back within a lease."""
    model = Model("partition", (0,))
    model.assign(0)
    model.write(0, 1, None)
    model.deliver(0, 1)
    again = Record(Partition("t", 0), 0, None, b"x")
    queued = model.assignment.queued
    assert model.assignment.admit([again]) == (0, 0, [again])
    assert model.assignment.queued == queued


def test_a_record_below_the_last_admitted_offset_is_refused() -> None:
    """The record may not have been admitted before. The process ends, and the next reads from the committed offset."""
    assignment = Assignment()
    assignment.assign({Partition("t", 0): 0})
    assignment.admit([Record(Partition("t", 0), 5, None, b"x")])
    with pytest.raises(OffsetError):
        assignment.admit([Record(Partition("t", 0), 3, None, b"x")])


def a_model_with_a_running_task() -> Model:
    model, dispatch = Model("partition", (0,)), DispatchRule(1, 1, alone=True)
    model.assign(0)
    model.write(0, 1, None)
    model.deliver(0, 1)
    model.take(dispatch)
    model.now += 1
    model.tick()
    model.arrive(applied=True)
    model.take(dispatch)
    model.look()
    return model


def finish_and_answer(model: Model) -> None:
    model.finish(Verdict.OK)
    model.collect()
    model.confirm(0)


def test_a_held_partition_is_released_when_its_last_commit_is_confirmed() -> None:
    """It is not released earlier, and does not wait for the limit."""
    model = a_model_with_a_running_task()
    model.revoke(0)
    model.serve_held()
    finish_and_answer(model)
    model.now += 1
    model.tick()
    model.serve_held()
    assert model.held
    model.arrive(applied=True)
    model.serve_held()
    assert (model.held, model.released_early) == ({}, [])
    assert model.group[Partition("t", 0)] == (1, "")


def test_a_held_partition_is_released_at_the_limit_although_its_task_runs() -> None:
    model = a_model_with_a_running_task()
    model.revoke(0)
    since = model.now
    while model.held:
        model.serve_held()
        model.now += 1
    assert HOLD_SECONDS < model.now - since <= HOLD_SECONDS + 7


def test_a_new_lease_is_held_although_the_group_removed_the_process_before() -> None:
    """An error about an earlier membership is no reason to give up a later lease."""
    model = Model("partition", (0,))
    model.assign(0)
    model.write(0, 1, None)
    model.deliver(0, 1)
    model.take(DispatchRule(1, 1))
    model.tick()
    model.arrive(applied=False, failure=FENCED)
    model.lose(0)
    model.assign(0)
    model.deliver(0, 1)
    model.take(DispatchRule(3, 1, unlimited=True))
    model.look()
    model.revoke(0)
    model.serve_held()
    assert model.released_early == []
