"""What the owner of a partition reads about a detached task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from worker.core.commit_metadata import CommitMetadata, Detached, encode
from worker.core.detached import ABSENT, UNKNOWN, mark_group
from worker.core.model import Partition
from worker.core.owned_partition import OwnedPartition
from worker.kafka.ports import KafkaFailure, Position
from worker.process.watcher import _read, _Watched

if TYPE_CHECKING:
    from worker.core.detached import Mark

PLACE = Partition("requests", 0)
NAMED = Detached(1, "a00000011")
VACATED = NAMED._replace(vacated=True)
FAILED = KafkaFailure("_TIMED_OUT", "")


def position(entry: Detached) -> Position:
    return Position(5, encode(CommitMetadata(detached={5: entry}), 5))


@pytest.mark.parametrize(
    ("task", "recorded", "visible", "mark"),
    [
        (VACATED, True, position(VACATED), ABSENT),
        (VACATED, True, position(NAMED), None),
        (VACATED, True, None, None),
        (VACATED, True, FAILED, UNKNOWN),
        (VACATED, False, position(NAMED), ABSENT),
        (NAMED, True, position(NAMED), ABSENT),
    ],
    ids=["visible", "replaced-or-not-yet-visible", "nothing-committed", "no-reply", "not-recorded", "not-vacated"],
)
def test_the_mark_of_a_vacated_task_counts_only_once_its_holder_can_see_that(
    task: Detached, recorded: bool, visible: Position | KafkaFailure | None, mark: Mark | None
) -> None:
    """The commit of the vacated entry is confirmed, but another process may still read the entry before it."""

    class Client:
        def committed(self, group: str, _: Partition, *, stable: bool) -> Position | KafkaFailure | None:
            if group == mark_group("workers", PLACE, 5, task.holder):
                assert stable
                return None
            assert (group, stable) == ("workers", False), "as the holder reads it"
            return visible

    client: Any = Client()
    assert _read(client, "workers", _Watched(OwnedPartition(PLACE), 5, task, recorded)) == mark
