"""The lines on a terminal while a replica stops."""

from __future__ import annotations

from typing import Any

from worker.supervisor.drain_notice import MOST, REPEAT_SECONDS, DrainNotice
from worker.supervisor.replica_status import identity

TASK: dict[str, Any] = {"topic": "requests", "partition": 1, "offset": 75, "attempt": 2, "started": 1000.0}
KEYED = {**TASK, "offset": 80, "key": "img-0269", "sequence": 269}


def test_the_notice_names_the_task_and_how_to_cancel_it() -> None:
    line = DrainNotice().update([TASK], 1041.2, 0.0, cancelling=False)
    assert line == "waiting for requests/1/75 (41 s); press Ctrl-C again to cancel it"


def test_the_notice_names_several_tasks_with_the_keys_that_they_have() -> None:
    line = DrainNotice().update([TASK, KEYED], 1041.2, 0.0, cancelling=False)
    assert line == (
        "waiting for requests/1/75 (41 s), requests/1/80 (img-0269, 41 s); press Ctrl-C again to cancel them"
    )


def test_the_notice_is_repeated_only_after_a_change_or_a_long_time() -> None:
    notice = DrainNotice()
    assert notice.update([TASK, KEYED], 1000, 0.0, cancelling=False)
    assert notice.update([TASK, KEYED], 1000, 0.2, cancelling=False) is None
    assert notice.update([TASK], 1000, 0.4, cancelling=False)
    assert notice.update([TASK], 1000, 0.4 + REPEAT_SECONDS - 0.1, cancelling=False) is None
    assert notice.update([TASK], 1000, 0.4 + REPEAT_SECONDS, cancelling=False)
    assert notice.update([], 1000, 100.0, cancelling=False) is None


def test_a_second_signal_is_confirmed() -> None:
    notice = DrainNotice()
    notice.update([TASK], 1001, 0.0, cancelling=False)
    assert notice.update([TASK], 1001, 0.1, cancelling=True) == "cancelling requests/1/75 (1 s)"


def test_a_large_replica_does_not_fill_the_terminal() -> None:
    tasks = [{**TASK, "offset": offset} for offset in range(MOST + 3)]
    line = DrainNotice().update(tasks, 1000, 0.0, cancelling=False)
    assert line is not None
    assert "requests/1/4 (0 s) and 3 more; press" in line


def test_the_identity_of_a_request_has_the_fields_of_the_snapshot() -> None:
    assert identity(None) == {}
    assert identity(TASK) == {"topic": "requests", "partition": 1, "offset": 75, "attempt": 2}
    assert identity(KEYED)["key"] == "img-0269"
    assert identity(KEYED)["sequence"] == 269
